"""The codecs of the formats that compress within the file, and their options `compression` and `compressionLevel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("CODECS", "Codec", "codec_from_options")


class Codec(NamedTuple):
    """A codec in a format.

    Attributes:
        label: what files of the format call it: in their names, but in Avro within.
        level: the one that costs little, used where none is given; None where the format's writer takes none.
    """

    label: str = ""
    level: int | None = None


# By the names of Spark, but for Avro's zstandard. Parquet's lz4 is LZ4_RAW, which is what today's readers mean by it;
# ORC's writer knows lz4, too, and stores everything as it is.
CODECS: dict[str, dict[str, Codec]] = {
    "parquet": {
        "none": Codec(),
        "snappy": Codec(".snappy"),
        "gzip": Codec(".gz", 6),
        "zstd": Codec(".zstd", 1),
        "lz4": Codec(".lz4raw"),
        "brotli": Codec(".br", 4),
    },
    "orc": {"none": Codec(), "snappy": Codec(".snappy"), "zlib": Codec(".zlib"), "zstd": Codec(".zstd")},
    "avro": {
        "none": Codec("null"),
        "deflate": Codec("deflate", 1),
        "snappy": Codec("snappy"),
        "zstd": Codec("zstandard", 1),
    },
    "arrow": {"none": Codec(), "lz4": Codec(), "zstd": Codec(level=1)},
}

_BY_ARROW = {"deflate": "gzip"}  # whose levels are the same


def codec_from_options(
    format_name: str, known: Mapping[str, Codec], options: Mapping[str, Any], default: str
) -> tuple[str, int | None]:
    """Return the codec and its level, None where none was given.

    Args:
        format_name: for messages.
        known: the format's codecs.
        options: parsed, by their names in the option table.
        default: the codec if none was given.

    Raises:
        ConfigError: the format has no such codec, or the codec no such level.
    """
    compression, level = options.get("compression") or default, options.get("compressionLevel")
    if compression not in known:
        raise ConfigError(f"option compression={compression!r}: for {format_name} it takes {', '.join(known)}")
    if level is not None:
        if known[compression].level is None:
            leveled = [name for name, codec in known.items() if codec.level is not None]
            advice = f"only {', '.join(leveled)} have levels" if leveled else f"no codec of {format_name} has levels"
            raise ConfigError(f"compressionLevel={level} with compression={compression}: {advice}")
        name = _BY_ARROW.get(compression, compression)
        low, high = pa.Codec.minimum_compression_level(name), pa.Codec.maximum_compression_level(name)
        if not low <= level <= high:
            raise ConfigError(f"option compressionLevel={level}: for {compression} it takes {low} to {high}")
    return compression, level
