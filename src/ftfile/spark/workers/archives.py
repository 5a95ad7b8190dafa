"""The comparison of Spark's archives of pyspark and py4j with the installed packages, for `ftfile-python`.

The archives contain no byte code, and come first on the path of Spark's Python processes (Spark 4.3).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import zipfile
import zlib
from pathlib import Path

__all__ = ("are_installed", "main")

# Folders of the archives that an installed pyspark lacks. Programs of users do not import them.
_NOT_INSTALLED = {"tests", "benchmark"}
_CACHE_BYTES_MAX = 1 << 14  # some dozen results; the launcher reads twice as much


def are_installed(archives: list[str]) -> bool:
    """Return True if each module of these zip archives is installed with the same bytes.

    Modules of tests may be missing. Nothing is imported.

    Args:
        archives: paths, such as those of `pyspark.zip` and `py4j-0.10.9.9-src.zip`.

    Raises:
        OSError: an archive or an installed file cannot be read.
        zipfile.BadZipFile: a file is not a zip archive.
    """
    return all(_is_installed(archive) for archive in archives)


def _is_installed(archive: str) -> bool:
    with zipfile.ZipFile(archive) as content:
        modules = [info for info in content.infolist() if info.filename.endswith(".py")]
    for info in modules:
        package, *folders = info.filename.split("/")[:-1]
        if not _NOT_INSTALLED.isdisjoint(folders):
            continue
        home = _home(package)
        if home is None or not _has_same_bytes(home.parent / info.filename, info):
            return False
    return bool(modules)


def _home(package: str) -> Path | None:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(package)
    locations = None
    if spec is not None:
        locations = spec.submodule_search_locations
    if locations:
        return Path(next(iter(locations)))
    return None


def _has_same_bytes(path: Path, info: zipfile.ZipInfo) -> bool:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    return len(content) == info.file_size and zlib.crc32(content) == info.CRC


def main(archives: str, cache: str, key: str) -> int:
    """Compare, and append the result to the cache.

    Args:
        archives: paths that are separated as in PYTHONPATH.
        cache: path of the file with earlier results.
        key: lines that name the compared files and their states; empty to cache nothing.

    Returns:
        The exit code: 0 if the installed packages are the same, 1 if not.
    """
    is_same = are_installed(archives.split(os.pathsep))
    if key:
        with contextlib.suppress(OSError):  # such as a home that cannot be written: the next process compares again
            _append(Path(cache), f"{key}{'same' if is_same else 'different'}\n")
    if is_same:
        return 0
    return 1


def _append(cache: Path, result: str) -> None:
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if cache.exists() and not cache.is_file():
        return  # opening it could block
    is_full = cache.exists() and cache.stat().st_size > _CACHE_BYTES_MAX
    with cache.open("w" if is_full else "a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(result)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
