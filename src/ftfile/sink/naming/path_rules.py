"""Names that a store can keep, that no reader overlooks, and that stay within the directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.filters.chain import CODECS
from ftfile.fs.paths import NAME_BYTES_MAX

if TYPE_CHECKING:
    from ftfile.filters.chain import Chain

PATH_BYTES_MAX = 1_000  # some stores take 1,024, or less below a directory: see `PathCheck`

_HIDING = "_."
_HIDDEN_ENDING = "._COPYING_"
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f:\ud800-\udfff]")
# Of Spark and Hadoop, DuckDB and pandas. Some fail on other bytes, and Hadoop's LZ4 takes them for lengths of what it
# then makes room for.
_OF_CODECS = (".gz", ".zst", ".lz4", ".snappy", ".bz2", ".deflate", ".xz")


def path_fault(path: str, last_bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Return the defect of a path below the directory, as in "it … ", or None."""
    if path.startswith("/"):
        return "is absolute, and files stay below the directory"
    size_bytes = len(path.encode(errors="surrogatepass"))
    if size_bytes > PATH_BYTES_MAX:
        return f"has {size_bytes} bytes, and a path may have {PATH_BYTES_MAX}"
    *directories, last = path.split("/")
    return next(filter(None, map(name_fault, directories)), None) or name_fault(last, last_bytes_max)


def name_fault(name: str, bytes_max: int = NAME_BYTES_MAX) -> str | None:
    """Return the defect of the name of a file or directory, as in "it … ", or None."""
    if not name:
        return "has an empty part"
    if name in {".", ".."}:
        return f"has the part {name!r}, and files stay below the directory"
    if name[0] in _HIDING or name.endswith(_HIDDEN_ENDING):
        return f"has the part {name[:80]!r}, which readers overlook"
    forbidden = _FORBIDDEN.search(name)
    if forbidden is not None:
        return f"has the character {forbidden[0]!r}, which not every store takes"
    size_bytes = len(name.encode())
    return f"has a part of {size_bytes} bytes, and it may have {bytes_max}" if size_bytes > bytes_max else None


def check_extension(extension: str, chain: Chain) -> None:
    """Raise a ConfigError for the extension of a codec that is not the last filter: one of the user's asked for it."""
    last = next((each for each in reversed(chain.filters) if each.extension), None)
    fault = ending_fault(extension, last.extension if last is not None and last.name in CODECS else "")
    if fault is not None:
        raise ConfigError(f"files {fault}; give the class of the encoder, or of the filter, another extension")


def ending_fault(name: str, extension: str) -> str | None:
    """Return the defect of the end of a file's name, as in "it … ", or None; the extension of such files is right."""
    ending = "." + name.rpartition(".")[2]
    if ending.lower() not in _OF_CODECS or extension.endswith(ending.lower()):
        return None
    return f"would end in {ending!r}, by which readers decompress: what is in them is not compressed so"
