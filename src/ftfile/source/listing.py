"""The listing of the existing files that the settings select."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, repeat
from operator import attrgetter, ne
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ftfile.core.errors import ConfigError, NotADirectory, NotFound, PermissionDenied
from ftfile.core.logs import get_logger
from ftfile.log.directory import has_log
from ftfile.log.format import layout
from ftfile.source.globs import alternatives, glob_pattern, has_wildcard
from ftfile.source.known_rows import identity_hash, key_of
from ftfile.storage.api import lasting_identity
from ftfile.storage.calls import parallel
from ftfile.storage.paths import join, parent_of, parse
from ftfile.storage.registry import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.core.context import Context
    from ftfile.source.settings import SourceSettings
    from ftfile.storage.api import FileInfo, FileSystem, Watch

    _Pattern: TypeAlias = tuple[str, ...]  # patterns of names from the root down; empty for all files below

_log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of one listing, as columns."""

    paths: list[str]  # relative to the root, unique
    sizes: NDArray[np.int64]  # in bytes
    times: NDArray[np.int64]  # of the last change, in ms since 1970 UTC, not negative
    identities: list[str | None]  # the identities of the files in the storage
    keys: NDArray[np.uint64]  # of their paths, as two halves
    hashes: NDArray[np.uint64]  # of their lasting identities; 0 without an identity
    # Monotonic time of the listing in which this process first saw the file in this state: with this size, time and
    # identity at this path.
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
        # Only files with equal times are compared by path.
        edges = np.flatnonzero(np.diff(np.concatenate(([False], is_tied, [False])).astype(np.int8)))
        for start, end in edges.reshape(-1, 2):
            run = ordered[start : end + 1]
            ordered[start : end + 1] = sorted(run.tolist(), key=self.paths.__getitem__)
        return ordered


def list_files(
    fs: FileSystem,
    settings: SourceSettings,
    before: Listing | None = None,
    now_s: float = 0.0,
    watch: Watch | None = None,
) -> Listing:
    """List all files that the settings select; a missing root has no files.

    `before` is the previous listing of this process, and `now_s` the monotonic time at the start of this listing.
    Directories whose files are listed are watched from then on.

    Raises:
        StorageError: a directory cannot be listed.
        ConfigError: files belong to a directory that ftfile writes.
    """
    visit = partial(_visit, fs, watch, _PathFilter.of(settings), settings.recursive_file_lookup)
    waiting = {"": {tuple(filter(None, pattern.split("/"))) for pattern in alternatives(settings.pattern)}}
    files = _ListedFiles.of(())
    logs: list[str] = []
    while waiting:
        visits = parallel(fs, visit, list(waiting.items()))
        waiting = {}
        for visited in visits:
            for directory, pattern in visited.directories:
                waiting.setdefault(directory, set()).add(pattern)
            files.extend(visited.files)
            logs += visited.logs
    if logs:
        refuse_rows_among(fs, settings, logs, files.paths)
    if not settings.follow_links and any(files.links):
        if before is None:
            _warn_of_links(settings, files)
        files = files.without_links()
    return _listing(settings.root, files, before, now_s)


class _ListedFiles(NamedTuple):
    """Files as columns of texts and numbers. The garbage collector does not visit each file."""

    paths: list[str]
    sizes: list[int]
    times: list[int]
    identities: list[str | None]
    links: list[bool]  # True for symbolic links, and for entries that are not regular files

    @classmethod
    def of(cls, infos: Iterable[FileInfo]) -> _ListedFiles:
        # This runs once for each file of each listing. Comprehensions take less time than a loop with five `append`.
        files = list(infos)
        return cls(
            paths=[info.path for info in files],
            sizes=[info.size_bytes for info in files],
            times=[info.modified_ms for info in files],
            identities=[info.identity for info in files],
            links=[info.is_link for info in files],
        )

    def extend(self, files: _ListedFiles) -> None:
        """Append files, which are in another directory."""
        self.paths.extend(files.paths)
        self.sizes.extend(files.sizes)
        self.times.extend(files.times)
        self.identities.extend(files.identities)
        self.links.extend(files.links)

    def without_links(self) -> _ListedFiles:
        return self.chosen([place for place, is_link in enumerate(self.links) if not is_link])

    def chosen(self, places: Sequence[int]) -> _ListedFiles:
        """Return the files at these places, in their order."""
        return _ListedFiles._make([column[place] for place in places] for column in self)


