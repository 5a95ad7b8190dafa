"""The log of Spark's file sink, which lists the committed files."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from ftfile.core.errors import ConfigError
from ftfile.core.units import names_text
from ftfile.log.format.record import json_value
from ftfile.log.places import list_or_empty
from ftfile.storage.calls import parallel
from ftfile.tools.migrate.inventory import SPARK_LOG, Inventory, read_entry, uncommitted_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ftfile.storage.api import FileInfo, FileSystem


_NAME = re.compile(r"(?P<batch>\d+)(?P<compact>\.compact)?")
_AUTHORITY = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")


def entries_of(fs: FileSystem) -> dict[int, tuple[str, bool]]:
    """Return the files of Spark's log by batch, each with True if it compacts all batches up to this one."""
    entries: dict[int, tuple[str, bool]] = {}
    for info in list_or_empty(fs, SPARK_LOG):
        match = _NAME.fullmatch(info.path.rpartition("/")[2])
        if match is not None:
            is_compact = match["compact"] is not None
            if is_compact or int(match["batch"]) not in entries:
                entries[int(match["batch"])] = info.path, is_compact
    return entries


def spark_files(fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the files that the log names; other files come from failed attempts, or their entries expired.

    Raises:
        ConfigError: the log is damaged, or a file that it names is missing or was changed.
    """
    entries = entries_of(fs)
    if not entries:
        raise ConfigError(
            f"{SPARK_LOG!r} names no files, so there is nothing to migrate. Delete {SPARK_LOG!r} to write here"
        )
    needed = _needed_entries(entries)
    contents = parallel(fs, partial(read_entry, fs), needed)
    sizes: dict[str, int] = {}
    for path, content in zip(needed, contents, strict=True):
        for action, text, size_bytes in _parse_entries(path, content):
            if action == "delete":
                sizes.pop(text, None)
            else:
                sizes[text] = size_bytes
    paths = _relative_paths_of(sizes, files.keys())
    for text, path in paths.items():
        if files[path].size_bytes != sizes[text]:
            raise ConfigError(
                f"{path!r} has {files[path].size_bytes} bytes, and {sizes[text]} in {SPARK_LOG!r}: another program "
                "changed it. Restore it from a copy. Nothing was changed"
            )
    return Inventory(
        source="spark",
        files=[files[path] for path in paths.values()],
        left_out=uncommitted_files(files, set(paths.values()), f"it is not in {SPARK_LOG}"),
        log=SPARK_LOG,
        last_entry=max(entries),
    )


def _needed_entries(entries: Mapping[int, tuple[str, bool]]) -> list[str]:
    """Return the files of the log from the newest compacted batch on; `ConfigError` if a batch is missing."""
    first = 0
    for batch, (_, is_compact) in entries.items():
        if is_compact:
            first = max(first, batch)
    paths = []
    for batch in range(first, max(entries) + 1):
        if batch not in entries:
            raise ConfigError(f"{SPARK_LOG!r} lacks batch {batch}: restore it from a copy. Nothing was changed")
        paths.append(entries[batch][0])
    return paths


class _Entry(NamedTuple):
    """An entry of a log of Spark."""

    action: str
    path: str
    size_bytes: int


def _parse_entries(path: str, content: bytes) -> Iterable[_Entry]:
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != "v1":
        raise ConfigError(
            f"{path!r} begins with {''.join(lines[:1])[:40]!r} instead of 'v1': it is damaged, or was written by an "
            "unsupported version of Spark"
        )
    try:
        entries = [_entry(json_value(line.encode())) for line in lines[1:]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path!r} is damaged: a line of this log of Spark does not describe a file. Restore it from a copy. "
            "Nothing was changed"
        ) from error
    return entries


def _entry(value: Any) -> _Entry:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(value["path"], str):
        raise TypeError(f"a path is {value['path']!r:.40}")
    return _Entry(value.get("action", "add"), value["path"], value["size"])


def _relative_paths_of(urls: Collection[str], listed_paths: Collection[str]) -> dict[str, str]:
    """Return each URL's path in this directory, also if the directory was moved; `ConfigError` if a file is missing."""
    plain = {url: unquote(_AUTHORITY.sub("", url)) for url in urls}
    base = _common_base(plain.values(), listed_paths)
    paths: dict[str, str] = {}
    missing = []
    for url, path in plain.items():
        paths[url] = path.removeprefix(base)
        if paths[url] not in listed_paths:
            missing.append(url)
    if missing:
        raise ConfigError(
            f"{SPARK_LOG!r} names files that do not exist: {names_text(missing)}. Restore them from a copy. Nothing "
            "was changed"
        )
    return paths


def _common_base(paths: Iterable[str], listed_paths: Collection[str]) -> str:
    for path in paths:
        base = _base_of(path, listed_paths)
        if base is not None:
            return base
    return ""


def _base_of(path: str, listed_paths: Collection[str]) -> str | None:
    """Return the part of a path before its shortest suffix that is a listed path."""
    at = len(path)
    while (at := path.rfind("/", 0, at)) >= 0:
        if path[at + 1 :] in listed_paths:
            return path[: at + 1]
    return None
