from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import FtfileError
from ftfile.storage.paths import parent_of
from ftfile.testing.context import ManualClock, SeededIds
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states, kill_states
from tests.kit.parameters import parametrize
from tests.unit.storage.layered import LayeredContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.crashing import CrashState
    from ftfile.testing.fs.volume import Storage


class CrashingContract(LayeredContract):
    def device_syncs(self, filesystem: FileSystem) -> int | None:
        """Return how many durable contents there were; objects, which are made durable, are not synced."""
        assert isinstance(filesystem, CrashingFileSystem)
        if filesystem.capabilities.visible_at == "at_close":
            return None
        return sum(operation.kind == "hsync" for operation in filesystem.journal)


class TestCrashingWithoutCrash(CrashingContract):
    @pytest.fixture
    def filesystem(self) -> FileSystem:
        return CrashingFileSystem()


class TestCrashingLikeS3(CrashingContract):
    @pytest.fixture
    def filesystem(self) -> FileSystem:
        return CrashingFileSystem(storage="s3")


class TestCrashingLikeHdfs(CrashingContract):
    @pytest.fixture
    def filesystem(self) -> FileSystem:
        return CrashingFileSystem(storage="hdfs")


class TestCrashingLikeWebHdfs(CrashingContract):
    @pytest.fixture
    def filesystem(self) -> FileSystem:
        return CrashingFileSystem(storage="webhdfs")


def files(filesystem: FileSystem) -> dict[str, bytes]:
    found = {}
    waiting = [""]
    for directory in waiting:
        for info in filesystem.list(directory):
            if info.is_directory:
                waiting.append(info.path)
            else:
                found[info.path] = filesystem.read(info.path)
    return found


def write(filesystem: FileSystem, path: str, *chunks: bytes, hsync: bool = True) -> None:
    with filesystem.create(path) as stream:
        for chunk in chunks:
            stream.write(chunk)
        if hsync:
            stream.hsync()


def disk_with(*directories: str, durable_names: bool = False) -> CrashingFileSystem:
    """Return a file system with these directories, all durable, and an empty journal."""
    disk = CrashingFileSystem(storage="hdfs" if durable_names else "disk")
    for directory in ("", *directories):
        disk.make_directories(directory)
        disk.sync_directory(parent_of(directory))
    return last_states(disk)[0].filesystem()


def last_states(disk: CrashingFileSystem, *, in_order: bool = True) -> list[CrashState]:
    """Return the states that a power cut after the last step may leave."""
    return [state for state in crash_states(disk, in_order=in_order) if state.point == len(disk.journal)]


def outcomes(disk: CrashingFileSystem, *, in_order: bool = True) -> set[frozenset[tuple[str, bytes]]]:
    return {frozenset(files(state.filesystem()).items()) for state in last_states(disk, in_order=in_order)}


def sets(*disks: dict[str, bytes]) -> set[frozenset[tuple[str, bytes]]]:
    return {frozenset(disk.items()) for disk in disks}


# ------------------------------------------------------------------------------------------------- content


def test_synced_content_is_there_and_later_content_lost_torn_or_kept() -> None:
    disk = disk_with()
    stream = disk.create("file")
    disk.sync_directory("")
    stream.write(b"synced")
    stream.hsync()
    assert outcomes(disk) == sets({"file": b"synced"})
    stream.write(b"1234")
    stream.close()
    assert outcomes(disk) == sets({"file": b"synced"}, {"file": b"synced12"}, {"file": b"synced1234"})


def test_content_does_not_make_a_name_durable_nor_a_name_content() -> None:
    disk = disk_with()
    write(disk, "synced", b"data")
    assert outcomes(disk) == sets({}, {"synced": b"data"})
    disk.sync_directory("")
    write(disk, "unsynced", b"data", hsync=False)
    disk.sync_directory("")
    assert outcomes(disk) == sets(*({"synced": b"data", "unsynced": content} for content in (b"", b"da", b"data")))


def test_a_hint_is_never_durable() -> None:
    disk = disk_with()
    disk.put("hint", b"1111")
    disk.sync_directory("")
    assert outcomes(disk) == sets({"hint": b""}, {"hint": b"11"}, {"hint": b"1111"})
    disk.put("hint", b"2222")
    assert outcomes(disk) == sets(*({"hint": content} for content in (b"", b"1111", b"2211", b"2222")))


# --------------------------------------------------------------------------------------------------- names


