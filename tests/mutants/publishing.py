"""Mistakes after the record: what is moved where, in which order, how often it is tried, and what is told."""

from __future__ import annotations

from tests.mutants.mutant import BATCHES, PARTITIONED, PROTOCOL, PUBLISH, REPLACING, RETIRING, dropped, wrong

NAMES = (
    dropped("final names are not synced before the hint", "commit/publish.py", "sync_names(log.fs, entry)", BATCHES),
    wrong(
        "a directory is synced before its parent",
        "commit/moving.py",
        "for directory in sorted(directories):",
        "for directory in sorted(directories, reverse=True):",
        PARTITIONED,
    ),
    wrong(
        "the retired directory is not synced",
        "commit/moving.py",
        "{layout.META, layout.RETIRED} if",
        "{layout.META} if",
        f"{PUBLISH}::TestDurability::test_both_ends_of_a_retirement_are_durable_before_the_hint",
    ),
    wrong(
        "the name of the retired directory is not synced",
        "commit/moving.py",
        "{layout.META, layout.RETIRED} if",
        "{layout.RETIRED} if",
        f"{RETIRING}::TestGoneDirectories::test_the_name_of_one_that_is_made_again_is_durable",
    ),
    wrong(
        "a directory that is gone cannot be synced",
        "commit/moving.py",
        "        if not directory:\n            raise\n",
        "        raise\n",
        f"{RETIRING}::TestGoneDirectories::test_of_removed_parts",
    ),
    dropped(
        "the directory that a part was retired from is not synced",
        "commit/moving.py",
        'directories |= {layout.parent(remove.final_path or "") for remove in entry.removes}',
        f"{PUBLISH}::TestDurability::test_both_ends_of_a_retirement_are_durable_before_the_hint",
    ),
)

