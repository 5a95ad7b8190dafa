"""The options: one table is the only spelling, of which parsing and errors are made.

From what the user wrote to checked values; every mistake is an error that says what to write instead.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ftfile.core.errors import ConfigError
from ftfile.core.options.kinds import FILES, FORMATS, OF_FILES, STORE_WRITE, STORES, WRITE, Kind, Option
from ftfile.core.options.table import (
    ELSEWHERE,
    ENCRYPTION,
    OPTIONS,
    OWN_PREFIXES,
    SPARK_KEYS,
    STORAGE_PREFIX,
    STORE_ELSEWHERE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = (
    "OPTIONS",
    "STORAGE_PREFIX",
    "Kind",
    "Option",
    "ParsedOptions",
    "Settings",
    "Use",
    "parse_options",
    "values_of_fields",
)


# Names and texts, sorted by name: as keys of caches and fields of pickled settings.
Settings: TypeAlias = tuple[tuple[str, str], ...]
Use: TypeAlias = Literal["write", "read", "follow", "files", "ftkv-write", "ftkv-read", "ftkv-follow"]

_USES: dict[str, str] = {
    "write": "writing",
    "read": "reading",
    "follow": "following (`readStream`)",
    "files": "streams of foreign files (`readStream` with `fileFormat`)",
    "ftkv-write": "writing keyed stores (`ftkv`)",
    "ftkv-read": "reading keyed stores (`ftkv`)",
    "ftkv-follow": "reading the changes of keyed stores (`ftkv` with `readChangeFeed`)",
}


_READS = ("read", "ftkv-read")
_FOLLOWS = ("follow", "ftkv-follow")
# Of options that choose the version that is read, those that choose where a stream begins.
_BEGINNINGS = {"versionAsOf": "startingVersion", "timestampAsOf": "startingTimestamp"}
_OF_A_VERSION = "the log describes how a version is read: leave it out"

_CAPITAL = re.compile("[A-Z]")

_SHOWN_MAX = 100  # of the characters of a value that is not understood

# How alike names are that are proposed for one another: others mislead, as blockSize for parquet.block.size.
_NEAR = 0.75


def _by_key() -> dict[str, list[Option]]:
    """Return the options by name in lower case; one of files and one of stores may have the same."""
    options: dict[str, list[Option]] = {}
    for option in OPTIONS:
        options.setdefault(option.name.lower(), []).append(option)
    return options


_BY_KEY = _by_key()


def _option(name: str, uses: Iterable[Use]) -> Option | None:
    """Return the option of a name that is for one of the uses, or else any of that name."""
    options = _BY_KEY.get(name.lower(), [])
    return next((option for option in options if not option.used_by.isdisjoint(uses)), options[0] if options else None)


@functools.cache
def _defaults(uses: tuple[Use, ...]) -> dict[str, Any]:
    """Return the default of every option by its name, as it is for these uses."""
    options = {option.name: _option(option.name, uses) or option for option in OPTIONS}
    return {name: option.default for name, option in options.items()}


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """Checked values: what was given, over the defaults."""

    given: dict[str, Any]  # by the table's spelling, only what the user wrote
    spark: dict[str, str]  # Spark's own keys, in lower case
    own: dict[str, str]  # `prefix.<name>`, in lower case: for the user's own code, and for the file system
    uses: tuple[Use, ...]
    texts: dict[str, str] = field(default_factory=dict)  # of `given`, as the user wrote them

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as many types as options
        return self.given[name] if name in self.given else _defaults(self.uses)[name]

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options `prefix.<name>` by that name, in lower case."""
        start = f"{prefix.lower()}."
        return {key.removeprefix(start): text for key, text in self.own.items() if key.startswith(start)}

    def for_format(self, format_name: str) -> dict[str, Any]:
        """Return the given options that belong to a format; a ConfigError for one that belongs to others only."""
        values = {}
        for name, value in self.given.items():
            option = _option(name, self.uses)
            formats = option.formats if option is not None else ()
            if formats not in {(), FORMATS} and format_name not in formats:
                elsewhere = "; use sep to separate fields" if (name, format_name) == ("delimiter", "csv") else ""
                raise ConfigError(
                    f"option {name!r} is for fileFormat={'|'.join(formats)}, but fileFormat is {format_name}{elsewhere}"
                )
            if formats:
                values[name] = value
        return values


