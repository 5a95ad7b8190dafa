"""docs/options.md from the option table: `python .ci/options.py`."""

from __future__ import annotations

import sys
from typing import Any

from ftfile.core.options import kinds
from ftfile.core.options.table import ELSEWHERE, GROUPS, NOT_OFFERED

_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_DURATIONS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}

_HEAD = """# Options

Made from the option table by `make docs`; do not edit. Keys may be written in any case. An unknown key is an
error that names the nearest known one; a value that is not understood is an error that says what is accepted. What is
for `follow` is for `spark.readStream`, `files` is for it with `fileFormat`, `read` is for `spark.read`. `ftkv-write`,
`ftkv-read` and `ftkv-follow` (`readStream` with `readChangeFeed`) are for [keyed stores](keyed-state.md),
`format("ftkv")`; all others are for `format("ftfile")`.
"""


def to_markdown() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    for title, options in GROUPS.items():
        lines += [f"## {title}", "", "| option | for | default | takes | meaning |", "|---|---|---|---|---|"]
        lines += [*map(_row, options), ""]
    lines += ["## Not offered", "", "| you wrote | answer |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in NOT_OFFERED.items()]
    lines += ["", "## The same thing by other systems' names", "", "| you wrote | answer |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(text)} |" for name, text in ELSEWHERE.items()]
    return "\n".join(lines) + "\n"


def _row(option: kinds.Option) -> str:
    uses = ", ".join(sorted(option.used_by, reverse=True))
    kinds = f" ({', '.join(option.formats)})" if option.formats else ""
    default = _default(option)
    return f"| `{option.name}` | {uses}{kinds} | {default} | {_cell(option.kind.accepts)} | {_cell(option.doc)} |"


def _default(option: kinds.Option) -> str:
    if option.default_text:
        return option.default_text
    value: Any = option.default
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        text = str(value).lower()
    elif option.kind is kinds.SIZE:
        text = _in_units(value, _SIZES)
    elif option.kind is kinds.DURATION:
        text = _in_units(value, _DURATIONS)
    else:
        text = str(value).replace("\n", "\\n")
    return f"`{_cell(text)}`"


def _in_units(value: float, units: dict[str, int]) -> str:
    """Return the shortest exact text of a size or a duration."""
    name, unit = next(((name, unit) for name, unit in units.items() if value and value % unit == 0), ("", 1))
    return f"{value / unit:.12g}{name or [*units][-1]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(to_markdown())