def test_changes_of_one_directory_survive_in_their_order() -> None:
    disk = disk_with()
    for name in ("a", "b"):
        write(disk, name)
    disk.delete("a")
    assert outcomes(disk) == sets({}, {"a": b""}, {"a": b"", "b": b""}, {"b": b""})
    disk.sync_directory("")
    assert outcomes(disk) == sets({"b": b""})


def test_one_change_of_a_directory_may_survive_or_be_lost_alone() -> None:
    disk = disk_with()
    for name in ("a", "b", "c"):
        write(disk, name)
    disk.rename("b", "d")
    prefixes = sets({}, *(dict.fromkeys(names, b"") for names in ("a", "ab", "abc", "acd")))
    assert outcomes(disk) == prefixes
    alone = sets(*(dict.fromkeys(names, b"") for names in ("cd", "ac", "ad", "abc", "b", "c")))
    assert outcomes(disk, in_order=False) == prefixes | alone


def test_changes_of_different_directories_are_independent() -> None:
    disk = disk_with("x", "y")
    write(disk, "x/a")
    write(disk, "y/b")
    assert outcomes(disk) == sets({}, {"x/a": b""}, {"y/b": b""}, {"x/a": b"", "y/b": b""})
    disk.sync_directory("y")
    assert outcomes(disk) == sets({"y/b": b""}, {"x/a": b"", "y/b": b""})


def test_a_rename_survives_in_both_directories_or_in_neither() -> None:
    disk = disk_with("x", "y")
    write(disk, "x/a", b"data")
    disk.sync_directory("x")
    disk.rename("x/a", "y/a")
    assert outcomes(disk) == sets({"x/a": b"data"}, {"y/a": b"data"})


@pytest.mark.parametrize("synced", ["x", "y"])
def test_a_sync_of_either_directory_makes_a_rename_durable_with_all_before_it(synced: str) -> None:
    disk = disk_with("x", "y")
    write(disk, "x/a")
    write(disk, "y/before")
    disk.rename("x/a", "y/a")
    later = "x/later" if synced == "y" else "y/later"
    write(disk, later)
    disk.sync_directory(synced)
    moved = {"y/a": b"", "y/before": b""}
    assert outcomes(disk) == sets(moved, {**moved, later: b""})


def test_what_is_in_a_directory_is_lost_with_its_name() -> None:
    disk = disk_with()
    disk.make_directories("x/y")
    write(disk, "x/y/a", b"data")
    disk.sync_directory("x/y")
    disk.sync_directory("x")
    assert outcomes(disk) == sets({}, {"x/y/a": b"data"})
    recovered = next(state for state in last_states(disk) if not files(state.filesystem())).filesystem()
    assert not recovered.exists("x")
    recovered.make_directories("x/y")
    assert recovered.list("x/y") == []
    disk.sync_directory("")
    assert outcomes(disk) == sets({"x/y/a": b"data"})


def test_a_directory_that_comes_again_does_not_bring_back_what_was_in_it() -> None:
    disk = disk_with("x")
    write(disk, "x/old")
    disk.sync_directory("x")
    disk.delete("x/old")
    assert disk.remove_directory("x")
    disk.make_directories("x")
    write(disk, "x/new")
    assert outcomes(disk) == sets({"x/old": b""}, {}, {"x/new": b""})
    disk.sync_directory("")
    assert outcomes(disk) == sets({}, {"x/new": b""})


def test_names_of_some_storage_are_durable_at_once() -> None:
    disk = disk_with(durable_names=True)
    disk.make_directories("x")
    write(disk, "x/a", b"data")
    disk.rename("x/a", "x/b")
    write(disk, "x/c", b"data", hsync=False)
    assert outcomes(disk) == sets(*({"x/b": b"data", "x/c": content} for content in (b"", b"da", b"data")))


def test_survivors_are_exactly_the_prefixes_of_every_directory(seed: int) -> None:
    """Compare with the definition: all subsets of the changes that respect the order within each directory."""
    dice = random.Random(seed)
    for _ in range(20):
        disk = disk_with("x", "y", "z")
        changes: list[tuple[str, frozenset[str]]] = []
        for number in range(6):
            present = sorted(files(disk))
            if present and dice.random() < 0.5:
                source = dice.choice(present)
                target = f"{dice.choice('xyz')}/{number}"
                disk.rename(source, target)
                changes.append((f"{source}>{target}", frozenset({source[0], target[0]})))
            else:
                path = f"{dice.choice('xyz')}/{number}"
                write(disk, path)
                changes.append((path, frozenset({path[0]})))
        expected = set()
        for kept in itertools.product([True, False], repeat=len(changes)):
            lost: set[str] = set()
            names: set[str] = set()
            for (change, directories), stays in zip(changes, kept, strict=True):
                if not stays:
                    lost |= directories
                elif directories & lost:
                    break
                else:
                    source, _, target = change.rpartition(">")
                    names = (names - {source}) | {target}
            else:
                expected.add(frozenset(names))
        assert {frozenset(files(state.filesystem())) for state in last_states(disk)} == expected


