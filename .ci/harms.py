"""The table of harmed files put into docs/repair.md: `python .ci/harms.py` prints the page."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs/repair.md"

_DATA = runpy.run_path(str(_ROOT / "tests/unit/operate/harms.py"))
_TABLE = re.compile(r"(?<=<!-- harms -->\n)(?:\|.*\n)*")


def to_markdown(page: str) -> str:
    """Return the page with one row for all kinds of files that fare alike; encrypted ones are named apart."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, cells in _DATA["MATRIX"].items():
        names.setdefault(cells, []).append(name)
        if name in _DATA["ENCRYPTED"]:
            names.setdefault(_DATA["ENCRYPTED"][name], []).append(f"{name}, encrypted")
    rows = [f"| file | {' | '.join(_DATA['HARMS'])} |", f"|---|{'---|' * len(_DATA['HARMS'])}"]
    rows += [f"| {'; '.join(files)} | {' | '.join(map(_cell, cells))} |" for cells, files in names.items()]
    return _TABLE.sub(lambda _: "".join(f"{row}\n" for row in rows), page)


def _cell(text: str) -> str:
    """Return the code of a finding; severity and remedy are those of the code."""
    if not text:
        return "-"
    finding = text.partition(" ")[2].rpartition(" ")[0]
    return finding if " " in finding else f"`{finding}`"


if __name__ == "__main__":
    sys.stdout.write(to_markdown(PAGE.read_text()))
