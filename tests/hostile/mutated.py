"""Runs public calls on mutated directories in a watched process.

`python -m tests.hostile.mutated HOME BASE SEED FIRST COUNT` makes a base below an empty home. Before and after each of
COUNT mutations, from number FIRST, it prints a line of JSON: the changes, and the faults of the calls. `python -m
tests.hostile.mutated HOME BASE numbers NUMBER...` numbers the names of number fields. For each NUMBER it replaces all
numbers of that name in the records by the greatest number, and runs all calls.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import logging
import random
import resource
import shutil
import signal
import stat
import sys
import warnings
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from typer.main import get_command

import ftfile
from ftfile import kv
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli.app import app
from ftfile.writing.files.file_writer import forget_caches
from tests.hostile import bases, extremes, watched
from tests.hostile.mutations import mutate

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]

# Numbers of reading and changing calls on each mutation.
READS, CHANGES = 8, 4
NOW_MS = 1_790_000_000_000
WAIT_S = 60  # by a clock that does not really wait


def _cli(*words: str) -> None:
    """Run a shell command and discard its output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _command()([*words], standalone_mode=False)


@cache
def _command() -> Callable[..., object]:
    """Return the command, which `app` would otherwise rebuild for each call."""
    return get_command(app)


def _reads_of_files(out: str) -> dict[str, Call]:
    def opened() -> ftfile.Directory:
        return ftfile.open(out, context=current())

    def details() -> None:
        directory = opened()
        for version in directory.history():
            directory.version_details(version.version)
            directory.diff(version.version)

    def file_details() -> None:
        directory = opened()
        for file in directory.files():
            directory.file_details(file.path)

    return {
        "to_arrow": lambda: opened().to_arrow().to_pylist(),
        "to_arrow of a version": lambda: opened().to_arrow(3),
        "to_arrow of a condition": lambda: opened().to_arrow(where="id > 2 AND kind = 'a'"),
        "count": lambda: opened().count(where={"kind": "a"}),
        "tail": lambda: opened().tail(3),
        "files": lambda: opened().files(),
        "schema": lambda: opened().schema(),
        "details": details,
        "file details": file_details,
        "dataset": lambda: opened().dataset(),
        "dead letters": lambda: [*opened().dead_letters()],
        "follow": lambda: [[*rows] for _, rows in opened().follow(maxFilesPerTrigger=1)],
    }


def _reads_of_all(out: str) -> dict[str, Call]:
    def opened() -> ftfile.Directory:
        return ftfile.open(out, context=current())

    return {
        "history": lambda: opened().history(),
        "status": lambda: opened().status(staged=True),
        "verify": lambda: opened().verify(full=True),
        "report": lambda: ftfile.report(out, context=current()),
        "ftfile status": lambda: _cli("status", out, "--no-lag"),
        "ftfile history": lambda: _cli("history", out),
        "ftfile show": lambda: _cli("show", out, "1"),
        "doctor": lambda: ftfile.doctor(out, context=current()),
        "look at a migration": lambda: ftfile.migrate(out, context=current()),
    }


def _changes_of_all(out: str) -> dict[str, Call]:
    return {
        "look at repairs": lambda: ftfile.repair(out, context=current()),
        "repair": lambda: ftfile.repair(out, dry_run=False, context=current()),
        "full repair": lambda: ftfile.repair(
            out, dry_run=False, full=True, accept_lost_records=True, context=current()
        ),
        "restore": lambda: ftfile.restore(out, 2, context=current()),
        "vacuum": lambda: ftfile.vacuum(out, retention="0s", force=True, dry_run=False, context=current()),
        "expire": lambda: ftfile.expire(out, older_than="0s", force=True, dry_run=False, context=current()),
        "undo a migration": lambda: ftfile.undo_migration(out, dry_run=True, context=current()),
    }


