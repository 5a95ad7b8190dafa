"""How safe rows are when the driver hears of them: as safe as the store can make them, or less if that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from ftfile.fs.api import Capabilities, Durability

__all__ = ("durability_of",)

# In the order of strength.
_MEANINGS: dict[Durability, str] = {
    "none": "keeps nothing once the process ends",
    "close": "makes files durable when they are closed, and not before",
    "hsync": "syncs",
}


def durability_of(asked: str, capabilities: Capabilities) -> Durability:
    """Return the durability of files of rows before the driver hears of them; `auto` is the strongest of the store."""
    if asked == "auto":
        return capabilities.durability
    found = next(each for each in _MEANINGS if each == asked)
    strengths = list(_MEANINGS)
    if strengths.index(found) > strengths.index(capabilities.durability):
        raise ConfigError(
            f"durability={asked}: the file system {capabilities.driver!r} {_MEANINGS[capabilities.durability]}; "
            "leave it out"
        )
    return found
