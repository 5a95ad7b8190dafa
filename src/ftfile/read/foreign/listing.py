"""The files that are there: one listing of a directory, of its subdirectories, and of what a pattern names."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ftfile.core.errors import ConfigError, NotADirectory, NotFound, PermissionDenied
from ftfile.core.logs import get_logger
from ftfile.log.commit_log import LAYOUT_VERSION
from ftfile.log.format import layout
from ftfile.read.foreign.known import identity_hash, key_of
from ftfile.read.foreign.settings import alternatives, has_wildcard, matcher
from ftfile.storage.calls import parallel
from ftfile.storage.paths import join, parent_of, parse
from ftfile.storage.registry import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.core.context import Context
    from ftfile.read.foreign.settings import FilesSettings
    from ftfile.storage.api import FileInfo, FileSystem

    _Pattern: TypeAlias = tuple[str, ...]  # of names on the way down; empty for all that is below

_log = get_logger(__name__)


@dataclass(frozen=True)
class Listing:
    """The files of one listing, as columns."""

    paths: list[str]  # relative to the root, none twice
    sizes: NDArray[np.int64]  # in bytes
    times: NDArray[np.int64]  # of their last change, in ms since 1970 UTC, none before
    identities: list[str | None]  # the store's names of the files
    keys: NDArray[np.uint64]  # of their paths, as two halves
    hashes: NDArray[np.uint64]  # of their identities; 0 for none
    # By the monotonic clock, the start of the listing in which this process first saw the file as it is: with this
    # size, time and identity at this path.
    since_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.paths)

    def in_order(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return places of this listing sorted by time, then by path."""
        ordered = places[np.argsort(self.times[places], kind="stable")]
        times = self.times[ordered]
        is_tied = times[1:] == times[:-1]
        if not is_tied.any():
            return ordered
        # Only files of one and the same time are compared by their paths.
        edges = np.flatnonzero(np.diff(np.concatenate(([False], is_tied, [False])).astype(np.int8)))
        for start, end in edges.reshape(-1, 2):
            run = ordered[start : end + 1]
            ordered[start : end + 1] = sorted(run.tolist(), key=self.paths.__getitem__)
        return ordered


def list_files(fs: FileSystem, settings: FilesSettings, before: Listing | None = None, now_s: float = 0.0) -> Listing:
    """List all files that the settings name; a root that is not there has none.

    `before` is the listing before in this process, and `now_s` its monotonic clock when this one starts.

    Raises:
        StorageError: a directory cannot be listed.
        ConfigError: files are those of a directory that ftfile writes.
    """
    accepts = _filter(settings)
    found: dict[str, FileInfo] = {}
    logs: list[str] = []
    waiting = {"": {tuple(filter(None, one.split("/"))) for one in alternatives(settings.pattern)}}
    while waiting:
        below: dict[str, set[_Pattern]] = {}
        for visit in parallel(
            fs, lambda item: _visit(fs, *item, recursive=settings.recursive_file_lookup), list(waiting.items())
        ):
            found.update((info.path, info) for info in visit.files if accepts(info.path))
            logs += visit.logs
            for directory, pattern in visit.directories:
                below.setdefault(directory, set()).add(pattern)
        waiting = below
    if logs:
        refuse_rows_among(fs, settings, logs, found)
    if not settings.follow_links:
        links = [path for path, info in found.items() if info.is_link]
        for path in links:
            del found[path]
        if links and before is None:
            first = join(settings.root, min(links))
            _log.warning("%d links, or pipes, are not followed, the first %r; followLinks=true does", len(links), first)
    listing = _columns(settings.root, _once(found.values()), now_s)
    if before is not None and len(before) and len(listing):
        _carry_since(before, listing)
    return listing


class _Visit(NamedTuple):
    """The content of one directory: files, and directories with the rest of the pattern for each.

    `logs` has the directory itself if it may be one that ftfile writes.
    """

    files: list[FileInfo]
    directories: list[tuple[str, _Pattern]]
    logs: list[str]


def _visit(fs: FileSystem, directory: str, patterns: set[_Pattern], *, recursive: bool) -> _Visit:
    found = _Visit([], [], [])
    for pattern in patterns:
        if pattern and not has_wildcard(pattern[0]):
            # Its directory need not be listed, and there may be no right to do so.
            with suppress(NotFound, NotADirectory):
                _take(found, fs.stat(join(directory, pattern[0])), pattern[1:])
    is_searched = any(not pattern or has_wildcard(pattern[0]) for pattern in patterns)
    infos: list[FileInfo] = []
    if is_searched:
        with suppress(NotFound, NotADirectory):  # gone since it was found
            infos = fs.list(directory)
    if _may_have_log(directory, patterns, infos if is_searched else None):
        found.logs.append(directory)
    cut = len(directory) + 1 if directory else 0
    for pattern in patterns:
        if not pattern:
            found.files.extend(info for info in infos if not info.is_directory)
            found.directories.extend(
                (info.path, pattern)
                for info in infos
                if info.is_directory and not info.is_link and (recursive or "=" in info.path[cut:])
                if not _is_hidden(info.path[cut:])
            )
        elif has_wildcard(pattern[0]):
            matches, sees_hidden = matcher(pattern[0]), pattern[0][0] in "_."
            for info in infos:
                name = info.path[cut:]
                is_loop = info.is_link and info.is_directory
                if matches(name) and not is_loop and (sees_hidden or not _is_hidden(name)):
                    _take(found, info, pattern[1:])
    return found