def calls_of_files(place: Path, file_format: str) -> tuple[dict[str, Call], dict[str, Call]]:
    """Return the calls that read a directory of files, and the calls that change it."""
    out = str(place / "out")

    def write(batch_id: int) -> None:
        bases.query_of(place, file_format).run(batch_id, [[bases.row(20), bases.row(21, "b")], [bases.row(22)]])

    def write_job() -> None:
        job = {"fileFormat": file_format, "partitionBy": "kind"}
        query = MicroBatch(out, bases.COLUMNS, job, overwrite=True)
        query.run_batch_write("9" * 32, [[bases.row(30)]])

    changes = {
        "compact": lambda: ftfile.compact(out, context=current()),
        "flush": lambda: ftfile.flush(out, context=current()),
        "flush what is due": lambda: ftfile.flush(out, due_only=True, context=current()),
        "drop": lambda: ftfile.drop(out, "kind = 'b'", context=current()),
        "export to Delta": lambda: ftfile.export(out, "delta", context=current()),
        "export to Iceberg": lambda: ftfile.export(out, "iceberg", context=current()),
        "write the last batch again": lambda: write(3),
        "write a batch": lambda: write(4),
        "overwrite": write_job,
    }
    return _reads_of_files(out) | _reads_of_all(out), changes | _changes_of_all(out)


def calls_of_store(place: Path) -> tuple[dict[str, Call], dict[str, Call]]:
    """Return the calls that read a store, and the calls that change it."""
    out = str(place / "out")
    key = ("a", bases.store_row("a", 1, 0)["day"])

    def read(call: Callable[[kv.Reader], object]) -> Call:
        def run() -> object:
            with kv.open(out, context=current()) as reader:
                return call(reader)

        return run

    def write(batch_id: int) -> None:
        rows = [bases.store_row(word, 6, 1, gone=word == "b") for word in "abg"]
        bases.store_query(place).run(batch_id, [rows, []])

    def operate() -> None:
        with bases.open_store(place) as store:
            store.begin_window(9)
            store.merge(key, 1)
            store.end_window()
            store.committed(9)
            store.get(key)

    reads: dict[str, Call] = {
        "get": read(lambda reader: reader.get(key)),
        "multi_get": read(lambda reader: reader.multi_get([key, ("z", key[1])])),
        "scan": read(lambda reader: [rows.to_pylist() for rows in reader.scan()]),
        "scan of a range": read(lambda reader: [*reader.scan("b", "e")]),
        "stats": read(lambda reader: reader.stats()),
        "history of a store": read(lambda reader: reader.history()),
        "at": read(lambda reader: [*reader.at(2).scan()]),
        "verify a store": lambda: kv.verify(out, context=current()),
        "changes": lambda: [*kv.changes(out, context=current())],
        "read_windows": lambda: kv.read_windows(out, bases.WRITER, context=current()),
        "look at merges": lambda: kv.compact(out, dry_run=True, context=current()),
        "ftfile kv stats": lambda: _cli("kv", "stats", out),
    }
    changes = {
        "merge": lambda: kv.compact(out, context=current()),
        "merge all": lambda: kv.compact(out, full=True, context=current()),
        "purge": lambda: kv.purge(out, prefix=("d",), context=current()),
        "rebucket": lambda: kv.rebucket(out, 4, context=current()),
        "write the last batch again": lambda: write(5),
        "write a batch": lambda: write(6),
        "operate": operate,
    }
    return reads | _reads_of_all(out), changes | _changes_of_all(out)


def calls_of_stream(place: Path) -> tuple[dict[str, Call], dict[str, Call]]:
    """Return the calls that inspect a stream of other programs' files, and the calls that continue it."""
    state = str(place / "state")

    def go_on() -> None:
        bases.stream_of(place).run(20)

    reads: dict[str, Call] = {
        "source_status": lambda: ftfile.source_status(str(place / "in"), stateLocation=state),
        "ftfile source": lambda: _cli("source", str(place / "in"), "--option", f"stateLocation={state}"),
    }
    return reads, {"go on": go_on, "begin anew": go_on}


CALLS: dict[str, Callable[[Path], tuple[dict[str, Call], dict[str, Call]]]] = {
    "json": partial(calls_of_files, file_format="json"),
    "parquet": partial(calls_of_files, file_format="parquet"),
    "store": calls_of_store,
    "stream": calls_of_stream,
}


