"""Mistakes with encryption, and with what authenticates the log."""

from __future__ import annotations

from tests.mutants.mutant import wrong

ENVELOPE = "tests/unit/filters/test_encryption.py"
KEYS = "tests/unit/keys/test_keys.py"
SINK = "tests/unit/sink/test_encryption.py"
PARQUET_FILES = "tests/unit/sink/test_parquet_encryption.py"
LOG = "tests/unit/sink/test_sealed_log.py"

FILES = (
    wrong(
        "the last chunk is like any other",
        "filters/aes_gcm.py",
        'return prefix + number.to_bytes(4, "big") + bytes([is_last])',
        'return prefix + number.to_bytes(4, "big") + bytes([0])',
        f"{ENVELOPE}::test_every_truncation_is_detected",
    ),
    wrong(
        "chunks are not numbered",
        "filters/aes_gcm.py",
        'return prefix + number.to_bytes(4, "big") + bytes([is_last])',
        "return prefix + bytes(4) + bytes([is_last])",
        f"{ENVELOPE}::test_chunks_that_changed_places_or_come_twice_are_detected",
    ),
    wrong(
        "chunks are not bound to the file",
        "filters/aes_gcm.py",
        "return header + identity.encode()",
        "return header",
        f"{ENVELOPE}::test_another_file_does_not_take_its_place",
    ),
    wrong(
        "chunks are not bound to the header",
        "filters/aes_gcm.py",
        "return header + identity.encode()",
        "return identity.encode()",
        f"{ENVELOPE}::TestVectors::test_files",
    ),
    wrong(
        "all files have one key",
        "filters/aes_gcm.py",
        "key, data_key = keys.key_to_use(key_id), random_bytes(KEY_BYTES)",
        "key = keys.key_to_use(key_id)\n        data_key = key.wrapping",
        f"{ENVELOPE}::test_each_file_has_a_key_of_its_own",
    ),
    wrong(
        "a file whose end was cut off is believed where it is read from the middle",
        "filters/decrypted.py",
        "            self._chunk(self._chunks - 1)\n",
        "",
        f"{ENVELOPE}::TestRandomAccess",
    ),
    wrong(
        "spilled rows are not encrypted",
        "sink/parts.py",
        "encrypted=config.encryption is not None",
        "encrypted=False",
        f"{SINK}::test_what_is_spilled",
    ),
    wrong(
        "others can read encrypted files",
        "sink/publishing.py",
        "permissions.setdefault(*OWNER_ONLY)",
        "pass",
        f"{SINK}::test_spools_and_staged_files",
    ),
    wrong(
        "others can read files that upkeep makes of encrypted ones",
        "commit/opening.py",
        "settings=dict((*settings, OWNER_ONLY))",
        "settings=dict(settings)",
        f"{SINK}::test_whoever_opens_a_directory_writes_for_its_owner",
    ),
    wrong(
        "compression comes after encryption",
        "filters/chain.py",
        "return Chain((*first, *(filter_class(name).from_definition({}) for name in names), *last))",
        "return Chain((*last, *first, *(filter_class(name).from_definition({}) for name in names)))",
        f"{ENVELOPE}::TestChains::test_encryption_comes_last",
    ),
    wrong(
        "what encryption adds to a file is not counted",
        "sink/filtered.py",
        "return room - (self.size_bytes_with(room) - limit_bytes) if room > 0 else room",
        "return limit_bytes - (self._target.position - self._start + self._held_bytes)",
        f"{SINK}::test_strict_sizes_are_those_on_storage",
    ),
    wrong(
        "anybody's dead letters are taken for ours",
        "source/dead_letters.py",
        "if keys is not None and AesGcm.name not in names:",
        "if False:",
        f"{SINK}::TestDeadLetters::test_of_others_are_refused",
    ),
    wrong(
        "dead letters of two attempts of a task are both believed",
        "source/dead_letters.py",
        "if first != path:",
        "if False:",
        f"{SINK}::TestDeadLetters::test_of_attempts_that_were_not_committed_are_refused",
    ),
    wrong(
        "dead letters of a batch that was never committed are believed",
        "source/dead_letters.py",
        "task.batch > query.last_batch:",
        "task.batch > query.last_batch + 1:",
        f"{SINK}::TestDeadLetters::test_of_attempts_that_were_not_committed_are_refused",
    ),
    wrong(
        "copies of dead letters are taken for those of another task",
        "source/dead_letters.py",
        "if found != task:",
        "if False:",
        f"{SINK}::TestDeadLetters::test_of_others_are_refused",
    ),
    wrong(
        "dead letters of another directory are believed",
        "commit/sealed.py",
        'return f"{identity} {fs.directory_id}" if isinstance(fs, SealedFileSystem) else identity',
        "return identity",
        f"{SINK}::TestDeadLetters::test_of_another_directory_are_refused",
    ),
    wrong(
        "any file is taken for dead letters",
        "commit/layout.py",
        """return f"{kind} {unique_part(stem.rpartition('-')[2])}@{offset}\"""",
        """return f"{unique_part(stem.rpartition('-')[2])}@{offset}\"""",
        "tests/unit/commit/test_layout.py::test_identities_on_storage",
    ),
    wrong(
        "the first batch that has dead letters has no directory to name",
        "sink/writer.py",
        "                log.prepare_directory()  # its id",
        "                pass  # its id",
        f"{SINK}::TestDeadLetters::test_are_encrypted",
    ),
    wrong(
        "something behind a last chunk that is full is not noticed",
        "filters/decrypted.py",
        "if file_bytes != expected:",
        "if False:",
        f"{ENVELOPE}::TestRandomAccess::test_more_than_there_was_is_noticed",
    ),
    wrong(
        "pieces of a spool may change places",
        "sink/spool.py",
        'layout.storage_identity("segment", spool.path, offset)',
        'layout.storage_identity("segment", spool.path, 0)',
        f"{SINK}::test_pieces_of_a_spool_are_bound_to_their_places",
    ),
)

