"""Mistakes between the messages and the record: replays, lineage, what the record rests on, and who created it."""

from __future__ import annotations

from tests.mutants.mutant import (
    BASES,
    BATCHES,
    FAULTS,
    LOG,
    NAME_IN_DOUBT,
    PROTOCOL,
    RACES,
    RECORD,
    TWO_QUERIES,
    WRITER,
    dropped,
    wrong,
)

RECHECKED = f"{RECORD}::TestCheckedAgain"

FOUND = (
    wrong(
        "a batch is found by its number alone",
        "commit/log/state.py",
        "query = self.queries.get(author.query_id)",
        "query = max(self.queries.values(), key=lambda query: query.last_batch, default=None)",
        TWO_QUERIES,
    ),
    wrong(
        "only the last batch is found",
        "commit/log/state.py",
        "author.batch_id <= query.last_batch",
        "author.batch_id == query.last_batch",
        f"{PROTOCOL}::TestReplay::test_any_batch_up_to_the_last_counts_as_found",
    ),
    wrong(
        "only the last version of a transaction is found",
        "commit/log/state.py",
        "author.transaction.version <= last",
        "author.transaction.version == last",
        f"{PROTOCOL}::TestReplay::test_a_transaction_up_to_the_last_version_counts_as_found",
    ),
    wrong(
        "a replay does not roll forward",
        "commit/protocol.py",
        "problems = roll_forward(log, head, policy, proposal.author)",
        "problems = [] if head.finds(proposal.author) else roll_forward(log, head, policy, proposal.author)",
        f"{PROTOCOL}::TestReplay::test_rolls_forward_to_the_head",
        BATCHES,
    ),
    wrong(
        "a replay message needs no record",
        "commit/protocol.py",
        "if proposal.claims_replay:",
        "if False:",
        f"{PROTOCOL}::TestReplay::test_a_replay_message_without_a_record_is_an_error",
    ),
    wrong(
        "a replay deletes its parts",
        "commit/protocol.py",
        "        log.prepare_directory()\n",
        "        log.prepare_directory()\n"
        "        for add in proposal.adds if head.finds(proposal.author) else ():\n"
        "            if log.fs.exists(add.path):\n"
        "                log.fs.delete(add.path)\n",
        f"{FAULTS}_of_a_commit_that_is_called_again[disk-PermissionDenied before]",
    ),
    dropped(
        "a replay is not compared with what was recorded",
        "commit/protocol.py",
        "check_replay(log, head, proposal.author, proposal.fingerprint, policy)",
        f"{PROTOCOL}::TestReplay::test_other_content_is_another_history",
    ),
    wrong(
        "a replay with other offsets is accepted",
        "commit/replay.py",
        "    if offsets_hash != recorded.offsets_hash:\n",
        "    if not offsets_hash:\n",
        f"{PROTOCOL}::TestReplay::test_other_offsets_refuse_equal_rows",
    ),
    wrong(
        "a replay with equal offsets and other rows is refused",
        "commit/replay.py",
        "    if offsets_hash is None or recorded.offsets_hash is None:\n",
        "    if True:\n",
        f"{PROTOCOL}::TestReplay::test_equal_offsets_accept_other_rows_with_a_warning",
    ),
    wrong(
        "hashes that are not known are equal",
        "commit/replay.py",
        "    if offsets_hash is None or recorded.offsets_hash is None:\n",
        "    if False:\n",
        f"{PROTOCOL}::TestReplay::test_other_content_is_another_history",
    ),
    wrong(
        "a hash that is not known is another",
        "commit/replay.py",
        "    if offsets_hash is None or recorded.offsets_hash is None:\n        return _difference(before, now)\n",
        "",
        f"{RECORD}::TestReplay::test_offsets_known_on_one_side_leave_it_to_the_content",
    ),
    wrong(
        "nobody hears of a source that is not deterministic",
        "commit/replay.py",
        "    if before is not None and now is not None and before.kind == now.kind and before.digest != now.digest:\n",
        "    if False:\n",
        f"{PROTOCOL}::TestReplay::test_equal_offsets_accept_other_rows_with_a_warning",
    ),
    wrong(
        "a replay of which no offsets are known is accepted unseen",
        "commit/replay.py",
        "        return _difference(before, now)\n",
        "        return None\n",
        f"{PROTOCOL}::TestReplay::test_other_content_is_another_history",
    ),
    wrong(
        "a fingerprint that does not cover content proves it equal",
        "commit/format/model.py",
        "other is not None and self.covers_content and self == other",
        "other is not None and self == other",
        f"{PROTOCOL}::TestReplay::test_a_fingerprint_that_does_not_cover_content_proves_nothing",
    ),
    wrong(
        "what is recorded is kept without being asked for",
        "commit/replay.py",
        'if policy.on_replay_mismatch != "keep":',
        "if False:",
        f"{PROTOCOL}::TestReplay::test_other_content_is_another_history",
    ),
    wrong(
        "what is recorded cannot be kept",
        "commit/replay.py",
        'if policy.on_replay_mismatch != "keep":',
        "if True:",
        f"{PROTOCOL}::TestReplay::test_keep_keeps_what_is_recorded",
    ),
    wrong(
        "an earlier batch is compared with the last",
        "commit/replay.py",
        "if author.batch_id == last.last_batch:",
        "if True:",
        f"{PROTOCOL}::TestReplay::test_any_batch_up_to_the_last_counts_as_found",
    ),
    wrong(
        "a batch in a gap is compared with the one before it",
        "commit/log/finding.py",
        "        if number is None or number < wanted:\n",
        "        if number is None:\n",
        f"{RECORD}::TestOldBatches::test_a_batch_that_was_left_out_has_no_record",
    ),
)

