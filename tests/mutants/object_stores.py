"""Mistakes on object stores: conditions and who made what, copies, files under final names."""

from __future__ import annotations

from tests.mutants.mutant import dropped, wrong

DIRECT = "tests/unit/sink/test_direct.py"
CRASHES = "tests/crash/test_crash_enumeration.py::test_every_crash_on_s3"
CLOSING = "tests/unit/sink/test_closing.py"
DRIVER = "tests/object_stores/test_driver.py"
CONTRACT = "tests/object_stores/test_contract.py::TestMoto"
SINK = "tests/object_stores/test_sink.py"
FSSPEC = "tests/unit/fs/test_fsspec.py"
FAULTS = "tests/object_stores/test_faults.py"
LINES = "tests/unit/fs/test_broken_lines.py"
LIMITS = "tests/unit/sink/test_store_limits.py"
KEPT = f"{FSSPEC}::test_records_for_names_that_are_not_kept_are_bad_ones"
RESENT = f"{FAULTS}::test_a_fault_that_passes_is_survived[412 PreconditionFailed after-copy]"
RESENT_BY_HAND = f"{FAULTS}::test_a_fault_that_passes_is_survived[412 PreconditionFailed after-by hand]"

MAKING = (
    wrong(
        "files are written over",
        "fs/s3/bucket.py",
        "Metadata=metadata, **NEW),",
        "Metadata=metadata),",
        f"{CONTRACT}::test_create_exclusive_never_overwrites",
    ),
    wrong(
        "large files are written over",
        "fs/s3/multipart_upload.py",
        "                **NEW,\n",
        "",
        f"{DRIVER}::TestLargeFiles::test_nothing_is_written_over",
    ),
    wrong(
        "what exists is taken for ones own",
        "fs/s3/bucket.py",
        "return made is not None and self.identity(operation, path) == made",
        "return True",
        f"{CONTRACT}::test_create_exclusive_never_overwrites",
    ),
    wrong(
        "what exists is never ones own",
        "fs/s3/bucket.py",
        "return made is not None and self.identity(operation, path) == made",
        "return False",
        RESENT,
    ),
    wrong(
        "two changes of one object that meet are an error",
        "fs/s3/errors.py",
        '    "OperationAborted": (Unavailable, _CONFLICT),\n',
        "",
        f"{FAULTS}::test_a_fault_that_passes_is_survived[409 OperationAborted before-copy]",
    ),
    wrong(
        "a lost answer is taken for a refusal",
        "fs/s3/client.py",
        'return OutcomeUnknown(operation, path, f"the reply',
        'return Unavailable(operation, path, f"the reply',
        f"{DRIVER}::TestSilence",
    ),
    dropped(
        "a copy that was never confirmed is believed",
        "fs/s3/client.py",
        "self._require_proof(method, answer)",
        f"{LINES}::TestShort::test_the_source_of_a_copy_that_may_not_be_there_stays",
    ),
    dropped(
        "leave to send is asked for",
        "fs/s3/client.py",
        'params["headers"].pop("Expect", None)',
        f"{LINES}::TestLeft::test_by_leave_to_send_that_is_cut_short",
    ),
    wrong(
        "a listing that was cut short is taken for the whole",
        "fs/s3/client.py",
        "        if not is_whole:\n",
        "        if False:\n",
        f"{LINES}::TestShort::test_a_listing_of_s3",
    ),
    wrong(
        "a range that came short is taken for the whole",
        "fs/s3/bucket.py",
        "if length is not None and len(content) != length:",
        "if False:",
        f"{LINES}::TestShort::test_a_range_that_is_shorter_than_was_asked_for[s3]",
    ),
    wrong(
        "content that was cut short goes round the library's checks",
        "fs/s3/client.py",
        'answer["Body"].read,',
        'answer["Body"]._raw_stream.read,',
        f"{LINES}::TestShort::test_a_file",
    ),
    wrong(
        "a name that the store may not keep is committed",
        "sink/buckets/router.py",
        "        if self._foresight is None:\n",
        "        if True:\n",
        KEPT,
    ),
    wrong(
        "a path that is too long for the store is committed",
        "fs/paths.py",
        "    if bytes_max is not None and size_bytes > bytes_max:\n",
        "    if False:\n",
        f"{LIMITS}::TestPaths::test_of_directories_that_are_too_long_together",
    ),
    wrong(
        "how long the file's own name is does not count",
        "sink/naming/path_check.py",
        "fault = self._store.fault_of(path, more_bytes)",
        "fault = self._store.fault_of(directory)",
        f"{LIMITS}::TestPaths::test_that_are_as_long_as_they_may_be",
    ),
    wrong(
        "there is no room for more digits",
        "sink/naming/path_check.py",
        "self._more_bytes = naming.more_bytes if naming.function is None else 0",
        "self._more_bytes = 0",
        f"{LIMITS}::TestPaths::test_that_are_as_long_as_they_may_be",
    ),
    wrong(
        "what a function may make of a name does not count",
        "sink/naming/path_check.py",
        "more_bytes = max(0, NAME_BYTES_MAX - len(name.encode()))",
        "more_bytes = 0",
        f"{LIMITS}::TestPaths::test_of_names_that_a_function_makes",
    ),
    wrong(
        "names that the store does not keep are found out when files end",
        "sink/writer.py",
        "check_paths(config, log.fs.capabilities, log.clock.now_ms())",
        "pass",
        f"{LIMITS}::TestPaths::test_of_templates_are_refused_at_the_start",
    ),
    wrong(
        "the prefix is no part of a key",
        "fs/s3/filesystem.py",
        "path_bytes_max=room_below(bucket.prefix, KEY_BYTES_MAX)",
        "path_bytes_max=KEY_BYTES_MAX",
        f"{DRIVER}::test_the_longest_path",
    ),
    wrong(
        "a refusal is taken for the answer to a request before it",
        "fs/s3/bucket.py",
        "        except StorageError as error:\n            if doubt is None:\n",
        "        except Unavailable as error:\n            if doubt is None:\n",
        f"{DRIVER}::TestSilence::test_a_refusal_after_a_lost_answer_settles_nothing",
    ),
    wrong(
        "what exists and may not be looked at is not ones own",
        "fs/s3/bucket.py",
        "            return made is not None and self.identity(operation, path) == made\n        except StorageError ",
        "            return made is not None and self.identity(operation, path) == made\n        except Unavailable ",
        f"{DRIVER}::TestSilence::test_what_exists_and_may_not_be_looked_at_may_be_ones_own",
    ),
    wrong(
        "a failed upload is left to itself",
        "fs/s3/filesystem.py",
        "            self._upload.abort()\n        # A close",
        "            pass\n        # A close",
        f"{DRIVER}::TestLargeFiles",
    ),
    wrong(
        "what a doubtful close may have made stays, and is said to be gone",
        "fs/s3/filesystem.py",
        "return self._bucket.discard(self.path, self._identity)",
        "return True",
        f"{DRIVER}::TestSilence::test_what_a_doubtful_close_made_is_deleted_or_told",
    ),
    wrong(
        "an upload of what another completed is left to itself",
        "fs/s3/multipart_upload.py",
        "            self._taken = True\n",
        "            self._taken = False\n",
        f"{DRIVER}::TestLargeFiles",
    ),
    wrong(
        "conditions are believed",
        "sink/writer.py",
        "log.fs.prove(layout.META)",
        "pass",
        f"{SINK}::test_a_store_that_ignores_conditions_is_refused_at_start",
    ),
)

