"""Endings of names by which readers decompress: what is not compressed so must not have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.filters.registry import CODECS

if TYPE_CHECKING:
    from ftfile.filters.chain import Chain

__all__ = ("check_extension", "ending_fault")

# Of Spark and Hadoop, DuckDB and pandas. Some fail on other bytes, and Hadoop's LZ4 takes them for lengths of what it
# then makes room for.
_OF_CODECS = (".gz", ".zst", ".lz4", ".snappy", ".bz2", ".deflate", ".xz")


def check_extension(extension: str, chain: Chain) -> None:
    """Refuse an extension of a codec that is not the last thing that happens to the bytes.

    Args:
        extension: of the format, and of all filters.
        chain: the filters.

    Raises:
        ConfigError: see above; what asked for it is an encoder or a filter of the user's.
    """
    last = next((each for each in reversed(chain.filters) if each.extension), None)
    fault = ending_fault(extension, last.extension if last is not None and last.name in CODECS else "")
    if fault is not None:
        raise ConfigError(f"files {fault}; give the class of the encoder, or of the filter, another extension")


def ending_fault(name: str, extension: str) -> str | None:
    """Return what is wrong with the end of a name, as in "it … ", or None.

    Args:
        name: of a file.
        extension: what such files end in, which is right.
    """
    ending = "." + name.rpartition(".")[2]
    if ending.lower() not in _OF_CODECS or extension.endswith(ending.lower()):
        return None
    return f"would end in {ending!r}, by which readers decompress: what is in them is not compressed so"
