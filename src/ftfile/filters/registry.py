"""Filters by name. A filter's module, and what it needs, is imported when that filter is asked for."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, cast

from ftfile.core.errors import ConfigError
from ftfile.core.extensions import load_class
from ftfile.filters.api import Filter

if TYPE_CHECKING:
    from ftfile.filters.codecs import Codec

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

ENCRYPTION = {"aes-gcm": "ftfile.filters.aes_gcm:AesGcm"}

_PACKAGES = {"zstd": "zstandard"}  # that the extra of a codec's name installs


def codec(name: str, level: int | None = None) -> Codec:
    """Return a codec; `ConfigError` if its package is missing, or it has no such level."""
    made = cast("Codec", filter_class(name).from_definition({"level": level}))
    if level is None:
        return made
    if made.levels is None:
        raise ConfigError(f"compressionLevel={level} with compression={name}: it has no levels")
    low, high = made.levels
    if not low <= level <= high:
        raise ConfigError(f"option compressionLevel={level}: for {name} it takes {low} to {high}")
    return made


def filter_class(name: str) -> type[Filter]:
    """Return the class of a filter; `ConfigError` if there is none, or it cannot be loaded."""
    found = load_class("filter", name, CODECS | ENCRYPTION, ENTRY_POINT_GROUP, Filter)  # type: ignore[type-abstract]
    if name in _PACKAGES:
        try:
            pkgutil.resolve_name(_PACKAGES[name])
        except ImportError as error:
            raise ConfigError(
                f"compression={name} needs a package that is not installed here ({error}): "
                f"pip install 'ftfile[{name}]', on the driver and on the executors"
            ) from error
    return found