MOVES = (
    wrong(
        "new parts are placed before the old are retired",
        "commit/publish.py",
        "            retire(log.fs, entry.removes, first=first)\n            unplaced = place(log.fs, entry.adds)\n",
        "            unplaced = place(log.fs, entry.adds)\n            retire(log.fs, entry.removes, first=first)\n",
        REPLACING,
    ),
    wrong(
        "what was recorded last is published first",
        "commit/publish.py",
        "version = min(waiting)",
        "version = max(waiting)",
        f"{PUBLISH}::TestRollForward::test_oldest_first",
    ),
    wrong(
        "removed parts are deleted at once",
        "commit/moving.py",
        "_move(fs, remove.final_path, hidden)",
        "fs.delete(remove.final_path)",
        f"{PROTOCOL}::TestRewrites::test_replaces_and_retires",
        REPLACING,
    ),
    wrong(
        "a part cannot be retired twice",
        "commit/moving.py",
        "    if found is None:\n",
        "    if found is None and not first:\n"
        "        raise NotFound(remove.id, hidden, hidden)\n"
        "    if found is None:\n",
        REPLACING,
    ),
    wrong(
        "where the directory of retired parts is gone, parts stay visible",
        "commit/moving.py",
        "    except MissingParent:\n        fs.make_directories(layout.parent(target))\n",
        "    except MissingParent:\n        raise NotFound('rename', source, '') from None\n",
        f"{RETIRING}::TestGoneDirectories::test_of_what_is_hidden",
    ),
    wrong(
        "parts that were gone before they were removed are not told of",
        "commit/moving.py",
        "return _Step.NOWHERE if first and look(fs, hidden) is None else _Step.DONE",
        "return _Step.DONE",
        f"{RETIRING}::TestGoneDirectories::test_of_removed_parts",
    ),
    wrong(
        "a foreign file is hidden with the removed part's name",
        "commit/moving.py",
        "    if not is_recorded(fs, found, remove, read=not first):\n        return _Step.FOREIGN\n",
        "",
        f"{RETIRING}::TestForeignFiles::test_before_the_removal",
    ),
    wrong(
        "who hides a part again compares its length only",
        "commit/moving.py",
        "read=not first):",
        "read=False):",
        f"{RETIRING}::TestForeignFiles::test_after_the_removal",
    ),
    wrong(
        "a foreign file of the part's length is deleted where the part is hidden",
        "commit/moving.py",
        "if first and not _is_same(found, look(fs, hidden)) and not is_recorded(fs, found, remove):",
        "if False:",
        f"{RETIRING}::TestForeignFiles::test_of_the_same_length_where_the_part_is_hidden_already",
    ),
    wrong(
        "who creates a record is not the first to publish it",
        "commit/publish.py",
        ", first=version == created)",
        ", first=False)",
        f"{RETIRING}::TestGoneDirectories::test_of_removed_parts",
    ),
    wrong(
        "a foreign file at the name of a removed part is a collision",
        "commit/publish.py",
        "if error is not None and (add.id in live or add.id in letters):",
        "if error is not None:",
        f"{RETIRING}::TestForeignFiles::test_after_the_removal",
    ),
    wrong(
        "a collision of a part that the state has forgotten is passed over",
        "commit/publish.py",
        "        live = snapshot_at(log, log.read_on(durable=True)).adds\n",
        "        head = log.read_on(durable=True)\n"
        "        live = {add.id for add, _ in unplaced if head.is_live(add, version)}\n",
        f"{RETIRING}::TestForeignFiles::test_at_the_name_of_a_live_part_long_after",
    ),
    wrong(
        "dead letters are not published over a foreign file, and nobody hears of it",
        "commit/publish.py",
        "(add.id in live or add.id in letters):",
        "add.id in live:",
        f"{RETIRING}::TestForeignFiles::test_at_the_name_of_dead_letters",
    ),
    wrong(
        "a removed part that came back stays",
        "commit/moving.py",
        "        _delete(fs, remove.final_path)\n",
        "",
        f"{PUBLISH}::TestRollForward::test_a_removed_part_that_a_late_copy_brought_back_is_hidden_again",
    ),
    wrong(
        "a file in the way is overwritten",
        "commit/moving.py",
        '        raise NameCollision(\n            f"the part staged',
        "        fs.delete(final_path)\n"
        "        return _place_one(fs, add)\n"
        '        raise NameCollision(\n            f"the part staged',
        f"{PROTOCOL}::TestPublish::test_a_collision_names_both_and_is_an_error_at_every_start",
    ),
    wrong(
        "a file of the part's length is taken for a copy",
        "commit/moving.py",
        "not _is_same(source, target) and not is_recorded(fs, target, add):",
        "not _is_same(source, target) and not is_recorded(fs, target, add, read=False):",
        f"{PUBLISH}::TestCollisions::test_a_file_of_equal_length_and_other_bytes",
    ),
    wrong(
        "a copy is taken for a foreign file",
        "commit/moving.py",
        "if not _is_same(source, target) and not is_recorded(fs, target, add):",
        "if not _is_same(source, target):",
        f"{PROTOCOL}::TestPublish::test_a_copy_with_the_recorded_content_is_settled",
    ),
    wrong(
        "whatever lies at the final name is the part",
        "commit/moving.py",
        "if target.size_bytes != add.length:",
        "if False:",
        f"{PUBLISH}::TestCollisions::test_a_published_part_that_has_another_length_now",
    ),
    dropped(
        "of a part with both names the staged one stays",
        "commit/moving.py",
        "_delete(fs, add.path)",
        f"{PROTOCOL}::TestPublish::test_both_names_of_one_file_are_settled",
    ),
    wrong(
        "a part that another publisher settled is in doubt",
        "commit/moving.py",
        "    if source is None:\n        return\n",
        "    if source is None:\n        raise NotFound('rename', add.path, '')\n",
        f"{PUBLISH}::TestCollisions::test_a_part_that_another_publisher_settles_meanwhile",
    ),
    wrong(
        "what another publisher deleted first is an error",
        "commit/moving.py",
        "    with contextlib.suppress(NotFound):\n        fs.delete(path)",
        "    fs.delete(path)",
        f"{PROTOCOL}::TestOthers::test_two_publishers_may_settle_the_same_part",
    ),
)

