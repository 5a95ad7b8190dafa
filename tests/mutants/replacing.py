"""Mistakes of overwrites, transactions, compaction, drops, and of reading old versions."""

from __future__ import annotations

from tests.mutants.mutant import LOG, PROTOCOL, wrong
from tests.mutants.mutant import REPLACING as CRASH_REPLACING

REPLACED = "tests/unit/sink/test_replacing.py"
TRANSACTIONS = "tests/unit/sink/test_transactions.py"
COMPACTION = "tests/unit/maintenance/test_compaction.py"
DROPPING = "tests/unit/maintenance/test_dropping.py"
WHERE = "tests/unit/maintenance/test_where.py"
OLD_VERSIONS = "tests/unit/source/test_time_travel.py"

OVERWRITES = (
    wrong(
        "complete mode appends",
        "sink/driver/proposal.py",
        "        overwrite=config.overwrite,\n",
        "",
        f"{REPLACED}::TestCompleteMode::test_each_batch_replaces_the_one_before",
    ),
    wrong(
        "an overwrite leaves segments",
        "commit/prepare.py",
        "return [*snapshot.adds.values()] if proposal.drops is None",
        'return [a for a in snapshot.adds.values() if a.kind == "part"] if proposal.drops is None',
        f"{PROTOCOL}::TestRewrites::test_overwrite_replaces_segments_as_well",
    ),
    wrong(
        "an overwrite must fit what it replaces",
        "sink/driver/proposal.py",
        "    if config.overwrite:\n        return\n",
        "",
        f"{REPLACED}::TestLayout::test_schema_and_partition_columns_may_change",
    ),
    wrong(
        "partition columns are compared with those of the first rows",
        "commit/log/fold.py",
        "self._encoding = record.encoding or self._encoding",
        "self._encoding = self._encoding or record.encoding",
        f"{REPLACED}::TestLayout::test_appends_follow_the_new_layout_alone",
    ),
    wrong(
        "partition columns are not compared",
        "sink/driver/proposal.py",
        "if recorded != list(config.partition_by):",
        "if False:",
        f"{REPLACED}::TestLayout::test_a_batch_that_was_planned_before_is_refused_at_its_commit",
    ),
    wrong(
        "maintenance forgets the partition columns",
        "commit/log/fold.py",
        "self._encoding = record.encoding or self._encoding",
        "self._encoding = record.encoding",
        f"{REPLACED}::TestLayout::test_maintenance_does_not_change_it",
    ),
    wrong(
        "a base forgets the partition columns",
        "commit/log/bases.py",
        'encoding=text["encoding"],',
        "encoding=None,",
        f"{REPLACED}::TestLayout::test_the_newest_layout_is_in_the_bases",
    ),
)

BATCH_WRITES = (
    wrong(
        "a batch write forgets its transaction",
        "sink/driver/proposal.py",
        "return JobAuthor(writer.job_id, config.transaction)",
        "return JobAuthor(writer.job_id)",
        f"{TRANSACTIONS}::TestOnce::test_a_repeated_write_is_found",
    ),
    wrong(
        "applications share their transactions",
        "commit/log/state.py",
        "last = self.transactions.get(author.transaction.app_id)",
        "last = max(self.transactions.values(), default=None)",
        f"{TRANSACTIONS}::TestOnce::test_applications_do_not_know_each_other",
    ),
    wrong(
        "a task does not look for its transaction",
        "sink/task/task.py",
        "return JobAuthor(writer.job_id, config.transaction) if config.transaction is not None else None",
        "return None",
        f"{TRANSACTIONS}::TestTasks::test_a_task_looks_further_than_the_driver_did",
    ),
    wrong(
        "a task is not told of the transactions known when it was planned",
        "commit/log/state.py",
        "transactions = {app: TransactionState(last, self.version, None) for app, last in self.transactions.items()}",
        "transactions: dict[str, TransactionState] = {}",
        f"{TRANSACTIONS}::TestTasks::test_a_task_that_finds_it_writes_nothing",
    ),
    wrong(
        "a transaction whose slot was passed long ago is given up",
        "commit/log/log.py",
        "found_again = isinstance(author, StreamAuthor) or (isinstance(author, JobAuthor) and author.transaction)",
        "found_again = isinstance(author, StreamAuthor)",
        f"{LOG}::TestBases::test_a_transaction_whose_slot_was_passed_long_ago_is_looked_for_and_made_again",
    ),
    wrong(
        "a batch write is published in one try or not at all",
        "commit/publish.py",
        "own = version == created or _is_own(entry, author)",
        "own = _is_own(entry, author)",
        f"{TRANSACTIONS}::TestOnce::test_publishing_is_tried_for_a_while_as_for_a_stream",
    ),
)

