"""Print docs/internals/format.md with the generated table of harmed files."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs/internals/format.md"

_DATA = runpy.run_path(str(_ROOT / "tests/unit/operate/harms.py"))
_TABLE = re.compile(r"(?<=<!-- harms -->\n)(?:\|.*\n)*")
_RESULTS = {"mended": "mended", "request": "on request", "copy": "restore it"}


def to_markdown(page: str) -> str:
    """Return the page with a row for each kind of file, and a second one if encrypted directories react differently."""
    rows = [f"| file | {' | '.join(_DATA['HARMS'])} |", f"|---|{'---|' * len(_DATA['HARMS'])}"]
    for name, cells in _DATA["MATRIX"].items():
        rows.append(_row(name, cells))
        if name in _DATA["ENCRYPTED"]:
            rows.append(_row(f"{name}, encrypted", _DATA["ENCRYPTED"][name]))
    return _TABLE.sub(lambda _: "".join(f"{row}\n" for row in rows), page)


def _row(name: str, cells: tuple[str, ...]) -> str:
    return f"| {name} | {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    if not text:
        return "-"
    severity, _, rest = text.partition(" ")
    finding, _, result = rest.rpartition(" ")
    return f"{severity} {finding if ' ' in finding else f'`{finding}`'}: {_RESULTS[result]}"


if __name__ == "__main__":
    sys.stdout.write(to_markdown(PAGE.read_text()))