# ------------------------------------------------------------------------------------- exclusive creation


def test_create_exclusive_is_absent_or_whole_at_every_moment_and_durable_after() -> None:
    disk = disk_with("log")
    disk.create_exclusive("log/0", b"record")
    disk.note("acknowledged")
    seen: Counter[str] = Counter()
    for state in crash_states(disk):
        left = files(state.filesystem())
        assert left.get("log/0", b"record") == b"record", state
        assert "log/0" in left or "acknowledged" not in state.notes, state
        seen["there" if "log/0" in left else "absent"] += 1
        seen["with a leftover"] += any(path.endswith(".tmp") for path in left)
    assert min(seen["there"], seen["absent"], seen["with a leftover"]) > 0
    steps = [operation.kind for operation in disk.journal]
    assert steps == ["create", "write", "hsync", "link", "unlink", "sync_directory", "note"]


def test_leftovers_do_not_hinder_recovery() -> None:
    disk = disk_with("log")
    disk.create_exclusive("log/0", b"record")
    leftovers = 0
    for state in crash_states(disk):
        recovered = state.filesystem()
        leftovers += any(path.endswith(".tmp") for path in files(recovered))
        if not recovered.exists("log/0"):
            recovered.create_exclusive("log/0", b"other")
        recovered.create_exclusive("log/1", b"next")
        assert recovered.read("log/1") == b"next"
    assert leftovers > 0


# --------------------------------------------------------------------------- states as a tool of a test


def test_a_state_is_durable_and_independent_of_the_others() -> None:
    disk = disk_with("x")
    write(disk, "x/a", b"data", hsync=False)
    states = last_states(disk)
    before = [files(state.filesystem()) for state in states]
    for state in states:
        recovered = state.filesystem()
        assert recovered.journal == []
        assert [again.digest() for again in crash_states(recovered)] == [state.digest()]
        recovered.put("x/a", b"changed")
        recovered.make_directories("x/y")
        recovered.put("new", b"")
    assert [files(state.filesystem()) for state in states] == before
    assert files(disk) == {"x/a": b"data"}


def test_a_killed_process_loses_nothing_but_a_later_power_cut_may() -> None:
    disk = disk_with("x")
    write(disk, "x/a", b"data")
    disk.note("told")
    killed = list(kill_states(disk))[-1].filesystem()
    assert files(killed) == {"x/a": b"data"}
    assert {frozenset(files(state.filesystem())) for state in crash_states(killed)} == {
        frozenset(),
        frozenset({"x/a"}),
    }
    assert all(state.notes == ("told",) for state in crash_states(killed))
    killed.sync_directory("x")
    assert outcomes(killed) == sets({"x/a": b"data"})
    assert {state.point for state in crash_states(killed)} == {len(disk.journal), len(disk.journal) + 1}
    assert [len(files(state.filesystem())) for state in kill_states(disk)] == [0, 1, 1, 1, 1]


def test_notes_stay_with_the_states_after_them() -> None:
    disk = disk_with()
    disk.note("one")
    disk.put("file", b"")
    disk.note("two")
    assert next(crash_states(disk)).notes == ()
    recovered = last_states(disk)[0].filesystem()
    recovered.note("three")
    told = [("one", "two"), ("one", "two", "three")]
    assert [state.notes for state in crash_states(recovered)] == told
    assert [state.notes for state in kill_states(recovered)] == told
    killed = next(kill_states(recovered)).filesystem()
    assert [state.notes for state in crash_states(killed)] == told[:1]


def test_objects_have_the_times_that_their_writers_are_told() -> None:
    storage = CrashingFileSystem(storage="s3", clock=ManualClock(tick_ms=1))
    with storage.create("file") as stream:
        stream.write(b"data")
    for stored, path in ((stream.stored, "file"), (storage.create_exclusive("other", b"data"), "other")):
        assert stored is not None
        assert stored.modified_ms == storage.stat(path).modified_ms
        assert stored.modified_ms < stored.answered_ms