COPIES = (
    wrong(
        "a part that is too short comes before a copied one",
        "fs/s3/filesystem.py",
        "missing = max(0, PART_BYTES_MIN - len(self._buffer)) if self._buffer else 0",
        "missing = 0",
        "tests/object_stores/test_contract.py::TestMoto::test_copied_ranges_stand_where_they_were_appended",
    ),
    wrong(
        "a range is copied from its beginning although that was sent",
        "fs/s3/filesystem.py",
        "copy(path, offset + missing, length - missing)",
        "copy(path, offset, length - missing)",
        "tests/object_stores/test_contract.py::TestMoto::test_copied_ranges_stand_where_they_were_appended",
    ),
    wrong(
        "a range that is large is copied once for each of its parts",
        "fs/s3/multipart_upload.py",
        "byte_range(start, end - start)",
        "byte_range(offset, length)",
        "tests/object_stores/test_driver.py::TestLargeFiles::test_they_are_copied_within_the_store",
    ),
    wrong(
        "copies are thought to keep conditions everywhere",
        "fs/s3/filesystem.py",
        "if self._copies_on_condition(parent_of(source)):",
        "if True:",
        f"{CONTRACT}::test_rename_never_overwrites",
    ),
    wrong(
        "a copy by hand holds a file of any size",
        "fs/s3/filesystem.py",
        "min(self._bucket.settings.part_bytes, HELD_BYTES_MAX)",
        "self._bucket.settings.part_bytes",
        f"{DRIVER}::TestLargeFiles::test_a_copy_by_hand_holds_no_large_file",
    ),
    wrong(
        "a copy by hand forgets who made it",
        "fs/s3/filesystem.py",
        'self._bucket.put_new("rename", target, content, answer["Metadata"].get(ID))',
        'self._bucket.put_new("rename", target, content, None)',
        f"{CONTRACT}::test_rename_moves_the_very_file",
        RESENT_BY_HAND,
    ),
    wrong(
        "what an earlier try made of parts is taken for another's",
        "fs/s3/multipart_upload.py",
        "self._bucket.settle(self._operation, self._path, lambda: self._identity,",
        "self._bucket.settle(self._operation, self._path, lambda: None,",
        f"{FAULTS}::test_a_fault_that_passes_is_survived_by_a_copy_in_parts[412 PreconditionFailed after]",
    ),
    wrong(
        "a copy in parts forgets who made it",
        "fs/s3/filesystem.py",
        'upload = S3Upload(self._bucket, "rename", target, head["Metadata"].get(ID))',
        'upload = S3Upload(self._bucket, "rename", target, None)',
        f"{DRIVER}::TestLargeFiles",
    ),
    wrong(
        "the source of a copy stays",
        "fs/s3/filesystem.py",
        'self._bucket.delete("rename", source)',
        "pass",
        f"{CONTRACT}::test_rename_moves_the_very_file",
    ),
)