PARQUET = (
    wrong(
        "an encrypted Parquet file is taken for any other",
        "encoding/parquet_file.py",
        "if found != self.identity:",
        "if not found:",
        f"{PARQUET_FILES}::test_files_that_changed_places_are_detected",
    ),
    wrong(
        "a Parquet file in the clear is believed where an encrypted one was",
        "encoding/parquet_encryption.py",
        "if len(tail) < _TAIL_BYTES or tail[4:] != MAGIC or start < 0:",
        "if False:",
        f"{PARQUET_FILES}::test_a_file_in_the_clear_in_its_place_is_detected",
    ),
    wrong(
        "what is hidden is in the clear where Parquet encrypts",
        "sink/config.py",
        "return Chain((*self.chain.filters, self.encryption.around_others))",
        "return self.chain",
        f"{PARQUET_FILES}::test_spools_and_dead_letters_have_envelopes",
    ),
    wrong(
        "another key is no other encoding where Parquet encrypts",
        "encoding/parquet_file.py",
        'key = {} if self.key_id is None else {"encryptionKeyId": self.key_id}',
        'key = {} if self.key_id is None else {"encryptionKeyId": "first"}',
        f"{PARQUET_FILES}::test_another_key_ends_open_files",
    ),
    wrong(
        "pages of an encrypted Parquet file need not be authenticated",
        "encoding/parquet_encryption.py",
        "if found != _AES_GCM_V1:",
        "if False:",
        f"{PARQUET_FILES}::test_pages_that_would_not_be_authenticated_are_not_read",
    ),
)

