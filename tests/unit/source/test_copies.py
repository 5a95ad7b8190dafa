"""The rules that find copies of files, applied to contents in memory, without storage."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import CorruptData, PermissionDenied
from ftfile.source.contents import WINDOW_BYTES, fingerprints, marks_of
from ftfile.source.copies import Contents, Original, match_content
from ftfile.source.file_table import Row
from ftfile.source.known_rows import KnownFile
from ftfile.source.matching import CHANGED, Content, Failure, IdentityRule, Match

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.source.contents import Fingerprints
    from ftfile.source.matching import Answer, ContentProbe

LOG = b"".join(b"line %06d\n" % number for number in range(300))
OTHER = LOG[:500] + b"".join(b"LINE %06d\n" % number for number in range(300))
PACKED = bytes(range(256)) * 2  # stored bytes that can be decoded
REFUSED = Failure(PermissionDenied("open", "a", "as the test wants it"))
DAMAGED = Failure(CorruptData("a.gz", "gzip", "something else"))


def listed(path: str, content: bytes, known: KnownFile | None = None, *, time_ms: int = 9) -> Row:
    key, place = path.encode().ljust(16, b"\0"), zlib.crc32(path.encode())
    return Row(place, path, key, len(content), time_ms, path, path.encode()[:8].ljust(8), known, 0.0)


def prints_at(content: bytes, position: int) -> Fingerprints:
    prints = fingerprints(lambda offset, length: content[offset : offset + length], position)
    assert prints is not None
    return prints


def read_to(path: str, content: bytes, position: int, *, time_ms: int = 5) -> KnownFile:
    """Return a known file that was read up to `position`."""
    key = path.encode().ljust(16, b"\0")
    return KnownFile(key, position, len(content), time_ms, path.encode()[:8].ljust(8), *prints_at(content, position))


def gone(path: str, position: int, content: bytes = LOG, cut_off: str = "") -> Original:
    return Original(read_to(path, content, position), None, cut_off)


class World:
    """Contents of files by path, also decoded contents, as probes return them. A failure answers every probe.

    Attributes:
        stored_bytes: lengths of files that were longer at their opening than in the listing.
        probes: the requested probes.
    """

    def __init__(self, **contents: bytes | Failure) -> None:
        self.contents = contents
        self.originals: list[Original] = []
        self.stored_bytes: dict[str, int] = {}
        self.probes: list[ContentProbe] = []
        self.plan = Contents()
        self.before_second_probes: Callable[[], object] = lambda: None

    def live(self, path: str, position: int, *, content: bytes = LOG, time_ms: int = 9) -> Original:
        """Add a listed file that was read up to `position`."""
        file = read_to(path, content, position, time_ms=time_ms)
        self.contents.setdefault(path, content)
        self.originals.append(Original(file, listed(path, content, file, time_ms=time_ms)))
        return self.originals[-1]

    def decide(self, *rows: Row | Match) -> list[Match]:
        """Return the matches of files. A row is a new file."""
        matches = [row if isinstance(row, Match) else Match(row, IdentityRule.NEW) for row in rows]
        steps = match_content(matches, self._starting, self.plan)
        probes = next(steps)
        try:
            while True:
                self.probes += probes
                answers = {(probe.row.place, probe.codec): self._answer(probe) for probe in probes}
                probes = steps.send(answers)
                self.before_second_probes()
        except StopIteration as end:
            decided: list[Match] = end.value
        return decided

    def _starting(self, start: str) -> list[Original]:
        return [one for one in self.originals if one.file is not None and one.file.head.startswith(start)]

    def _answer(self, probe: ContentProbe) -> Answer:
        path = probe.row.path
        content = self.contents[f"{path}!" if probe.codec else path]
        if isinstance(content, Failure):
            return content
        size_bytes = len(content) if probe.codec else probe.row.size_bytes
        positions = probe.positions or {min(size_bytes, WINDOW_BYTES)}
        _, prints = marks_of([content[:size_bytes]], positions)
        within = {at: one for at, one in prints.items() if at in positions or probe.codec}
        return Content(within, size_bytes, self.stored_bytes.get(path, probe.row.size_bytes), probe.codec)


@pytest.mark.parametrize(("position", "is_read", "is_whole"), [(3600, True, True), (2000, False, False)])
def test_5_a_file_that_is_equal_to_a_listed_one_is_its_copy(position: int, is_read: bool, is_whole: bool) -> None:
    world = World(copy=LOG)
    world.live("a", position)
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.position, match.previous_keys) == (IdentityRule.COPY, 0, ())
    assert match.copy is not None
    assert (match.copy.original, match.copy.is_read, match.copy.is_whole) == ("a", is_read, is_whole)
    assert match.copy.stored == match.copy.end == prints_at(LOG, len(LOG))


@pytest.mark.parametrize("size", [256, 300, 1023, 1024, 1025, 3000])
def test_5_the_beginning_of_a_listed_file_is_its_copy(size: int) -> None:
    world = World(copy=LOG[:size], other=OTHER[:size])
    world.live("a", len(LOG))
    copy, other = world.decide(listed("copy", LOG[:size]), listed("other", OTHER[:size]))
    assert (copy.rule, copy.copy and (copy.copy.is_read, copy.copy.is_whole)) == (IdentityRule.COPY, (True, False))
    assert other.rule is (IdentityRule.COPY if size <= 500 else IdentityRule.NEW)


def test_5_the_copy_of_a_new_file_or_of_one_with_unread_bytes_waits() -> None:
    world = World(new=LOG[:2000], copy=LOG[:1500], longer=LOG)
    new, *others = world.decide(
        *(listed(path, LOG[:size]) for path, size in (("new", 2000), ("copy", 1500), ("longer", 3600)))
    )
    assert new.rule is IdentityRule.NEW
    assert [(one.rule, one.copy and (one.copy.original, one.copy.is_read)) for one in others] == [
        (IdentityRule.COPY, ("new", False)),
        (IdentityRule.COPY, ("new", False)),
    ]
    world = World(longer=LOG)
    world.live("a", 1000, content=LOG[:2000])
    (longer,) = world.decide(listed("longer", LOG))
    assert longer.rule is IdentityRule.COPY
    assert longer.copy is not None
    assert not longer.copy.is_read


def test_5_comes_before_6_and_7() -> None:
    """Rule 5 needs only one original whose content was read; the state of the other files does not matter."""
    world = World(copy=LOG, refused=REFUSED)
    world.live("refused", 1000)
    world.live("a", len(LOG))
    world.originals.append(gone("gone", 2000))
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.copy and match.copy.original) == (IdentityRule.COPY, "a")


@pytest.mark.parametrize("answer", [CHANGED, REFUSED])
def test_6_a_file_is_undecided_while_an_original_cannot_be_compared(answer: Failure) -> None:
    """Rule 6 comes before rule 7: the file that could not be compared may be the better original."""
    world = World(copy=LOG, a=answer)
    world.live("a", 1000)
    world.originals.append(gone("gone", 500))
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.error) == (IdentityRule.UNDECIDED, answer.error)
    assert not world.plan.claimed


def test_6_an_original_of_another_length_than_listed_tells_nothing() -> None:
    world = World(copy=LOG)
    world.live("a", len(LOG))
    world.stored_bytes["a"] = len(LOG) + 1
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.error) == (IdentityRule.UNDECIDED, None)
    assert not world.plan.mismatched


def test_6_an_original_with_other_content_than_known_tells_nothing_and_is_named() -> None:
    world = World(copy=LOG, a=OTHER)
    original = world.live("a", 1000)
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.error) == (IdentityRule.UNDECIDED, None)
    assert original.row is not None
    assert world.plan.mismatched == {original.row.key}


@pytest.mark.parametrize("answer", [CHANGED, REFUSED, DAMAGED])
@pytest.mark.parametrize("path", ["copy", "copy.gz!"])
def test_6_a_file_of_which_a_probe_failed_is_undecided(path: str, answer: Failure) -> None:
    name = path.removesuffix("!")
    contents: dict[str, bytes | Failure] = {name: OTHER, path: answer}
    world = World(**contents)
    (match,) = world.decide(listed(name, OTHER))
    assert (match.rule, match.error) == (IdentityRule.UNDECIDED, answer.error)


def test_6_a_file_that_begins_otherwise_at_the_second_probe_is_undecided() -> None:
    """Between both probes, the file was overwritten with the content of a file with which it was not compared."""
    world = World(copy=LOG)
    world.live("a", 1000)
    world.before_second_probes = lambda: world.contents.update(copy=bytes(len(LOG)))
    assert [match.rule for match in world.decide(listed("copy", LOG))] == [IdentityRule.UNDECIDED]


def test_6_a_copy_of_a_new_file_that_was_written_anew_since_is_undecided() -> None:
    """The plan reads the old content of the new file, and the copy contains the same lines."""
    world = World(new=LOG[:2000], copy=LOG[:2000])
    assert [match.rule for match in world.decide(listed("new", LOG[:2000]))] == [IdentityRule.NEW]
    world.contents.update(new=OTHER[:2000])
    assert [match.rule for match in world.decide(listed("copy", LOG[:2000]))] == [IdentityRule.UNDECIDED]


def test_7_a_file_goes_on_behind_one_that_is_gone() -> None:
    """Of several deleted files, reading resumes after the file of which most was read. Its old path is forgotten."""
    world = World(copy=LOG)
    world.originals += [gone("b", 2000), gone("a", 1000), gone("longer", 4000, LOG + OTHER), gone("other", 3000, OTHER)]
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.file) == (IdentityRule.CONTINUED, world.originals[0].file)
    assert (match.position, match.before) == (2000, prints_at(LOG, 2000))
    assert match.previous_keys == (b"b".ljust(16, b"\0"),)
    assert (match.advances, match.copy) == (b"", None)
    assert [probe.row.path for probe in world.probes] == ["copy", "copy"], "deleted files need no probe"


def test_7_a_renamed_file_of_which_nothing_was_read_keeps_its_old_key() -> None:
    world = World(copy=LOG)
    world.originals.append(gone("a", 1000))
    row = listed("copy", LOG)
    (match,) = world.decide(Match(row, IdentityRule.MOVED, read_to("old", LOG, 0), (b"old",)))
    assert (match.rule, match.previous_keys) == (IdentityRule.CONTINUED, (b"old", b"a".ljust(16, b"\0")))


def test_7_a_compressed_copy_advances_the_file_that_is_gone() -> None:
    world = World(**{"a.gz": PACKED, "a.gz!": LOG})
    world.originals.append(gone("a", 1000))
    (match,) = world.decide(listed("a.gz", PACKED))
    assert (match.rule, match.position, match.previous_keys) == (IdentityRule.CONTINUED, 1000, ())
    assert match.advances == b"a".ljust(16, b"\0")
    assert match.copy is not None
    assert (match.copy.content.size_bytes, match.copy.content.codec) == (len(LOG), "gzip")
    assert (match.copy.end, match.copy.stored) == (prints_at(LOG, len(LOG)), prints_at(PACKED, len(PACKED)))


def test_7_a_file_that_is_gone_goes_on_once_a_plan() -> None:
    world = World(b=LOG[:1500], c=LOG, **{"d.gz": PACKED, "d.gz!": LOG})
    world.originals.append(gone("a", 1000))
    (packed,) = world.decide(listed("d.gz", PACKED))
    assert packed.rule is IdentityRule.CONTINUED
    first, second = world.decide(listed("b", LOG[:1500]), listed("c", LOG))
    assert first.rule is IdentityRule.UNDECIDED, "the next plan decides it"
    assert second.rule is IdentityRule.COPY, "a copy of b, which is new in this plan"


def test_7_a_file_goes_on_behind_a_listed_one_that_has_no_unread_bytes() -> None:
    world = World(copy=LOG)
    world.live("a", 2000, content=LOG[:2000])
    world.originals.append(gone("gone", 2000))
    (match,) = world.decide(listed("copy", LOG))
    assert (match.rule, match.position, match.previous_keys) == (IdentityRule.CONTINUED, 2000, ())


@pytest.mark.parametrize("size", [1000, 1024, 2000])
def test_8_a_copy_of_what_was_cut_off_is_read_nowhere_from_a_kib_on(size: int) -> None:
    world = World(copy=LOG[:size])
    world.originals.append(gone("a", 3000, cut_off="a"))
    (match,) = world.decide(listed("copy", LOG[:size]))
    assert match.rule is IdentityRule.CUT_COPY
    assert match.copy is not None
    assert (match.copy.original, match.copy.is_read) == ("a", size >= WINDOW_BYTES)


def test_8_a_file_that_is_longer_than_what_was_cut_off_or_than_what_is_gone_is_new() -> None:
    world = World(b=LOG[:2000], c=OTHER)
    world.originals.append(gone("a", 3000))
    (match,) = world.decide(listed("b", LOG[:2000]))
    assert match.rule is IdentityRule.NEW
    world.originals = [gone("a", 1000, cut_off="a")]
    (match,) = world.decide(listed("c", OTHER))
    assert match.rule is IdentityRule.NEW


def test_9_less_than_256_bytes_are_not_looked_at() -> None:
    world = World(copy=LOG[:255])
    world.live("a", len(LOG))
    row = listed("copy", LOG[:255])
    assert world.decide(row) == [Match(row, IdentityRule.NEW)]
    assert not world.probes


def test_9_of_two_known_files_with_one_content_one_is_the_original() -> None:
    world = World()
    originals = [world.live(path, len(LOG)) for path in "ab"]
    matches = [Match(one.row, IdentityRule.SAME, one.file) for one in originals if one.row is not None]
    assert [match.rule for match in world.decide(*matches)] == [IdentityRule.COPY, IdentityRule.SAME]


def test_9_the_newest_64_of_each_kind_are_compared() -> None:
    world = World(copy=OTHER)
    for number in range(70):
        world.live(f"a{number}", 500, content=LOG[:500] + bytes([number]) * 600, time_ms=number)
    world.originals += [replace_time(gone(f"g{number}", 400), number) for number in range(70)]
    world.decide(listed("copy", OTHER))
    paths = {probe.row.path for probe in world.probes}
    assert paths == {"copy", *(f"a{number}" for number in range(6, 70))}


def replace_time(original: Original, time_ms: int) -> Original:
    assert original.file is not None
    return original._replace(file=original.file._replace(modified_ms=time_ms))
