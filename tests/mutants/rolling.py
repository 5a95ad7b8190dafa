"""Mistakes with parts that stay open over batches."""

from __future__ import annotations

from tests.mutants.mutant import (
    FLUSH_RACE,
    PROGRESS,
    ROLLING,
    ROLLING_CRASHES,
    ROLLING_FAULTS,
    TOGETHER,
    dropped,
    wrong,
)

SEGMENTS = (
    wrong(
        "a segment's checksum is not verified when a part is made of it",
        "sink/assembly/segment_reader.py",
        "if len(data) != segment.length or not matches(data, segment.checksum):",
        "if len(data) != segment.length:",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "a segment's checksum is not verified when it is read",
        "parts/reader.py",
        "if not matches(data, add.checksum):",
        "if False:",
        f"{ROLLING}::TestFailures::test_a_damaged_segment_is_an_error_for_readers",
    ),
    wrong(
        "what is left of a segment is lost",
        "sink/assembly/assembler.py",
        "            self._rests.append(rest)\n",
        "            self._left_rows = 0\n            self._used[-1] = replace(segment, rows=segment.rows - rows)\n",
        f"{ROLLING}::TestSizes",
    ),
    wrong(
        "what is left of a segment has the checksum of all of it",
        "sink/assembly/assembler.py",
        "rest = replace(rest, checksum=checksum(found))",
        "pass",
        f"{ROLLING}::TestSizes",
    ),
    wrong(
        "rows that are in a part already are read from the segment, too",
        "parts/reader.py",
        "yield batch.slice(skipped)",
        "yield batch",
        f"{ROLLING}::test_rests_of_columnar_segments",
    ),
    wrong(
        "the rest of a segment must be younger than the horizon",
        "commit/prepare.py",
        "(add for add in rewrite.adds if add.path not in kept)",
        "(add for add in rewrite.adds if kept)",
        "tests/unit/commit/test_protocol.py::TestRewrites",
    ),
    dropped("spools are not synced", "sink/task/spool.py", "self._stage.end(self._spool)", ROLLING_CRASHES),
)

JOBS = (
    wrong(
        "every task does every job",
        "sink/assembly/task_share.py",
        "jobs[stage.partition :: tasks]",
        "jobs[:]",
        f"{ROLLING}::TestShares",
    ),
    wrong(
        "a task that did not write the record takes jobs",
        "sink/assembly/task_share.py",
        "if stage.partition >= tasks:",
        "if not tasks:",
        f"{ROLLING}::TestShares",
    ),
    wrong(
        "a failing assembly fails the batch",
        "sink/assembly/task_share.py",
        "        except Exception as error:  # it must not fail the batch, whatever it is\n",
        "        except ZeroDivisionError as error:\n",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "a name that cannot be made of open files fails the batch",
        "sink/naming/namer.py",
        "            except (ConfigError, UserCodeError) as error:\n",
        "            except UserCodeError as error:\n",
        f"{TOGETHER}::test_a_name_that_cannot_be_made_never_fails_a_batch",
    ),
    wrong(
        "failed attempts are not counted",
        "sink/rolling/plan.py",
        "attempts=job.attempts + (job.id in failed)",
        "attempts=job.attempts",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "what a failed assembly staged is left behind",
        "sink/assembly/assembler.py",
        "            work.drop()\n",
        "            pass\n",
        f"{ROLLING}::TestFailures::test_what_was_staged_for_a_failed_job_is_dropped",
    ),
    wrong(
        "a file that was ended cannot be dropped",
        "attempt/stage.py",
        "        if file in self._opened:\n            self._opened.remove(file)\n",
        "        if True:\n            self._opened.remove(file)\n",
        ROLLING_FAULTS,
    ),
)

RULES = (
    wrong(
        "groups of another encoding stay open",
        "sink/rolling/plan.py",
        "        if found.key[1] != self._encoding:\n            return _OTHER_ENCODING\n",
        "",
        f"{ROLLING}::TestChange::test_another_encoding_ends_it",
    ),
    wrong(
        "deadlines are forgotten once they were looked at",
        "sink/rolling/groups.py",
        "            for key in found:\n                self._note_deadline(key)\n",
        "",
        f"{ROLLING}::test_many_files_that_are_due_wait_for_their_turn",
    ),
    wrong(
        "a tail below the limit is made a file",
        "sink/rolling/jobs.py",
        'LIMITS = frozenset({"size", "rows", "segments"})',
        "LIMITS: frozenset[str] = frozenset()",
        f"{ROLLING}::TestSizes",
    ),
    wrong(
        "segments are joined in the order of their spools",
        "sink/rolling/groups.py",
        'return segment.origin.last_batch, segment.marks["partition"], segment.marks["place"]',
        'return 0, 0, 0 if segment.path else segment.marks["place"]',
        f"{ROLLING}::TestSizes",
    ),
)

