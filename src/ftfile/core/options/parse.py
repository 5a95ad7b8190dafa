"""From what the user wrote to checked values; every mistake is an error that says what to write instead."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ftfile.core.errors import ConfigError
from ftfile.core.options.encryption import ENCRYPTION
from ftfile.core.options.kinds import FORMATS, Option
from ftfile.core.options.table import ELSEWHERE, NOT_OFFERED, OPTIONS, OWN_PREFIXES, SPARK_KEYS, STORAGE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("ParsedOptions", "Use", "parse_options")

Use: TypeAlias = Literal["write", "read", "follow", "files"]

_USES: dict[str, str] = {
    "write": "writing",
    "read": "reading",
    "follow": "following (`readStream`)",
    "files": "streams of foreign files (`readStream` with `fileFormat`)",
}
_BY_KEY = {option.name.lower(): option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """Checked values: what was given, over the defaults."""

    given: dict[str, Any]  # by the table's spelling, only what the user wrote
    spark: dict[str, str]  # Spark's own keys, in lower case
    own: dict[str, str]  # `prefix.<name>`, in lower case: for the user's own code, and for the file system

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as many types as options
        return self.given[name] if name in self.given else _BY_KEY[name.lower()].default

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options `prefix.<name>` by that name."""
        return {key[len(prefix) + 1 :]: text for key, text in self.own.items() if key.startswith(f"{prefix}.")}

    def for_format(self, format_name: str) -> dict[str, Any]:
        """Return the given options that belong to a format; a ConfigError for one that belongs to others only."""
        found = {}
        for name, value in self.given.items():
            formats = _BY_KEY[name.lower()].formats
            if formats not in {(), FORMATS} and format_name not in formats:
                elsewhere = "; what separates fields is sep" if (name, format_name) == ("delimiter", "csv") else ""
                raise ConfigError(
                    f"option {name!r} is for fileFormat={'|'.join(formats)}, and fileFormat is {format_name}{elsewhere}"
                )
            if formats:
                found[name] = value
        return found


def parse_options(raw: Mapping[str, str], *uses: Use) -> ParsedOptions:
    """Check names and values for any of the uses; keys in any case.

    Raises:
        ConfigError: names the option, the value, what is accepted, and the nearest known name.
    """
    parsed = ParsedOptions({}, {}, {})
    for key, text in raw.items():
        lower = key.lower()
        if lower in SPARK_KEYS or lower.startswith("option."):
            parsed.spark[lower] = text
            continue
        if (lower.startswith(OWN_PREFIXES) and "write" in uses) or lower.startswith(STORAGE_PREFIX):
            parsed.own[lower] = text
            continue
        option = _BY_KEY.get(lower)
        if option is None:
            raise ConfigError(_unknown(key, uses))
        if option.used_by.isdisjoint(uses):
            meant = " and ".join(name for use, name in _USES.items() if use in option.used_by)
            raise ConfigError(f"option {option.name!r} is for {meant}, not for {_USES[uses[0]]}")
        parsed.given[option.name] = _parse(option, text)
    return parsed


def _parse(option: Option, text: str) -> Any:  # noqa: ANN401 - as many types as options
    try:
        return option.kind.parse(text)
    except ValueError:
        # What stands where encryption is asked for may be a key.
        shown = option.name if option in ENCRYPTION else f"{option.name}={text!r}"
        raise ConfigError(f"option {shown} is not understood: it takes {option.kind.accepts}") from None


def _unknown(key: str, uses: tuple[Use, ...]) -> str:
    lower = key.lower()
    if lower in NOT_OFFERED:
        return NOT_OFFERED[lower]
    if lower in ELSEWHERE:
        return f"there is no option {key!r}: {ELSEWHERE[lower]}"
    names = {option.name.lower(): option.name for option in OPTIONS if not option.used_by.isdisjoint(uses)}
    near = [names[match] for match in difflib.get_close_matches(lower, names, n=3, cutoff=0.6)]
    if near:
        return f"there is no option {key!r}: did you mean {' or '.join(near)}?"
    return f"there is no option {key!r}; the options are {', '.join(sorted(names.values(), key=str.lower))}"