LINEAGE = (
    wrong(
        "lineage is not checked",
        "commit/protocol.py",
        "start = lineage_start(head, proposal.author, policy)",
        "start = None",
        f"{PROTOCOL}::TestLineage",
    ),
    dropped(
        "a query that is new among others is not noticed",
        "commit/lineage.py",
        "check_known_query(head, author.query_id, policy)",
        f"{PROTOCOL}::TestLineage::test_a_new_query_among_others_is_refused",
    ),
    wrong(
        "a query that is new among others cannot be admitted",
        "commit/lineage.py",
        'or not head.queries or policy.on_new_query == "continue":',
        "or not head.queries:",
        f"{PROTOCOL}::TestLineage::test_a_new_query_among_others_is_refused",
    ),
    wrong(
        "a first batch other than 0 is no gap",
        "commit/lineage.py",
        "known.last_batch + 1 if known else 0",
        "known.last_batch + 1 if known else author.batch_id",
        f"{PROTOCOL}::TestLineage::test_a_first_batch_other_than_zero_is_a_gap",
    ),
    wrong(
        "a gap is accepted without being asked for",
        "commit/lineage.py",
        'if policy.on_gap == "fail":',
        "if False:",
        f"{PROTOCOL}::TestLineage::test_a_gap_is_refused_and_may_be_accepted",
    ),
    wrong(
        "the start after a gap is not recorded",
        "commit/lineage.py",
        "author.batch_id, expected - 1)\n    return author.batch_id",
        "author.batch_id, expected - 1)\n    return None",
        f"{PROTOCOL}::TestLineage::test_a_gap_is_refused_and_may_be_accepted",
    ),
)

