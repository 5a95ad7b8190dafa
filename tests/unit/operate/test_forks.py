"""Forked processes write and read on their own, whatever other threads of their parent do during the fork."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.core.errors import CallOrder
from ftfile.rows.conditions import predicate
from tests.kit.forks import IDLE_S, Fork, Progress, held_by_another_thread, locks_of, processes_of_group
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
SLOW_STATICS = ROOT / "tests/kit/slow_statics.c"
LATER = ("orc", "csv", "json", "avro", "arrow")
# The locks of a process that has done `work`, by place.
LOCKS = (
    "ftfile.filters.keys:_providers._objects.lock",
    "ftfile.filters.keys:_providers._objects.made[][]._lock",
    "ftfile.formats.reading.memory_limit:_process_limit._lock",
    "ftfile.kv.reading.reader:CACHE._lock",
    "ftfile.kv.upkeep.automatic:_vacuums.lock",
    "ftfile.operate.export.after_commit:_exports._objects.lock",
    "ftfile.operate.export.after_commit:_exports._objects.made[][]._lock",
    "ftfile.rows.conditions:_stack.lock",
    "ftfile.writing.files.file_writer:_planners._objects.lock",
    "ftfile.writing.options:_logs._objects.lock",
    "ftfile.writing.options:_logs._objects.made[][]._lock",
)


def rows(*numbers: int, who: str = "parent") -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "who": [who] * len(numbers)})


def work(root: Path, who: str) -> None:
    """Use everything that has state of the process: writers, exports, keys, conditions and stores."""
    plain, secret, store_path, ring = str(root / "plain"), str(root / "secret"), str(root / "store"), root / "keys"
    with ftfile.writer(plain, who, threads=2, export_to="delta") as writer:
        writer.write(rows(1, 2, who=who))
        writer.commit(1)
    ftfile.write(plain, rows(3, who=who))
    where = f"n > 1 AND who = '{who}'"
    assert sorted(ftfile.open(plain).to_arrow(where=where)["n"].to_pylist()) == [2, 3]
    assert predicate(pc.field("n") == 1, rows().schema) is not None
    keys = f"file:{ring}"
    with ftfile.writer(secret, who, encryption="aes-gcm", encryption_key_id="k1", key_provider=keys) as writer:
        writer.write(rows(4, who=who))
        writer.commit(1)
    ftfile.open(secret, key_provider=keys).to_arrow()
    with ftfile.kv.KeyValueStore(store_path, writer=who, options={"vacuumInterval": "1ms"}) as store:
        store.put(b"key", who.encode())
        store.commit()
        assert store.get(b"key") == who.encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_ring(tmp_path / "keys", k1=FIRST)
    return tmp_path


def run_program(text: str, *arguments: str, preload: str = "") -> str:
    """Run a program and return its output. If it and its forks hang, their stacks are shown, and they are killed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path)), "LD_PRELOAD": preload}
    command = [sys.executable, "-X", "faulthandler", "-c", text, *arguments]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        # Later than a fork that hangs, which the program itself kills.
        progress = Progress(lambda: processes_of_group(program.pid), 2 * IDLE_S)
        reason = ""
        try:
            while True:
                try:
                    output, errors = program.communicate(timeout=0.1)
                    break
                except subprocess.TimeoutExpired:
                    reason = reason or progress.hangs()
                    if reason:
                        os.killpg(program.pid, signal.SIGABRT)  # `faulthandler` prints the stacks
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
    failure = reason + errors
    assert not failure, failure
    assert program.returncode == 0
    return output


class TestLocks:
    def test_they_are_all_locks_of_a_process(self, root: Path) -> None:
        """A new lock of a module must be named here, and so it is tried below."""
        places = run_program(PLACES, str(root)).split()
        assert places == [*LOCKS]

    @pytest.mark.parametrize("place", LOCKS)
    def test_a_fork_works_while_another_thread_holds_the_lock(self, root: Path, place: str) -> None:
        work(root, "parent")
        with held_by_another_thread(locks_of("ftfile")[place]):
            Fork(lambda: work(root, "child")).join()
        numbers = ftfile.open(str(root / "plain")).to_arrow()
        assert sorted(numbers["who"].to_pylist()) == ["child"] * 3 + ["parent"] * 3

    def test_a_fork_reads_an_inherited_directory_while_another_thread_reads_it(self, root: Path) -> None:
        ftfile.write(str(root / "out"), rows(1, 2))
        directory = ftfile.open(str(root / "out"))

        def read() -> None:
            assert directory.to_arrow(where="n = 2").num_rows == 1

        with held_by_another_thread([directory._log.lock]):  # noqa: SLF001
            Fork(read).join()


