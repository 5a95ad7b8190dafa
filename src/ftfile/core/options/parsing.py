"""Parsing of options by the option table; each mistake is an error that names the correct option or value."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ftfile.core.errors import ConfigError
from ftfile.core.options.declaration import attribute_name
from ftfile.core.options.kinds import FILES, OF_FILES, STORE_WRITE, STORES, WRITE
from ftfile.core.options.table import (
    ELSEWHERE,
    OPTIONS,
    OWN_PREFIXES,
    SPARK_KEYS,
    STORAGE_PREFIX,
    STORE_ELSEWHERE,
    option_named,
)
from ftfile.core.options.typed import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.options.declaration import Option
    from ftfile.core.options.typed import Use

__all__ = ("Settings", "parse_options", "values_of_fields")


# Names and texts, sorted by name, which are hashable for caches and pickles.
Settings: TypeAlias = tuple[tuple[str, str], ...]

_USES: dict[str, str] = {
    "write": "writing",
    "read": "reading",
    "follow": "following (`readStream`)",
    "files": "streams of other programs' files (`readStream` with `fileFormat`)",
    "ftkv-write": "writing keyed stores (`ftkv`)",
    "ftkv-read": "reading keyed stores (`ftkv`)",
    "ftkv-follow": "reading the changes of keyed stores (`ftkv` with `readChangeFeed`)",
}


_READS = ("read", "ftkv-read")
_FOLLOWS = ("follow", "ftkv-follow")
# The options that set the start of a stream, by the option that selects a version of a batch read.
_BEGINNINGS = {"versionAsOf": "startingVersion", "timestampAsOf": "startingTimestamp"}
_OF_A_VERSION = "the log describes how a version is read: leave it out"

_SHOWN_MAX = 100  # characters of a wrong value
# The value of an option of encryption can be a key.
_NEVER_SHOWN = frozenset({"encryption", "encryptionKeyId", "keyProvider"})

# The similarity of names that are proposed. Less similar names mislead.
_NEAR = 0.75


_O = TypeVar("_O", bound=Options)


def parse_options(raw: Mapping[str, str], kind: type[_O], *also: Use) -> _O:
    """Check the names and values of options; names in any case.

    Args:
        raw: texts by name.
        kind: the class of the use.
        also: other uses whose options are accepted and checked; only `given` contains them.

    Raises:
        ConfigError: an option is unknown or its value is wrong; it names the accepted values, or similar options.
    """
    parsed = kind(raw)
    uses = (kind.USE, *also)
    for key, text in raw.items():
        lower = key.lower()
        if lower in SPARK_KEYS or lower.startswith("option."):
            parsed.spark[lower] = text
            continue
        if (lower.startswith(OWN_PREFIXES) and "write" in uses) or lower.startswith(STORAGE_PREFIX):
            parsed.own[lower] = text
            continue
        option = option_named(lower, uses)
        if option is None or option.used_by.isdisjoint(uses):
            raise ConfigError(_describe_unknown(key, uses) if option is None else _describe_misplaced(option, uses))
        parsed.set(option, _parse(option, text), text)
    return parsed


def values_of_fields(settings: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options that are fields of a dataclass, by field.

    A field has the name of its option in snake case. None is left out.
    """
    names = {field.name for field in fields(settings)}
    by_field = {}
    for name, value in values.items():
        by_field[attribute_name(name)] = value
    return {name: value for name, value in by_field.items() if name in names and value is not None}


def _parse(option: Option[Any], text: str) -> Any:  # noqa: ANN401 - as many types as options
    try:
        return option.kind.parse(text)
    except ValueError:
        if len(text) <= _SHOWN_MAX:
            cut = text
        else:
            cut = f"{text[:_SHOWN_MAX]}…"
        if option.name in _NEVER_SHOWN:
            shown = option.name
        else:
            shown = f"{option.name}={cut!r}"
        raise ConfigError(f"option {shown} is not understood: it takes {option.kind.accepts}") from None


def _describe_misplaced(option: Option[Any], uses: tuple[Use, ...]) -> str:
    mine, here = _family(uses), _USES[uses[0]]
    is_foreign = option.used_by.isdisjoint(mine)
    meant = " and ".join(name for use, name in _USES.items() if use in option.used_by and (is_foreign or use in mine))
    if is_foreign and mine == STORES:
        meant = f"files (`ftfile`): {meant}"
    elif is_foreign:
        here = f"files (`ftfile`): {here}"
    hint = _find_elsewhere(uses).get(option.name.lower())
    if uses[0] in _FOLLOWS and option.name in _BEGINNINGS:
        hint = f"set the start of a stream with {_BEGINNINGS[option.name]}"
    if hint is None and uses[0] in _READS and not option.used_by.isdisjoint(WRITE | STORE_WRITE | FILES):
        hint = _OF_A_VERSION
    return f"option {option.name!r} is for {meant}, not for {here}" + (f"; {hint}" if hint else "")


def _family(uses: tuple[Use, ...]) -> frozenset[str]:
    if STORES.issuperset(uses):
        return STORES
    return OF_FILES


def _find_elsewhere(uses: tuple[Use, ...]) -> dict[str, str]:
    if _family(uses) == STORES:
        return STORE_ELSEWHERE
    return ELSEWHERE


def _describe_unknown(key: str, uses: tuple[Use, ...]) -> str:
    lower = key.lower()
    elsewhere = _find_elsewhere(uses)
    answer = elsewhere.get(lower) or elsewhere.get(f"{lower[: lower.find('.') + 1]}*")
    if answer is not None:
        return f"there is no option {key!r}: {answer}"
    import difflib  # noqa: PLC0415 - only needed for mistakes

    names = {}
    for option in OPTIONS:
        if not option.used_by.isdisjoint(_family(uses)):
            names[option.name.lower()] = option
    near = []
    for match in difflib.get_close_matches(lower, names, n=3, cutoff=_NEAR):
        near.append(names[match])
    usable = [option.name for option in near if not option.used_by.isdisjoint(uses)]
    if near and near[0].name not in usable:
        return f"there is no option {key!r}, and {_describe_misplaced(near[0], uses)}"
    if usable:
        return f"there is no option {key!r}: did you mean {' or '.join(usable)}?"
    usable_names = [option.name for option in names.values() if not option.used_by.isdisjoint(uses)]
    return f"there is no option {key!r}; the options are {', '.join(sorted(usable_names, key=str.lower))}"
