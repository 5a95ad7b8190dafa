"""The files of live adds: is each where it belongs, with its length? And what is there that no record knows?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ftfile.commit.files import stat_or_none
from ftfile.commit.format import layout
from ftfile.commit.places import Place, find_part, has_content
from ftfile.core.errors import NotFound
from ftfile.fs.calls.parallel import parallel
from ftfile.maintenance.verify.findings import Finding, MoveAside, Publish, RetireAgain
from ftfile.maintenance.verify.history import add_hash
from ftfile.maintenance.verify.log_scan import REPAIR
from ftfile.maintenance.verify.misplaced import lost, misplaced_part, repeated_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ftfile.commit.format.model import Add, Remove
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.history import History
    from ftfile.maintenance.verify.listing import Files

__all__ = ("NAMES_TOLD", "compare_files", "tell_of_others", "tell_of_stage")

NAMES_TOLD = 10


def compare_files(files: Files, adds: Collection[Add], still_live: Callable[[Add], bool]) -> None:
    """Look for the file of every live add.

    Args:
        files: as listed.
        adds: what is live.
        still_live: asked of an add whose file is not found, since a query may have removed it meanwhile.
    """
    odd: list[Add] = []
    pieces: list[tuple[str, int, int, Add]] = []
    needed: set[str] = set()
    for add in adds:
        files.live_sum += add_hash(add)
        files.rows += add.rows
        files.size_bytes += add.length
        if add.kind == "segment":
            files.segments += 1
            pieces.append((add.path, add.offset, add.length, add))
            continue
        files.parts += 1
        assert add.final_path is not None, f"part {add.id} has no final name"
        found = files.visible.get(add.final_path)
        is_alone = add.path == add.final_path or add.path not in files.staged
        if found == add.length and is_alone:
            files.visible[add.final_path] = -1
        else:
            odd.append(add)
            needed.add(add.path)
    _compare_segments(files, pieces, needed, still_live)
    named = Counter(add.final_path for add in odd)
    repeated = {name for name, count in named.items() if count > 1 or files.visible.get(name or "") == -1}
    _compare_odd(files, [add for add in odd if add.final_path not in repeated], still_live)
    claims: dict[str, list[Add]] = {name or "": [] for name in repeated}
    for add in adds if claims else ():
        if add.final_path in claims:
            claims[add.final_path].append(add)
    for name, claiming in claims.items():
        files.findings += repeated_name(files, name, claiming)
    for path in needed:
        files.staged.pop(path, None)


def _compare_segments(
    files: Files, pieces: list[tuple[str, int, int, Add]], needed: set[str], still_live: Callable[[Add], bool]
) -> None:
    end, last = 0, ""
    for path, offset, length, add in sorted(pieces, key=lambda piece: piece[:3]):
        needed.add(path)
        size_bytes = files.staged.get(path)
        if size_bytes is None or size_bytes < offset + length:
            info = stat_or_none(files.fs, path)
            size_bytes = None if info is None else info.size_bytes
        if (size_bytes is None or size_bytes < offset + length) and still_live(add):
            code = "missing-segment" if size_bytes is None else "damaged-segment"
            found = "no such file" if size_bytes is None else f"{size_bytes} bytes"
            expected = f"{offset + length} bytes or more, of which {add.rows} rows are not in a file yet"
            files.findings.append(lost(add, code, expected, found))
        if path == last and offset < end:
            found = f"two that share the bytes at {offset}"
            remedy = "The log was changed by hand: restore it from a copy of the directory"
            files.findings.append(Finding("overlapping-segments", path, "segments apart", found, "error", remedy))
        end, last = max(end, offset + length) if path == last else offset + length, path


def _compare_odd(files: Files, odd: list[Add], still_live: Callable[[Add], bool]) -> None:
    """Look once more for what is not simply at its final name, one by one."""
    found = parallel(files.fs, lambda add: find_part(files.fs, add), odd)
    for add, where in zip(odd, found, strict=True):
        final = add.final_path or ""
        if where.place is Place.PUBLISHED:
            files.visible[final] = -1
        elif still_live(add):
            if where.place is not Place.TAKEN:
                files.visible.pop(final, None)
            files.findings.append(misplaced_part(files, add, where))


def tell_of_others(files: Files, history: History, published: int) -> None:
    """Tell of visible files that belong to no live part.

    Args:
        files: as compared.
        history: what the records say of removed parts.
        published: the version up to which everything is said to be published.
    """
    left = {path: size for path, size in files.visible.items() if size >= 0}
    foreign: list[str] = []
    for path, (remove, version) in history.removed.items():
        if path not in left:
            continue
        del left[path]
        if not has_content(files.fs, path, remove):
            foreign.append(path)
            continue
        files.findings.append(_returned(remove, is_known=version <= published))
    for note in [path for path in files.staged if layout.is_note(path)]:
        # A task writes this file under its final name, or was killed in doing so.
        left.pop(_noted(files.fs, note), None)
    if foreign:
        expected = "nothing: removed parts had these names"
        files.findings.append(_unknown("foreign-files", expected, foreign))
    if left:
        files.findings.append(_unknown("unknown-files", "files that a record knows", list(left)))


def tell_of_stage(files: Files, history: History) -> None:
    """Tell of removed parts, and of dead letters, that are still staged; files are compared by now.

    Args:
        files: as compared: the stage has what no live part needs.
        history: what the records say of removed parts, and of dead letters.
    """
    for path in history.removed_staged:
        if files.staged.pop(path, None) is not None:
            files.findings.append(_removed_staged(path))
    for letter in history.letters:
        path = letter.final_path or ""
        where = find_part(files.fs, letter)
        files.staged.pop(letter.path, None)
        if where.place is Place.STAGED:
            found, remedy = "still staged", f"The next commit publishes it: {REPAIR}"
            files.findings.append(
                Finding("not-published", path, "dead letters", found, "warning", remedy, "yes", (Publish(letter),))
            )


def _noted(fs: FileSystem, note: str) -> str:
    try:
        return fs.read(note).decode(errors="replace")
    except NotFound:
        return ""


def _unknown(code: str, expected: str, paths: list[str]) -> Finding:
    names = ", ".join(map(repr, sorted(paths)[:NAMES_TOLD]))
    remedy = (
        "Plain readers take them for data. ftfile leaves what is not its own; ftfile.repair(path, quarantine=[…]) puts "
        "aside what you name"
    )
    found = f"{len(paths)} files, among them {names}" if len(paths) > NAMES_TOLD else names
    return Finding(code, "", expected, found, "info", remedy, "on request")


def _returned(remove: Remove, *, is_known: bool) -> Finding:
    """Return the finding of a removed part that is visible: again, or still, where its removal is not published."""
    path, expected, actions = remove.final_path or "", "nothing: it was replaced or removed", (RetireAgain(remove),)
    if is_known:
        found = "the removed part: plain readers see old rows beside the new ones"
        return Finding("returned-part", path, expected, found, "error", REPAIR, "yes", actions)
    remedy = f"The next commit hides it, and so does a repair: {REPAIR}"
    return Finding("not-hidden", path, expected, "the removed part", "warning", remedy, "yes", actions)


def _removed_staged(path: str) -> Finding:
    expected, found = "nothing: the part was removed", "its staged file, which who publishes late would publish"
    actions = (MoveAside(path),)
    return Finding("removed-part-staged", path, expected, found, "warning", REPAIR, "yes", actions)