class Watched:
    """Runs calls on mutations of one base."""

    def __init__(self, home: Path, base: str) -> None:
        self.base = base
        self.place, self.whole, self.outside = home / "place", home / "whole", home / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_text("nobody reads this\n")
        bases.make(base, self.place)
        shutil.copytree(self.place, self.whole, symlinks=True)
        self._before = _contents(self.outside)
        self.watch = watched.Watch(str(home / "place"))

    def warm_up(self) -> dict[str, str]:
        """Run all calls on the unchanged base, so that their imports are done; return the failures."""
        random_calls = random.Random(0)
        wrong: dict[str, str] = {}
        for _ in range(2):
            wrong |= self._run(random_calls, 100, 100)
        with contextlib.suppress(ImportError):
            import fastavro  # noqa: F401 - by exports of Parquet files, to which a forged record may turn others
            import pandas  # noqa: F401 - by Arrow, for times beyond those of Python
        sys.addaudithook(self.watch)
        return wrong

    def play(self, seed: str) -> tuple[list[str], dict[str, str]]:
        """Return the changes of a mutation, and the faults by the name of the call."""
        generator = random.Random(seed)
        self._copy()
        lines = mutate(self.place, self.outside, generator)
        self.watch.directory = str(self.place)
        try:
            wrong = self._run(generator, READS, CHANGES)
        finally:
            self.watch.directory = None
        if _contents(self.outside) != self._before:
            wrong["all"] = f"changed what lies outside: {_contents(self.outside).keys()}"
            shutil.rmtree(self.outside)
            self.outside.mkdir()
            (self.outside / "secret").write_text("nobody reads this\n")
        return lines, wrong

    def widen(self, name: str) -> dict[str, str]:
        """Return the faults if all numbers of a name are the greatest number. Each changing call gets a new copy."""
        wrong: dict[str, str] = {}
        for call in ("", *sorted(CALLS[self.base](self.place)[1])):
            self._copy()
            extremes.widen(self.place, name)
            self.watch.directory = str(self.place)
            try:
                wrong |= self._run(random.Random(0), 0 if call else 100, [call] if call else 0)
            finally:
                self.watch.directory = None
        return wrong

    def _copy(self) -> None:
        shutil.rmtree(self.place)
        shutil.copytree(self.whole, self.place)

    def _run(self, generator: random.Random, reads: int, changes: int | list[str]) -> dict[str, str]:
        """Run a number of reading and changing calls, or the named changing calls; return their faults."""
        if not self.watch.directory:
            self._copy()
        forget_caches()
        clock = ManualClock(NOW_MS, tick_ms=1)
        wrong = {}
        with repeatable(clock, SeededIds(9)):
            groups = CALLS[self.base](self.place)
            calls = [
                (name, group[name])
                for group, count in zip(groups, (reads, changes), strict=True)
                for name in (
                    count if isinstance(count, list) else generator.sample(sorted(group), min(count, len(group)))
                )
            ]
            for name, call in calls:
                clock.slept_s.clear()
                if (outcome := self._outcome(call)) is not None:
                    wrong[name] = outcome
                if sum(clock.slept_s) > WAIT_S:
                    wrong[name] = f"waits for {sum(clock.slept_s)} s"
        return wrong

    def _outcome(self, call: Call) -> str | None:
        self.watch.misdeeds = set()
        limit = watched.data_bytes() + watched.MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        # If a call does not return to Python, its process is ended.
        faulthandler.dump_traceback_later(watched.CALL_BY_CLOCK_S + 5, exit=True)
        watched.bound_time()
        try:
            outcome = watched.outcome_of(call)
        finally:
            watched.unbound_time()
            faulthandler.cancel_dump_traceback_later()
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        misdeeds = f"does {sorted(self.watch.misdeeds)}" if self.watch.misdeeds else None
        return outcome if outcome.startswith("raised") else misdeeds


def _contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.lstat().st_mode, path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b"")
        for path in sorted(directory.iterdir())
    }


def main(home: str, base: str, seed: str, *numbers: str) -> None:
    """Play mutations of a base."""
    faulthandler.enable()
    logging.disable()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, watched.late)
    signal.signal(signal.SIGALRM, watched.late)
    player = Watched(Path(home).resolve(), base)
    if wrong := player.warm_up():
        raise AssertionError(f"calls fail on what ftfile wrote: {wrong}")
    if seed == "numbers":
        names = extremes.number_names(player.whole)
        for number in map(int, numbers):
            name = names[number]
            print(json.dumps({"begins": name}), flush=True)
            print(json.dumps({"number": number, "mutation": [name], "wrong": player.widen(name)}), flush=True)
        return
    first, count = numbers
    for number in range(int(first), int(first) + int(count)):
        print(json.dumps({"begins": number}), flush=True)
        lines, wrong = player.play(f"{seed}-{base}-{number}")
        print(json.dumps({"number": number, "mutation": lines, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
