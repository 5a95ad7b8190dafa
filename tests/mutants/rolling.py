"""Mistakes with parts that stay open over batches."""

from __future__ import annotations

from tests.mutants.mutant import FLUSH_RACE, ROLLING, ROLLING_CRASHES, ROLLING_FAULTS, dropped, wrong

SEGMENTS = (
    wrong(
        "a segment's checksum is not verified when a part is made of it",
        "sink/rolling/assembly.py",
        "if len(data) != segment.length or not matches(data, segment.checksum):",
        "if len(data) != segment.length:",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "a segment's checksum is not verified when it is read",
        "source/reading.py",
        "if not matches(data, add.checksum):",
        "if False:",
        f"{ROLLING}::TestFailures::test_a_damaged_segment_is_an_error_for_readers",
    ),
    wrong(
        "what is left of a segment is lost",
        "sink/rolling/assembly.py",
        "            self._rests.append(rest)\n",
        "            self._left_rows = 0\n            self._used[-1] = replace(segment, rows=segment.rows - rows)\n",
        f"{ROLLING}::TestSizes",
    ),
    wrong(
        "what is left of a segment has the checksum of all of it",
        "sink/rolling/assembly.py",
        "rest = replace(rest, checksum=checksum(found))",
        "pass",
        f"{ROLLING}::TestSizes",
    ),
    wrong(
        "rows that are in a part already are read from the segment, too",
        "source/reading.py",
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
    dropped("spools are not synced", "sink/spool.py", "self._stage.end(self._spool)", ROLLING_CRASHES),
)

JOBS = (
    wrong(
        "every task does every job",
        "sink/rolling/share.py",
        "jobs[stage.partition :: tasks]",
        "jobs[:]",
        f"{ROLLING}::TestShares",
    ),
    wrong(
        "a task that did not write the record takes jobs",
        "sink/rolling/share.py",
        "if stage.partition >= tasks:",
        "if not tasks:",
        f"{ROLLING}::TestShares",
    ),
    wrong(
        "a failing assembly fails the batch",
        "sink/rolling/share.py",
        "        except Exception as error:  # it must not fail the batch, whatever it is\n",
        "        except ZeroDivisionError as error:\n",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "failed attempts are not counted",
        "sink/rolling/plan.py",
        "job = replace(job, attempts=job.attempts + 1)",
        "pass",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "what a failed assembly staged is left behind",
        "sink/rolling/assembly.py",
        "            work.drop()\n",
        "            pass\n",
        f"{ROLLING}::TestFailures",
    ),
    wrong(
        "a file that was ended cannot be dropped",
        "sink/staging.py",
        "        if file in self._opened:\n            self._opened.remove(file)\n",
        "        if True:\n            self._opened.remove(file)\n",
        ROLLING_FAULTS,
    ),
)

RULES = (
    wrong(
        "groups of another encoding stay open",
        "sink/rolling/plan.py",
        "        if key[2] != self._encoding:\n            return OTHER_ENCODING\n",
        "",
        f"{ROLLING}::TestChange::test_another_encoding_ends_it",
    ),
    wrong(
        "deadlines are forgotten once they were looked at",
        "sink/rolling/groups.py",
        "        for key, (deadline_ms, _) in found.items():\n",
        "        for key, (deadline_ms, _) in ():\n",
        f"{ROLLING}::test_many_files_that_are_due_wait_for_their_turn",
    ),
    wrong(
        "a tail below the limit is made a file",
        "sink/rolling/rules.py",
        'LIMITS = frozenset({"size", "rows"})',
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
    dropped(
        "a flush does not finish what an earlier one left",
        "upkeep/flush.py",
        "raise_own(roll_forward(self._log, head, Policy(), author), author)",
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

ROLLED = (*SEGMENTS, *JOBS, *RULES, *FLUSHES)