FLUSHES = (
    wrong(
        "what a task makes of segments is taken whether they are live or not",
        "attempt/entries.py",
        "return Rewrite(segments, ",
        "return Rewrite((), ",
        f"{ROLLING}::TestFlush::test_jobs_that_a_flush_has_done_are_dropped",
    ),
    dropped(
        "a flush does not finish what an earlier one left",
        "maintenance/flush.py",
        "raise_own(roll_forward(self._log, head, Policy(), self._author), self._author)",
        ROLLING_CRASHES,
    ),
    wrong(
        "rewrites of segments that are gone are accepted",
        "commit/prepare.py",
        "or not all(head.is_live(add, rewrite.known_at) for add in rewrite.inputs)",
        "",
        FLUSH_RACE,
    ),
)

QUERIES = (
    wrong(
        "a query makes the files of others",
        "sink/assembly/task_share.py",
        "if job.inputs[0].origin.query_id == stage.owner]",
        "]",
        f"{TOGETHER}::TestQueries::test_each_calls_its_files_its_own_way",
    ),
    wrong(
        "a batch write does the jobs of streams",
        "sink/assembly/task_share.py",
        "if job.inputs[0].origin.query_id == stage.owner]",
        "]",
        f"{TOGETHER}::TestQueries::test_a_batch_write_leaves_them_to_their_query",
    ),
    wrong(
        "jobs are dealt to one task of the next batch",
        "sink/rolling/plan.py",
        '{"tasks": record.tasks}',
        '{"tasks": 1}',
        f"{TOGETHER}::TestQueries::test_tasks_share_the_jobs_whoever_wrote_last",
    ),
    wrong(
        "records repeat for ever what is due of a query that is gone",
        "sink/rolling/plan.py",
        "query is not None and head.version - query.version < AWAITED_RECORDS",
        "query is not None",
        f"{TOGETHER}::TestQueries::test_records_do_not_repeat_for_ever_what_a_query_that_is_gone_left_due",
    ),
    wrong(
        "a record forgets what is due of other queries",
        "sink/rolling/plan.py",
        "return (*others, *sorted(",
        "return (*others[:0], *sorted(",
        f"{TOGETHER}::TestQueries",
    ),
    wrong(
        "what is due of one query takes room from another",
        "sink/rolling/plan.py",
        "for job in jobs if not job.attempts)\n        open_segments",
        "for job in (*jobs, *others))\n        open_segments",
        f"{TOGETHER}::TestQueries::test_what_one_left_due_takes_no_room_from_the_other",
    ),
    wrong(
        "a query forgets its groups when another one commits",
        "sink/writer.py",
        "key, rolling = (self.config.path, writer.query_id), self.config.rolling or ALL_END",
        'key, rolling = (self.config.path, ""), self.config.rolling or ALL_END',
        f"{TOGETHER}::TestQueries::test_each_keeps_what_it_knows_of_its_files",
    ),
)

