"""docs/options.md from the table: `python -m ftfile.core.options.document`."""

from __future__ import annotations

import sys
from typing import Any

from ftfile.core.options import kinds
from ftfile.core.options.table import ELSEWHERE, GROUPS, NOT_OFFERED
from ftfile.core.units import format_duration, format_size

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
        text = format_size(value)
    elif option.kind is kinds.DURATION:
        text = format_duration(value)
    else:
        text = str(value).replace("\n", "\\n")
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.stdout.write(to_markdown())
