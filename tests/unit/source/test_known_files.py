"""The known files depend only on plans, need 65 bytes for each file, and are forgotten after a time."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from ftfile.core.errors import CorruptData
from ftfile.source import known_files
from ftfile.source.known_files import KnownFiles
from ftfile.source.known_rows import DISPLACED, PARKED, ROW, KnownFile, has_unread, key_of
from ftfile.source.plan import FileEntry, Late, Range, Refused, SourcePlan
from tests.kit.parameters import parametrize

MARKS = "00000000000000aa", "00000000000000bb"


def read(path: str, end: int = 5, modified_ms: int = 10, identity: str | None = "7") -> Range:
    return Range(path, 0, end, *MARKS, end, modified_ms, identity)


def random_plan(draw: random.Random, known: KnownFiles, low: int) -> SourcePlan:
    names = [f"f{draw.randrange(60)}" for _ in range(8)]
    times = [low + draw.randrange(-3, 50) for _ in range(8)]
    marks = draw.randbytes(8).hex(), draw.randbytes(8).hex()
    previous = draw.choice([key_of("r:///x", names[2]).hex(), key_of("r:///x", "gone").hex()])
    return SourcePlan(
        ranges=tuple(Range(names[at], 0, 9, *marks, 9, times[at], draw.choice([None, "1"])) for at in (0, 1)),
        files=(
            FileEntry(names[0], "moved", 9, *marks, 9, times[0], previous_keys=(previous,), displaces=True),
            FileEntry(names[3], "copy", 4, *marks, 9, times[3]),
            FileEntry(names[4], "new", 0, "", "", 3, times[4], "4", parked="why"),
            FileEntry(names[1], "continued", 3, *marks, 3, times[1], advances=key_of("r:///x", names[6]).hex()),
            FileEntry(names[5], "replaced", 0, "", "", 3, times[5], displaces=True),
        ),
        late=(Late("late", 1),) * draw.randrange(2),
        refused=(Refused(names[6], "why"),),
        low=max(low, known.low),
        root="r:///x",
        planned_ms=draw.randrange(1 << 40),
    )


def test_refused_files_stay_known_as_they_are() -> None:
    known = KnownFiles().apply(SourcePlan(ranges=(read("a"),), root="r:///x"))
    assert known.apply(SourcePlan(refused=(Refused("a", "why"), Refused("b", "why")), root="r:///x")) == known


@pytest.mark.parametrize("pending_min", [0, 7, 4096])
@parametrize("seed", range(4), quick=1)
def test_AFI_16_all_who_fold_the_same_plans_have_the_same_state(
    pending_min: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merging, storing and reading of columns between two plans does not change the result."""
    monkeypatch.setattr(known_files, "_PENDING_MIN", pending_min)
    draw = random.Random(seed)
    first = second = third = KnownFiles()
    for number in range(60):
        plan = random_plan(draw, first, number // 2)
        before = first.to_bytes()
        after = first.apply(plan)
        assert first.to_bytes() == before
        first, second, third = after, second.apply(plan), KnownFiles.from_bytes(third.to_bytes()).apply(plan)
        assert len(third) == len(first)
    assert first.to_bytes() == second.to_bytes() == third.to_bytes()
    assert first == second
    assert (first.rows["modified"] >= first.low).all()
    assert len({row["high"].item() for row in first.rows}) == len(first) > 10


def test_a_file_takes_65_bytes() -> None:
    known = KnownFiles().apply(SourcePlan(ranges=tuple(read(f"{number:0100}") for number in range(1000))))
    assert ROW.itemsize == 65
    assert known.rows.nbytes == 65_000
    assert len(known.to_bytes()) < 65_100
    assert sys.getsizeof(known.rows) < 65_300


def test_keys_with_one_first_half_are_told_apart() -> None:
    """Three keys with the same first 64 bits; random keys do not collide like this."""
    known = KnownFiles().apply(SourcePlan(ranges=tuple(read(name) for name in "abcd")))
    rows = known.rows.copy()
    rows["high"][1:] = rows["high"][1]
    rows.sort(order=["high", "low"])
    known._rows = rows  # noqa: SLF001
    again = KnownFiles.from_bytes(known.to_bytes())
    highs, lows = np.concatenate([rows["high"], rows["high"]]), np.concatenate([rows["low"], rows["low"] + 1])
    assert again.find(highs, lows).tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    for row in rows:
        assert again.get(row.tobytes()[:16]) is not None
    key = rows[2].tobytes()[:16].hex()
    entry = FileEntry("x", "moved", 5, *MARKS, 5, 10, previous_keys=(key,))
    moved = again.apply(SourcePlan(ranges=(read("x"),), files=(entry,)))
    assert len(moved) == 4
    assert moved.get(rows[2].tobytes()[:16]) is None
    assert moved.get(rows[3].tobytes()[:16]) is not None


@pytest.mark.parametrize("modified_ms", [5, 20])
def test_a_file_that_is_gone_advances_to_the_end_of_what_is_read_of_its_copy(modified_ms: int) -> None:
    """The result is the same as if the rest of the copy had been read at the path of the deleted file."""
    known = KnownFiles().apply(SourcePlan(ranges=(read("a.log", identity="3"),)))
    rest = Range("a.log.gz", 5, 9, "1" * 16, "2" * 16, 99, modified_ms, "4", compression="gzip")
    gone = key_of("", "a.log")
    entry = FileEntry("a.log.gz", "continued", 99, *MARKS, 99, modified_ms, "4", advances=gone.hex())
    advanced = known.apply(SourcePlan(ranges=(rest,), files=(entry,)))
    before, file, copy = known.get(gone), advanced.get(gone), advanced.get(key_of("", "a.log.gz"))
    assert before is not None
    assert file == before._replace(
        position=9, size_bytes=9, modified_ms=max(10, modified_ms), head="1" * 16, tail="2" * 16
    )
    assert copy is not None
    assert (copy.position, copy.head, copy.tail) == (99, *MARKS), "the copy has the fingerprints of its stored bytes"


@pytest.mark.parametrize("size_bytes", [-1, 0, 5])
@pytest.mark.parametrize("is_parked", [False, True])
def test_a_displaced_file_stays_known_under_a_key_of_its_own(size_bytes: int, is_parked: bool) -> None:
    key = key_of("", "a.log")
    file = KnownFile(key, 5, size_bytes, 10, b"identity", *MARKS, is_parked)
    known = KnownFiles()
    known._pending = {key: file.pack()}  # noqa: SLF001
    assert known.get(key) == file
    after = known.apply(SourcePlan(files=(FileEntry("a.log", "replaced", 0, "", "", 3, 20, "8", displaces=True),)))
    displaced = KnownFiles.from_bytes(after.to_bytes()).get(file.displaced_key())
    assert displaced == file._replace(key=file.displaced_key(), is_displaced=True)
    assert [bool(row["position"]) for row in after.rows if row["size"] == 3] == [False]
    flags = {row["position"].item(): row["flags"].item() for row in after.rows}
    assert flags == {5: DISPLACED | PARKED * is_parked, 0: 0}
    assert sorted(after.rows["size"].tolist()) == sorted([size_bytes, 3])
    assert len(after.parked_keys()) == is_parked


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_parked_file_has_no_unread_bytes(is_parked: bool) -> None:
    key = key_of("", "a.log")
    known = KnownFiles()
    known._pending = {key: KnownFile(key, 5, 9, 10, b"identity", *MARKS, is_parked).pack()}  # noqa: SLF001
    assert has_unread(known.rows).tolist() == [not is_parked]


def test_a_file_that_is_gone_advances_although_the_same_plan_displaces_it() -> None:
    """Between two plans, the log was compressed, and a new log was created at its path."""
    known = KnownFiles().apply(SourcePlan(ranges=(read("a.log", identity="3"),)))
    key = key_of("", "a.log")
    file = known.get(key)
    assert file is not None
    rest = Range("a.log.gz", 5, 9, "1" * 16, "2" * 16, 99, 20, "4", compression="gzip")
    entries = (
        FileEntry("a.log", "replaced", 0, "", "", 3, 20, "8", displaces=True),
        FileEntry("a.log.gz", "continued", 99, *MARKS, 99, 20, "4", advances=key.hex()),
    )
    for files in (entries, entries[::-1]):
        after = known.apply(SourcePlan(ranges=(rest,), files=files))
        gone, new = after.get(file.displaced_key()), after.get(key)
        assert gone == file.displace()._replace(position=9, size_bytes=9, modified_ms=20, head="1" * 16, tail="2" * 16)
        assert new is not None
        assert (new.position, new.size_bytes, new.is_displaced) == (0, 3, False)
        assert len(after) == 3


def test_a_file_that_is_gone_does_not_advance_where_another_one_has_its_path() -> None:
    known = KnownFiles().apply(SourcePlan(ranges=(read("a.log"),)))
    gone = key_of("", "a.log")
    rest = Range("a.log.gz", 5, 9, *MARKS, 99, 10, "4", compression="gzip")
    entry = FileEntry("a.log.gz", "continued", 99, *MARKS, 99, 10, "4", advances=gone.hex())
    after = known.apply(SourcePlan(ranges=(rest, read("a.log", end=3, identity="8")), files=(entry,)))
    file = after.get(gone)
    assert file is not None
    assert file.position == 3


def test_a_root_above_gives_the_same_keys() -> None:
    assert key_of("file:///data", "in/a") == key_of("file:///data/in", "a") == key_of("file:///", "data/in/a")
    assert key_of("file:///data", "in/a") != key_of("s3://data", "in/a")


@pytest.mark.parametrize(("start", "end"), [(0, -1), (0, 0), (1, None)])
def test_damaged_columns_are_refused(start: int, end: int | None) -> None:
    data = KnownFiles().apply(SourcePlan(ranges=(read("a"),), late=(Late("b", 1),), low=3)).to_bytes()
    again = KnownFiles.from_bytes(data)
    assert (again.low, again.late, again.is_begun, len(again)) == (3, 1, True, 1)
    for damaged in (data[start:end], data[:70] + b"x" + data[71:]):
        with pytest.raises(CorruptData):
            KnownFiles.from_bytes(damaged)


def test_a_plan_of_rows_that_are_forgotten_leaves_none() -> None:
    known = KnownFiles().apply(SourcePlan(ranges=(read("a", modified_ms=5), read("b", modified_ms=6)), low=6))
    assert len(known) == 1
    assert known.get(key_of("", "a")) is None
    assert len(known.apply(SourcePlan(low=7))) == 0
