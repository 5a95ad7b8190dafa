"""The mistakes: what is changed in the code, and which tests must notice."""

from __future__ import annotations

from dataclasses import dataclass

CRASHES = "tests/crash/test_crash_enumeration.py::test_every_crash"
BATCHES, PARTITIONED = f"{CRASHES}[batches]", f"{CRASHES}[partitioned]"
REPLACING, TWO_QUERIES = f"{CRASHES}[replacing]", f"{CRASHES}[two-queries]"
AROUND_A_BASE = f"{CRASHES}_around_a_base"
NAME_IN_DOUBT = f"{CRASHES.rpartition('::')[0]}::test_a_record_whose_name_is_not_durable_is_not_acted_upon"
FAULTS = "tests/crash/test_fault_sweep.py::test_a_fault_at_every_call"
LOST = "OutcomeUnknown before"
REPLY_LOST = "OutcomeUnknown after"
RACES = "tests/crash/test_interleaving.py::test_the_other_runs_wholly_between_any_two_calls"
PROTOCOL = "tests/unit/commit/test_protocol.py"
MOVING_HEAD = "tests/unit/commit/test_moving_head.py"
LOG = "tests/unit/commit/test_log.py"
LOCAL = "tests/unit/fs/test_local.py"
WRITER = "tests/unit/sink/test_writer.py"


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        name: what is wrong.
        file: where, below `src/ftfile`.
        old: the right code, which must be there exactly once.
        new: the wrong code.
        tests: what runs; one of them must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _dropped(name: str, file: str, code: str, *tests: str, instead: str = "pass") -> Mutant:
    return Mutant(name, file, code, instead, tests)


SYNCS = (
    _dropped("parts are not synced", "sink/staging.py", "self._stream.hsync()", BATCHES),
    _dropped(
        "names of staged parts are not synced",
        "commit/prepare.py",
        "if fs.capabilities.directory_sync:",
        BATCHES,
        instead="if False:",
    ),
    _dropped(
        "what others recorded is acted upon unsynced", "commit/log.py", "self._make_durable(state.version)", BATCHES
    ),
    Mutant(
        "an own record of unknown durability is acted upon unsynced",
        "commit/log.py",
        "            self.fs.sync_directory(layout.LOG)\n        except StorageError as error:\n",
        "            pass\n        except StorageError as error:\n",
        (NAME_IN_DOUBT,),
    ),
    _dropped("final names are not synced before the hint", "commit/publish.py", "sync_names(log.fs, entry)", BATCHES),
    Mutant(
        "a directory is synced before its parent",
        "commit/publish.py",
        "for directory in sorted(directories):",
        "for directory in sorted(directories, reverse=True):",
        (PARTITIONED,),
    ),
    _dropped(
        "the retired directory is not synced",
        "commit/publish.py",
        "directories |= {layout.RETIRED} if entry.removes else set()",
        REPLACING,
    ),
    _dropped("the local driver does not sync parts", "fs/local.py", "os.fsync(self._file.fileno())", LOCAL),
    _dropped("the local driver does not sync a record", "fs/local.py", "os.fsync(file.fileno())", LOCAL),
    _dropped("the local driver does not sync a record's name", "fs/local.py", "_sync_directory(parent)", LOCAL),
)

ORDER = (
    Mutant(
        "parts are published before the record",
        "commit/protocol.py",
        "        after = log.create(record)\n",
        "        from ftfile.commit.publish import place\n\n"
        "        place(log.fs, record.adds)\n"
        "        after = log.create(record)\n",
        (BATCHES,),
    ),
    Mutant(
        "the hint is written before publishing",
        "commit/publish.py",
        "    problems = []\n",
        "    problems = []\n    write_published(log.fs, PublishedHint(head.version, head.nonce))\n",
        (BATCHES,),
    ),
    Mutant(
        "what is recorded while rolling forward is not rolled forward",
        "commit/publish.py",
        "while waiting := head.unpublished.keys() - done:",
        "first = set(head.unpublished)\n    while waiting := first - done:",
        (MOVING_HEAD,),
    ),
    Mutant(
        "new parts are placed before the old are retired",
        "commit/publish.py",
        "            retire(log.fs, entry.removes)\n            nowhere = place(log.fs, entry.adds)\n",
        "            nowhere = place(log.fs, entry.adds)\n            retire(log.fs, entry.removes)\n",
        (REPLACING,),
    ),
    Mutant(
        "a record is created before earlier ones are published",
        "commit/protocol.py",
        "problems = roll_forward(log, head, policy, proposal.author)",
        "problems = roll_forward(log, head, policy, proposal.author) if head.finds(proposal.author) else []",
        (f"{PROTOCOL}::TestPublish",),
    ),
    Mutant(
        "a replay does not roll forward",
        "commit/protocol.py",
        "problems = roll_forward(log, head, policy, proposal.author)",
        "problems = [] if head.finds(proposal.author) else roll_forward(log, head, policy, proposal.author)",
        (BATCHES,),
    ),
    _dropped(
        "a record removes what is not yet published",
        "commit/protocol.py",
        "wait_for_removed(problems, record)",
        f"{PROTOCOL}::TestPublish",
    ),
)