def _warn_of_links(settings: SourceSettings, files: _ListedFiles) -> None:
    links = list(compress(files.paths, files.links))
    first = join(settings.root, min(links))
    _log.warning(
        "%d links or pipes are not followed, the first is %r; followLinks=true follows links", len(links), first
    )


class _Visit(NamedTuple):
    """The content of one directory: files, and directories with the rest of the pattern for each.

    `logs` contains the directory itself if ftfile may write it.
    """

    files: _ListedFiles
    directories: list[tuple[str, _Pattern]]
    logs: list[str]


def _visit(
    fs: FileSystem,
    watch: Watch | None,
    chosen: _PathFilter | None,
    is_recursive: bool,  # noqa: FBT001 - see `list_files`
    due: tuple[str, set[_Pattern]],
) -> _Visit:
    directory, patterns = due
    entries = _named_entries(fs, directory, patterns)
    directories: list[tuple[str, _Pattern]] = []
    is_searched = any(not pattern or has_wildcard(pattern[0]) for pattern in patterns)
    if watch is not None and (is_searched or not all(info.is_directory for info, _ in entries)):
        watch.add(directory)  # added before the listing, so that no change is missed between listing and watch
    infos: list[FileInfo] = []
    if is_searched:
        with suppress(NotFound, NotADirectory):  # the directory was deleted after it was found
            infos = fs.list(directory)
    searched = infos if is_searched else None
    logs = [directory] if _may_have_log(directory, patterns, searched) else []
    cut = len(directory) + 1 if directory else 0
    files: list[FileInfo] = []
    for pattern in patterns:
        if not pattern:
            files += [info for info in infos if not info.is_directory]
            directories += [(path, pattern) for path in _list_followed(infos, cut, is_recursive=is_recursive)]
        elif has_wildcard(pattern[0]):
            entries += [(info, pattern[1:]) for info in _matching(infos, cut, pattern[0])]
    for info, remaining in entries:
        if info.is_directory:
            directories.append((info.path, remaining))
        elif not remaining:
            files.append(info)
    return _Visit(_accept_files(files, cut, chosen), directories, logs)


def _named_entries(fs: FileSystem, directory: str, patterns: Iterable[_Pattern]) -> list[tuple[FileInfo, _Pattern]]:
    """Return the entries that patterns name without a wildcard, each with the rest of its pattern.

    The directory is not listed for them, which may not be permitted.
    """
    entries = []
    for pattern in patterns:
        if pattern and not has_wildcard(pattern[0]):
            with suppress(NotFound, NotADirectory):
                entries.append((fs.stat(join(directory, pattern[0])), pattern[1:]))
    return entries


def _matching(infos: Iterable[FileInfo], cut: int, glob: str) -> Iterator[FileInfo]:
    """Yield the entries whose names match a glob. Links to directories are left out, since they can form loops."""
    matches, sees_hidden = glob_pattern(glob).fullmatch, glob[0] in "_."
    for info in infos:
        name = info.path[cut:]
        is_loop = info.is_link and info.is_directory
        if matches(name) and not is_loop and (sees_hidden or not _is_hidden(name)):
            yield info


