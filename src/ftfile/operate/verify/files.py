"""Comparison of the files of a directory with the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ftfile.log.directory import has_log
from ftfile.log.format import layout
from ftfile.log.places import (
    PartPlace,
    Place,
    find_part,
    has_content,
    list_or_empty,
    read_note,
    sizes_in,
    stat_or_none,
    walk,
)
from ftfile.operate.file_kind import FILES
from ftfile.operate.findings import Action, Finding, find, foreign_files_advice, lost
from ftfile.operate.verify.history import add_hash
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ftfile.log.format.model import Add
    from ftfile.operate.kinds import Kind
    from ftfile.operate.verify.history import History
    from ftfile.storage.api import FileSystem


NAMES_TOLD = 10


@dataclass
class StoredFiles:
    """The files of a directory on storage, and the findings about them."""

    fs: FileSystem
    kind: Kind = FILES
    # length by path of each file that plain readers see; -1 if it is the file of a live part
    visible: dict[str, int] = field(default_factory=dict)
    staged: dict[str, int] = field(default_factory=dict)  # length by path of the files that attempts wrote
    retired: dict[str, int] = field(default_factory=dict)  # length by path of the files of removed parts
    parts: int = 0
    segments: int = 0
    rows: int = 0
    size_bytes: int = 0
    live_sum: int = 0  # of the hashes of all live adds
    nested: list[str] = field(default_factory=list)  # subdirectories that have a log
    findings: list[Finding] = field(default_factory=list)


def list_files(fs: FileSystem) -> StoredFiles:
    """Return the visible, staged and retired files of a directory."""
    files = StoredFiles(fs)
    waiting = [""]
    while waiting:
        for info in list_or_empty(fs, waiting.pop()):
            directory, _, name = info.path.rpartition("/")
            if name == layout.META and directory and has_log(fs, directory):
                files.nested.append(directory)
            if name[0] in "_.":
                continue
            if info.is_directory and info.is_link:
                continue  # `find_part` checks each part behind a link
            if info.is_directory:
                waiting.append(info.path)
            else:
                files.visible[info.path] = info.size_bytes
    files.staged = {path: info.size_bytes for path, info in walk(fs, layout.STAGED).items()}
    files.retired = sizes_in(fs, layout.RETIRED)
    return files


def compare_files(files: StoredFiles, adds: Collection[Add], still_live: Callable[[Add], bool]) -> None:
    """Compare every live add with its file.

    If the file of an add is not found, a query may have removed the add. Then `still_live` checks the add again.
    """
    odd: list[Add] = []
    segments: list[Add] = []
    needed: set[str] = set()
    for add in adds:
        files.live_sum += add_hash(add)
        files.rows += add.rows
        files.size_bytes += add.length
        if add.kind == "segment":
            segments.append(add)
            continue
        files.parts += 1
        assert add.final_path is not None, f"part {add.id} has no final name"
        has_one_file = add.path == add.final_path or add.path not in files.staged
        if has_one_file and files.visible.get(add.final_path) == add.length:
            files.visible[add.final_path] = -1
        else:
            odd.append(add)
            needed.add(add.path)
    files.segments = len(segments)
    _compare_segments(files, segments, still_live)
    claims = _repeated_names(files, odd)
    unclaimed = []
    for add in odd:
        if add.final_path not in claims:
            unclaimed.append(add)
    _compare_odd(files, unclaimed, still_live)
    _collect_claims(claims, adds)
    for name, claiming in claims.items():
        files.findings += _repeated_name(files, name, claiming)
    needed.update(add.path for add in segments)
    for path in needed:
        files.staged.pop(path, None)


def _compare_segments(files: StoredFiles, segments: list[Add], still_live: Callable[[Add], bool]) -> None:
    previous_path, previous_end = "", 0
    for add in sorted(segments, key=attrgetter("path", "offset", "length")):
        path, end = add.path, add.offset + add.length
        size_bytes = files.staged.get(path, -1)
        if size_bytes < end:
            info = stat_or_none(files.fs, path)
            size_bytes = -1
            if info is not None:
                size_bytes = info.size_bytes
        if size_bytes < end and still_live(add):
            expected = f"{end} bytes or more, with {add.rows} rows that are not in a file yet"
            also = files.kind.consequence(add)
            if size_bytes < 0:
                files.findings.append(lost(add, "missing-segment", expected, "no such file", consequence=also))
            else:
                files.findings.append(lost(add, "damaged-segment", expected, f"{size_bytes} bytes", consequence=also))
        is_same_file = path == previous_path
        if is_same_file and add.offset < previous_end:
            actual = f"two segments that share the bytes at {add.offset}"
            files.findings.append(find("overlapping-segments", path, "separate segments", actual))
        if is_same_file:
            previous_end = max(previous_end, end)
        else:
            previous_path, previous_end = path, end


def _compare_odd(files: StoredFiles, odd: list[Add], still_live: Callable[[Add], bool]) -> None:
    """Check each part that the listing does not show at its final name."""
    places = parallel(files.fs, partial(find_part, files.fs), odd)
    for add, where in zip(odd, places, strict=True):
        final = add.final_path or ""
        if where.place is Place.PUBLISHED:
            files.visible[final] = -1
        elif still_live(add):
            if where.place is not Place.TAKEN:
                files.visible.pop(final, None)
            files.findings.append(_misplaced_part(files, add, where))


def _misplaced_part(files: StoredFiles, add: Add, where: PartPlace) -> Finding:
    """Return the finding of a live part that is not at its final name."""
    final = add.final_path or ""
    there = where.info
    publish = Action("publish", add=add)
    if where.place is Place.STAGED:
        actual = f"the file at {add.path!r}: committed, not published yet"
        return find("not-published", final, "a file", actual, actions=[publish])
    if where.place is Place.IMPOSSIBLE:
        actual = f"a name that {where.fault}"
        rename = Action("rename", add=add, source=add.path)
        return find("impossible-name", final, "a name that the storage accepts", actual, actions=[rename])
    if where.place is Place.TAKEN and there is not None:
        actual = f"a foreign file of {there.size_bytes} bytes at {there.path!r}; the part waits in the stage"
        aside = Action("move-aside", there.path)
        finding = find("taken-name", final, "the committed file", actual, actions=[aside, publish])
        if there.is_directory or files.visible.pop(there.path, None) == -1:
            return finding.without_repair("Move it away manually: it is a directory, or another live file")
        return finding
    expected = f"a file of {add.length} bytes with {add.checksum}"
    damaged = ""
    if where.place is Place.DAMAGED and there is not None:
        damaged = there.path
    if where.place is Place.RETIRED and there is not None:
        source: str | None = there.path
    else:
        source = _hidden_copy(files, add)
    if source is not None:
        actions = []
        if damaged:
            actions.append(Action("move-aside", damaged))
        actions.append(Action("bring-back", add=add, source=source))
        return find("hidden-part", final, expected, f"its content at {source!r}", actions=actions)
    code, actual = "missing-part", "no file: it is neither staged nor published nor retired"
    if there is not None and damaged:
        code, actual = "damaged-part", f"{there.size_bytes} bytes"
    return lost(add, code, expected=expected, actual=actual, damaged=damaged)


def _repeated_name(files: StoredFiles, final: str, adds: list[Add]) -> Iterator[Finding]:
    """Yield a finding for each part that has the same final name as other parts, and is not the file at this name."""
    owner: Add | None = None
    for add in adds:
        if has_content(files.fs, final, add):
            owner = add
            files.visible[final] = -1
            break
    for add in adds:
        if add is owner:
            continue
        if add.path in files.staged:
            source: str | None = add.path
        else:
            source = _hidden_copy(files, add)
        actual = f"{len(adds)} live files with the same name; this file is at {source!r}"
        finding = find("repeated-name", final, "a different name for each live file", actual)
        if source is None:
            yield lost(
                add, finding.code, finding.expected, f"another live file; the file with {add.rows} rows is missing"
            )
        else:
            yield replace(finding, actions=(Action("rename", add=add, source=source),))


def _hidden_copy(files: StoredFiles, add: Add) -> str | None:
    """Return the retired or quarantined file with the content of a part; None if there is no such file."""
    hidden = files.retired | sizes_in(files.fs, layout.QUARANTINE)
    for path, size_bytes in hidden.items():
        if size_bytes == add.length and has_content(files.fs, path, add):
            return path
    return None


def _repeated_names(files: StoredFiles, odd: Iterable[Add]) -> dict[str, list[Add]]:
    """Return the names that several adds have, each with an empty list for its adds."""
    claims: dict[str, list[Add]] = {}
    for name, count in Counter(add.final_path or "" for add in odd).items():
        if count > 1 or files.visible.get(name) == -1:
            claims[name] = []
    return claims


def _collect_claims(claims: dict[str, list[Add]], adds: Iterable[Add]) -> None:
    """Add each add to the list of its final name, if `claims` contains this name."""
    if not claims:
        return
    for add in adds:
        if add.final_path in claims:
            claims[add.final_path].append(add)


def report_unknown_files(files: StoredFiles, history: History, published: int) -> None:
    """Report visible files that belong to no live part; versions up to `published` count as published."""
    for directory in files.nested:
        expected, actual = "no other directory of ftfile", "a directory of ftfile, or a store"
        files.findings.append(find("nested-directory", directory, expected, actual))
    inner = tuple(f"{directory}/" for directory in files.nested)
    unknown: set[str] = set()
    for path, size_bytes in files.visible.items():
        if size_bytes >= 0 and not path.startswith(inner):
            unknown.add(path)
    foreign: list[str] = []
    for path, (remove, version) in history.removed.items():
        if path not in unknown:
            continue
        unknown.discard(path)
        if not has_content(files.fs, path, remove):
            foreign.append(path)
            continue
        # If the removal is not published yet, the file is still visible. Otherwise, the file has returned.
        code, actual = "not-hidden", "the removed part"
        if version <= published:
            code, actual = "returned-part", "the removed part: plain readers see old rows and new rows"
        expected = "no file: it was replaced or removed"
        retire = Action("retire", path, remove=remove)
        files.findings.append(find(code, path, expected, actual, actions=[retire]))
    for note in filter(layout.is_note, files.staged):
        # A task is writing this file under its final name, or was killed while it wrote.
        unknown.discard(read_note(files.fs, note) or "")
    _report_paths(files, "foreign-files", "no file: removed parts had these names", foreign)
    _report_paths(files, "unknown-files", "files that a record names", list(unknown))


def report_staged_files(files: StoredFiles, history: History) -> None:
    """Report removed parts and dead letters that are still staged. Then `files.staged` has only unneeded files."""
    for path, remove in history.removed_staged.items():
        if files.staged.pop(path, None) is not None:
            actual = "its staged file, which a delayed publisher would publish"
            expected = "no file: the part was removed"
            retire = Action("retire", path, remove=remove)
            files.findings.append(find("removed-part-staged", path, expected, actual, actions=[retire]))
    for letter in history.staged_letters:
        files.staged.pop(letter.path, None)
        if find_part(files.fs, letter).place is Place.STAGED:
            path = letter.final_path or ""
            publish = Action("publish", add=letter)
            files.findings.append(find("not-published", path, "dead letters", "still staged", actions=[publish]))


def _report_paths(files: StoredFiles, code: str, expected: str, paths: list[str]) -> None:
    if paths:
        names = ", ".join(map(repr, sorted(paths)[:NAMES_TOLD]))
        actual = names
        if len(paths) > NAMES_TOLD:
            actual = f"{len(paths)} files, among them {names}"
        remedy = ""
        if len(paths) == 1:
            remedy = foreign_files_advice(paths[0])
        actions = (Action("move-aside", path) for path in sorted(paths))
        files.findings.append(find(code, "", expected, actual, actions=actions, remedy=remedy))