NOWHERE = (
    wrong(
        "a directory that vanishes twice is an error for good",
        "commit/moving.py",
        '            raise Unavailable("rename", source, detail) from error',
        '            raise StorageError("rename", source, detail) from error',
        f"{PROTOCOL}::TestOthers::test_a_directory_that_vanishes_under_the_rename_is_made_again",
    ),
    wrong(
        "dead letters may not be deleted",
        "commit/publish.py",
        "if error is None and add.id not in letters], version)",
        "if error is None], version)",
        f"{RETIRING}::TestMissingParts::test_deleted_dead_letters_are_no_missing_part",
    ),
    wrong(
        "a missing part that only warns stays on the list",
        "commit/publish.py",
        '            _log.warning("%s", problem.error)\n',
        '            _log.warning("%s", problem.error)\n            continue\n',
        f"{RETIRING}::TestMissingParts::test_one_that_only_warns_is_told_of_once",
    ),
    wrong(
        "a part is called removed by a record that is not durable",
        "commit/publish.py",
        "    head = log.read_on(durable=True)\n    return [add for add in adds if",
        "    head = log.read_on()\n    return [add for add in adds if",
        f"{RETIRING}::TestDurability::test_before_a_part_is_called_removed",
    ),
    wrong(
        "who publishes without a commit acts on what is not durable",
        "commit/protocol.py",
        "    head = log.read_on(durable=True)\n    problems = roll_forward(log, head, policy, author)\n",
        "    head = log.read_on()\n    problems = roll_forward(log, head, policy, author)\n",
        f"{RETIRING}::TestDurability::test_before_publishing_without_a_commit",
    ),
    wrong(
        "a part that is nowhere is missing, without another look at the log",
        "commit/publish.py",
        "return [add for add in adds if head.is_live(add, known_at)]",
        "return list(adds) if head else []",
        f"{PROTOCOL}::TestPublish::test_a_part_that_is_nowhere_may_have_been_removed_meanwhile",
    ),
    wrong(
        "a part that was removed long ago is missing once it is vacuumed",
        "commit/publish.py",
        "if head.is_live(add, known_at)]",
        "if add.id not in head.removed]",
        f"{PUBLISH}::TestNowhere::test_a_part_that_was_removed_too_long_ago_to_tell",
    ),
    wrong(
        "a missing part is never an error",
        "commit/publish.py",
        'and policy.on_missing_part == "warn":',
        "and True:",
        f"{PROTOCOL}::TestPublish::test_a_part_that_a_consumer_moved_is_a_warning_or_an_error",
    ),
    wrong(
        "a missing part is always an error",
        "commit/publish.py",
        'and policy.on_missing_part == "warn":',
        "and False:",
        f"{PROTOCOL}::TestPublish::test_a_part_that_a_consumer_moved_is_a_warning_or_an_error",
    ),
)

POOL = (
    wrong(
        "parts are published one after the other where calls take long",
        "fs/calls/parallel.py",
        "threads = min(fs.capabilities.concurrency, THREADS_MAX, len(items))",
        "threads = 1",
        f"{PUBLISH}::TestPool::test_parts_are_moved_side_by_side_where_that_pays",
    ),
    wrong(
        "more parts are published side by side than the store takes",
        "fs/calls/parallel.py",
        "threads = min(fs.capabilities.concurrency, THREADS_MAX, len(items))",
        "threads = len(items)",
        f"{PUBLISH}::TestPool::test_no_more_than_the_store_takes",
    ),
)

PROBLEMS = (
    wrong(
        "one part that cannot be published keeps the others back",
        "fs/calls/parallel.py",
        "        except FtfileError as error:\n            return error\n",
        "        except FtfileError:\n            raise\n",
        f"{PROTOCOL}::TestPublish::test_a_collision_does_not_keep_the_batchs_other_parts_back",
    ),
    wrong(
        "failures that may pass are not tried again",
        "commit/publish.py",
        "if error.retry is Retry.NEVER or log.clock.monotonic_s() + wait_s > deadline:",
        "if True:",
        f"{PROTOCOL}::TestPublish::test_passing_failures_are_tried_again_and_then_raised",
    ),
    wrong(
        "failures that stay are tried again",
        "commit/publish.py",
        "if error.retry is Retry.NEVER or log.clock.monotonic_s() + wait_s > deadline:",
        "if log.clock.monotonic_s() + wait_s > deadline:",
        f"{PUBLISH}::TestRetries::test_a_refusal_is_raised_at_once",
    ),
    wrong(
        "what is tried again is tried once more at the most",
        "commit/publish.py",
        "            wait_s = min(2 * wait_s, LONGEST_WAIT_S)\n",
        "            wait_s = timeout_s\n",
        f"{PUBLISH}::TestRetries::test_what_may_pass_is_tried_until_the_timeout",
    ),
    wrong(
        "another's failure is tried as long as one's own",
        "commit/publish.py",
        "policy.publish_timeout_s if own else 0",
        "policy.publish_timeout_s",
        f"{PROTOCOL}::TestOthers::test_what_others_cannot_publish_is_tried_once",
    ),
    wrong(
        "what failed before the record is tried again after it",
        "commit/publish.py",
        "done = {problem.version for problem in tried}",
        "done: set[int] = set()",
        f"{PROTOCOL}::TestOthers::test_what_others_cannot_publish_is_tried_once",
    ),
    wrong(
        "another's failure is raised",
        "commit/publish.py",
        "if problem.version == version or _is_own(problem, author):",
        "if True:",
        f"{PROTOCOL}::TestPublish::test_anothers_collision_is_a_warning",
    ),
    wrong(
        "an own failure of an earlier batch is only told",
        "commit/publish.py",
        "if problem.version == version or _is_own(problem, author):",
        "if problem.version == version:",
        f"{PROTOCOL}::TestPublish::test_a_collision_names_both_and_is_an_error_at_every_start",
    ),
    wrong(
        "a failure of a batch write is only told",
        "commit/publish.py",
        "if problem.version == version or _is_own(problem, author):",
        "if _is_own(problem, author):",
        f"{PROTOCOL}::TestOthers::test_a_failure_after_the_record_says_that_the_batch_is_committed",
    ),
    wrong(
        "a failure after the record does not say that there is one",
        "commit/publish.py",
        "return _problem(entry, _as_committed(entry, error))",
        "return _problem(entry, error)",
        f"{PROTOCOL}::TestOthers::test_a_failure_after_the_record_says_that_the_batch_is_committed",
    ),
    wrong(
        "what is not published is forgotten",
        "commit/publish.py",
        "            problems.append(problem)\n            continue\n",
        "            problems.append(problem)\n",
        f"{PROTOCOL}::TestPublish::test_a_collision_names_both_and_is_an_error_at_every_start",
    ),
)

