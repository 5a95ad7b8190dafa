"""The driver's side of a write to a store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import StoreSinkOptions
from ftfile.filters.chain import Chain
from ftfile.kv.definition import StoreDefinition, join_definitions, require_same
from ftfile.kv.planning.picker import DEFAULT_PLAN, PlanSettings
from ftfile.kv.planning.plan import CompactionPlanner, backoffs_after, backoffs_of, job_of, keep_acceptable, list_due
from ftfile.kv.planning.runs import by_id, numbers_of, open_state, place_adds, recorded_key_types, seal_metadata
from ftfile.kv.run.block_batch import COMPRESSIONS
from ftfile.kv.run_files import RunSpool
from ftfile.log.checks import Accepted, accept_rewrites
from ftfile.log.directory import check_is_store, file_as_config_error, store_of
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Body, Remove, convert
from ftfile.log.format.record import definition_key
from ftfile.log.opening import NO_ROWS, NO_STORE, open_with_written_settings
from ftfile.log.sealed import keys_of
from ftfile.log.wal import opening_of
from ftfile.rows.spark_types import spark_schema_json
from ftfile.storage.registry import normalise
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.options import CommonSettings, Encryption, Storage, client_settings
from ftfile.writing.schema_change import check_schema_change
from ftfile.writing.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ftfile.core.arguments import Access
    from ftfile.core.context import Context
    from ftfile.kv.config import StoreConfig
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Job, MaintenanceAuthor, Transaction
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class HowWritten:
    """The settings with which maintenance writes a store: the newest writer's, or the defaults."""

    definition: StoreDefinition
    encoding: str  # key of the definition of the encoding of new runs
    chain: Chain
    plan: PlanSettings
    compression: str
    storage: Storage

    def planner(self, log: CommitLog) -> CompactionPlanner:
        """Return the planner of the store's compactions at the current time."""
        return CompactionPlanner(self.plan, self.definition.key_types, log.clock.now_ms())

    def spool(self, stage: Stage) -> RunSpool:
        """Return a new spool for runs."""
        return RunSpool(stage, self.definition, filters=self.chain, compression=self.compression)


def how_written(head: LogState, fs: FileSystem, code: Collection[str] = ()) -> HowWritten:
    """Return the settings of a store that has a record with rows, for a caller who has named some classes."""
    assert head.encoding is not None, "no record says what is stored"
    with Decoding(layout.LOG, "how a store is written"):
        encoding = head.definitions[head.encoding]
        settings = _newest_settings(head)
        store = settings.get("store", {})
        compression = store.get("compression", "lz4")
        if compression not in COMPRESSIONS:
            raise ValueError(f"runs have the compression {compression!r:.80}")
        return HowWritten(
            definition=StoreDefinition.from_json(encoding["store"]).naming(code),
            encoding=head.encoding,
            chain=Chain.from_definition(encoding["filters"], keys_of(fs)),
            plan=convert(store["plan"], PlanSettings, "rules of merges") if store else DEFAULT_PLAN,
            compression=compression,
            storage=Storage.from_json(settings) if settings else Storage(),
        )


def new_stage(log: CommitLog, author: MaintenanceAuthor, durability: str) -> Stage:
    """Return the storage settings for the files of a maintenance operation."""
    return Stage(log.fs, TaskIdentity(OperationIdentity(author.operation_id), 0, 0), durability)


def open_store_log(path: str | os.PathLike[str], access: Access) -> CommitLog:
    """Return an unshared log of a store, with its keys; see `open_log`.

    Raises:
        ConfigError: the store does not exist, or its keys are unknown.
        RolledBack: its newest version is older than `at_least_version`.
    """
    log = open_with_written_settings(path, access, otherwise=NO_STORE)
    url = normalise(os.fspath(path))
    head = log.refresh()
    check_is_store(head, url)
    if head.encoding is None:
        raise ConfigError(f"{url!r} is {NO_ROWS}")
    return log


def recorded_definition(
    options: Mapping[str, str], context: Context, *, durable: bool = False
) -> StoreDefinition | None:
    """Return the definition of the store that a writer's options name; None if the store has no record.

    For `durable`, see `CommitLog.refresh`. A ConfigError names the invalid option.
    """
    parsed = parse_options(options, StoreSinkOptions)
    if parsed.path is None:
        return None
    path, encryption = normalise(parsed.path), Encryption.from_options(parsed)
    common = CommonSettings.from_options(parsed, encryption, client_settings(parsed), stream=False)
    log = common.log_at(path, context)
    with file_as_config_error(log, path):
        text = store_of(log.refresh(durable=durable))
    if text is None:
        return None
    return StoreDefinition.from_json(text)


def _newest_settings(head: LogState) -> dict[str, Any]:
    """Return the newest settings that a writer recorded; empty if no record has any."""
    for text in reversed(head.definitions.values()):
        if isinstance(text, dict) and "plan" in text.get("store", {}):
            return text
    return {}


