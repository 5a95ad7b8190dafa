"""Classes by name: those that ftfile brings, and those that other packages name in their entry points."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("forget_extensions", "installed", "load_extension")

# `module:name` of entry points that were loaded: to look one up takes as long as a small commit.
_loaded: dict[tuple[str, str], str] = {}


def installed(group: str) -> dict[str, str]:
    """Return the entry points of a group: `module:name` by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 25 ms, needed for foreign code alone

    return {entry.name: entry.value for entry in entry_points(group=group)}


def forget_extensions() -> None:
    """Drop what this process knows of entry points, as a new process would start."""
    _loaded.clear()


def load_extension(what: str, name: str, built_in: Mapping[str, str], group: str, extra: str = "") -> Any:  # noqa: ANN401
    """Return the object called `name`, of `built_in` (`module:name` by name) or of an entry point of the group.

    Errors call it `what`, and name the extra of ftfile that brings the packages it needs.

    Raises:
        ConfigError: there is none of this name, or it cannot be loaded.
    """
    place = built_in.get(name) or _loaded.get((group, name)) or installed(group).get(name)
    if place is None:
        known = ", ".join(sorted({*built_in, *installed(group)}))
        raise ConfigError(
            f"there is no {what} {name!r}; there are: {known}. Others come with packages that have an entry point of "
            f"the group {group!r}, installed where the driver and the executors run"
        )
    try:
        found = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        advice = f": pip install 'ftfile[{extra}]', on the driver and on the executors" if extra else ""
        raise ConfigError(f"the {what} {name!r} cannot be loaded from {place!r}: {error}{advice}") from error
    if name not in built_in:
        _loaded[group, name] = place
    return found