OPEN_FOR_LONG = (
    wrong(
        "a deadline is noted with every change",
        "sink/rolling/groups.py",
        "if deadline_ms is not None and deadline_ms < self._noted.get(key, deadline_ms + 1):",
        "if deadline_ms is not None:",
        f"{TOGETHER}::TestDeadlines::test_a_file_that_changes_often_is_noted_once",
    ),
    wrong(
        "a deadline that moved is forgotten",
        "sink/rolling/groups.py",
        "                    del self._noted[key]\n",
        "",
        f"{TOGETHER}::TestDeadlines::test_one_that_moves_is_looked_at_when_it_passes",
    ),
    wrong(
        "in the hour that clocks show twice every file is due",
        "sink/rolling/rules.py",
        "if _clock_us(then_us, zone) % DAY_US % period_us:",
        "if then_us:",
        f"{TOGETHER}::TestDeadlines",
    ),
    wrong(
        "large buckets open as many files",
        "sink/task/spool.py",
        "if is_large and self._parts.has_room_for(bucket):",
        "if is_large:",
        f"{TOGETHER}::TestTasks::test_no_more_files_are_open_than_may_be",
    ),
    wrong(
        "large buckets do not keep to a strict size",
        "sink/rolling/settings.py",
        "self.event_column is not None or self.strict",
        "self.event_column is not None",
        f"{ROLLING}::TestSizes::test_strictly_also_what_one_task_has_much_of",
    ),
    wrong(
        "a flush gives up what it lost in part",
        "maintenance/flush.py",
        "if inputs & ended or inputs - head.segments.keys():",
        "if inputs & ended:",
        f"{PROGRESS}::TestFlush::test_takes_again_what_it_lost_twice",
    ),
    wrong(
        "a flush does not notice that its files were too old",
        "maintenance/flush.py",
        "            if inputs & self._stale:\n",
        "            if inputs:\n",
        f"{TOGETHER}::TestFlush::test_makes_again_what_a_vacuum_made_too_old",
    ),
    wrong(
        "a damaged segment keeps the others of its file back",
        "sink/assembly/assembler.py",
        "            if not damaged:\n",
        "            if damaged:\n",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "a flush names one of several damaged segments of a file",
        "sink/assembly/assembler.py",
        "            if not damaged:\n",
        "            if not 0 < len(damaged) < len(job.inputs):\n",
        f"{ROLLING}::TestFailures::test_a_flush_names_each_segment_where_all_are_damaged",
    ),
    wrong(
        "each flush after a batch counts from the same number",
        "maintenance/flush.py",
        "FIRST_NUMBER + NUMBERS_PER_VERSION * since",
        "FIRST_NUMBER",
        f"{TOGETHER}::TestFlush::test_again_before_the_next_batch_gives_other_names",
    ),
)

PROGRESSING = (
    wrong(
        "a damaged segment has no job of its own",
        "sink/rolling/plan.py",
        "jobs.append(alone(segment, self._settings, self._ids))",
        "pass",
        f"{ROLLING}::TestFailures::test_a_damaged_segment_keeps_no_other_back",
    ),
    wrong(
        "what failed comes first",
        "sink/rolling/plan.py",
        "key=lambda job: job.attempts",
        "key=lambda job: -job.attempts",
        f"{PROGRESS}::TestLimits::test_failed_jobs_take_no_room_from_others",
    ),
    wrong(
        "what failed takes room from others",
        "sink/rolling/plan.py",
        "for job in jobs if not job.attempts)\n        open_segments",
        "for job in jobs)\n        open_segments",
        f"{PROGRESS}::TestLimits::test_failed_jobs_take_no_room_from_others",
    ),
    wrong(
        "one group of very many segments is never planned",
        "sink/rolling/plan.py",
        "len(job.inputs) > room < DUE_SEGMENTS_MAX",
        "len(job.inputs) > room",
        f"{PROGRESS}::TestLimits::test_more_segments_are_due_than_a_record_names",
    ),
    wrong(
        "a group is judged with the rows of the batch",
        "sink/rolling/plan.py",
        "for key in dict.fromkeys((*index.overdue(now_ms), *older)):",
        "for key in older:",
        f"{PROGRESS}::TestTime::test_a_file_is_over_before_the_next_row",
    ),
    wrong(
        "what a job did not use is forgotten until the next record",
        "sink/rolling/plan.py",
        "by_group((*freed, *",
        "by_group((*(), *",
        "tests/unit/sink/test_filters.py",
    ),
    wrong(
        "a final row beyond the segments of a part ends nothing",
        "sink/rolling/jobs.py",
        "for start in range(0, len(inputs), settings.max_segments):",
        "for start in (0,):",
        f"{PROGRESS}::TestLimits",
    ),
    wrong(
        "a file has rows of several windows",
        "sink/task/spool.py",
        "(windows[1:] != windows[:-1]) | (runs",
        "(runs",
        f"{PROGRESS}::TestEventTime",
    ),
    wrong(
        "windows stay open beside later ones",
        "sink/rolling/plan.py",
        "return _EVENT_TIME if found.is_passed else reason_to_end(",
        "return reason_to_end(",
        f"{PROGRESS}::TestEventTime",
    ),
    wrong(
        "a clock that was set back keeps files open",
        "sink/rolling/groups.py",
        "        if now_ms < self._newest_ms:\n",
        "        if now_ms < 0:\n",
        f"{PROGRESS}::TestTime",
    ),
    wrong(
        "a time to come is never old",
        "sink/rolling/rules.py",
        "abs(now_ms - totals.first_ms)",
        "(now_ms - totals.first_ms)",
        f"{PROGRESS}::TestTime",
    ),
    wrong(
        "ids of what is left grow",
        "sink/assembly/assembler.py",
        "segment.id.partition('.')[0]",
        "segment.id",
        f"{PROGRESS}::TestLimits",
    ),
    wrong(
        "a segment that nothing was taken from is replaced",
        "sink/assembly/assembler.py",
        "        if rows == segment.rows:\n",
        "        if not rows:\n",
        "tests/unit/sink/test_filters.py::TestSizes::test_strict_parts_of_noise",
    ),
    wrong(
        "a flush ends with one record",
        "maintenance/flush.py",
        "        while self._flush_some(head):\n",
        "        if self._flush_some(head):\n",
        f"{PROGRESS}::TestFlush",
    ),
    wrong(
        "a flush follows a running query for ever",
        "maintenance/flush.py",
        "self._last_batches.get(query_id, segment.origin.last_batch)",
        "segment.origin.last_batch",
        f"{PROGRESS}::TestFlush::test_what_comes_meanwhile_stays_open",
    ),
    wrong(
        "a job is due until all its segments are gone",
        "commit/prepare.py",
        "if not ended & {add.id for add in job.inputs}",
        "if not ended >= {add.id for add in job.inputs}",
        f"{PROGRESS}::TestJobs::test_what_is_left_of_a_job_is_planned_anew",
    ),
    wrong(
        "rows of an assembly are not counted",
        "sink/assembly/assembler.py",
        "        if found != expected:\n",
        "        if found < 0:\n",
        f"{ROLLING}::TestFailures::test_a_file_that_lost_a_row_is_none",
    ),
    wrong(
        "the last batch of a part is that of its oldest rows",
        "attempt/entries.py",
        "max(each.last_batch for each in origins)",
        "min(each.last_batch for each in origins)",
        f"{PROGRESS}::TestJobs::test_a_file_says_of_which_batches_it_is",
    ),
    wrong(
        "a flush acts on records that are not durable",
        "maintenance/flush.py",
        "        head = self._log.read_on(durable=True)\n        # Of a running",
        "        head = self._log.read_on()\n        # Of a running",
        f"{PROGRESS}::TestFlush::test_makes_the_log_durable_before_it_publishes_what_another_left",
    ),
    wrong(
        "batch writes keep files open",
        "sink/task/task.py",
        "config.rolling is None or not is_stream:",
        "config.rolling is None:",
        f"{PROGRESS}::TestBatchWrites",
    ),
)