def definition_after(config: StoreConfig, head: LogState) -> StoreDefinition:
    """Return the definition of the store after the next record of this writer.

    Raises:
        ConfigError: the directory is not a store, or an option differs from the store's.
        SchemaError: value columns differ more than `onSchemaChange` allows.
    """
    check_is_store(head, config.path)
    text = store_of(head)
    if text is None or config.overwrite:
        return config.definition
    recorded, requested = StoreDefinition.from_json(text), config.definition
    require_same(recorded, requested)
    old = spark_schema_json(pa.schema(recorded.value_fields))
    new = spark_schema_json(pa.schema(requested.value_fields))
    check_schema_change(old, new, config.common.on_schema_change, has_any=False)
    return join_definitions([recorded, requested])


def refuse_operator(head: LogState, transaction: Transaction | None) -> None:
    """Raise `ConfigError` for a batch whose `txnAppId` is the name of an operator."""
    if transaction is not None and opening_of(head, transaction.app_id).epoch:
        raise ConfigError(
            f"txnAppId={transaction.app_id!r}: a KeyValueStore writes to the store as writer={transaction.app_id!r}, "
            f"and txnVersion={transaction.version} would count as one of its windows. Use another txnAppId"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """The change that one record makes to a store."""

    runs: tuple[Add, ...]  # new runs, old to new; their metadata has no position yet
    rewrites: tuple[Rewrite, ...] = ()  # results of due jobs
    failed: frozenset[str] = frozenset()  # ids of runs whose compaction failed
    tasks: int = 1  # number of tasks that execute the jobs of the record


def body_of(config: StoreConfig, log: CommitLog, head: LogState, change: StoreChange) -> Body:
    """Return the body of the next record: runs with positions, accepted rewrites, and the due jobs.

    An overwrite replaces all runs. Outdated rewrites are left out. Raises the same errors as `definition_after`.
    """
    definition = definition_after(config, head)
    encoding, settings = config.encoding(definition), config.settings()
    texts = {definition_key(text): text for text in (encoding, encoding["schema"], settings)}
    keys = [*texts]
    state, now_ms = open_state(log.fs, head, recorded_key_types(head)), log.clock.now_ms()
    if config.overwrite:
        accepted = Accepted()
        removes = tuple(map(Remove.of, head.segments.values()))
    else:
        accepted = accepted_compactions(log, state, change.rewrites)
        removes = accepted.removes
    runs = []
    for run in change.runs:
        runs.append(structs.replace(run, encoding=keys[0]))
    adds = (*place_adds(runs, head.version + 1, now_ms), *accepted.adds)
    live = live_after(state, removes, adds)
    return Body(
        adds=seal_metadata(log.fs, adds),
        removes=removes,
        overwrite=config.overwrite,
        jobs=list_due_after(state, live, config.plan, failed=change.failed, tasks=change.tasks),
        tasks=change.tasks,
        schema=keys[1],
        settings=keys[2],
        encoding=keys[0],
        definitions=texts,
        metrics={"runsMerged": len(accepted.removes)} if accepted.removes else {},
    )


def accepted_compactions(log: CommitLog, state: LogState, rewrites: Sequence[Rewrite]) -> Accepted:
    """Return the compactions that the next record can accept; of overlapping ones, the one with the oldest row.

    This prefers the retry of a backoff: other compactions would leave the held runs in place.
    """
    oldest_first = sorted(rewrites, key=_first_position)
    accepted = accept_rewrites(log, state, oldest_first).rewrites
    return Accepted(tuple(keep_acceptable(state.segments, accepted)))


def _first_position(rewrite: Rewrite) -> tuple[int, int]:
    """Return the positions of the oldest run that a compaction replaces."""
    return min(numbers_of(add.rolling_stats).at for add in rewrite.inputs)


def live_after(state: LogState, removes: Iterable[Remove], adds: Iterable[Add]) -> dict[str, Add]:
    """Return the live runs by id after a record that removes some runs and adds others."""
    live = by_id((*state.segments.values(), *adds))
    for remove in removes:
        live.pop(remove.id, None)
    return live


def list_due_after(
    state: LogState, live: Mapping[str, Add], rules: PlanSettings, *, failed: Collection[str] = (), tasks: int
) -> tuple[Job, ...]:
    """Return the due jobs for the record after a state, given the runs, by id, that are live after it."""
    backoffs = backoffs_of(state.jobs)
    if failed:
        tried = [compaction for compaction, _ in list_due(state.segments.values(), backoffs, rules)]
    else:
        tried = []
    backoffs = backoffs_after(backoffs, tried, failed=failed, live=live, version=state.version + 1)
    jobs = []
    for compaction, _ in list_due(live.values(), backoffs, rules):
        jobs.append(job_of(compaction, tasks))
    return tuple(jobs)
