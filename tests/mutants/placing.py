"""Mistakes with buckets, names, what is published beside parts, and records that cannot be written."""

from __future__ import annotations

from tests.mutants.mutant import CRASHES, dropped, wrong

NAMED = f"{CRASHES}[named]"
BUCKETS = "tests/unit/sink/test_buckets.py"
NAMES = "tests/unit/sink/test_names.py"
LIVE_NAMES = "tests/unit/sink/test_live_names.py"
HOOKS = "tests/unit/sink/test_hooks.py"
FINAL_PATHS = "tests/unit/commit/test_final_paths.py"
BAD_RECORDS = "tests/unit/sink/test_bad_records.py"
PUBLISHING = "tests/unit/sink/test_publishing.py"
MANY = "tests/unit/sink/test_many_buckets.py"
PATHS = "tests/unit/encoding/test_partition_paths.py"

BUCKETED = (
    wrong(
        "each attempt takes its own clock for the directory",
        "sink/task/task.py",
        "config.bucketing.router(bad.take, planned.time_ms, config.foresight(fs.capabilities))",
        "config.bucketing.router(bad.take, SYSTEM_CLOCK.now_ms(), config.foresight(fs.capabilities))",
        f"{BUCKETS}::TestPatternOfTheBatch",
    ),
    wrong(
        "directories below the partition columns are read as such",
        "encoding/partitions/paths.py",
        "texts.setdefault(_unescaped(column), text)",
        "texts[_unescaped(column)] = text",
        f"{PATHS}::test_directories_below_the_partition_columns_are_not_read",
    ),
    wrong(
        "a name may leave the directory",
        "sink/naming/path_rules.py",
        'if name in {".", ".."}:',
        "if False:",
        f"{BUCKETS}::TestFileNames",
    ),
    wrong(
        "the rows of a bucket are not in their order",
        "sink/buckets/router.py",
        "rows.take(pc.array_sort_indices(from_numpy(codes, pa.int64())))",
        "rows.take(pc.array_sort_indices(from_numpy(codes, pa.int64()))[::-1])",
        "tests/unit/sink/test_routing.py",
    ),
    dropped(
        "rows that wait for their file are lost when others are spilled",
        "sink/task/spill.py",
        "yield from ((bucket, rows) for rows in held.pop(bucket, ()))",
        f"{MANY}::TestLaterRows",
    ),
    dropped("the spill file stays", "sink/task/spill.py", "self._stage.drop(self._file)", MANY),
)

NAMING = (
    wrong(
        "names are given once, whatever the head is by then",
        "commit/protocol.py",
        "settled = proposal.settled(log, head)",
        "settled = locals().get('settled') or proposal.settled(log, head)",
        f"{NAMES}::TestNamesThatAreTaken::test_a_batch_that_lost_its_version_looks_again",
    ),
    wrong(
        "the name of a removed part is given again",
        "commit/log/fold.py",
        "self._reserved.set(remove.final_path, version)",
        "pass",
        f"{NAMES}::TestNamesThatAreTaken::test_by_a_part_that_was_removed",
    ),
    wrong(
        "the name of a part that is not published yet is given again",
        "commit/final_paths.py",
        "if path in self._taken or path in self._waiting:",
        "if path in self._taken:",
        f"{NAMES}::TestNamesThatAreTaken::test_by_a_part_that_is_not_published_yet",
    ),
    wrong(
        "the directory is not looked at for names",
        "commit/final_paths.py",
        "if path in self._taken or path in self._waiting:",
        "if path in self._waiting:",
        f"{NAMES}::TestNamesThatAreTaken",
    ),
    wrong(
        "the name of a live part is given again when its file is gone",
        "commit/final_paths.py",
        "        if path in self._live:\n",
        "        if False:\n",
        f"{LIVE_NAMES}::TestATakenFile",
    ),
    wrong(
        "names that the log has are not followed",
        "commit/live_names.py",
        "        _apply(record, names.paths)\n",
        "",
        f"{LIVE_NAMES}::TestATakenFile",
    ),
    wrong(
        "a forgotten bucket takes numbers that its parts have",
        "sink/naming/namer.py",
        "        self._forgotten.add(bucket)\n",
        "",
        f"{LIVE_NAMES}::TestNumbersThatAreForgotten",
    ),
    wrong(
        "a file where a directory is needed is found out after the record",
        "commit/final_paths.py",
        "            if info is not None:\n                files.add(directory)\n",
        "",
        f"{FINAL_PATHS}::TestABatch",
    ),
    wrong(
        "paths that the store does not keep are recorded",
        "commit/final_paths.py",
        "        if path in self._faults:\n",
        "        if False:\n",
        f"{FINAL_PATHS}::TestABatch",
    ),
    wrong(
        "a refused rewrite keeps its names",
        "commit/final_paths.py",
        "            self._directories.difference_update(directories)\n",
        "",
        f"{FINAL_PATHS}::TestRewrites::test_that_is_refused_leaves_its_names_to_others",
    ),
    wrong(
        "directories are believed when something could not be published",
        "commit/final_paths.py",
        "        known.directories.clear()\n",
        "        pass\n",
        f"{FINAL_PATHS}::TestDirectories",
    ),
    wrong(
        "directories are looked up for every commit",
        "commit/final_paths.py",
        "                known.remember(directory)\n",
        "",
        f"{FINAL_PATHS}::TestDirectories",
    ),
    wrong(
        "bases forget how many parts a bucket had",
        "commit/log/bases.py",
        'memory={name: SharedMap({**table}) for name, table in text["memory"].items()},',
        "memory={},",
        f"{NAMES}::TestNumbers::test_survive_in_bases",
    ),
)

