"""Filters by name. A filter's module, and what it needs, is imported when that filter is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from ftfile.core.errors import ConfigError
from ftfile.core.extensions import load_extension
from ftfile.filters.api import Filter

if TYPE_CHECKING:
    from ftfile.filters.codecs import Codec

__all__ = ("CODECS", "ENCRYPTION", "ENTRY_POINT_GROUP", "codec", "filter_class")

ENTRY_POINT_GROUP = "ftfile.filters"

CODECS = {
    "gzip": "ftfile.filters.codecs:Gzip",
    "zstd": "ftfile.filters.codecs:Zstd",
    "lz4": "ftfile.filters.hadoop_codecs:Lz4Blocks",
    "lz4frame": "ftfile.filters.codecs:Lz4Frame",
    "snappy": "ftfile.filters.hadoop_codecs:SnappyBlocks",
    "bzip2": "ftfile.filters.codecs:Bzip2",
    "xz": "ftfile.filters.codecs:Xz",
}

# Each goes around all of a file, once, and last.
ENCRYPTION = {"aes-gcm": "ftfile.filters.aes_gcm:AesGcm"}

# The codecs that need a package of the extra of their name.
_PACKAGES = {"zstd": "zstandard"}


def codec(name: str, level: int | None = None) -> Codec:
    """Return the codec called `name`.

    Raises:
        ConfigError: its package is missing, or it has no such level.
    """
    made = cast("Codec", filter_class(name).from_definition({"level": level}))
    if level is not None and made.levels is None:
        raise ConfigError(f"compressionLevel={level} with compression={name}: it has no levels")
    if level is not None and made.levels is not None and not made.levels[0] <= level <= made.levels[1]:
        low, high = made.levels
        raise ConfigError(f"option compressionLevel={level}: for {name} it takes {low} to {high}")
    return made


def filter_class(name: str) -> type[Filter]:
    """Return the class of the filter called `name`.

    Raises:
        ConfigError: there is none, or it cannot be loaded.
    """
    found = load_extension("filter", name, CODECS | ENCRYPTION, ENTRY_POINT_GROUP)
    if not (isinstance(found, type) and issubclass(found, Filter)):
        raise ConfigError(f"the filter {name!r} is {found!r}, which is no class derived from ftfile.filters.api.Filter")
    if found.name != name:  # the log would name one that readers do not find
        raise ConfigError(f"the filter {name!r} calls itself {found.name!r}: its entry point must have its name")
    if name in _PACKAGES:
        try:
            importlib.import_module(_PACKAGES[name])
        except ImportError as error:
            raise ConfigError(
                f"compression={name} needs a package that is not installed here ({error}): "
                f"pip install 'ftfile[{name}]', on the driver and on the executors"
            ) from error
    return found