def test_random_losses_can_leave_each_content_and_zeros() -> None:
    disk = CrashingFileSystem()
    for content in (b"1", b"22", b"333", b"4444"):
        disk.put("hint", content)
    *_, stop = disk.states()
    sample = stop.replay.sample(SeededIds())
    left = [disk.after_power_cut(outcome, ()) for outcome, _ in itertools.islice(sample, 200)]
    contents = {fs.read("hint") for fs in left if fs.exists("hint")}
    assert contents >= {b"", b"1", b"22", b"333", b"4444", bytes(4)}


def test_a_file_that_is_renamed_to_another_directory_may_have_both_names_until_the_old_one_is_synced() -> None:
    disk = disk_with("x", "y")
    write(disk, "x/a")
    disk.sync_directory("x")
    disk.rename("x/a", "y/a")
    before, after, both = {"x/a": b""}, {"y/a": b""}, {"x/a": b"", "y/a": b""}
    assert outcomes(disk) == sets(before, after)
    assert outcomes(disk, in_order=False) == sets(before, after, both)
    disk.sync_directory("y")
    assert outcomes(disk) == sets(after)
    assert outcomes(disk, in_order=False) == sets(after, both)
    *_, stop = disk.states()
    left = {frozenset(disk.digest() for disk, _ in itertools.islice(stop.replay.sample(SeededIds()), 100))}
    assert {len(each) for each in left} == {2}
    write(disk, "x/a")
    assert outcomes(disk, in_order=False) == sets(after, both)
    disk.sync_directory("x")
    assert outcomes(disk, in_order=False) == sets(both)
    disk.delete("x/a")
    disk.sync_directory("x")
    assert outcomes(disk, in_order=False) == sets(after)


def test_random_losses_can_leave_a_later_change_of_another_name() -> None:
    disk = disk_with("x")
    write(disk, "a")
    write(disk, "x/old")
    disk.sync_directory("")
    disk.sync_directory("x")
    disk.delete("a")
    write(disk, "b")
    disk.rename("b", "c")
    disk.delete("x/old")
    disk.remove_directory("x")
    *_, stop = disk.states()
    left = []
    for outcome, _ in itertools.islice(stop.replay.sample(SeededIds()), 300):
        left.append(frozenset(path for path, _ in outcome.tree.walk()))
    assert {frozenset({"a", "c"}), frozenset({"c", "x", "x/old"}), frozenset({"c"})} <= set(left)
    assert all(not {"b", "c"} <= names for names in left)
    assert all("x" in names or "x/old" not in names for names in left)


@pytest.mark.parametrize("storage", ["disk", "hdfs", "webhdfs", "s3"])
def test_nothing_that_was_synced_is_lost(storage: Storage) -> None:
    disk = CrashingFileSystem(storage=storage)
    disk.make_directories("a/b")
    with disk.create("a/b/file") as stream:
        stream.write(b"data")
    disk.put("hint", b"old")
    disk.rename("a/b/file", "a/file")
    disk.sync_all()
    now = disk.digest()
    disk.delete("a/file")
    left = {state.digest() for state in last_states(disk)}
    assert left <= {now, disk.digest()}
    assert disk.digest() in left


def test_a_digest_is_of_names_and_contents_alone() -> None:
    clock = ManualClock(tick_ms=1)
    one, other = CrashingFileSystem(clock=clock), CrashingFileSystem(clock=clock)
    other.put("gone", b"")
    other.delete("gone")
    for disk in (one, other):
        write(disk, "file", b"data")
    assert one.digest() == other.digest()
    digests = {one.digest()}
    changes: list[Callable[[], object]] = [
        lambda: one.put("file", b"date"),
        lambda: one.rename("file", "elif"),
        lambda: one.make_directories("empty"),
        lambda: one.put("empty/file", b""),
        lambda: one.delete("elif"),
    ]
    for change in changes:
        change()
        digests.add(one.digest())
    assert len(digests) == 6


def test_states_seen_before_are_skipped_unless_more_was_promised() -> None:
    disk = disk_with()
    disk.put("a", b"")
    disk.put("b", b"")
    everything = {(state.digest(), state.notes) for state in crash_states(disk, in_order=True)}
    seen: set[tuple[bytes, tuple[str, ...]]] = set()
    assert len(list(crash_states(disk, seen=seen, in_order=True))) == len(everything) == 3
    assert list(crash_states(disk, seen=seen, in_order=True)) == []
    disk.note("promised")
    assert {state.notes for state in crash_states(disk, seen=seen, in_order=True)} == {("promised",)}


