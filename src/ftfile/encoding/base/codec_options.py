"""`compression` and `compressionLevel` of the formats that compress within the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ("codec_from_options",)

_BY_ARROW = {"deflate": "gzip"}  # whose levels are the same


def codec_from_options(
    format_name: str,
    options: Mapping[str, Any],
    known: Collection[str],
    leveled: Collection[str],
    default: str = "zstd",
) -> tuple[str, int | None]:
    """Return the codec and its level, None where none was given.

    Args:
        format_name: for messages.
        options: parsed, by their names in the option table.
        known: the format's codecs.
        leveled: those of them that have levels.
        default: the codec if none was given.

    Raises:
        ConfigError: the format has no such codec, or the codec no such level.
    """
    compression, level = options.get("compression") or default, options.get("compressionLevel")
    if compression not in known:
        raise ConfigError(f"option compression={compression!r}: for {format_name} it takes {', '.join(known)}")
    if level is not None:
        if compression not in leveled:
            advice = f"only {', '.join(leveled)} have levels" if leveled else f"no codec of {format_name} has levels"
            raise ConfigError(f"compressionLevel={level} with compression={compression}: {advice}")
        name = _BY_ARROW.get(compression, compression)
        low, high = pa.Codec.minimum_compression_level(name), pa.Codec.maximum_compression_level(name)
        if not low <= level <= high:
            raise ConfigError(f"option compressionLevel={level}: for {compression} it takes {low} to {high}")
    return compression, level
