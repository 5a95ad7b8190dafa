"""The option table's facts put into docs/options.md: `python .ci/options.py` prints the page.

The page itself is the place of what an option means, and of a default that is no one value.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from ftfile.core.options import OPTIONS, Option, kinds
from ftfile.core.options.table import ELSEWHERE, NOT_OFFERED

PAGE = Path(__file__).parents[1] / "docs/options.md"

_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_DURATIONS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
_ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ((?:\\\||[^|])+) \| (?:\\\||[^|])+ \| (.+) \|$", re.MULTILINE)
_VALUE = re.compile("`[^`]*`")
# Kinds that many options take: the head of the page says once what they accept.
_SHORT = {
    kinds.SIZE: "a size",
    kinds.DURATION: "a duration",
    kinds.TIME: "a time",
    kinds.COUNT: "1 or more",
    kinds.VERSION: "0 or more",
    kinds.COLUMNS: "columns",
    kinds.NAMES: "names",
}


def to_markdown(page: str) -> str:
    """Return the page with what the table says of each option; it ends where an option has no whole row in the page."""
    options: dict[str, list[Option]] = {}
    for option in OPTIONS:
        options.setdefault(option.name, []).append(option)
    described = page.partition("## Not offered")[0]
    described = _ROW.sub(lambda match: _row(options[match[1]].pop(0), match[2], match[3]), described)
    if lacking := [name for name, rows in options.items() if rows]:
        sys.exit(f"docs/options.md has no whole row, with a meaning, of {', '.join(lacking)}")
    lines = [described + "## Not offered", "", *_answers(NOT_OFFERED)]
    lines += ["", "## The same thing by other systems' names", "", *_answers(ELSEWHERE)]
    return "\n".join(lines) + "\n"


def _answers(answers: dict[str, str]) -> list[str]:
    """Return a table with one row for each answer, in the order of their first names."""
    names: dict[str, list[str]] = {}
    for name, text in answers.items():
        names.setdefault(text, []).append(f"`{name}`")
    rows = [f"| {', '.join(group)} | {_cell(text)} |" for text, group in names.items()]
    return ["| you wrote | answer |", "|---|---|", *rows]


def _row(option: Option, told: str, meaning: str) -> str:
    uses = ", ".join(sorted(option.used_by, reverse=True))
    formats = f" ({', '.join(option.formats)})" if option.formats else ""
    default = _default(option)
    # The page tells more of a default of the table, and in words what it is where the table has none.
    has_warned = not _VALUE.fullmatch(told) if default in {"none", "nothing"} else told.startswith(default)
    default = told if has_warned else default
    takes = _SHORT.get(option.kind, option.kind.accepts.removeprefix("one of "))
    return f"| `{option.name}` | {uses}{formats} | {default} | {_cell(takes)} | {meaning} |"


def _default(option: Option) -> str:
    value: Any = option.default
    if value is None or value == ():
        return "none"
    if value == "":
        return "nothing"
    if isinstance(value, bool):
        text = str(value).lower()
    elif option.kind is kinds.SIZE:
        text = _in_units(value, _SIZES)
    elif option.kind is kinds.DURATION:
        text = _in_units(value, _DURATIONS)
    else:
        text = (value.decode() if isinstance(value, bytes) else str(value)).replace("\n", "\\n")
    return f"`{_cell(text)}`"


def _in_units(value: float, units: dict[str, int]) -> str:
    """Return the shortest exact text of a size or a duration."""
    name, unit = next(((name, unit) for name, unit in units.items() if value and value % unit == 0), ("", 1))
    return f"{value / unit:.12g}{name or [*units][-1]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(to_markdown(PAGE.read_text()))