LETTERS = (
    wrong(
        "dead letters are not published",
        "commit/log/fold.py",
        '(*(add for add in record.adds if add.kind == "part"), *record.letters)',
        'tuple(add for add in record.adds if add.kind == "part")',
        f"{BAD_RECORDS}::TestDeadLetters",
        NAMED,
    ),
    wrong(
        "dead letters that wait to be published are not found",
        "source/dead_letters.py",
        "places[final] = (final, add.path, final)",
        "pass",
        f"{BAD_RECORDS}::TestDeadLetters::test_that_are_committed_and_not_published_yet_are_found",
    ),
    wrong(
        "dead letters are not checked before the record",
        "commit/protocol.py",
        "(*settled.adds, *settled.letters)",
        "settled.adds",
        f"{BAD_RECORDS}::TestDeadLetters::test_that_are_gone_before_the_record_stop_the_batch",
    ),
    wrong(
        "only the first of several bad rows is found",
        "sink/task/unencodable.py",
        "waiting += [(start + half, count - half), (start, half)]",
        "waiting += [(start, half)] if found else [(start + half, count - half), (start, half)]",
        f"{BAD_RECORDS}::TestFinding",
    ),
    wrong(
        "bytes that are no text are written as text",
        "encoding/base/line_writer.py",
        "column.validate(full=True)",
        "column.validate()",
        f"{BAD_RECORDS}::TestValuesThatCannotBeEncoded",
    ),
    wrong(
        "rows before a bad one are in the spool twice",
        "sink/task/spool.py",
        "appended = sum(segment.rows for segment in self.segments[done:])",
        "appended = 0",
        f"{BAD_RECORDS}::TestFilesThatStayOpen",
    ),
)

ANNOUNCED = (
    wrong(
        "a directory is marked before the end of its time",
        "sink/publishing/success_file.py",
        "is_over = end is None or end + self.delay_ms <= now_ms",
        "is_over = True",
        f"{PUBLISHING}::TestMarkers",
    ),
    wrong(
        "a directory is marked that this very batch writes into",
        "sink/publishing/success_file.py",
        "directory not in busy | open_directories | waiting",
        "directory not in open_directories | waiting",
        f"{PUBLISHING}::TestMarkers",
    ),
    wrong(
        "a directory is marked that has rows in open files",
        "sink/publishing/success_file.py",
        "directory not in busy | open_directories | waiting",
        "directory not in busy | waiting",
        f"{PUBLISHING}::TestMarkers",
    ),
    wrong(
        "the hook does not hear again of a batch that is run again",
        "sink/writer.py",
        "if last.last_batch == writer.batch_id:",
        "if False:",
        f"{PUBLISHING}::TestHook",
    ),
    wrong(
        "the hook does not hear of a batch whose record was vacuumed",
        "commit/read/added.py",
        "chosen = [added == version for added in versions.added]",
        "chosen = [False for _ in versions.added]",
        f"{HOOKS}::TestBatches",
    ),
    wrong(
        "nobody hears of a flush that died",
        "sink/publishing/on_publish.py",
        'return {UNTOLD: {"set": {str(version): query_id}}}',
        "return {}",
        f"{HOOKS}::TestFlushes",
    ),
    wrong(
        "the hook hears of files that are not published",
        "sink/publishing/on_publish.py",
        " and at not in head.unpublished)",
        ")",
        f"{HOOKS}::TestFlushes",
    ),
    wrong(
        "the hook hears of a flush with every batch",
        "sink/publishing/on_publish.py",
        "    if waiting:\n",
        "    if False:\n",
        f"{HOOKS}::TestFlushes",
    ),
    wrong(
        "an abort takes a committed batch for garbage",
        "sink/writer.py",
        "            if version is not None:\n",
        "            if False:\n",
        f"{HOOKS}::TestAbort",
    ),
)

PLACED = (*BUCKETED, *NAMING, *LETTERS, *ANNOUNCED)