UNDER_FINAL_NAMES = (
    wrong(
        "a file that has its final name is moved there",
        "commit/moving.py",
        "    if add.path == add.final_path:\n        return _Step.DONE\n",
        "",
        f"{CRASHES}[direct]",
        DIRECT,
    ),
    dropped(
        "no note is left of a file",
        "attempt/stage.py",
        "self.fs.create_exclusive(note, path.encode())",
        f"{DIRECT}::test_vacuum_deletes_what_nobody_committed_and_nothing_else",
    ),
    wrong(
        "the note of a file comes after it",
        "attempt/stage.py",
        "self.fs.create_exclusive(note, path.encode())\n        file = StagedFile(file_id, self.fs.create(path))",
        "file = StagedFile(file_id, self.fs.create(path))\n        self.fs.create_exclusive(note, path.encode())",
        f"{DIRECT}::test_the_note_of_a_file_is_there_before_the_file",
    ),
    wrong(
        "files have final names where they are seen while they are written",
        "sink/publishing/settings.py",
        'if capabilities.shown != "at_close":',
        "if False:",
        f"{DIRECT}::test_where_files_are_seen_while_they_are_written_it_is_refused_at_start",
    ),
    wrong(
        "vacuum deletes what is committed, too",
        "maintenance/garbage.py",
        "return None if path in live else _file_at(fs, path)",
        "return _file_at(fs, path)",
        f"{DIRECT}::test_what_was_removed_within_the_grace_stays",
        f"{DIRECT}::test_vacuum_deletes_what_nobody_committed_and_nothing_else",
    ),
    wrong(
        "notes go whose files are too young to go",
        "maintenance/garbage.py",
        "            younger.append(note)\n",
        "            pass\n",
        f"{DIRECT}::test_a_note_stays_for_as_long_as_its_file_is_too_young_to_go",
    ),
    wrong(
        "a vacuum fails when another one is faster",
        "maintenance/garbage.py",
        "        except NotFound:\n            return None  # another vacuum was faster\n",
        "        except PermissionError:\n            return None\n",
        f"{DIRECT}::test_two_vacuums_at_once",
    ),
    wrong(
        "notes go although their files cannot",
        "maintenance/vacuum.py",
        "if not (kept and layout.is_note(file.path))",
        "",
        f"{DIRECT}::test_a_file_that_could_not_be_deleted_is_found_again",
    ),
    wrong(
        "directories of data are listed",
        "commit/prepare.py",
        "directories = {layout.parent(path) for path in paths if layout.is_staged(path)}",
        "directories = {layout.parent(path) for path in paths}",
        f"{SINK}::test_what_it_asks_for_where_names_are_final",
    ),
    wrong(
        "files stay open under final names",
        "sink/config.py",
        "if (publishing.direct or overwrite) and config.rolling is not None:",
        "if overwrite and config.rolling is not None:",
        f"{SINK}::test_what_is_refused_at_start",
    ),
    wrong(
        "settings of the connection are recorded",
        "sink/publishing/settings.py",
        '"storage": dict(self.storage)',
        '"storage": dict(self.settings)',
        f"{DRIVER}::TestCredentials::test_they_are_nowhere",
    ),
)

CLOSED_SIDE_BY_SIDE = (
    wrong(
        "nobody hears of a close that failed early",
        "attempt/stage.py",
        "            self._closing.popleft().result()\n        self._closing.append",
        "            self._closing.popleft()\n        self._closing.append",
        CLOSING,
    ),
    wrong(
        "a file that could not be closed is not given up",
        "attempt/stage.py",
        "            file.abort()\n            raise\n",
        "            raise\n",
        CLOSING,
    ),
    wrong(
        "files are deleted before they are closed",
        "attempt/stage.py",
        "        self._closing.clear()\n        self.settle()\n",
        "        self._closing.clear()\n",
        CLOSING,
    ),
)

