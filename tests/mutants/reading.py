"""Mistakes of whoever reads the log: where it ends, what a base stands for, what a snapshot holds."""

from __future__ import annotations

from tests.mutants.mutant import (
    AROUND_A_BASE,
    BASES,
    BATCHES,
    CHANGED,
    COUNTED,
    LOG,
    LOG_START,
    PROTOCOL,
    dropped,
    wrong,
)

SNAPSHOT = "tests/unit/commit/test_snapshot.py"

DERIVED = "tests/unit/commit/test_derived.py"
LIMITS = "tests/unit/commit/test_limits.py"
LOST = "tests/unit/commit/test_lost_records.py"

ANOTHER_HISTORY = (
    wrong(
        "a cached state is believed by its version alone",
        "commit/log/log.py",
        "if record is not None and record.nonce == self._state.nonce:",
        "if record is not None and record.version == self._state.version:",
        f"{LOST}::TestReplaced",
    ),
    wrong(
        "a base of another history is believed",
        "commit/log/bases.py",
        "if state.version == name.version and record is not None and record.nonce == state.nonce:",
        "if state.version == name.version:",
        f"{DERIVED}::TestAnotherHistory::test_what_it_left_behind_is_passed_over",
    ),
    wrong(
        "an old range is believed where its record is another one",
        "commit/read/own_ranges.py",
        "return record.nonce == content.nonce",
        "return True",
        f"{DERIVED}::TestAnotherHistory::test_also_of_more_versions_ago_than_are_remembered",
    ),
    wrong(
        "a range of another history takes the place of what it contains",
        "commit/read/ranges.py",
        "    drop_contained(fs, found, [name])\n",
        "    drop_contained(fs, found, [name, *found])\n",
        f"{DERIVED}::test_own_ranges_are_not_dropped_for_a_foreign_one",
    ),
    wrong(
        "a base of another history decides that a record is dead",
        "commit/log/log.py",
        "if found is None or found[0].version < record.version:",
        "if found is None:",
        f"{DERIVED}::test_a_foreign_base_does_not_decide_whether_a_record_is_dead",
    ),
    wrong(
        "nobody lists the log for later records",
        "commit/log/log_end.py",
        "_newest_listed(log, version) if lists else -1",
        "-1",
        f"{LOST}::test_batch_writes_stop",
    ),
    wrong(
        "ranges that cannot be written are tried at every turn",
        "commit/post_commit.py",
        "if head.version >= recent.paused_to:",
        "if True:",
        f"{LIMITS}::TestRanges::test_ranges_that_cannot_be_written",
    ),
    wrong(
        "an overwrite takes rewrites, too",
        "commit/prepare.py",
        "rewrites = () if proposal.overwrite else proposal.rewrites",
        "rewrites = proposal.rewrites",
        f"{LIMITS}::TestRewrites::test_an_overwrite_takes_no_rewrites",
    ),
    wrong(
        "a name may be used again while the record of its removal is kept",
        "commit/log/fold.py",
        "for name, at in self._reserved.items() if at >= self._log_start}",
        "for name, at in self._reserved.items() if at > self._log_start}",
        f"{LIMITS}::TestState::test_reserved_names_stay_while_the_record_is_kept",
    ),
    dropped(
        "settings of queries are forgotten",
        "commit/log/fold.py",
        "waiting += [query.settings for _, query in self._queries.items()]",
        f"{LIMITS}::TestState::test_definitions_of_queries_stay",
    ),
    wrong(
        "a state changes with the one that follows",
        "commit/log/shared_map.py",
        "self._newer, self._gone = self._newer.copy(), self._gone.copy()",
        "self._newer, self._gone = self._newer, self._gone",
        f"{LIMITS}::TestSharing",
    ),
    wrong(
        "a fingerprint of content proves equal rows",
        "sink/driver/proposal.py",
        'covers_content=first.kind == "strong"',
        "covers_content=True",
        "tests/unit/sink/test_writer.py::TestReplay::test_the_content_fingerprint_alone_proves_nothing",
    ),
    wrong(
        "a batch write that may be repeated takes the fingerprint of content",
        "sink/task/task.py",
        "else config.transaction is not None",
        "else False",
        "tests/unit/sink/test_writer.py::TestReplay::test_which_fingerprint_is_taken",
    ),
)

