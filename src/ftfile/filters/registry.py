"""Filters by name. A filter's module, and what it needs, is imported when that filter is asked for."""

from __future__ import annotations

import pkgutil

from ftfile.core.errors import ConfigError
from ftfile.filters.api import Filter
from ftfile.filters.codecs.codec import Codec

__all__ = ("CODECS", "ENCRYPTION", "ENTRY_POINT_GROUP", "codec", "filter_class")

ENTRY_POINT_GROUP = "ftfile.filters"

CODECS = {
    "gzip": "ftfile.filters.codecs.gzip_stream:Gzip",
    "zstd": "ftfile.filters.codecs.zstd_stream:Zstd",
    "lz4": "ftfile.filters.codecs.lz4_blocks:Lz4Blocks",
    "lz4frame": "ftfile.filters.codecs.lz4_frame:Lz4Frame",
    "snappy": "ftfile.filters.codecs.snappy_blocks:SnappyBlocks",
    "bzip2": "ftfile.filters.codecs.bzip2_stream:Bzip2",
    "xz": "ftfile.filters.codecs.xz_stream:Xz",
}

# Each goes around all of a file, once, and last.
ENCRYPTION = {"aes-gcm": "ftfile.filters.aes_gcm:AesGcm"}

# The codecs that need a package of an extra.
_EXTRAS = {"zstd": "zstd"}

# The places of those that were loaded: to look them up takes as long as a small commit.
_found: dict[str, str] = {}


def codec(name: str, level: int | None = None) -> Codec:
    """Return the codec called `name`.

    Raises:
        ConfigError: its package is missing, or it has no such level.
    """
    made = filter_class(name).from_definition({"level": level})
    assert isinstance(made, Codec), f"{made} is not one of {CODECS}"
    levels = made.levels
    if level is not None and levels is None:
        raise ConfigError(f"compressionLevel={level} with compression={name}: it has no levels")
    if level is not None and levels is not None and not levels[0] <= level <= levels[1]:
        raise ConfigError(f"option compressionLevel={level}: for {name} it takes {levels[0]} to {levels[1]}")
    return made


def filter_class(name: str) -> type[Filter]:
    """Return the class of the filter called `name`.

    Raises:
        ConfigError: there is none, or it cannot be loaded.
    """
    place = CODECS.get(name) or ENCRYPTION.get(name) or _found.get(name) or _installed().get(name)
    if place is None:
        known = ", ".join(sorted({*CODECS, *ENCRYPTION, *_installed()}))
        raise ConfigError(
            f"there is no filter {name!r}; there are: {known}. Others come with packages that have an entry point of "
            f"the group {ENTRY_POINT_GROUP!r}, installed where the driver and the executors run"
        )
    try:
        found = pkgutil.resolve_name(place)
    except ImportError as error:
        if name in _EXTRAS:
            raise ConfigError(
                f"compression={name} needs a package that is not installed here ({error}): "
                f"pip install 'ftfile[{_EXTRAS[name]}]', on the driver and on the executors"
            ) from error
        raise ConfigError(f"the filter {name!r} cannot be loaded from {place!r}: {error}") from error
    except (AttributeError, ValueError) as error:
        raise ConfigError(f"the filter {name!r} cannot be loaded from {place!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Filter)):
        raise ConfigError(f"the filter {name!r} is {place!r}, which is no class derived from ftfile.filters.api.Filter")
    _found[name] = place
    return found


def _installed() -> dict[str, str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 25 ms, needed for foreign filters alone

    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)}