REPLIES = (
    Mutant(
        "a lost reply counts as success",
        "commit/log.py",
        "                doubt = error\n",
        "                return True\n",
        (f"{FAULTS}[batches-{LOST}]",),
    ),
    Mutant(
        "a lost reply counts as failure",
        "commit/log.py",
        "return self._is_own(record)",
        "return False",
        (f"{PROTOCOL}::TestNonce",),
    ),
    Mutant(
        "nonces are not compared",
        "commit/log.py",
        "if found is None or found.nonce != record.nonce:",
        "if found is None:",
        (RACES,),
    ),
    Mutant(
        "a lost rename is not looked after",
        "commit/publish.py",
        "            if _look(fs, add.path) is None:\n                return _Step.NOWHERE\n",
        "            return _Step.DONE\n",
        (f"{PROTOCOL}::TestPublish",),
    ),
)

DELETING = (
    Mutant(
        "abort deletes the parts",
        "sink/writer.py",
        "        known = [message for message in messages if message is not None]\n",
        "        known = [message for message in messages if message is not None]\n"
        "        for part in (part for message in known for part in message.parts):\n"
        "            with contextlib.suppress(NotFound):\n"
        "                open_log(self.config.path).fs.delete(part.path)\n",
        (f"{FAULTS}[batches-PermissionDenied before]", f"{FAULTS}[batches-{REPLY_LOST}]"),
    ),
    Mutant(
        "a replay deletes its parts",
        "commit/protocol.py",
        "        log.prepare_directory()\n",
        "        log.prepare_directory()\n"
        "        for add in proposal.adds if head.finds(proposal.author) else ():\n"
        "            if log.fs.exists(add.path):\n"
        "                log.fs.delete(add.path)\n",
        (f"{FAULTS}_of_a_commit_that_is_called_again[PermissionDenied before]",),
    ),
    Mutant(
        "removed parts are deleted at once",
        "commit/publish.py",
        "fs.rename(remove.final_path, layout.retired_path(remove.id))",
        "fs.delete(remove.final_path)",
        (REPLACING,),
    ),
    Mutant(
        "a file in the way is overwritten",
        "commit/publish.py",
        '        raise NameCollision(\n            f"the part staged',
        "        fs.delete(final_path)\n"
        "        return _place_one(fs, add)\n"
        '        raise NameCollision(\n            f"the part staged',
        (f"{PROTOCOL}::TestPublish",),
    ),
)

IDENTITY = (
    Mutant(
        "a batch is found by its number alone",
        "commit/state.py",
        "query = self.queries.get(author.query_id)",
        "query = max(self.queries.values(), key=lambda query: query.last_batch, default=None)",
        (TWO_QUERIES,),
    ),
    Mutant(
        "only the last batch is found",
        "commit/state.py",
        "author.batch_id <= query.last_batch",
        "author.batch_id == query.last_batch",
        (f"{PROTOCOL}::TestReplay",),
    ),
    _dropped(
        "a replay is not compared with what was recorded",
        "commit/protocol.py",
        "check_replay(log, head, proposal.author, proposal.fingerprint, policy)",
        f"{PROTOCOL}::TestReplay",
    ),
    Mutant(
        "the fingerprint of the first task stands for all",
        "sink/driver.py",
        "    for message in messages:\n        total.merge(",
        "    for message in messages[:1]:\n        total.merge(",
        (BATCHES,),
    ),
    Mutant(
        "a replay message needs no record",
        "commit/protocol.py",
        "if proposal.claims_replay:",
        "if False:",
        (f"{PROTOCOL}::TestReplay",),
    ),
    Mutant(
        "a missing message counts as an empty task",
        "sink/driver.py",
        "if not whole or len(whole) != len(messages):",
        "if not whole:",
        (f"{WRITER}",),
    ),
    Mutant(
        "lineage is not checked",
        "commit/protocol.py",
        "start = lineage_start(head, proposal.author, policy)",
        "start = None",
        (f"{PROTOCOL}::TestLineage",),
    ),
    Mutant(
        "final names have no unique part",
        "sink/driver.py",
        "-{part.id[:12]}",
        "",
        (TWO_QUERIES,),
    ),
    Mutant(
        "staged names have no unique part",
        "sink/staging.py",
        "-{self._identity.attempt}-{part_id}.staged",
        ".staged",
        (BATCHES,),
    ),
)