RECORDS = (
    wrong(
        "a MAC is not compared",
        "commit/sealed.py",
        "if hmac.compare_digest(",
        "if True or hmac.compare_digest(",
        f"{LOG}::test_every_changed_byte_of_a_record_is_detected",
    ),
    wrong(
        "a record without a MAC is believed",
        "commit/sealed.py",
        '            self._take_again(path)\n            raise CorruptData(path, "a file that ends',
        '            return content\n            raise CorruptData(path, "a file that ends',
        f"{LOG}::TestRecords::test_without_a_mac",
    ),
    wrong(
        "a record is not bound to its version",
        "commit/sealed.py",
        "for field in (directory_id.encode(), name.encode(), prefix):",
        "for field in (directory_id.encode(), prefix):",
        f"{LOG}::TestFilesOfTheLog::test_under_the_name_of_another",
    ),
    wrong(
        "a record is not bound to its directory",
        "commit/sealed.py",
        "for field in (directory_id.encode(), name.encode(), prefix):",
        "for field in (name.encode(), prefix):",
        f"{LOG}::TestFilesOfTheLog::test_of_another_directory",
    ),
    wrong(
        "records of two histories make a third one",
        "commit/state.py",
        "if record.after not in {None, self.nonce}:",
        "if False:",
        f"{LOG}::TestRecords::test_of_another_history_are_not_mixed_with_these",
    ),
    wrong(
        "records do not say which one they follow",
        "commit/prepare.py",
        "        after=head.nonce,\n",
        "",
        f"{LOG}::TestRecords::test_behind_a_base_that_is_gone_are_not_mixed_with_new_ones",
    ),
    wrong(
        "anybody can confirm a guess of the rows of a batch",
        "commit/prepare.py",
        "fingerprint=as_recorded(log.fs, proposal.fingerprint, proposal.author),",
        "fingerprint=proposal.fingerprint,",
        f"{LOG}::TestFingerprints",
    ),
    wrong(
        "equal batches look equal",
        "commit/keyed.py",
        "digest=fs.keyed_digest(fingerprint.digest, batch, like)",
        'digest=fs.keyed_digest(fingerprint.digest, "", like)',
        f"{LOG}::TestFingerprints",
    ),
    wrong(
        "a batch that comes again is compared under the newest key",
        "commit/keyed.py",
        "like = None if recorded is None else recorded.digest",
        "like = None",
        f"{LOG}::TestFingerprints",
    ),
    wrong(
        "ranges have no MAC",
        "commit/sealed.py",
        '_SEALED = (f"{layout.LOG}/", f"{layout.STATE}/", f"{layout.RANGES}/")',
        '_SEALED = (f"{layout.LOG}/", f"{layout.STATE}/")',
        f"{LOG}::TestFilesOfTheLog::test_without_a_mac",
    ),
    wrong(
        "bases have no MAC",
        "commit/sealed.py",
        '_SEALED = (f"{layout.LOG}/", f"{layout.STATE}/", f"{layout.RANGES}/")',
        '_SEALED = (f"{layout.LOG}/", f"{layout.RANGES}/")',
        f"{LOG}::TestFilesOfTheLog::test_without_a_mac",
    ),
    wrong(
        "a log without what says that it is sealed looks like none",
        "commit/sealed.py",
        "        except NotFound as error:\n            # As long",
        "        except ZeroDivisionError as error:\n            # As long",
        f"{LOG}::TestRecords::test_when_all_that_says_that_they_have_macs_is_gone",
    ),
    wrong(
        "a directory in the clear is believed where keys were given",
        "commit/opening.py",
        "if seal is None and key_provider is None:",
        "if seal is None:",
        f"{LOG}::TestDowngrade::test_keys_are_never_given_for_nothing",
    ),
    wrong(
        "others write in the clear to an encrypted directory",
        "commit/log.py",
        "if found.startswith(LAYOUT_VERSION) and found != LAYOUT_VERSION:",
        "if found.startswith(LAYOUT_VERSION):\n            return\n        if found.startswith(LAYOUT_VERSION):",
        f"{LOG}::TestDowngrade::test_nobody_begins_in_the_clear_where_a_first_commit_failed",
    ),
    wrong(
        "storage starts programs",
        "keys/keys.py",
        "return self if self.may_be_told else None",
        "return self",
        f"{LOG}::TestWhereKeysAre::test_storage_starts_nothing_and_names_nobody",
    ),
    wrong(
        "keys beside the data are believed",
        "keys/keys.py",
        "or _is_within(path, directory):",
        "or False:",
        f"{LOG}::TestWhereKeysAre::test_keys_beside_the_data_are_not_believed",
    ),
    wrong(
        "keys beside the data are believed by another spelling",
        "keys/keys.py",
        "path = os.path.realpath(told)",
        "path = told",
        f"{LOG}::TestWhereKeysAre::test_keys_beside_the_data_are_not_believed",
    ),
    wrong(
        "keys beside the data are believed where that is mounted twice",
        "keys/keys.py",
        "return any(os.path.samestat(os.stat(parent), found) for parent in parents)",
        "return False",
        f"{LOG}::TestWhereKeysAre::test_keys_beside_the_data_are_known_by_what_they_are",
    ),
    wrong(
        "a link to keys is checked, and followed again later",
        "keys/keys.py",
        'return Keys(f"file:{path}")',
        "return self",
        f"{LOG}::TestWhereKeysAre::test_what_is_checked_is_what_is_read",
    ),
)

