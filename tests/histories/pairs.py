"""Which abilities, and which pairs of abilities and events, random histories have met.

`python -m tests.histories.pairs FIRST COUNT STEPS` plays the histories of consecutive seeds in two processes, and
prints the shares and the pairs that they never met.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import logging
import multiprocessing
import sys
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.options.table import OPTIONS
from ftfile.log.format.model import BatchWriteAuthor, MaintenanceAuthor, StreamAuthor
from ftfile.operate.open_directory import OpenedDirectory
from ftfile.operate.writers.application_writer import DirectoryWriter
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.crash.programs import Program
from tests.histories.plan import EVENTS, STORAGE_KINDS
from tests.kit.files_run import FilesRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.log.format.model import Author
    from tests.histories.plan import History

__all__ = ("ABILITIES", "EVENTS_OF_PAIRS", "NOT_DRAWN", "Met", "ability_of", "possible_pairs")

_NEAR = 10  # steps
_TELL_EVERY = 100

_OF_SINK = {"run": "sink batch", "run_tasks": "sink tasks", "run_batch_write": "sink job"}
_CALLABLES = [name for name in ftfile.__all__ if callable(getattr(ftfile, name)) and not name.startswith("Ft")]
_PUBLIC = {inspect.unwrap(getattr(ftfile, name)): f"ftfile.{name}" for name in _CALLABLES}
# Local functions, by what they do. The event notes what is done twice.
_LOCAL = {
    "attempts of a batch": "sink tasks",
    "a read": "ftfile.open",
    "a count": "ftfile.open",
    "a write of a program": "ftfile.writer",
    "an interrupted commit": "ftfile.writer",
    "the same by another process": "",
    "a stream of the directory": "stream of the directory",
    "a read of a store": "store read",
    "a compaction of a store": "store compaction",
}
_OF_OWNERS: tuple[tuple[type, str], ...] = (
    (DirectoryWriter, "ftfile.writer"),
    (Program, "ftfile.writer"),
    (StoreBatch, "store batch"),
    (FilesRun, "stream of files"),
    (OpenedDirectory, "ftfile.open"),
)
_OF_STREAMS = ("stream of the directory", "stream of files", "store batch", "store read", "store compaction")
_OPERATIONS = ("compact", "delete", "drop", "expire", "flush", "openWriter", "restore", "undo", "vacuum")
_AUTHORS = ("stream", "program", "job", "transaction", *_OPERATIONS)
_STORAGE_KINDS = tuple(storage or "memory" for storage in dict.fromkeys(STORAGE_KINDS))
_FORMATS = ("text", "json", "csv", "parquet", "avro")

# The options that change the states of a directory, which are in pairs.
_OF_STATES = (
    "encryption",
    "eventTimeInterval",
    "finalizeColumn",
    "ifExists",
    "inactivityInterval",
    "lineSep",
    "maxBatchesPerFile",
    "maxBytesPerFile",
    "maxOpenSegments",
    "maxRecordsPerFile",
    "maxSegmentsPerPart",
    "onPublish",
    "partFileName",
    "partPrefix",
    "partitionOverwriteMode",
    "replaceWhere",
    "rolling",
    "rolloverInterval",
    "rolloverSchedule",
    "statisticsColumns",
    "strictFileSize",
    "txnAppId",
)
# Options that all histories have.
_OF_ALL = {"path", "fileFormat", "partitionBy", "onNewQuery", "txnVersion", "keyProvider"}

_VALUES = "only changes how values are written: tests/unit/formats"
_STORAGE = "only passed to the storage: tests/unit/storage, tests/hdfs"
_NAMES = "only chooses directories or names: tests/unit/writing/files"
_CHECKS = "only refuses batches: tests/unit/writing, tests/crash/test_crash_enumeration.py"
# Abilities that this machine does not draw, with the reason and the tests that try them.
NOT_DRAWN: dict[str, str] = {
    "ftfile.migrate": "begins with a directory of another program: tests/crash/test_migrating.py",
    "ftfile.undo_migration": "begins with a directory of another program: tests/crash/test_migrating.py",
    "ftfile.monitor": "only reads, in its own process: tests/unit/tools/monitor",
    "ftfile.source_status": "belongs to a stream of other programs' files: tests/histories/test_plan_histories.py",
    **dict.fromkeys(
        (
            "option dateFormat",
            "option timeZone",
            "option timestampFormat",
            "option timestampNTZFormat",
            "option ignoreNullFields",
            "option header",
            "option sep",
            "option quote",
            "option escape",
            "option quoteAll",
            "option delimiter",
            "option lengthPrefix",
            "option encoder",
            "option recordName",
            "option compressionLevel",
            "option filters",
        ),
        _VALUES,
    ),
    **dict.fromkeys(
        (
            "option filePermission",
            "option directoryPermission",
            "option durability",
            "option maxOpenBytes",
        ),
        _STORAGE,
    ),
    **dict.fromkeys(
        (
            "option directoryAssigner",
            "option directoryPattern",
            "option directoryStateTtl",
            "option fileNameColumn",
            "option partSuffix",
            "option successFile",
            "option successDelay",
        ),
        _NAMES,
    ),
    **dict.fromkeys(
        (
            "option badRecords",
            "option maxRecordBytes",
            "option onFormatChange",
            "option onGap",
            "option onMissingPart",
            "option onReplayMismatch",
            "option atLeastVersion",
        ),
        _CHECKS,
    ),
    "option encryptionKeyId": "only chooses a key: tests/unit/writing/files",
    "option exportTo": "calls ftfile.export after a commit: tests/unit/operate/export",
    "option onSchemaChange": "no history has two schemas: tests/unit/writing, tests/crash/test_any_schedule.py",
    "option publish": "`direct` has no step of publishing to meet: tests/crash/test_crash_enumeration.py",
    "option rollingPolicy": "calls a class of the user: tests/unit/writing/files",
    "option userMetadata": "is only recorded: tests/unit/log",
}

_OPTION_NAMES = tuple(option.name for option in OPTIONS if "write" in option.used_by)
ABILITIES: tuple[str, ...] = (
    *_PUBLIC.values(),
    *_OF_SINK.values(),
    *_OF_STREAMS,
    *(f"record {author}" for author in _AUTHORS),
    *(f"option {name}" for name in _OPTION_NAMES if name not in _OF_ALL),
    *(f"storage {storage}" for storage in _STORAGE_KINDS),
    *(f"format {name}" for name in _FORMATS),
)
EVENTS_OF_PAIRS: tuple[str, ...] = tuple(f"event {kind}" for kind in EVENTS)

# Abilities in pairs: all except for options that change no state.
IN_PAIRS: tuple[str, ...] = tuple(
    ability
    for ability in ABILITIES
    if ability not in NOT_DRAWN and (not ability.startswith("option ") or ability.removeprefix("option ") in _OF_STATES)
)


def ability_of(what: str, action: Callable[..., Any]) -> str:
    """Return the ability that a call of the product is."""
    while isinstance(action, partial):
        action = action.func
    owner = getattr(action, "__self__", None)
    if isinstance(owner, MicroBatch):
        return _OF_SINK.get(action.__name__, "sink batch")
    for kind, ability in _OF_OWNERS:
        if isinstance(owner, kind):
            return ability
    public = _PUBLIC.get(inspect.unwrap(action))
    return _LOCAL[what] if public is None else public


def _author_name(author: Author) -> str:
    if isinstance(author, MaintenanceAuthor):
        return author.operation
    if isinstance(author, StreamAuthor):
        return "stream" if author.query_id.startswith("00000000-") else "program"
    assert isinstance(author, BatchWriteAuthor)
    return "job" if author.transaction is None else "transaction"


@dataclass
class Met:
    """The abilities and pairs that one history has met."""

    abilities: set[str] = field(default_factory=set)
    pairs: set[frozenset[str]] = field(default_factory=set)
    constant: frozenset[str] = frozenset()  # abilities of the whole history
    _step: set[str] = field(default_factory=set)
    _events: set[str] = field(default_factory=set)
    _recent: deque[frozenset[str]] = field(default_factory=lambda: deque(maxlen=_NEAR))

    def begin(self, history: History) -> None:
        """Note what is the same in all steps of a history."""
        self.constant = frozenset(
            {f"storage {history.storage or 'memory'}", f"format {history.format_options['fileFormat']}"}
        )
        self.abilities |= self.constant

    def call(self, what: str, action: Callable[..., Any], program: Program | None) -> None:
        """Note a call, and the options that it has."""
        self._step |= {ability_of(what, action)} - {""}
        bare = action
        while isinstance(bare, partial):
            bare = bare.func
        owner = getattr(bare, "__self__", None)
        if isinstance(owner, DirectoryWriter) and program is not None:
            owner = program
        if isinstance(owner, MicroBatch | Program):
            self._step |= {f"option {name}" for name in owner.options if name not in _OF_ALL}

    def record(self, author: Author) -> None:
        """Note a record."""
        self._step.add(f"record {_author_name(author)}")

    def event(self, kind: str) -> None:
        """Note an event of the running step."""
        self._events.add(f"event {kind}")

    def end_step(self) -> None:
        """Pair what the step has met with its events, and with what the last steps have met."""
        now = frozenset(self._step)
        self.abilities |= now
        if now:
            self._recent.append(now)
        near = self.constant.union(*self._recent)
        self.pairs |= {frozenset(pair) for pair in itertools.product(now | self.constant, near) if pair[0] != pair[1]}
        self.pairs |= {frozenset(pair) for pair in itertools.product(now | self.constant, self._events)}
        self._step.clear()
        self._events.clear()


# A writer and a job belong to one process; an undo of an undo does not do the same.
_WITHOUT_TWINS = {"ftfile.writer", "ftfile.undo", "record openWriter", "record program", "record undo"}
_WITHOUT_TWINS |= {f"option {name}" for name in ("ifExists", "partitionOverwriteMode", "replaceWhere")}


def _are_possible(one: str, two: str) -> bool:
    """Return False for two abilities that no directory has."""
    kinds = {one.partition(" ")[0], two.partition(" ")[0]}
    pair = {one, two}
    if len(kinds) == 1 and kinds & {"storage", "format"}:
        return False
    # A power cut loses memory.
    if pair >= {"storage memory", "event power cut"} or ("event twin" in pair and pair & _WITHOUT_TWINS):
        return False
    is_text = bool(pair & {f"format {name}" for name in _FORMATS if name != "text"})
    if "option finalizeColumn" in pair:
        # The column of final rows is not in files of text; batch writes have no open files.
        of_jobs = {"sink job", "record job", "record transaction", "ftfile.write", "ftfile.export"}
        of_jobs |= {f"option {name}" for name in ("eventTimeInterval", "txnAppId", "replaceWhere", "ifExists")}
        of_jobs |= {f"option {name}" for name in ("partitionOverwriteMode", "partFileName", "lineSep")}
        return not is_text and not pair & of_jobs
    if "option eventTimeInterval" in pair and kinds & {"format"}:
        return bool(pair & {"format json", "format parquet"})
    if "ftfile.export" in pair:
        return not pair & {"option encryption", "option lineSep"} and (
            not kinds & {"format"} or "format parquet" in pair
        )
    return not ("option lineSep" in pair and pair & {"format parquet", "format avro"})


def possible_pairs() -> tuple[set[frozenset[str]], set[frozenset[str]]]:
    """Return the possible pairs of an ability and an event, and those of two abilities."""
    with_events = {frozenset(pair) for pair in itertools.product(IN_PAIRS, EVENTS_OF_PAIRS) if _are_possible(*pair)}
    of_two = {frozenset(pair) for pair in itertools.combinations(IN_PAIRS, 2) if _are_possible(*pair)}
    return with_events, of_two


def _play(seed: int, steps: int) -> tuple[set[str], set[frozenset[str]], str]:
    from tests.histories.plan import draw_history
    from tests.histories.playing import HistoryFailed, play

    logging.disable(logging.CRITICAL)
    met = Met()
    failure = ""
    try:
        play(draw_history(seed, steps), met)
    except HistoryFailed as failed:
        failure = str(failed)
    gc.collect()
    return met.abilities, met.pairs, failure


def _told(name: str, met: set[frozenset[str]], possible: Iterable[frozenset[str]]) -> list[str]:
    possible = set(possible)
    missing = sorted(" and ".join(sorted(pair)) for pair in possible - met)
    share = 100 * (1 - len(missing) / len(possible))
    return [f"{name}: {len(possible) - len(missing)} of {len(possible)} possible pairs, {share:.1f} %", *missing]


def main(first: int, count: int, steps: int) -> int:
    """Play histories, print what they met, and return 1 if one of them failed."""
    abilities: set[str] = set()
    pairs: set[frozenset[str]] = set()
    failures: list[str] = []
    played = 0
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=50) as pool:
        for seen, met, failure in pool.imap_unordered(partial(_play, steps=steps), range(first, first + count)):
            played += 1
            abilities |= seen
            pairs |= met
            if played % _TELL_EVERY == 0:
                print(f"{played} histories, {len(failures)} failed", flush=True)
            if failure:
                failures.append(failure)
                print(f"FAILED {failure[:500]}", flush=True)
    with_events, of_two = possible_pairs()
    never = sorted(set(ABILITIES) - abilities - NOT_DRAWN.keys())
    print(f"{count} histories of {steps} steps from seed {first}, {len(failures)} failed")
    print(f"abilities: {len(set(ABILITIES) & abilities)} of {len(ABILITIES) - len(NOT_DRAWN)}, never: {never}")
    print("\n  ".join(_told("ability and event", pairs, with_events)))
    print("\n  ".join(_told("ability and ability", pairs, of_two)))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