def _may_have_log(directory: str, patterns: set[_Pattern], infos: Sequence[FileInfo] | None) -> bool:
    if infos is not None:
        return join(directory, layout.META) in [info.path for info in infos]
    # It was not listed. The root was asked at the start.
    return bool(directory) and any("=" in pattern[0] for pattern in patterns)


def _take(found: _Visit, info: FileInfo, rest: _Pattern) -> None:
    if info.is_directory:
        found.directories.append((info.path, rest))
    elif not rest:
        found.files.append(info)


def _is_hidden(name: str) -> bool:
    """Return True for names that Spark leaves out: of files that are being written, and of what is no data."""
    return (name[0] in "_." and (name[0] == "." or "=" not in name)) or name.endswith("._COPYING_")


def _filter(settings: FilesSettings) -> Callable[[str], bool]:
    """Return the test that paths of files pass."""
    above = parse(settings.root).path.rstrip("/")
    matches = None if settings.path_glob_filter is None else matcher(settings.path_glob_filter)
    wanted = ((settings.file_pattern, True), (settings.ignore_file_pattern, False))
    patterns = [(re.compile(text), "/" in text, is_included) for text, is_included in wanted if text is not None]

    def accepts(path: str) -> bool:
        name = path[path.rfind("/") + 1 :]
        if _is_hidden(name) or not (matches is None or matches(name)):
            return False
        return not patterns or all(
            (pattern.fullmatch(f"{above}/{path}" if is_of_path else name) is not None) == is_included
            for pattern, is_of_path, is_included in patterns
        )

    return accepts


def _columns(root: str, infos: Sequence[FileInfo], now_s: float) -> Listing:
    count = len(infos)
    paths = [info.path for info in infos]
    identities = [info.identity for info in infos]
    return Listing(
        paths,
        np.fromiter((info.size_bytes for info in infos), np.int64, count),
        np.maximum(np.fromiter((info.modified_ms for info in infos), np.int64, count), 0),
        identities,
        np.frombuffer(b"".join([key_of(root, path) for path in paths]), "<u8").reshape(-1, 2),
        np.frombuffer(b"".join(map(identity_hash, identities)), "<u8"),
        np.full(count, now_s),
    )


def _carry_since(before: Listing, listing: Listing) -> None:
    """Copy `since_s` of the files that are as they were in the listing before."""
    if np.array_equal(before.keys, listing.keys):
        places = np.arange(len(before))
    else:
        order = np.argsort(before.keys[:, 0])
        ranks = np.searchsorted(before.keys[order, 0], listing.keys[:, 0])
        places = order[np.minimum(ranks, len(before) - 1)]
    is_same = (before.keys[places] == listing.keys).all(axis=1)
    is_same &= (before.sizes[places] == listing.sizes) & (before.times[places] == listing.times)
    is_same &= before.hashes[places] == listing.hashes
    listing.since_s[is_same] = before.since_s[places[is_same]]


def _once(infos: Iterable[FileInfo]) -> list[FileInfo]:
    """Return each file under one of its names: no link if there is another, and the first one by its text."""
    files = list(infos)
    if len({info.identity or f"/{info.path}" for info in files}) == len(files):
        return files
    first: dict[str, FileInfo] = {}
    for info in sorted(files, key=lambda info: (info.is_link, info.path)):
        first.setdefault(info.identity or f"/{info.path}", info)
    return list(first.values())


_BEGINNING = LAYOUT_VERSION.partition(b" layout ")[0]  # in all layouts; logs of plans have another one


def refuse_rows(
    fs: FileSystem, settings: FilesSettings, directories: Sequence[str], advice: str = "", *, url: str | None = None
) -> None:
    """Raise a ConfigError if one of the directories below the root, or another URL of `fs`, is one that ftfile writes.

    If it is another one, a user may have a right to the input alone.
    """
    ignored = (NotFound, NotADirectory) if url is None else (NotFound, NotADirectory, PermissionDenied)

    def has_rows(directory: str) -> bool:
        with suppress(*ignored):
            return fs.read(join(directory, layout.FORMAT_FILE)).startswith(_BEGINNING)
        return False

    for directory, is_one in zip(directories, parallel(fs, has_rows, directories), strict=True):
        if is_one:
            found = f"{(url or settings.root).removesuffix('/')}/{directory}".removesuffix("/")
            raise ConfigError(
                f"path={settings.shown!r} names files of an ftfile directory, {found!r}, which come, grow together and "
                f"go: leave fileFormat out and load that directory, to read its new rows as they are committed{advice}"
            )


def refuse_rows_among(
    fs: FileSystem, settings: FilesSettings, directories: Iterable[str], files: Iterable[str]
) -> None:
    """Raise a ConfigError if files lie below one of the directories, and it is one that ftfile writes."""
    holders = {parent_of(path) for path in files}
    above = {directory for holder in holders for directory in layout.ancestors(holder)}
    refuse_rows(fs, settings, sorted(above.intersection(directories)), "; or leave its files out by ignoreFilePattern")


def refuse_rows_above(settings: FilesSettings, context: Context, storage: Mapping[str, str]) -> None:
    """Raise a ConfigError if the root lies in a directory that ftfile writes; its dead letters are like other files."""
    url = parse(settings.root)
    above = layout.ancestors(url.path[1:])[1:]
    if not above or f"/{layout.DEAD_LETTERS}/" in f"{url.path}/{settings.pattern}/":
        return
    root = f"{url.scheme}://{url.authority}/"
    refuse_rows(open_filesystem(root, context, storage), settings, above, url=root)
