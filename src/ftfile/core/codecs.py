"""The table of codecs of lines: the one place for what names, options, readers and migrations know of them."""

from __future__ import annotations

from typing import NamedTuple


class LineCodec(NamedTuple):
    """A row of the table."""

    name: str  # as `compression` and the log have it
    ending: str  # of names of files, by which foreign files are decompressed
    code: str  # `module:Class` of its filter, below `ftfile.filters`
    has_checksum: bool = True  # in each frame: damage is noticed without the log
    is_known_to_readers: bool = True  # some of Spark, Hadoop, DuckDB and pandas decompress by the ending
    package: str = ""  # to import, beyond those of ftfile itself; the extra of the codec's name installs it


_TABLE = (
    LineCodec("gzip", ".gz", "codecs:Gzip"),
    LineCodec("zstd", ".zst", "codecs:Zstd", package="zstandard"),
    LineCodec("lz4", ".lz4", "hadoop_codecs:Lz4Blocks", has_checksum=False),
    LineCodec("lz4frame", ".lz4f", "codecs:Lz4Frame", is_known_to_readers=False),
    LineCodec("snappy", ".snappy", "hadoop_codecs:SnappyBlocks", has_checksum=False),
    LineCodec("bzip2", ".bz2", "codecs:Bzip2"),
    LineCodec("xz", ".xz", "codecs:Xz"),
)
CODECS = {codec.name: codec for codec in _TABLE}

# By which other readers decompress. Some fail on other bytes, and Hadoop's LZ4 takes them for lengths of what it then
# makes room for.
READERS_ENDINGS = frozenset({".deflate", *(codec.ending for codec in _TABLE if codec.is_known_to_readers)})


def codec_of(path: str) -> str:
    """Return the name of the codec that the ending of a path names; empty for none."""
    return next((codec.name for codec in _TABLE if path.endswith(codec.ending)), "")


# Of names of files that `encryption=aes-gcm` has encrypted as a whole, behind that of their codec.
ENCRYPTED_ENDING = ".enc"
ENCRYPTION_FILTER = "aes-gcm"


def is_encrypted(path: str) -> bool:
    """Return True if the ending of a path says that the file is encrypted as a whole."""
    return path.endswith(ENCRYPTED_ENDING)


def filters_of_name(path: str) -> tuple[str, ...]:
    """Return the filters that the ending of a file's name tells, in the order in which they were applied."""
    codec = codec_of(path.removesuffix(ENCRYPTED_ENDING))
    return (*([codec] if codec else []), *([ENCRYPTION_FILTER] if is_encrypted(path) else []))