def _list_followed(infos: Iterable[FileInfo], cut: int, *, is_recursive: bool) -> Iterator[str]:
    """Yield the subdirectories to list: all with `is_recursive`, otherwise the directories of partitions."""
    for info in infos:
        name = info.path[cut:]
        is_listed = info.is_directory and not info.is_link and (is_recursive or "=" in name)
        if is_listed and not _is_hidden(name):
            yield info.path


def _accept_files(infos: Iterable[FileInfo], cut: int, chosen: _PathFilter | None) -> _ListedFiles:
    """Return the files of a directory that are not hidden and are accepted; their names begin at `cut`."""
    # Several patterns may match one file. The first and last character of most names show that they are not hidden.
    accepted = {}
    for info in infos:
        path = info.path
        if (path[cut] in "_." or path[-1] == "_") and _is_hidden(path[cut:]):
            continue
        if chosen is None or chosen.accepts(path):
            accepted[path] = info
    return _ListedFiles.of(accepted.values())


def _may_have_log(directory: str, patterns: set[_Pattern], infos: Sequence[FileInfo] | None) -> bool:
    if infos is not None:
        return join(directory, layout.META) in map(attrgetter("path"), infos)
    # The directory was not listed. The root is checked when the stream starts.
    return bool(directory) and any("=" in pattern[0] for pattern in patterns)


def _is_hidden(name: str) -> bool:
    """Return True for names that Spark ignores: files that are being written, and metadata."""
    return (name[0] in "_." and (name[0] == "." or "=" not in name)) or name.endswith("._COPYING_")


class _Test(NamedTuple):
    """An option that selects files by a pattern."""

    pattern: re.Pattern[str]
    is_included: bool  # False: matching files are excluded
    is_of_path: bool = False  # the pattern matches the path instead of the name


class _PathFilter(NamedTuple):
    """The options that select files; at least one option is set."""

    above: str  # the path of the root
    tests: list[_Test]

    @classmethod
    def of(cls, settings: SourceSettings) -> _PathFilter | None:
        """Return the filter of these settings; None if all files are read."""
        tests = []
        for text, is_included in ((settings.file_pattern, True), (settings.ignore_file_pattern, False)):
            if text is not None:
                tests.append(_Test(re.compile(text), is_included, is_of_path="/" in text))
        if settings.path_glob_filter is not None:
            tests.append(_Test(glob_pattern(settings.path_glob_filter), is_included=True))
        if tests:
            return cls(parse(settings.root).path.rstrip("/"), tests)
        return None

    def accepts(self, path: str) -> bool:
        """Return True for the path of a file that is read."""
        name = path[path.rfind("/") + 1 :]
        for pattern, is_included, is_of_path in self.tests:
            if is_of_path:
                match = pattern.fullmatch(f"{self.above}/{path}")
            else:
                match = pattern.fullmatch(name)
            if (match is not None) != is_included:
                return False
        return True


def _listing(root: str, files: _ListedFiles, before: Listing | None, now_s: float) -> Listing:
    """Return a listing that contains each file once. Values of unchanged files are reused from the listing `before`."""
    if before is None or files.paths != before.paths or files.identities != before.identities:
        files = _drop_repeated(files)
        keys, hashes, places = _keys_and_hashes(root, files, before)
    else:
        files = files._replace(paths=before.paths, identities=before.identities)
        keys, hashes, places = before.keys, before.hashes, np.arange(len(before))
    sizes, times = np.array(files.sizes, np.int64), np.maximum(np.array(files.times, np.int64), 0)
    since_s = np.full(len(places), now_s)
    if before is not None and len(before):
        is_same = (places >= 0) & (before.hashes[places] == hashes)
        is_same &= (before.sizes[places] == sizes) & (before.times[places] == times)
        since_s[is_same] = before.since_s[places[is_same]]
    return Listing(
        paths=files.paths,
        sizes=sizes,
        times=times,
        identities=files.identities,
        keys=keys,
        hashes=hashes,
        since_s=since_s,
    )