COPIED = "tests/unit/sink/test_copies.py"

COPIES = (
    dropped(
        "copied bytes are missing in checksums",
        "attempt/stage.py",
        "self._crc.extend(checksum, length)",
        f"{COPIED}::test_whole_segments_are_copied",
    ),
    wrong(
        "a segment is copied past the limit",
        "encoding/base/segments.py",
        "        if not self._has_room(size_bytes, rows):\n            return False\n",
        "",
        f"{COPIED}::test_a_segment_that_a_file_ends_in_is_read",
    ),
    wrong(
        "copied rows are not counted",
        "encoding/base/segments.py",
        "        append()\n        self._count(size_bytes, rows)\n",
        "        append()\n",
        f"{COPIED}::test_files_are_the_same_as_if_all_were_read",
    ),
    wrong(
        "the rest of a segment is copied from its beginning",
        "sink/assembly/joiners.py",
        "length, is_whole = piece.segment.length, not start and not skip_rows",
        "length, is_whole = piece.segment.length, True",
        f"{COPIED}::test_files_are_the_same_as_if_all_were_read",
    ),
    wrong(
        "what is encrypted is copied",
        "sink/assembly/segment_reader.py",
        " and chain.framing == chain.filters",
        "",
        f"{COPIED}::test_what_must_be_made_anew_is_read",
    ),
    wrong(
        "a store that copies no ranges makes no files",
        "sink/assembly/assembler.py",
        "            if not self._copies:\n",
        "            if True:\n",
        f"{COPIED}::test_a_store_that_copies_no_ranges_is_read_from",
    ),
    wrong(
        "rows before copied frames stand after them",
        "parts/filtered_file.py",
        "        self.flush()\n        before = self._target.position\n",
        "        before = self._target.position\n",
        f"{COPIED}::test_frames_stand_in_order",
    ),
)

ROLLED = (*SEGMENTS, *JOBS, *RULES, *FLUSHES, *QUERIES, *OPEN_FOR_LONG, *PROGRESSING, *COPIES)