STAGED = (
    wrong(
        "names of staged parts are not synced",
        "commit/prepare.py",
        "if fs.capabilities.directory_sync:",
        "if False:",
        BATCHES,
    ),
    wrong(
        "the length of a staged part is not checked",
        "commit/prepare.py",
        'if info.size_bytes != end if add.kind == "part" else info.size_bytes < end:',
        "if False:",
        f"{PROTOCOL}::TestFirstCommit::test_a_staged_file_of_another_length_is_refused",
    ),
    wrong(
        "the horizon is not checked",
        "commit/prepare.py",
        "if info.modified_ms <= horizon_ms:",
        "if False:",
        f"{PROTOCOL}::TestHorizon::test_files_not_younger_are_refused_by_the_stores_time",
    ),
    wrong(
        "a file as old as the horizon is accepted",
        "commit/prepare.py",
        "if info.modified_ms <= horizon_ms:",
        "if info.modified_ms < horizon_ms:",
        f"{PROTOCOL}::TestHorizon::test_files_not_younger_are_refused_by_the_stores_time",
    ),
    wrong(
        "a later horizon may be an earlier one",
        "commit/prepare.py",
        "return max(head.horizon_ms, proposal.horizon_ms)",
        "return proposal.horizon_ms",
        f"{RECORD}::TestHorizon::test_it_never_goes_back",
    ),
    wrong(
        "rewrites are not held against the horizon",
        "commit/prepare.py",
        "_check_file(add, found.get(add.path), head.horizon_ms)",
        "_check_file(add, found.get(add.path), 0)",
        f"{PROTOCOL}::TestHorizon::test_a_rewrite_that_is_too_old_is_dropped_and_the_batch_goes_on",
    ),
    wrong(
        "a rewrite that is too old fails the batch",
        "commit/prepare.py",
        "except (StaleFiles, CorruptData) as error:",
        "except CorruptData as error:",
        f"{PROTOCOL}::TestHorizon::test_a_rewrite_that_is_too_old_is_dropped_and_the_batch_goes_on",
    ),
    wrong(
        "rewrites of what is gone are accepted",
        "commit/prepare.py",
        " or not all(head.is_live(add, rewrite.known_at) for add in rewrite.inputs)",
        "",
        f"{PROTOCOL}::TestRewrites::test_inputs_no_longer_live_drop_the_rewrite_and_delete_nothing",
    ),
    wrong(
        "what was removed too long ago to tell is live",
        "commit/log/state.py",
        "known_at >= self.removed_since - 1 and add.id not in self.removed",
        "add.id not in self.removed",
        f"{RECORD}::TestOldBatches::test_a_rewrite_of_what_was_live_too_long_ago_is_dropped",
    ),
    wrong(
        "two rewrites of one part are accepted",
        "commit/prepare.py",
        "if inputs & claimed or not all(",
        "if not all(",
        f"{PROTOCOL}::TestRewrites::test_inputs_claimed_twice_in_one_record_are_taken_once",
    ),
    wrong(
        "a rewrite that is dropped is deleted",
        "commit/prepare.py",
        '            _log.info("dropping a rewrite of',
        "            for add in rewrite.adds:\n"
        "                fs.delete(add.path)\n"
        '            _log.info("dropping a rewrite of',
        f"{PROTOCOL}::TestRewrites::test_inputs_no_longer_live_drop_the_rewrite_and_delete_nothing",
    ),
)

BEFORE_THE_RECORD = (
    wrong(
        "parts are published before the record",
        "commit/protocol.py",
        "        if (after := log.create(record)) is not None:\n",
        "        from ftfile.commit.moving import place\n\n"
        "        place(log.fs, record.adds)\n"
        "        if (after := log.create(record)) is not None:\n",
        BATCHES,
    ),
    wrong(
        "a record is created before earlier ones are published",
        "commit/protocol.py",
        "problems = roll_forward(log, head, policy, proposal.author)",
        "problems = roll_forward(log, head, policy, proposal.author) if head.finds(proposal.author) else []",
        f"{PROTOCOL}::TestPublish::test_earlier_records_are_published_before_a_new_one_is_created",
    ),
    dropped(
        "a record removes what is not yet published",
        "commit/protocol.py",
        "wait_for_removed(problems, record)",
        f"{PROTOCOL}::TestPublish::test_a_record_that_removes_waits_for_what_it_removes",
    ),
    wrong(
        "a record that only adds waits for what others cannot publish",
        "commit/publish.py",
        "if problem.add_ids & removed:",
        "if True:",
        f"{PROTOCOL}::TestPublish::test_anothers_collision_is_a_warning",
    ),
    wrong(
        "an overwrite replaces what was live when it was written",
        "commit/protocol.py",
        "        record = prepared.record\n",
        "        removes = locals()['record'].removes if 'record' in locals() else None\n"
        "        record = prepared.record\n"
        "        if removes is not None:\n"
        "            from dataclasses import replace\n\n"
        "            record = replace(record, removes=removes)\n",
        f"{PROTOCOL}::TestRewrites::test_overwrite_replaces_what_is_live_at_the_head_it_is_created_on",
        f"{RACES}[with bases-compaction and overwrite]",
        f"{RACES}[with bases-two overwrites]",
    ),
    dropped(
        "the objections of who writes are not heard",
        "commit/protocol.py",
        "proposal.check_head(head)",
        f"{RECHECKED}::test_the_objections_of_who_writes",
    ),
)