ON = (
    dropped(
        "what others recorded is acted upon unsynced",
        "commit/log/log.py",
        "self._make_durable(state.version)",
        f"{PROTOCOL}::TestReplay::test_a_record_found_is_made_durable_before_it_is_acted_on",
        BATCHES,
    ),
    wrong(
        "reading on does not look for bases",
        "commit/log/log.py",
        "if newest is None or newest.version <= began:",
        "if True:",
        f"{LOG}::TestBases::test_a_cache_older_than_the_newest_base_starts_over_from_it",
    ),
    wrong(
        "a task takes what is gone behind a base for the end",
        "commit/log/log.py",
        "if newest is None or newest.version <= began:",
        "if not state.whole or newest is None or newest.version <= began:",
        "tests/unit/sink/test_tasks.py::test_a_task_planned_long_ago_starts_over_from_a_base",
    ),
    wrong(
        "a cached state is believed unseen",
        "commit/log/log.py",
        "if record is not None and record.nonce == self._state.nonce:",
        "if True:",
        f"{LOG}::TestCache",
    ),
    wrong(
        "a hole in the log is taken for the end",
        "commit/log/log_end.py",
        "    if listed > version or log.read_record(told) is not None:\n",
        "    if False:\n",
        f"{PROTOCOL}::TestOthers::test_a_missing_record_among_later_ones_is_an_error_for_everybody",
    ),
    wrong(
        "a commit does not look for holes",
        "commit/log/log_end.py",
        "    if max(told, listed) <= version:\n",
        "    if True:\n",
        f"{PROTOCOL}::TestOthers::test_a_missing_record_among_later_ones_is_an_error_for_everybody",
    ),
    wrong(
        "a reader takes a hole for the end",
        "commit/read/snapshot.py",
        "            if record is None:\n                raise _missing(version)\n            self",
        "            if record is None:\n                return\n            self",
        f"{LOG_START}::TestReaders::test_a_missing_record_that_is_kept_is_an_error",
    ),
    wrong(
        "a hint beyond the end of the log makes a hole",
        "commit/log/log_end.py",
        "    if acts:\n",
        "    if True:\n",
        f"{BASES}::TestHoles::test_a_hint_beyond_the_end_of_the_log_is_told_of",
    ),
    wrong(
        "records that appear while one reads make a hole",
        "commit/log/log_end.py",
        "    if log.read_record(version + 1) is not None:\n",
        "    if False:\n",
        f"{BASES}::TestHoles::test_records_that_appear_while_one_reads_make_no_hole",
    ),
)