BY_FSSPEC = (
    wrong(
        "fsspec writes less than it is given, and nobody hears of it",
        "fs/fsspec/client.py",
        "        if written != len(content):\n",
        "        if False:\n",
        f"{FSSPEC}::test_what_is_written_short_is_no_file",
    ),
    wrong(
        "a file of fsspec that cannot be finished is left to the garbage collector",
        "fs/fsspec/client.py",
        "            except BaseException:\n                _give_up(self._file)\n                raise\n",
        "            finally:\n                pass\n",
        f"{FSSPEC}::test_a_file_that_cannot_be_closed_is_given_up_at_once",
    ),
    wrong(
        "a file that another publisher moved by fsspec is not moved",
        "fs/fsspec/filesystem.py",
        "            with contextlib.suppress(NotFound):\n                self.client.delete",
        "            with contextlib.suppress():\n                self.client.delete",
        f"{FSSPEC}::test_a_file_whose_old_name_another_publisher_deleted_is_moved",
    ),
    wrong(
        "by fsspec files are written over",
        "fs/fsspec/client.py",
        'store.open(self._name, "xb",',
        'store.open(self._name, "wb",',
        f"{FSSPEC}::TestFsspec::test_create_exclusive_never_overwrites",
    ),
    wrong(
        "fsspec is believed",
        "fs/fsspec/filesystem.py",
        "            while not client.proven:\n",
        "            while False:\n",
        f"{FSSPEC}::test_what_falls_short_is_refused",
    ),
    wrong(
        "two who are open at once are not tried",
        "fs/fsspec/probe.py",
        "                is_begun and self._is_made(partial(file.finish, content[-1:]))\n",
        "                is_begun and file is files[0] and self._is_made(partial(file.finish, content[-1:]))\n",
        f"{FSSPEC}::test_what_falls_short_is_refused",
    ),
    wrong(
        "a file that was given up is made by the garbage collector",
        "fs/fsspec/client.py",
        "        file.closed = True\n",
        "        pass\n",
        f"{FSSPEC}::test_what_keeps_its_word_passes_and_nothing_is_left",
    ),
    wrong(
        "what fsspec opens may take for ever",
        "fs/fsspec/client.py",
        "run_within(self._timeout_s, make)",
        "make()",
        f"{FSSPEC}::test_opening_ends_and_is_tried_anew",
    ),
    wrong(
        "a lost answer of fsspec is taken for a refusal",
        "fs/fsspec/errors.py",
        "        kind, advice = OutcomeUnknown,",
        "        kind, advice = AlreadyExists,",
        f"{FSSPEC}::test_errors_are_those_of_the_port",
    ),
    wrong(
        "listings that were kept are believed",
        "fs/fsspec/client.py",
        "    store.invalidate_cache()\n",
        "",
        f"{FSSPEC}::test_no_kept_listing_is_believed",
    ),
    wrong(
        "arguments hold secrets",
        "fs/fsspec/settings.py",
        "_SECRET.search(name.lower()) and not _is_harmless(value)",
        "False",
        f"{FSSPEC}::test_settings_that_are_wrong",
    ),
    wrong(
        "an upload that is not there is taken for a source that was moved",
        "fs/fsspec/errors.py",
        "if is_upload and kind is NotFound:",
        "if False:",
        f"{FSSPEC}::test_each_row_once_whatever_change_fails",
    ),
    wrong(
        "a reply that is lost in the trial is a verdict",
        "fs/fsspec/filesystem.py",
        "if tried == TRIALS or not is_unclear(error):",
        "if error:",
        f"{FSSPEC}::test_a_reply_that_is_lost_in_the_trial_is_no_verdict",
    ),
    wrong(
        "errors show what signs a URL",
        "fs/fsspec/settings.py",
        'return _SIGNED.sub(r"\\1=...", text)',
        "return text",
        f"{FSSPEC}::test_no_error_shows_a_secret",
    ),
    wrong(
        "headers that were cut are taken for all",
        "fs/calls/cancellable_connections.py",
        "if not reader.line:",
        "if False:",
        f"{LINES}::TestShort::test_headers_of_a_look_wherever_they_are_cut",
    ),
)

OBJECT_STORES = (*MAKING, *COPIES, *UNDER_FINAL_NAMES, *CLOSED_SIDE_BY_SIDE, *BY_FSSPEC)