# `record` is bound from the second try on.
AGAIN = (
    wrong(
        "after a lost race the batch is not looked for",
        "commit/protocol.py",
        "if head.finds(proposal.author):",
        "if 'record' not in locals() and head.finds(proposal.author):",
        f"{PROTOCOL}::TestNonce::test_the_same_batch_by_another_driver_is_found_after_the_race",
    ),
    wrong(
        "after a lost race nothing is rolled forward",
        "commit/protocol.py",
        "problems = roll_forward(log, head, policy, proposal.author)",
        "problems = [] if 'record' in locals() else roll_forward(log, head, policy, proposal.author)",
        f"{PROTOCOL}::TestPublish::test_also_when_the_first_try_loses_its_version",
    ),
    wrong(
        "after a lost race lineage is not checked",
        "commit/protocol.py",
        "start = lineage_start(head, proposal.author, policy)",
        "start = locals()['start'] if 'record' in locals() else lineage_start(head, proposal.author, policy)",
        f"{RECHECKED}::test_lineage",
    ),
    wrong(
        "after a lost race nobody is asked for objections",
        "commit/protocol.py",
        "proposal.check_head(head)",
        "'record' in locals() or proposal.check_head(head)",
        f"{RECHECKED}::test_the_objections_of_who_writes",
    ),
    wrong(
        "after a lost race the horizon is not checked",
        "commit/protocol.py",
        "check_staged(log.fs, (*settled.adds, *settled.letters), head.horizon_ms)",
        "'record' in locals() or check_staged(log.fs, (*settled.adds, *settled.letters), head.horizon_ms)",
        f"{PROTOCOL}::TestHorizon::test_holds_at_the_head_that_is_prepared_on",
    ),
    wrong(
        "after a lost race rewrites are taken as they were",
        "commit/protocol.py",
        "        record = prepared.record\n",
        "        from dataclasses import replace\n\n"
        "        first = locals().get('first') or prepared.record\n"
        "        record = replace(first, version=head.version + 1)\n",
        f"{RECHECKED}::test_rewrites",
    ),
)