PLACES = """\
import sys
from pathlib import Path
from tests.kit.forks import locks_of
from tests.unit.operate.test_forks import work

work(Path(sys.argv[1]), "parent")
# Cached merges of runs have caches of blocks.
print(*sorted(place for place in locks_of("ftfile") if "CACHE._entries" not in place))
"""


class TestInheritedWriters:
    """The objects of the parent belong to the parent."""

    def test_a_writer_in_a_call_of_another_thread_is_refused_and_closed_without_effect(self, root: Path) -> None:
        path = str(root / "out")
        with ftfile.writer(path, "parent", threads=2) as writer:
            writer.write(rows(*range(10_000)))
            before = {*Path(path).rglob("*")}

            def use() -> None:
                for refused in (lambda: writer.write(rows(1)), writer.commit, writer.abort):
                    with pytest.raises(CallOrder, match="open a writer in this process"):
                        refused()
                assert writer.position is None
                writer.close()
                writer.__exit__()

            locks = [writer._calls, writer._storage_log.lock]  # noqa: SLF001
            with held_by_another_thread(locks):
                Fork(use).join()
            assert before <= {*Path(path).rglob("*")}  # threads of the parent create more files
            writer.commit(1)
        assert ftfile.open(path).to_arrow().num_rows == 10_000

    def test_a_store_in_a_call_of_another_thread_is_refused_and_closed_without_effect(self, root: Path) -> None:
        path = str(root / "store")
        with ftfile.kv.KeyValueStore(path, writer="parent") as store:
            store.put(b"key", b"1")
            store.commit()
            store.put(b"key", b"2")
            before = sorted(Path(path).rglob("*"))
            put, get = store.put, store.get
            calls: tuple[Callable[[], object], ...] = (
                lambda: put(b"key", b"3"),
                lambda: store.merge(b"key", b"3"),
                lambda: store.delete(b"key"),
                lambda: store.purge(everything=True),
                lambda: store.begin_window(7),
                store.end_window,
                lambda: store.checkpointed(0),
                lambda: store.committed(0),
                store.commit,
                lambda: get(b"key"),
                lambda: store.multi_get([b"key"]),
                lambda: store.lookup(pa.array([b"key"])),
                lambda: store.read(b"key"),
                lambda: store.get_uncommitted(b"key"),
                lambda: [*store.scan()],
                store.refresh,
                lambda: store.at(0),
                store.stats,
                store.runs,
            )

            def use() -> None:
                for number, call in enumerate(calls):
                    with pytest.raises(CallOrder, match="as another writer"):
                        print(number, call())
                assert repr(store).startswith("KeyValueStore(")
                store.close()
                assert sorted(Path(path).rglob("*")) == before

            locks = [store._lock, store.log.lock, store._files._lock]  # noqa: SLF001
            with held_by_another_thread(locks):
                Fork(use).join()
            store.commit()
            assert store.get(b"key") == b"2"
        assert ftfile.kv.open(path).get(b"key") == b"2"

    @pytest.mark.parametrize("ending", ["os._exit(0)", pytest.param("sys.exit()", marks=pytest.mark.slow), "pass"])
    def test_a_fork_that_ends_leaves_them_alone(self, root: Path, ending: str) -> None:
        """With calls of `atexit` and `weakref.finalize`, unless it ends by `os._exit`."""
        output = run_program(ENDING.replace("END", ending), str(root))
        calls_of_exit = [] if "_exit" in ending else ["child: the calls of the exit run"]
        assert output.splitlines() == [
            *calls_of_exit,
            "parent: 10000 rows and b'2'",
            "parent: the calls of the exit run",
        ]


ENDING = """\
import atexit, os, sys, threading
import pyarrow as pa
import ftfile

root, parent = sys.argv[1], os.getpid()
who = lambda: "parent" if os.getpid() == parent else "child"
atexit.register(lambda: print(f"{who()}: the calls of the exit run", flush=True))
writer = ftfile.writer(f"{root}/out", "parent", threads=2)
writer.write(pa.table({"n": range(10_000)}))
store = ftfile.kv.KeyValueStore(f"{root}/store", writer="parent")
store.put(b"key", b"1")
store.commit()
store.put(b"key", b"2")
begun, is_over = threading.Event(), threading.Event()

def commit():
    with ftfile.writer(f"{root}/other", "thread") as other:
        while not is_over.is_set():
            other.write(pa.table({"n": [1]}))
            other.commit(other.version)
            begun.set()

thread = threading.Thread(target=commit)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    END
else:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, code
    writer.commit(1)
    writer.close()
    store.commit()
    store.close()
    written, kept = ftfile.open(f"{root}/out").to_arrow().num_rows, ftfile.kv.open(f"{root}/store").get(b"key")
    print(f"parent: {written} rows and {kept}")
    is_over.set()
    thread.join()
"""