class _ListedColumns(NamedTuple):
    """Columns of a listing."""

    keys: NDArray[np.uint64]
    hashes: NDArray[np.uint64]
    places: NDArray[np.intp]  # in the listing before; -1 for new files


def _keys_and_hashes(root: str, files: _ListedFiles, before: Listing | None) -> _ListedColumns:
    """Return the columns of keys and hashes, and the places of the files in the listing `before`; -1 for new files."""
    count = len(files.paths)
    if before is None or not len(before):
        return _ListedColumns(_keys(root, files.paths), _hashes(files.identities), np.full(count, -1))
    place_of = dict(zip(before.paths, range(len(before)), strict=True))
    places = np.fromiter(map(place_of.get, files.paths, repeat(-1)), np.intp, count)
    keys, hashes, is_new = before.keys[places], before.hashes[places], places < 0
    keys[is_new] = _keys(root, compress(files.paths, is_new))
    identities = map(before.identities.__getitem__, places.tolist())
    is_other = np.fromiter(map(ne, files.identities, identities), bool, count) | is_new
    hashes[is_other] = _hashes(compress(files.identities, is_other))
    return _ListedColumns(keys, hashes, places)


def _keys(root: str, paths: Iterable[str]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join([key_of(root, path) for path in paths]), "<u8").reshape(-1, 2)


def _hashes(identities: Iterable[str | None]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(map(identity_hash, map(lasting_identity, identities))), "<u8")


def _drop_repeated(files: _ListedFiles) -> _ListedFiles:
    """Return each file under one name: a name that is not a link if possible, then the first name in sort order."""
    names = [identity or f"/{path}" for identity, path in zip(files.identities, files.paths, strict=True)]
    if len(set(names)) == len(names):
        return files
    first: dict[str, int] = {}
    keys = list(zip(files.links, files.paths, strict=True))
    for place in sorted(range(len(names)), key=keys.__getitem__):
        first.setdefault(names[place], place)
    return files.chosen([*first.values()])


def refuse_rows(
    fs: FileSystem, settings: SourceSettings, directories: Sequence[str], advice: str = "", *, url: str | None = None
) -> None:
    """Raise a ConfigError if ftfile writes one of the directories below the root, or below another URL of `fs`.

    For another URL, missing permissions are ignored: the user may only have rights to the input.
    """
    ignored = () if url is None else (PermissionDenied,)

    def has_rows(directory: str) -> bool:
        with suppress(*ignored):
            return has_log(fs, directory)
        return False

    for directory, is_one in zip(directories, parallel(fs, has_rows, directories), strict=True):
        if is_one:
            found = f"{(url or settings.root).removesuffix('/')}/{directory}".removesuffix("/")
            raise ConfigError(
                f"path={settings.shown!r} contains files of an ftfile directory, {found!r}, which ftfile adds, merges "
                "and deletes: omit fileFormat and load that directory, to read its new rows as they are "
                f"committed{advice}"
            )


def refuse_rows_among(
    fs: FileSystem, settings: SourceSettings, directories: Iterable[str], files: Iterable[str]
) -> None:
    """Raise a ConfigError if files are below one of the directories and ftfile writes this directory."""
    holders = {parent_of(path) for path in files}
    above = set(chain.from_iterable(map(layout.ancestors, holders)))
    refuse_rows(fs, settings, sorted(above.intersection(directories)), "; or exclude its files with ignoreFilePattern")


def refuse_rows_above(settings: SourceSettings, context: Context, storage: Mapping[str, str]) -> None:
    """Raise a ConfigError if ftfile writes a directory above the root. Dead letters may be read like other files."""
    url = parse(settings.root)
    above = layout.ancestors(url.path[1:])[1:]
    if not above or f"/{layout.DEAD_LETTERS}/" in f"{url.path}/{settings.pattern}/":
        return
    root = f"{url.scheme}://{url.authority}/"
    refuse_rows(open_filesystem(root, context, storage), settings, above, url=root)
