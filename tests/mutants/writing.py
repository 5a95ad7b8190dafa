"""Mistakes of tasks, of what they tell the driver, and of the local driver below them."""

from __future__ import annotations

from tests.mutants.mutant import BATCHES, LOCAL, TASKS, TWO_QUERIES, WRITER, dropped, wrong

DURABLE = (
    dropped(
        "parts are not synced",
        "attempt/stage.py",
        "self._stream.hsync()",
        "tests/unit/sink/test_durability.py::test_without_the_option_everything_is_synced",
    ),
    dropped(
        "the local driver does not sync parts",
        "fs/local/filesystem.py",
        "os.fsync(self._file.fileno())",
        f"{LOCAL}::test_hsync_and_sync_directory_reach_the_device",
    ),
    dropped(
        "the local driver does not sync a record",
        "fs/local/filesystem.py",
        "os.fsync(file.fileno())",
        f"{LOCAL}::test_create_exclusive_is_durable_in_the_order_that_a_power_cut_demands",
    ),
    dropped(
        "the local driver does not sync a record's name",
        "fs/local/filesystem.py",
        "_sync_directory(parent)",
        f"{LOCAL}::test_create_exclusive_is_durable_in_the_order_that_a_power_cut_demands",
    ),
    wrong(
        "the local driver creates a record over another",
        "fs/local/filesystem.py",
        "        os.link(temporary, full)",
        "        os.replace(temporary, full)",
        f"{LOCAL}::TestLocal::test_create_exclusive_never_overwrites",
    ),
    wrong(
        "the local driver's rename replaces the target",
        "fs/local/no_replace.py",
        "os.fsencode(target), _RENAME_NOREPLACE)",
        "os.fsencode(target), 0)",
        f"{LOCAL}::TestLocal::test_rename_never_overwrites",
    ),
    wrong(
        "the local driver's rename by link replaces the target",
        "fs/local/no_replace.py",
        "    except FileExistsError:\n        raise\n",
        "    except FileExistsError:\n        os.replace(source, target)\n        return\n",
        f"{LOCAL}::TestLocalWithoutAtomicRename::test_rename_never_overwrites",
    ),
)

ATTEMPTS = (
    wrong(
        "a link whose reply was lost is taken for one that was refused",
        "fs/local/no_replace.py",
        "        if not os.path.lexists(target) or not os.path.samefile(source, target):\n            raise\n",
        "        raise\n",
        f"{LOCAL}::test_so_is_that_of_a_rename_by_link",
    ),
    wrong(
        "a link that was refused is taken for one whose reply was lost",
        "fs/local/no_replace.py",
        " or not os.path.samefile(source, target)",
        "",
        f"{LOCAL}::test_so_is_that_of_a_rename_by_link",
    ),
    wrong(
        "staged names have no unique part",
        "attempt/stage.py",
        "-{self._identity.attempt}-{file_id}.{ending}",
        ".{ending}",
        BATCHES,
    ),
    wrong(
        "a task does not look whether the store has all it wrote",
        "attempt/stage.py",
        "if found != file.position:",
        "if False:",
        f"{TASKS}::test_a_store_that_loses_bytes_fails_the_attempt",
    ),
    dropped(
        "a failing attempt leaves its files",
        "sink/task/task.py",
        "stage.discard()",
        f"{WRITER}::TestFiles::test_a_failing_attempt_removes_its_files",
    ),
    wrong(
        "a failing attempt removes the files of others",
        "attempt/stage.py",
        "        for path in self._ended:\n            self._delete(path)\n",
        "        for info in self.fs.list(self._directory):\n            self._delete(info.path)\n",
        f"{TASKS}::test_a_failing_attempt_leaves_the_files_of_others_alone",
    ),
    wrong(
        "a file that cannot be removed hides why the attempt failed",
        "attempt/stage.py",
        '        except StorageError as error:\n            _log.info("left',
        '        except NotFound as error:\n            _log.info("left',
        f"{TASKS}::test_files_that_cannot_be_removed_do_not_hide_why_the_attempt_failed",
    ),
    wrong(
        "a task does not look whether its batch is committed",
        "sink/task/task.py",
        "head is not None and head.finds(author):",
        "False:",
        f"{WRITER}::TestReplay::test_tasks_of_a_committed_batch_write_nothing",
    ),
    wrong(
        "a task believes what was known when the batch was planned",
        "sink/task/task.py",
        "head is not None and head.finds(author):",
        "planned.view.to_state().finds(author):",
        f"{WRITER}::TestReplay::test_tasks_notice_a_commit_after_the_plan",
    ),
    wrong(
        "a task does not tell that its batch is committed",
        "sink/task/task.py",
        "fingerprint.to_json(), found_committed=True)",
        "fingerprint.to_json())",
        f"{WRITER}::TestReplay::test_tasks_notice_a_commit_after_the_plan",
    ),
    wrong(
        "the rows of a committed batch are not looked at",
        "sink/task/task.py",
        "        for _ in rows:\n            pass\n",
        "",
        f"{WRITER}::TestReplay::test_otherwise_partitioned",
    ),
)