PARSERS = (
    wrong(
        "fields of another type are an error of another kind",
        "commit/record_format.py",
        "UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)",
        "UNREADABLE = (KeyError, IndexError, TypeError, ValueError, OverflowError)",
        "tests/unit/commit/test_damaged_log.py::test_what_is_no_object_is_refused",
    ),
    wrong(
        "a segment is believed about how long it is",
        "encoding/segments.py",
        "if size_bytes > _LZ4_RATIO_MAX * len(data):",
        "if size_bytes < 0:",
        "tests/unit/encoding/test_damaged_files.py::test_a_segment_that_claims_to_be_huge",
    ),
)

PROVIDERS = (
    wrong(
        "a key file that others can read is taken",
        "keys/ring.py",
        "_FOR_OTHERS = stat.S_IWGRP | stat.S_IRWXO",
        "_FOR_OTHERS = stat.S_IWGRP | stat.S_IWOTH",
        f"{KEYS}::TestRings::test_a_file_that_others_can_read_or_change",
    ),
    wrong(
        "a key in the options is shown",
        "keys/keys.py",
        'raise ConfigError(f"keyProvider looks like a key itself. {_NEVER_INLINE}")',
        'raise ConfigError(f"{reference} looks like a key itself. {_NEVER_INLINE}")',
        f"{KEYS}::TestKeysInOptions::test_are_refused_and_not_shown",
    ),
    wrong(
        "what a command said is repeated",
        "keys/ring.py",
        'run it by hand to see why"',
        '{done.stdout}{done.stderr}"',
        f"{KEYS}::TestRings::test_what_a_command_says_is_not_repeated",
    ),
    wrong(
        "files and records are made with one key",
        "keys/keys.py",
        "for use in (_WRAPPING, _RECORDS))",
        "for use in (_WRAPPING, _WRAPPING))",
        f"{KEYS}::TestRings::test_what_is_derived_differs",
    ),
    wrong(
        "upkeep goes on with the first key there was",
        "commit/sealed.py",
        "if version is not None and version >= self._newest[0]:",
        "if version is not None and not self._newest[1]:",
        f"{SINK}::TestKeys::test_upkeep_goes_on_with_the_newest",
    ),
    wrong(
        "upkeep does not know which key is the newest behind a base",
        "commit/sealed.py",
        "if version is not None and version >= self._newest[0]:",
        "if path.startswith(layout.LOG) and version is not None and version >= self._newest[0]:",
        f"{SINK}::TestKeys::test_upkeep_goes_on_with_the_newest_behind_a_base",
    ),
    wrong(
        "a key within a command is taken",
        "keys/keys.py",
        "any(map(looks_like_a_key, _words(settings)))",
        "looks_like_a_key(settings.strip())",
        f"{KEYS}::TestKeysInOptions",
    ),
    wrong(
        "what is no regular file is taken for a key file",
        "keys/ring.py",
        "if not stat.S_ISREG(status.st_mode):",
        "if False:",
        f"{LOG}::TestWhereKeysAre::test_what_is_no_file_is_not_waited_for",
    ),
    wrong(
        "upkeep forgets what files may be read by",
        "upkeep/logs.py",
        'next((text["storage"] for text in texts if "storage" in text), {})',
        "{}",
        f"{SINK}::TestOptions::test_upkeep_keeps_permissions",
    ),
)

ENCRYPTING = (*FILES, *PARQUET, *RECORDS, *PARSERS, *PROVIDERS)