@pytest.mark.slow
def test_a_limit_is_kept_with_the_same_states_in_each_run() -> None:
    disk = disk_with("x", "y", "z")
    for number in range(12):
        write(disk, f"{'xyz'[number % 3]}/{number}", b"data", hsync=False)
    states = [state for state in crash_states(disk, limit_per_point=50) if state.point == len(disk.journal)]
    again = [state for state in crash_states(disk, limit_per_point=50) if state.point == len(disk.journal)]
    assert len(states) == 50
    assert [state.digest() for state in states] == [state.digest() for state in again]
    assert any("x/0" not in files(state.filesystem()) for state in states), "no early change was ever lost"
    assert len({state.digest() for state in states}) > 30


def test_a_state_says_what_happened() -> None:
    disk = disk_with("x", "y")
    write(disk, "x/a", b"data", hsync=False)
    disk.rename("x/a", "y/a")
    texts = {str(state) for state in last_states(disk)}
    last = f"power cut after step {len(disk.journal)} (rename x/a -> y/a): "
    assert f"{last}all kept" in texts
    assert f"{last}not rename x/a -> y/a, x/a torn" in texts
    assert str(next(kill_states(disk))) == "process killed after step 0"


def test_a_pickled_copy_is_the_object_itself() -> None:
    disk = CrashingFileSystem()
    assert pickle.loads(pickle.dumps(disk)) is disk


# --------------------------------------------------------------------- a small protocol and its mistakes


@dataclass(frozen=True)
class Protocol:
    """Two batches of two parts: write, record, acknowledge, publish. Each flag can be a mistake."""

    sync_parts: bool = True
    sync_staged_names: bool = True
    sync_record: bool = True
    sync_log_names: bool = True
    sync_published_names: bool = True

    def run(self, disk: CrashingFileSystem) -> None:
        for batch in "01":
            for part in "ab":
                write(disk, f"staged/{batch}{part}", b"half", b"half", hsync=self.sync_parts)
            if self.sync_staged_names:
                disk.sync_directory("staged")
            write(disk, f"log/.{batch}.tmp", b"record", hsync=self.sync_record)
            disk.rename(f"log/.{batch}.tmp", f"log/{batch}")
            if self.sync_log_names:
                disk.sync_directory("log")
            disk.note(batch)
            for part in "ab":
                disk.rename(f"staged/{batch}{part}", f"final/{batch}{part}")
            if self.sync_published_names:
                disk.sync_directory("final")

    def violations(self) -> set[str]:
        disk = disk_with("staged", "log", "final")
        self.run(disk)
        return {violation for state in crash_states(disk, limit_per_point=500) for violation in check(state)}


def check(state: CrashState) -> Iterator[str]:
    left = files(state.filesystem())
    for batch in "01":
        record = left.get(f"log/{batch}")
        if record is None and batch in state.notes:
            yield "acknowledged record lost"
        elif record not in {None, b"record"}:
            yield "record torn"
        elif record is not None:
            for part in "ab":
                places = [path for path in (f"staged/{batch}{part}", f"final/{batch}{part}") if path in left]
                if not places:
                    yield "part nowhere"
                elif any(left[place] != b"halfhalf" for place in places):
                    yield "part torn"


@parametrize(
    ("protocol", "violations"),
    [
        (Protocol(), set()),
        (Protocol(sync_parts=False), {"part torn"}),
        (Protocol(sync_staged_names=False), {"part nowhere"}),
        (Protocol(sync_record=False), {"record torn"}),
        (Protocol(sync_log_names=False), {"acknowledged record lost"}),
        # A reader that looks in both places does not mind.
        (Protocol(sync_published_names=False), set()),
    ],
    ids=["right", "parts", "staged-names", "record", "log-names", "published-names"],
    quick=2,
)
def test_each_mistake_is_found(protocol: Protocol, violations: set[str]) -> None:
    assert protocol.violations() == violations


def test_a_replay_must_sync_the_log_before_it_answers() -> None:
    """The writer was killed between record and sync; who finds the record may not promise it yet."""

    def promises(*, sync: bool) -> set[bool]:
        disk = disk_with("log")
        disk.create_exclusive("log/0", b"record")
        kept = set()
        for killed in kill_states(disk):
            restarted = killed.filesystem()
            if restarted.exists("log/0"):
                if sync:
                    restarted.sync_directory("log")
                restarted.note("recorded")
                kept |= {state.filesystem().exists("log/0") for state in last_states(restarted)}
        return kept

    assert promises(sync=False) == {True, False}
    assert promises(sync=True) == {True}


def test_errors_in_recovery_are_those_of_the_port() -> None:
    disk = disk_with("x")
    write(disk, "x/a")
    gone = next(state for state in last_states(disk) if not files(state.filesystem())).filesystem()
    with pytest.raises(FtfileError, match="nothing is there"):
        gone.read("x/a")