LEFTOVERS = (
    dropped(
        "the stage is not emptied",
        "commit/publish.py",
        "clear_stage(log.fs, entry)",
        f"{PROTOCOL}::TestFirstCommit::test_publishes_the_part_and_empties_the_stage",
    ),
    wrong(
        "publishing deletes what other attempts staged",
        "commit/moving.py",
        "            if fs.remove_directory(directory) and entry.query_id is None:\n",
        "            for info in fs.list(directory):\n"
        "                fs.delete(info.path)\n"
        "            if fs.remove_directory(directory) and entry.query_id is None:\n",
        f"{PROTOCOL}::TestPublish::test_leftovers_in_the_stage_harm_nothing",
    ),
    wrong(
        "a stage that cannot be emptied fails the batch",
        "commit/moving.py",
        '    except StorageError as error:\n            _log.debug("left',
        '    except NotFound as error:\n            _log.debug("left',
        f"{PUBLISH}::TestHarmless::test_what_cannot_be_tidied_after_the_record",
    ),
    wrong(
        "a hint that cannot be written fails the batch",
        "commit/log/hints.py",
        '    except StorageError as error:\n        _log.warning("could not write',
        '    except CorruptData as error:\n        _log.warning("could not write',
        f"{PUBLISH}::TestHarmless::test_what_cannot_be_tidied_after_the_record",
    ),
    wrong(
        "a hint whose directory is gone is never written again",
        "commit/remaking.py",
        "        fs.put(path, content)\n    except NotFound:\n        make_durably(fs, layout.parent(path))\n",
        "        fs.put(path, content)\n    except NotFound:\n        pass\n",
        f"{RETIRING}::TestGoneDirectories::test_of_what_is_derived",
    ),
    wrong(
        "a base whose directory is gone is never written again",
        "commit/remaking.py",
        "create_exclusive(path, content)\n    except NotFound:\n        make_durably(fs, layout.parent(path))\n",
        "create_exclusive(path, content)\n    except NotFound:\n        pass\n",
        f"{RETIRING}::TestGoneDirectories::test_of_what_is_derived",
    ),
    wrong(
        "a base that cannot be written fails the batch",
        "commit/post_commit.py",
        '    except StorageError as error:\n        _log.warning("could not write',
        '    except KeyError as error:\n        _log.warning("could not write',
        f"{PUBLISH}::TestHarmless::test_what_cannot_be_tidied_after_the_record",
    ),
)

HINT = (
    wrong(
        "the hint is written before publishing",
        "commit/publish.py",
        "    problems = []\n",
        "    problems = []\n    write_published(log.fs, PublishedHint(head.version, head.nonce))\n",
        BATCHES,
    ),
    wrong(
        "the hint passes what is not published",
        "commit/publish.py",
        "    if not head.unpublished:\n        write_published(",
        "    if True:\n        write_published(",
        f"{PROTOCOL}::TestHints::test_it_does_not_pass_what_is_unpublished",
    ),
    wrong(
        "a hint speaks for later records",
        "commit/publish.py",
        "for version in head.unpublished if version <= hint.version]",
        "for version in head.unpublished]",
        f"{PUBLISH}::TestRollForward::test_a_hint_does_not_speak_for_later_records",
    ),
    wrong(
        "a hint is believed unseen",
        "commit/publish.py",
        "if hint is not None and head.includes(hint.version, hint.nonce):",
        "if hint is not None:",
        f"{PROTOCOL}::TestHints::test_a_hint_of_another_log_is_not_believed",
    ),
    wrong(
        "a torn hint is an error",
        "commit/log/hints.py",
        "except (StorageError, CorruptData, ConfigError, *UNREADABLE):",
        "except StorageError:",
        f"{PROTOCOL}::TestHints::test_a_bad_hint_is_as_good_as_none",
    ),
)

PUBLISHING = (*NAMES, *MOVES, *NOWHERE, *POOL, *PROBLEMS, *LEFTOVERS, *HINT)