CONTENT = (
    dropped(
        "a fingerprint does not cover content",
        "attempt/fingerprint.py",
        "_sum_content(sums, _escaped(name), column)",
        f"{WRITER}::TestReplay::test_other_rows",
    ),
    wrong(
        "a fingerprint depends on the order of tasks",
        "attempt/fingerprint.py",
        "present[index] = (present[index] + number) & _WRAP",
        "present[index] = (31 * present[index] + number) & _WRAP",
        f"{WRITER}::TestReplay::test_otherwise_partitioned",
    ),
    wrong(
        "the fingerprint of the first task stands for all",
        "sink/driver/proposal.py",
        "    for other in others:\n",
        "    for other in others[:0]:\n",
        BATCHES,
    ),
    wrong(
        "the hash of the offsets leaves out the time of the batch",
        "attempt/spark_checkpoint.py",
        "hashlib.sha256(content).hexdigest()",
        'hashlib.sha256(b"".join(content.splitlines()[2:])).hexdigest()',
        f"{WRITER}::TestOffsets::test_recorded_and_compared_on_replay",
    ),
)

MESSAGES = (
    wrong(
        "a missing message counts as an empty task",
        "sink/driver/proposal.py",
        "if not whole or len(whole) != len(messages):",
        "if not whole:",
        f"{WRITER}::TestMessages::test_a_missing_message_commits_nothing",
    ),
    wrong(
        "messages of two batches are taken together",
        "sink/driver/proposal.py",
        "if message.identity.writer != writer:",
        "if False:",
        f"{WRITER}::TestMessages::test_messages_of_two_batches_or_of_another_batch",
    ),
    wrong(
        "messages of another batch are taken for this one's",
        "sink/driver/proposal.py",
        "if isinstance(writer, StreamIdentity) and writer.batch_id != batch_id:",
        "if False:",
        f"{WRITER}::TestMessages::test_messages_of_two_batches_or_of_another_batch",
    ),
    wrong(
        "two attempts of one task count both",
        "sink/driver/proposal.py",
        "if len(set(partitions)) != len(partitions):",
        "if False:",
        f"{WRITER}::TestMessages::test_two_messages_of_one_partition",
    ),
    wrong(
        "an executor may run another version",
        "sink/driver/proposal.py",
        "if message.writer_version != __version__:",
        "if False:",
        f"{WRITER}::TestMessages::test_another_version_in_an_executor",
    ),
    wrong(
        "one task's replay is overlooked among others that wrote",
        "sink/driver/proposal.py",
        "any(message.found_committed for message in messages)",
        "all(message.found_committed for message in messages)",
        f"{TASKS}::test_a_replay_of_one_task_alone_commits_nothing",
    ),
    wrong(
        "final names have no unique part",
        "sink/naming/template.py",
        '"unique": part.unique,',
        '"unique": "",',
        TWO_QUERIES,
    ),
    wrong(
        "the schema is looked at before the tasks alone",
        "sink/driver/proposal.py",
        "check=lambda head: check_head(config, head),",
        "check=None,",
        f"{TASKS}::test_a_schema_that_changed_since_the_plan_is_refused",
    ),
    dropped(
        "a query that is not known here is noticed after its tasks",
        "sink/writer.py",
        "check_known_query(head, query_id, config.policy)",
        f"{WRITER}::TestOffsets::test_a_new_query_among_others_is_refused_at_planning",
    ),
)

WRITING = (*DURABLE, *ATTEMPTS, *CONTENT, *MESSAGES)