CREATING = (
    wrong(
        "a lost reply counts as success",
        "commit/log/create.py",
        "            doubt = error\n",
        "            return True\n",
        f"{PROTOCOL}::TestNonce::test_a_lost_reply_is_settled_by_looking",
    ),
    wrong(
        "a lost reply counts as failure",
        "commit/log/create.py",
        "return size_bytes if _is_own(log, record) else None",
        "return None",
        f"{PROTOCOL}::TestNonce::test_a_lost_reply_is_settled_by_looking",
    ),
    wrong(
        "a lost reply is not looked after",
        "commit/log/create.py",
        "except (OutcomeUnknown, Unavailable) as error:",
        "except Unavailable as error:",
        f"{PROTOCOL}::TestNonce::test_a_lost_reply_is_settled_by_looking",
    ),
    wrong(
        "a doubt that remains counts as failure",
        "commit/log/create.py",
        "raise outcome_unknown(record, doubt) from doubt",
        "raise doubt",
        f"{PROTOCOL}::TestNonce::test_no_answer_for_long_is_unknown_and_deletes_nothing",
    ),
    wrong(
        "a refusal is taken for the answer to an earlier try",
        "commit/log/create.py",
        "            if doubt is None:\n                raise\n",
        "            raise\n",
        f"{PROTOCOL}::TestNonce::test_a_refusal_after_a_lost_reply_settles_nothing",
    ),
    wrong(
        "who may not look is told that nothing was created",
        "commit/log/create.py",
        "    except StorageError as error:\n"
        "        raise outcome_unknown(record, error) from error\n"
        "    if found is None and",
        "    except PermissionError as error:\n"
        "        raise outcome_unknown(record, error) from error\n"
        "    if found is None and",
        f"{PROTOCOL}::TestNonce::test_an_own_record_that_cannot_be_looked_at_leaves_the_outcome_open",
    ),
    wrong(
        "nonces are not compared",
        "commit/log/create.py",
        "own = found is not None and found.nonce == record.nonce",
        "own = found is not None",
        f"{PROTOCOL}::TestNonce::test_a_version_taken_by_another_leads_to_the_next",
    ),
    wrong(
        "each try of a record has a nonce of its own",
        "commit/log/create.py",
        "            log.fs.create_exclusive(path, encoded.content)\n",
        "            from dataclasses import replace\n"
        "\n"
        "            record = replace(record, nonce=log.ids.unique())\n"
        "            content = encode_record(record, layout.companion_path(record.version, record.nonce)).content\n"
        "            log.fs.create_exclusive(path, content)\n",
        f"{PROTOCOL}::TestNonce::test_a_lost_reply_is_settled_by_looking",
    ),
    wrong(
        "an own record of unknown durability is acted upon unsynced",
        "commit/log/create.py",
        "            log.fs.sync_directory(layout.LOG)\n",
        "            pass\n",
        NAME_IN_DOUBT,
    ),
    wrong(
        "the adds of a large record are written after it",
        "commit/log/create.py",
        "        _create_companion(log, encoded.companion.path, encoded.companion.content)\n        size_bytes",
        "        log.fs.create_exclusive(path, encoded.content)\n"
        "        _create_companion(log, encoded.companion.path, encoded.companion.content)\n"
        "        return size_bytes\n"
        "        size_bytes",
        f"{RECORD}::TestLargeRecords::test_their_adds_are_there_before_they_are",
    ),
    wrong(
        "a lost reply of a large record's adds fails the commit",
        "commit/log/create.py",
        "except (AlreadyExists, OutcomeUnknown):",
        "except AlreadyExists:",
        f"{RECORD}::TestLargeRecords::test_a_lost_reply_of_their_adds_is_settled",
    ),
    wrong(
        "a directory of a later layout is written to",
        "commit/log/log.py",
        "        except AlreadyExists:\n            self.check_layout()\n",
        "        except AlreadyExists:\n            pass\n",
        f"{PROTOCOL}::TestFirstCommit::test_a_directory_of_a_later_layout_is_refused",
    ),
    wrong(
        "a directory that was deleted is not made anew",
        "commit/log/log.py",
        "        self._prepared = False\n        self._forget()\n",
        "        self._forget()\n",
        f"{BASES}::test_a_directory_that_was_deleted_is_made_anew",
    ),
    wrong(
        "the names of the log's own directories are not synced",
        "commit/log/log.py",
        'for directory in (layout.META, ""):',
        "for directory in ():",
        f"{LOG}::test_a_first_record_survives_a_power_cut",
    ),
    wrong(
        "damaged bytes pass for a record",
        "commit/format/record.py",
        'if not content.endswith(b"\\n") or last.decode("ascii", "replace") != found:',
        "if False:",
        f"{LOG}::TestRecordFormat::test_every_damaged_byte_and_every_truncation_is_detected",
    ),
    wrong(
        "damaged bytes pass for a large record's adds",
        "commit/format/record.py",
        'if len(content) != companion["length"] or checksum(content) != companion["checksum"]:',
        "if False:",
        f"{LOG}::TestRecordFormat::test_a_large_record_keeps_its_adds_in_a_companion",
    ),
    wrong(
        "a second record of one batch is taken in",
        "commit/log/fold.py",
        "if self._finds(record.author):",
        "if False:",
        f"{PROTOCOL}::TestOthers::test_a_bad_record_changes_nothing_that_is_cached",
    ),
    wrong(
        "an add may be removed twice",
        "commit/log/fold.py",
        "        if ended:\n",
        "        if False:\n",
        f"{PROTOCOL}::test_removes_are_of_live_adds_only",
    ),
)

ABORT = (
    wrong(
        "abort deletes the parts",
        "sink/writer.py",
        "        known = [message for message in messages if message is not None]\n",
        "        known = [message for message in messages if message is not None]\n"
        "        for part in (part for message in known for part in message.parts):\n"
        "            with contextlib.suppress(NotFound):\n"
        "                open_log(self.config.path).fs.delete(part.path)\n",
        f"{WRITER}::TestReplay::test_abort_deletes_nothing",
        f"{FAULTS}[disk-batches-PermissionDenied before]",
    ),
)

COMMITTING = (*FOUND, *LINEAGE, *STAGED, *BEFORE_THE_RECORD, *AGAIN, *CREATING, *ABORT)