COMPACTIONS = (
    wrong(
        "inputs of a compaction are not compared with what was recorded",
        "maintenance/merger.py",
        "if len(content) != add.length or checksum(content) != add.checksum:",
        "if len(content) != add.length:",
        f"{COMPACTION}::TestFailures::test_a_part_that_was_changed_is_an_error_that_names_it",
    ),
    wrong(
        "a compaction does not read back what it wrote",
        "maintenance/merger.py",
        "if before.digest() != after.digest():",
        "if False:",
        f"{COMPACTION}::TestFailures::test_rows_that_do_not_come_back_are_an_error",
    ),
    wrong(
        "a compaction mixes encodings",
        "maintenance/compact.py",
        "key = (add.bucket, add.encoding)",
        'key = (add.bucket, "")',
        f"{COMPACTION}::TestParts::test_parts_of_other_encodings_are_not_mixed",
    ),
    wrong(
        "a compaction mixes buckets",
        "maintenance/compact.py",
        "key = (add.bucket, add.encoding)",
        'key = ("", add.encoding)',
        f"{COMPACTION}::TestParts::test_each_bucket_for_itself",
    ),
    wrong(
        "a compaction takes the newest columns for those of every part",
        "maintenance/merger.py",
        "schema = file_schema_of(encoding)",
        "definitions = self._snapshot.definitions.values()\n"
        '        schema = file_schema_of([each for each in definitions if "schema" in each and "format" in each][-1])',
        f"{COMPACTION}::TestParts::test_columns_that_the_newest_schema_no_longer_has_are_kept",
    ),
    wrong(
        "a compaction that lost all its races is recorded",
        "commit/prepare.py",
        "if _is_empty(proposal, record):",
        "if False:",
        f"{COMPACTION}::TestRaces::test_an_overwrite_wins",
    ),
    wrong(
        "a compaction leaves what an earlier one could not publish",
        "commit/protocol.py",
        "    problems = roll_forward(log, head, policy, author)\n    raise_own(problems, author)\n    return",
        "    problems: list[Problem] = []\n    return",
        f"{COMPACTION}::TestFailures::test_what_an_earlier_one_could_not_finish_is_finished",
    ),
    wrong(
        "a compaction takes parts that cannot be published",
        "maintenance/compact.py",
        "plan_merges((add for add in chosen if add.id not in stuck), target_bytes)",
        "plan_merges(chosen, target_bytes)",
        f"{COMPACTION}::TestFailures::test_a_part_that_cannot_be_published_is_left_out",
    ),
    wrong(
        "names of rewritten parts are not synced",
        "commit/prepare.py",
        "    _sync_names(fs, [add for rewrite in accepted for add in rewrite.adds])\n",
        "",
        CRASH_REPLACING,
    ),
    wrong(
        "a failing compaction leaves its files",
        "maintenance/merger.py",
        "            for stage in stages:\n                stage.discard()\n",
        "",
        f"{COMPACTION}::TestFailures::test_what_was_written_is_removed_when_it_fails",
    ),
    wrong(
        "a damaged part stops a compaction",
        "maintenance/merger.py",
        "            if error.retry is not Retry.NEVER:\n                raise\n",
        "            raise\n",
        f"{COMPACTION}::TestDamage",
    ),
    wrong(
        "parts beside a damaged one are not merged",
        "maintenance/merger.py",
        "waiting += [piece for piece in pieces if len(piece) > 1]",
        "waiting += []",
        f"{COMPACTION}::TestDamage",
    ),
    wrong(
        "a compaction tells nobody of a damaged part",
        "maintenance/compact.py",
        "        if error is not None:\n            raise error\n",
        "",
        f"{COMPACTION}::TestDamage",
    ),
    wrong(
        "names of merged parts are cut without regard to their order",
        "maintenance/merger.py",
        'separator = "~" if any(other < name for other in names) else "-"',
        'separator = "-"',
        f"{COMPACTION}::TestNames::test_that_are_cut_keep_the_order_of_parts",
    ),
)

DROPS = (
    wrong(
        "a drop takes what was live when it began",
        "maintenance/drop.py",
        "dropped[:] = snapshot.adds.values() if isinstance(where, str) else select(head, snapshot, where)",
        "dropped[:] = dropped or select(head, snapshot, {} if isinstance(where, str) else where)",
        f"{DROPPING}::test_what_comes_before_its_record_goes_and_what_comes_after_stays",
    ),
    wrong(
        "a drop that finds nothing is recorded",
        "commit/prepare.py",
        "rewrites = bool(proposal.rewrites or proposal.refused or proposal.drops)",
        "rewrites = bool(proposal.rewrites or proposal.refused)",
        f"{DROPPING}::test_nothing_to_drop_is_no_commit",
    ),
    wrong(
        "no filter drops everything",
        "maintenance/drop.py",
        "(isinstance(where, str) or not where)",
        "isinstance(where, str)",
        f"{DROPPING}::test_what_does_not_say_what_to_drop_drops_nothing",
    ),
    wrong(
        "one column that matches is enough",
        "maintenance/partition_filter.py",
        "found[place] = all(",
        "found[place] = any(",
        f"{WHERE}::test_every_column_named_must_match",
    ),
    wrong(
        "a number is cut to the column's type",
        "maintenance/partition_filter.py",
        "if typed.as_py() != value and",
        "if typed.as_py() is None and",
        f"{WHERE}::test_what_is_no_value_of_the_column_is_an_error",
    ),
)

READS = (
    wrong(
        "a version's time is the writer's",
        "source/directory.py",
        "time_ms=record.time_ms if time_ms is None else time_ms,",
        "time_ms=record.time_ms,",
        f"{OLD_VERSIONS}::test_the_history_tells_the_same_times",
    ),
    wrong(
        "a version is not there yet at the time of its creation",
        "commit/log/times.py",
        "at = bisect_right(",
        "at = bisect_left(",
        f"{OLD_VERSIONS}::test_the_newest_version_that_was_there",
    ),
    wrong(
        "a version whose record is gone is offered",
        "commit/log/times.py",
        "if at >= 0 and created_ms(log, versions[at]) is not None:",
        "if at >= 0:",
        f"{OLD_VERSIONS}::test_versions_whose_records_are_gone_are_not_offered",
    ),
)

REPLACEMENTS = (*OVERWRITES, *BATCH_WRITES, *COMPACTIONS, *DROPS, *READS)
