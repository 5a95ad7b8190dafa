"""The log of Spark's own file sink: `_spark_metadata` says which files count."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ftfile.commit.files import list_or_empty
from ftfile.core.errors import ConfigError
from ftfile.core.human_text import names_text
from ftfile.fs.calls.parallel import parallel
from ftfile.maintenance.migrate.inventory import SPARK_LOG, Inventory, LeftOut, is_hidden

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ftfile.fs.api import FileInfo, FileSystem

_NAME = re.compile(r"(?P<batch>\d+)(?P<compact>\.compact)?")
_AUTHORITY = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")


def entries_of(fs: FileSystem) -> dict[int, tuple[str, bool]]:
    """Return the files of the log by batch, each with True if it stands for all before it, too."""
    found: dict[int, tuple[str, bool]] = {}
    for info in list_or_empty(fs, SPARK_LOG):
        match = _NAME.fullmatch(info.path.rpartition("/")[2])
        if match is not None:
            is_compact = match["compact"] is not None
            if is_compact or int(match["batch"]) not in found:
                found[int(match["batch"])] = info.path, is_compact
    return found


def spark_files(fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the files that the log names; all others were written by attempts that failed, or their entries expired.

    Raises:
        ConfigError: the log is damaged, or a file that it names is not here as it was.
    """
    entries = entries_of(fs)
    if not entries:
        raise ConfigError(
            f"{SPARK_LOG!r} names no files: there is nothing to migrate. Delete that directory to write here"
        )
    newest = max(entries)
    first = max((batch for batch, (_, is_compact) in entries.items() if is_compact), default=0)
    if missing := [batch for batch in range(first, newest + 1) if batch not in entries]:
        raise ConfigError(f"{SPARK_LOG!r} lacks batch {missing[0]}: restore it from a copy. Nothing was changed")
    needed = [entries[batch][0] for batch in range(first, newest + 1)]
    contents = parallel(fs, fs.read, needed)
    sizes: dict[str, int] = {}
    for path, content in zip(needed, contents, strict=True):
        for action, text, size_bytes in _parsed(path, content):
            if action == "delete":
                sizes.pop(text, None)
            else:
                sizes[text] = size_bytes
    paths = _relative(sizes, files.keys())
    for text, path in paths.items():
        if files[path].size_bytes != sizes[text]:
            raise ConfigError(
                f"{path!r} has {files[path].size_bytes} bytes, and {sizes[text]} in {SPARK_LOG!r}: another program "
                "changed it. Restore it from a copy. Nothing was changed"
            )
    named = set(paths.values())
    others = [path for path in files if path not in named and not is_hidden(path)]
    return Inventory(
        "spark",
        [files[path] for path in paths.values()],
        [LeftOut(path, files[path].size_bytes, f"it is not in {SPARK_LOG}", moved=True) for path in others],
        log=SPARK_LOG,
        last_entry=newest,
    )


def _parsed(path: str, content: bytes) -> Iterable[tuple[str, str, int]]:
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != "v1":
        raise ConfigError(
            f"{path!r} begins with {''.join(lines[:1])[:40]!r} instead of 'v1': it is damaged, or a Spark that ftfile "
            "does not know wrote it"
        )
    try:
        found = [(entry.get("action", "add"), entry["path"], entry["size"]) for entry in map(json.loads, lines[1:])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path!r} is damaged, a line of it does not tell a file: restore it from a copy. Nothing was changed"
        ) from error
    return found


def _relative(urls: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Return the paths of files here, wherever they were when Spark wrote their URLs; ConfigError if one is gone."""
    plain = {url: unquote(_AUTHORITY.sub("", url)) for url in urls}
    base = next((base for path in plain.values() if (base := _base_of(path, known)) is not None), "")
    paths = {url: path.removeprefix(base) for url, path in plain.items()}
    if missing := [url for url, path in paths.items() if path not in known]:
        raise ConfigError(
            f"{SPARK_LOG!r} names files that are not here: {names_text(missing)}. Restore them from a copy. Nothing "
            "was changed"
        )
    return paths


def _base_of(path: str, known: Collection[str]) -> str | None:
    """Return the piece of a path in front of its shortest ending that is known."""
    at = len(path)
    while (at := path.rfind("/", 0, at)) >= 0:
        if path[at + 1 :] in known:
            return path[: at + 1]
    return None
