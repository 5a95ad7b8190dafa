"""The table of codecs for line formats, which names, options, readers and migrations use."""

from __future__ import annotations

from typing import NamedTuple


class LineCodec(NamedTuple):
    """A row of the table."""

    name: str  # in the option `compression` and in the log
    ending: str  # of file names; files of other programs are decompressed by it
    code: str  # `module:Class` of its filter, below `ftfile.filters`
    has_checksum: bool = True  # in each frame, so that damage is found without the log
    is_known_to_readers: bool = True  # Spark, Hadoop, DuckDB or pandas decompress files with the ending
    package: str = ""  # an additional package; the extra with the name of the codec installs it


_TABLE = (
    LineCodec("gzip", ".gz", "codecs:Gzip"),
    LineCodec("zstd", ".zst", "codecs:Zstd", package="zstandard"),
    LineCodec("lz4", ".lz4", "hadoop_codecs:Lz4Blocks", has_checksum=False),
    LineCodec("lz4frame", ".lz4f", "codecs:Lz4Frame", is_known_to_readers=False),
    LineCodec("snappy", ".snappy", "hadoop_codecs:SnappyBlocks", has_checksum=False),
    LineCodec("bzip2", ".bz2", "codecs:Bzip2"),
    LineCodec("xz", ".xz", "codecs:Xz"),
)
# The ending of files that `encryption=aes-gcm` has encrypted; it follows the ending of the codec.
ENCRYPTED_ENDING = ".enc"
ENCRYPTION_FILTER = "aes-gcm"
CODECS = {codec.name: codec for codec in _TABLE}

# Other readers decompress files with these endings. For a file that is not compressed, some of them fail, and Hadoop's
# LZ4 allocates memory for a length that it reads from the first bytes.
READERS_ENDINGS = frozenset({".deflate", *(codec.ending for codec in _TABLE if codec.is_known_to_readers)})


def codec_of(path: str) -> str:
    """Return the codec for the ending of a path; empty for no codec."""
    for codec in _TABLE:
        if path.endswith(codec.ending):
            return codec.name
    return ""


def is_encrypted(path: str) -> bool:
    """Return True if the path has the ending of encrypted files."""
    return path.endswith(ENCRYPTED_ENDING)


def filters_of_name(path: str) -> tuple[str, ...]:
    """Return the filters for the endings of a file name, in the order in which they were applied."""
    filters = []
    codec = codec_of(path.removesuffix(ENCRYPTED_ENDING))
    if codec:
        filters.append(codec)
    if is_encrypted(path):
        filters.append(ENCRYPTION_FILTER)
    return tuple(filters)