LOG_STATE = (
    Mutant(
        "the length of a staged part is not checked",
        "commit/prepare.py",
        'if info.size_bytes != end if add.kind == "part" else info.size_bytes < end:',
        "if False:",
        (f"{PROTOCOL}::TestFirstCommit",),
    ),
    Mutant(
        "the horizon is not checked",
        "commit/prepare.py",
        "if info.modified_ms <= horizon_ms:",
        "if False:",
        (f"{PROTOCOL}::TestHorizon",),
    ),
    Mutant(
        "reading on does not look for bases",
        "commit/log.py",
        "if newest is None or newest.version <= began:",
        "if True:",
        (f"{LOG}::TestBases",),
    ),
    Mutant(
        "a record in a dead slot is published",
        "commit/log.py",
        "if newest is None or newest.version < record.version:",
        "if True:",
        (f"{LOG}::TestBases",),
    ),
    Mutant(
        "a cached state is believed unseen",
        "commit/log.py",
        "if record is not None and record.nonce == self._state.nonce:",
        "if True:",
        (f"{LOG}::TestCache",),
    ),
    Mutant(
        "a base forgets what is not published",
        "commit/bases.py",
        "for entry in state.unpublished.values()]",
        "for entry in ()]",
        (f"{LOG}::TestBases",),
    ),
    Mutant(
        "a base is written before publishing and does not list what is left",
        "commit/protocol.py",
        "    problems = roll_forward(log, after, policy, proposal.author, tried=problems)\n"
        "    raise_own(problems, proposal.author, record.version)\n"
        "    keep_base(log.fs, log.ids, after)\n",
        "    unpublished, after.unpublished = after.unpublished, {}\n"
        "    keep_base(log.fs, log.ids, after)\n"
        "    after.unpublished = unpublished\n"
        "    problems = roll_forward(log, after, policy, proposal.author, tried=problems)\n"
        "    raise_own(problems, proposal.author, record.version)\n",
        (AROUND_A_BASE,),
    ),
    Mutant(
        "a hint is believed unseen",
        "commit/publish.py",
        "if record is not None and record.nonce == hint.nonce:",
        "if True:",
        (f"{PROTOCOL}::TestHints",),
    ),
    Mutant(
        "a part that is nowhere is missing, without another look at the log",
        "commit/publish.py",
        "if add.id not in removed and not log.fs.exists(layout.retired_path(add.id))",
        "if removed is not None",
        (f"{PROTOCOL}::TestPublish", f"{PROTOCOL}::TestRewrites"),
    ),
    Mutant(
        "rewrites of what is gone are accepted",
        "commit/prepare.py",
        "or not all(head.is_live(add_id, rewrite.known_at) for add_id in inputs)",
        "",
        (RACES,),
    ),
    Mutant(
        "an overwrite replaces what was live when it was written",
        "commit/protocol.py",
        "        record = prepare(log, head, proposal, nonce, start)\n",
        "        removes = record.removes if 'record' in locals() else None\n"
        "        record = prepare(log, head, proposal, nonce, start)\n"
        "        if removes is not None:\n"
        "            from dataclasses import replace\n\n"
        "            record = replace(record, removes=removes)\n",
        (f"{RACES}[with bases-compaction and overwrite]", f"{RACES}[with bases-two overwrites]"),
    ),
)

MUTANTS = (*SYNCS, *ORDER, *REPLIES, *DELETING, *IDENTITY, *LOG_STATE)