def parse_options(raw: Mapping[str, str], *uses: Use) -> ParsedOptions:
    """Check names and values for any of the uses; keys in any case.

    Raises:
        ConfigError: names the option, the value, what is accepted, and the nearest known name.
    """
    parsed = ParsedOptions({}, {}, {}, uses)
    for key, text in raw.items():
        lower = key.lower()
        if lower in SPARK_KEYS or lower.startswith("option."):
            parsed.spark[lower] = text
            continue
        if (lower.startswith(OWN_PREFIXES) and "write" in uses) or lower.startswith(STORAGE_PREFIX):
            parsed.own[lower] = text
            continue
        option = _option(lower, uses)
        if option is None or option.used_by.isdisjoint(uses):
            raise ConfigError(_unknown(key, uses) if option is None else _misplaced(option, uses))
        parsed.given[option.name], parsed.texts[option.name] = _parse(option, text), text
    return parsed


def values_of_fields(settings: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options, by their names, that are fields of a dataclass, by the names of the fields.

    A field has the name of its option in snake case. None is no value.
    """
    names = {field.name for field in fields(settings)}
    by_field = {_CAPITAL.sub(lambda match: f"_{match[0].lower()}", name): value for name, value in values.items()}
    return {name: value for name, value in by_field.items() if name in names and value is not None}


def _parse(option: Option, text: str) -> Any:  # noqa: ANN401 - as many types as options
    try:
        return option.kind.parse(text)
    except ValueError:
        # What stands where encryption is asked for may be a key.
        cut = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
        shown = option.name if option in ENCRYPTION else f"{option.name}={cut!r}"
        raise ConfigError(f"option {shown} is not understood: it takes {option.kind.accepts}") from None


def _misplaced(option: Option, uses: tuple[Use, ...]) -> str:
    mine, here = _family(uses), _USES[uses[0]]
    is_foreign = option.used_by.isdisjoint(mine)
    meant = " and ".join(name for use, name in _USES.items() if use in option.used_by and (is_foreign or use in mine))
    if is_foreign and mine == STORES:
        meant = f"files (`ftfile`): {meant}"
    elif is_foreign:
        here = f"files (`ftfile`): {here}"
    hint = _elsewhere(uses).get(option.name.lower())
    if uses[0] in _FOLLOWS and option.name in _BEGINNINGS:
        hint = f"set the start of a stream with {_BEGINNINGS[option.name]}"
    if hint is None and uses[0] in _READS and not option.used_by.isdisjoint(WRITE | STORE_WRITE | FILES):
        hint = _OF_A_VERSION
    return f"option {option.name!r} is for {meant}, not for {here}" + (f"; {hint}" if hint else "")


def _family(uses: tuple[Use, ...]) -> frozenset[str]:
    return STORES if STORES.issuperset(uses) else OF_FILES


def _elsewhere(uses: tuple[Use, ...]) -> dict[str, str]:
    return STORE_ELSEWHERE if _family(uses) == STORES else ELSEWHERE


def _unknown(key: str, uses: tuple[Use, ...]) -> str:
    lower = key.lower()
    elsewhere = _elsewhere(uses)
    answer = elsewhere.get(lower) or elsewhere.get(f"{lower[: lower.find('.') + 1]}*")
    if answer is not None:
        return f"there is no option {key!r}: {answer}"
    import difflib  # noqa: PLC0415 - for mistakes alone

    names = {option.name.lower(): option for option in OPTIONS if not option.used_by.isdisjoint(_family(uses))}
    near = [names[match] for match in difflib.get_close_matches(lower, names, n=3, cutoff=_NEAR)]
    usable = [option.name for option in near if not option.used_by.isdisjoint(uses)]
    if near and near[0].name not in usable:
        return f"there is no option {key!r}, and {_misplaced(near[0], uses)}"
    if usable:
        return f"there is no option {key!r}: did you mean {' or '.join(usable)}?"
    usable_names = [option.name for option in names.values() if not option.used_by.isdisjoint(uses)]
    return f"there is no option {key!r}; the options are {', '.join(sorted(usable_names, key=str.lower))}"
