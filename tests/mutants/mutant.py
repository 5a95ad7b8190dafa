"""What a mistake is, and the names of the tests that notice several."""

from __future__ import annotations

from dataclasses import dataclass

CRASHES = "tests/crash/test_crash_enumeration.py::test_every_crash"
BATCHES, PARTITIONED = f"{CRASHES}[batches]", f"{CRASHES}[partitioned]"
REPLACING, TWO_QUERIES = f"{CRASHES}[replacing]", f"{CRASHES}[two-queries]"
AROUND_A_BASE = f"{CRASHES}_around_a_base"
ROLLING_CRASHES = f"{CRASHES}[rolling]"
NAME_IN_DOUBT = f"{CRASHES.rpartition('::')[0]}::test_a_record_whose_name_is_not_durable_is_not_acted_upon"
FAULTS = "tests/crash/test_fault_sweep.py::test_a_fault_at_every_call"
RACES = "tests/crash/test_interleaving.py::test_the_other_runs_wholly_between_any_two_calls"

PROTOCOL = "tests/unit/commit/test_protocol.py"
PUBLISH = "tests/unit/commit/test_publish.py"
RETIRING = "tests/unit/commit/test_retiring.py"
RECORD = "tests/unit/commit/test_record.py"
LOG = "tests/unit/commit/test_log.py"
BASES = "tests/unit/commit/test_bases.py"
LOG_START = "tests/unit/commit/test_log_start.py"
RANGES = "tests/unit/commit/test_ranges.py"
STATE = "tests/unit/commit/test_state.py"
FLAT = "tests/unit/commit/test_flat.py"
VACUUM = "tests/unit/maintenance/test_vacuum.py"
TRUST = "tests/unit/maintenance/test_vacuum_trust.py"
VACUUM_RACES = "tests/crash/test_vacuum_races.py"
LOCAL = "tests/unit/fs/test_local.py"
ROLLING = "tests/unit/sink/test_rolling.py"
TOGETHER = "tests/unit/sink/test_rolling_together.py"
PROGRESS = "tests/unit/sink/test_rolling_progress.py"
ROLLING_FAULTS = f"{FAULTS}[disk-rolling-PermissionDenied before]"
FLUSH_RACE = f"{RACES}[without bases-batches and a flush]"
WRITER = "tests/unit/sink/test_writer.py"
TASKS = "tests/unit/sink/test_tasks.py"
CHANGED = "tests/unit/source/test_reading.py::test_a_file_that_was_changed_is_an_error"
COUNTED = "tests/unit/source/test_reading.py::test_rows_are_counted"


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        name: what is wrong.
        file: where, below `src/ftfile`.
        old: the right code, which must be there exactly once.
        new: the wrong code.
        tests: what runs; one of them must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def wrong(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """Return the mistake of having `new` instead of `old`."""
    return Mutant(name, file, old, new, tests)


def dropped(name: str, file: str, code: str, *tests: str) -> Mutant:
    """Return the mistake of not having a statement at all."""
    return Mutant(name, file, code, "pass", tests)