BASE = (
    wrong(
        "the oldest base is read",
        "commit/log/bases.py",
        "return max(self.names(), default=None)",
        "return min(self.names(), default=None)",
        f"{BASES}::TestBases::test_the_newest_one_counts",
    ),
    wrong(
        "the newest base is dropped for older ones",
        "commit/log/bases.py",
        "set(sorted(older - set(useless))[-BASES_KEPT:])",
        "set(sorted(older - set(useless))[:BASES_KEPT])",
        f"{LOG}::TestBases::test_bases_are_written_now_and_then_and_old_ones_dropped",
    ),
    wrong(
        "a base forgets what is not published",
        "commit/log/bases.py",
        "for entry in state.unpublished.values()]",
        "for entry in ()]",
        f"{LOG}::TestBases::test_it_lists_what_is_not_published_and_roll_forward_starts_there",
    ),
    wrong(
        "a base forgets the horizon",
        "commit/log/bases.py",
        'horizon_ms=text["horizonMs"],',
        "horizon_ms=0,",
        f"{LOG}::TestBases::test_round_trip",
    ),
    wrong(
        "a base forgets transactions",
        "commit/log/bases.py",
        'transactions=SharedMap({app: _transaction_from_json(found) for app, found in text["transactions"].items()}),',
        "transactions=SharedMap(),",
        f"{LOG}::TestBases::test_round_trip",
    ),
    wrong(
        "a base forgets what was removed",
        "commit/log/bases.py",
        'removed=SharedMap({**text["removed"]}),',
        "removed=SharedMap(),",
        f"{LOG}::TestBases::test_round_trip",
    ),
    wrong(
        "a base is written before publishing and does not list what is left",
        "commit/protocol.py",
        "    problems = roll_forward(log, after, policy, proposal.author, tried=problems, created=record.version)\n"
        "    raise_own(problems, proposal.author, record.version)\n"
        "    keep_up(log, after)\n",
        "    unpublished, after.unpublished = after.unpublished, {}\n"
        "    keep_up(log, after)\n"
        "    after.unpublished = unpublished\n"
        "    problems = roll_forward(log, after, policy, proposal.author, tried=problems, created=record.version)\n"
        "    raise_own(problems, proposal.author, record.version)\n",
        AROUND_A_BASE,
    ),
    wrong(
        "a record in a dead slot is published",
        "commit/log/log.py",
        "if newest is None or newest.version < record.version:",
        "if True:",
        f"{LOG}::TestBases::test_a_record_in_a_dead_slot_publishes_nothing_and_starts_over",
    ),
    wrong(
        "a base knows its records by their version alone",
        "commit/log/state.py",
        "return at < len(self.recent) and self.recent[at] == (version, nonce)",
        "return at < len(self.recent)",
        f"{LOG}::TestBases::test_a_record_in_a_dead_slot_publishes_nothing_and_starts_over",
    ),
    wrong(
        "a job whose slot was passed long ago is written again",
        "commit/log/log.py",
        "if included is None and not found_again:",
        "if False:",
        f"{LOG}::TestBases::test_of_a_job_whose_slot_was_passed_long_ago_nothing_is_claimed",
    ),
    wrong(
        "bases that cannot be listed after the record make a failure of it",
        "commit/log/log.py",
        "            except StorageError as error:\n                raise outcome_unknown(record, error) from error\n",
        "            except CorruptData as error:\n                raise outcome_unknown(record, error) from error\n",
        f"{PROTOCOL}::TestOthers::test_a_failure_to_list_the_bases_after_the_record_leaves_the_outcome_open",
    ),
    wrong(
        "records that are gone behind a base make a hole",
        "commit/log/log_end.py",
        "    if newest is not None and newest.version > version:\n",
        "    if False:\n",
        f"{BASES}::TestHoles::test_records_that_are_removed_behind_a_base_while_one_reads_make_no_hole",
    ),
    wrong(
        "a commit publishes from the state it was prepared on",
        "commit/protocol.py",
        "problems = roll_forward(log, after, policy",
        "problems = roll_forward(log, head, policy",
        f"{PROTOCOL}::TestOthers::test_a_base_that_appears_while_the_commit_looks_around_hides_nothing",
    ),
)

SNAPSHOTS = (
    wrong(
        "a snapshot keeps what a record removed",
        "commit/read/snapshot.py",
        "for remove in record.removes if record.version <= self._since else ():",
        "for remove in ():",
        f"{PROTOCOL}::TestRewrites::test_replaces_and_retires",
    ),
    wrong(
        "a snapshot of a version goes on to the head",
        "commit/read/snapshot.py",
        "builder = _Builder(version, version if since is None else since)",
        "builder = _Builder(head.version, head.version)",
        f"{PROTOCOL}::TestRewrites::test_replaces_and_retires",
    ),
    wrong(
        "a version that does not exist is the head",
        "commit/read/snapshot.py",
        "if version is not None and not oldest <= version <= newest:",
        "if version is not None and version > newest and (version := newest) < oldest:",
        f"{SNAPSHOT}::TestSnapshot::test_an_unknown_version_is_an_error",
    ),
    wrong(
        "a staged part is not found",
        "commit/read/snapshot.py",
        "(*final, add.path, *final, layout.retired_path(add.id))",
        "(*final, layout.retired_path(add.id))",
        f"{SNAPSHOT}::TestSnapshot::test_finds_a_part_wherever_it_lies",
    ),
    wrong(
        "a retired part is not found",
        "commit/read/snapshot.py",
        "(*final, add.path, *final, layout.retired_path(add.id))",
        "(*final, add.path, *final)",
        f"{SNAPSHOT}::TestSnapshot::test_finds_a_part_wherever_it_lies",
    ),
    wrong(
        "a part that is published while one looks for it is not found",
        "commit/read/snapshot.py",
        "(*final, add.path, *final, layout.retired_path(add.id))",
        "(*final, add.path, layout.retired_path(add.id))",
        f"{SNAPSHOT}::TestSnapshot::test_looks_at_the_final_name_again_when_the_part_moves_meanwhile",
    ),
    dropped(
        "a reader does not look at a file's length",
        "parts/reader.py",
        "_check_length(file, add)",
        f"{CHANGED}[another length]",
    ),
    wrong(
        "a reader does not count rows",
        "parts/reader.py",
        "if rows != add.rows:",
        "if False:",
        COUNTED,
    ),
)

READING = (*ANOTHER_HISTORY, *ON, *BASE, *SNAPSHOTS)
