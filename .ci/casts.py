"""Print docs/reading-files.md with the generated table of casts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ftfile.source.decoding.casts import CASTS, Cast

PAGE = Path(__file__).parents[1] / "docs/reading-files.md"

_TABLE = re.compile(r"(?<=<!-- casts -->\n)(?:\|.*\n)*")
_FORMATS = {"parquet": "Parquet", "orc": "ORC", "arrow": "Arrow"}


def to_markdown(page: str) -> str:
    """Return the page with a row for each cast."""
    rows = ["| type in the file | read as | values |", "|---|---|---|", *map(_row, CASTS)]
    return _TABLE.sub(lambda _: "".join(f"{row}\n" for row in rows), page)


def _row(cast: Cast) -> str:
    stored = ", ".join(map(_type, cast.stored))
    if len(cast.formats) < len(_FORMATS):
        stored += f" in {' and '.join(_FORMATS[name] for name in cast.formats)}"
    return f"| {stored} | {', '.join(map(_type, cast.target))} | {cast.values} |"


def _type(name: str) -> str:
    """Return the name of a type as code, followed by its other words as text."""
    first, _, rest = name.partition(" ")
    code = f"`{first}`" if first.isupper() or first.startswith("DECIMAL") else first
    return f"{code} {rest}".strip()


if __name__ == "__main__":
    sys.stdout.write(to_markdown(PAGE.read_text()))
