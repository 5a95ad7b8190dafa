"""Print a file that describes options, with the facts of their declarations.

- `page`: docs/options.md with the values and defaults. The page itself contains the meanings of the options, and
  defaults that are not a single value.
- `arguments`: the module with the keyword arguments of `ftfile.write`, with their types. Type checkers run no code, so
  they cannot derive them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ftfile.core.options import kinds
from ftfile.core.options.table import OPTIONS
from ftfile.core.options.typed import SinkOptions

if TYPE_CHECKING:
    from ftfile.core.options.declaration import Option

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs/options.md"
ARGUMENTS = _ROOT / "src/ftfile/operate/writers/sink_arguments.py"

_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_DURATIONS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
_TABLE = re.compile(r"^\| [^`|]+ \| takes \| meaning \|\n(\|---\|---\|---\|)\n((?:\|.*\n)+)", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)`[^|]* \| ((?:\\\||[^|])+) \| (.+) \|$")
_FIELDS = re.compile(r"^(?:    \w+: .*\n)+\Z", re.MULTILINE)
# Options that `ftfile.write` accepts as other arguments, and options of queries only.
_NO_ARGUMENTS = frozenset(
    {"path", "partitionOverwriteMode", "replaceWhere", "onNewQuery", "onGap", "txnAppId", "txnVersion"}
)
_VALUE = re.compile("`[^`]*`")
_DEFAULT = "default: "
_USES = ("write", "read", "follow", "files", "ftkv-write", "ftkv-read", "ftkv-follow")
# Kinds of many options: the head of the page describes their values once.
_SHORT = {
    kinds.BOOLEAN: "`true`, `false`",
    kinds.BYTES: r"text, with `\xff`, `\n`, `\r`, `\t`, `\0`, `\\`",
    kinds.CHARACTER: "a character",
    kinds.COLUMNS: "columns",
    kinds.COLUMN_AND_DURATION: "such as `ts:1h`",
    kinds.COUNT: "1 or more",
    kinds.DURATION: "a duration",
    kinds.FILE_RANGES: "such as `app.log:1024-2048`",
    kinds.LATEST_OR_VERSION: "`latest`, 0 or more",
    kinds.NAMES: "names",
    kinds.PATTERN: "a pattern",
    kinds.PERMISSION: "such as `640`",
    kinds.SIZE: "a size",
    kinds.TABLES: "`delta`, `iceberg`",
    kinds.TIME: "a time",
    kinds.VERSION: "0 or more",
}


def to_markdown(page: str) -> str:
    """Return the page with the facts of each option. Exit with an error if the page has no complete row of it."""
    options: dict[str, list[Option[Any]]] = {}
    for option in OPTIONS:
        options.setdefault(option.name, []).append(option)
    described = _TABLE.sub(lambda match: _table(options, match[2]), page)
    if lacking := [name for name, rows in options.items() if rows]:
        sys.exit(f"docs/options.md has no whole row, with a meaning, of {', '.join(lacking)}")
    return described


def _table(options: dict[str, list[Option[Any]]], rows: str) -> str:
    """Return a table. Its head names the use of most of its options; other options name it in their rows."""
    matches = [match for match in map(_ROW.match, rows.splitlines()) if match is not None and options[match[1]]]
    shown = [(options[match[1]].pop(0), match[2], match[3]) for match in matches]
    ((most, _),) = Counter(_uses(option) for option, _, _ in shown).most_common(1)
    lines = [f"| option for {most} | takes | meaning |", "|---|---|---|"]
    lines += [_row(option, takes, meaning, most) for option, takes, meaning in shown]
    return "".join(f"{line}\n" for line in lines)


def _uses(option: Option[Any]) -> str:
    return "all" if option.used_by == kinds.EVERYWHERE else ", ".join(sorted(option.used_by, key=_USES.index))


def _row(option: Option[Any], default: str, meaning: str, most: str) -> str:
    limits = [uses] if (uses := _uses(option)) != most else []
    limits += [", ".join(option.formats)] if option.formats not in {(), kinds.FORMATS} else []
    only = f" ({'; '.join(limits)})" if limits else ""
    return f"| `{option.name}`{only} | {_takes(option, default.partition(_DEFAULT)[2])} | {meaning} |"


def _takes(option: Option[Any], shown: str) -> str:
    """Return the values of an option, and its default: in bold, or in words of the page if it is not a single value."""
    takes = _cell(_SHORT.get(option.kind, option.kind.accepts.removeprefix("one of ")))
    default = _default(option)
    # The page adds words to a default of the table, or describes a default that the table does not have.
    if shown not in {"", default} and (shown.startswith(default) if default else not _VALUE.fullmatch(shown)):
        return f"{takes}; {_DEFAULT}{shown}"
    if not default:
        return takes
    return takes.replace(default, f"**{default}**") if default in takes else f"{takes}, **{default}**"


def _default(option: Option[Any]) -> str:
    """Return the default as code; an empty text if there is none."""
    value: Any = option.default
    if value in {None, (), ""}:
        return ""
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


def to_arguments(module: str) -> str:
    """Return the module with a field for each option of the sink."""
    fields = ""
    for option in SinkOptions.BY_NAME.values():
        if option.name not in _NO_ARGUMENTS:
            fields += f"    {option.attribute}: {option.kind.argument} | None\n"
    return _FIELDS.sub(lambda _: fields, module)


if __name__ == "__main__":
    if sys.argv[1] == "page":
        text = to_markdown(PAGE.read_text())
    else:
        text = to_arguments(ARGUMENTS.read_text())
    sys.stdout.write(text)