@pytest.mark.parametrize(
    ("is_cold", "forks"),
    [(True, 4), pytest.param(True, 24, marks=pytest.mark.slow), pytest.param(False, 24, marks=pytest.mark.slow)],
)
def test_forks_write_while_threads_of_their_parent_commit(root: Path, is_cold: bool, forks: int) -> None:
    """A cold parent forks while its threads import what the first commits need."""
    path, parents, commits = str(root / "out"), 2, 3
    output = run_program(DENSE, path, *map(str, (parents, forks, commits, int(is_cold))))
    expected = [(f"child-{number}", commit) for number in range(forks) for commit in range(commits + 1)]
    for number, count in enumerate(output.split()):
        expected += [(f"parent-{number}", commit) for commit in range(int(count))]
    table = ftfile.open(path).to_arrow()
    assert sorted(zip(table["who"].to_pylist(), table["n"].to_pylist(), strict=True)) == sorted(expected)


@pytest.mark.skipif(shutil.which("cc") is None, reason="it needs a compiler of C")
@pytest.mark.parametrize("file_format", ["parquet", *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)])
def test_forks_write_while_a_thread_of_their_parent_creates_static_objects(root: Path, file_format: str) -> None:
    """Of Arrow, during first calls, which are slow here."""
    library = root / "slow_statics.so"
    compile_library = ["cc", "-shared", "-fPIC", "-o", str(library), str(SLOW_STATICS), "-ldl"]
    subprocess.run(compile_library, check=True)
    # Arrow loads the library of C++ only for itself.
    run_program(STATICS, str(root / "out"), file_format, preload=f"{library} libstdc++.so.6")


STATICS = """\
import sys, threading
import pyarrow as pa
import ftfile
from tests.kit.forks import Fork

path, file_format = sys.argv[1:]
is_over = threading.Event()

def write(name):
    ftfile.write(f"{path}/{name}", pa.table({"n": [1, 2], "who": ["x", "y"]}), file_format=file_format)
    assert ftfile.open(f"{path}/{name}").to_arrow(where="n > 1 AND who = 'y'").num_rows == 1

def write_first():
    write("parent")
    is_over.set()

thread = threading.Thread(target=write_first)
thread.start()
children = []
while not is_over.wait(0.1):
    number = len(children)
    children.append(Fork(lambda: write(number)))
thread.join()
for child in children:
    child.join()
"""
DENSE = """\
import random, sys, threading
import pyarrow as pa
import ftfile
from tests.kit.forks import Fork

path, parents, forks, commits, is_cold = sys.argv[1], *map(int, sys.argv[2:])
begun, is_over = threading.Semaphore(0), threading.Event()
counts = [0] * parents

def commit(who, number):
    with ftfile.writer(path, who) as writer:
        while True:
            writer.write(pa.table({"n": [number], "who": [who]}))
            writer.commit(number)
            number += 1
            yield number

def commit_in_loop(parent):
    for counts[parent] in commit(f"parent-{parent}", 0):
        begun.release()
        if is_over.is_set():
            break

def commit_some(child):
    who = f"child-{child}"
    for number in commit(who, 0):
        if number == commits:
            break
    ftfile.write(path, pa.table({"n": [commits], "who": [who]}))
    assert ftfile.open(path).to_arrow(where=f"who = '{who}'").num_rows == commits + 1

threads = [threading.Thread(target=commit_in_loop, args=(parent,), daemon=True) for parent in range(parents)]
for thread in threads:
    thread.start()
children = []
for child in range(forks):
    if not is_cold:
        assert begun.acquire(timeout=60)
    is_over.wait(random.random() / 50)  # at another moment of a commit or of an import each time
    children.append(Fork(lambda: commit_some(child)))
for child in children:
    child.join()
is_over.set()
for thread in threads:
    thread.join()
print(*counts)
"""


def test_new_threads_have_the_usual_stack_in_a_fork_during_a_walk() -> None:
    from ftfile.rows import conditions

    with conditions._stack.here.lock:  # noqa: SLF001
        usual = conditions._stack.here.bytes_before = threading.stack_size(512 << 20)  # noqa: SLF001
        try:

            def check() -> None:
                assert threading.stack_size() == usual

            Fork(check).join()
        finally:
            threading.stack_size(usual)
            conditions._stack.here.bytes_before = None  # noqa: SLF001


def test_the_cache_of_blocks_keeps_its_capacity_in_a_fork() -> None:
    from ftfile.kv.reading.reader import CACHE

    before = CACHE.here.capacity_bytes
    CACHE.here.resize(12_345)
    try:

        def check() -> None:
            assert (CACHE.here.capacity_bytes, CACHE.here.size_bytes) == (12_345, 0)

        Fork(check).join()
    finally:
        CACHE.here.resize(before)
