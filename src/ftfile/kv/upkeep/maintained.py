"""A store opened for maintenance, and how its writers write it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.identity import JobIdentity, TaskIdentity
from ftfile.attempt.kind_of_directory import refuse_files
from ftfile.attempt.stage import Stage
from ftfile.attempt.storage import Storage
from ftfile.commit.opening import NO_ROWS, NO_STORE, open_as_written
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.core.errors import ConfigError
from ftfile.filters.chain import Chain
from ftfile.fs.registry import normalise
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.planning.jobs import PlanSettings
from ftfile.kv.run.writer import BLOCK_BYTES
from ftfile.kv.run_files import RunSpool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.commit.format.model import MaintenanceAuthor
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem

_CODEC = "lz4"


@dataclass(frozen=True, slots=True)
class HowWritten:
    """How the newest writer with settings of its own writes a store; the defaults, if none had any."""

    definition: StoreDefinition
    encoding: str  # key of the definition that says how new runs are written
    chain: Chain
    plan: PlanSettings
    compression: str
    block_bytes: int
    storage: Storage

    def spool(self, stage: Stage) -> RunSpool:
        """Return a new file for runs."""
        return RunSpool(stage, self.definition, self.chain, self.compression, self.block_bytes)


def how_written(head: LogState, fs: FileSystem) -> HowWritten:
    """Return how a store is written that has a record with rows."""
    assert head.encoding is not None, "no record says what is stored"
    encoding = head.definitions[head.encoding]
    texts = (text for text in reversed(head.definitions.values()) if isinstance(text, dict))
    settings = next((text for text in texts if "plan" in text.get("store", {})), {})
    store = settings.get("store", {})
    return HowWritten(
        StoreDefinition.from_json(encoding["store"]),
        head.encoding,
        Chain.from_definition(encoding["filters"], keys_of(fs)),
        PlanSettings.from_json(store["plan"]) if store else PlanSettings(),
        store.get("compression", _CODEC),
        store.get("blockBytes", BLOCK_BYTES),
        Storage.from_json(settings) if settings else Storage((), "auto"),
    )


def new_stage(log: CommitLog, author: MaintenanceAuthor, durability: str) -> Stage:
    """Return where the files of a maintenance operation are written."""
    return Stage(log.fs, TaskIdentity(JobIdentity(author.job_id), 0, 0), durability)


def open_store_log(
    path: str | os.PathLike[str], key_provider: str | None, storage: Mapping[str, str] | None, context: Context
) -> CommitLog:
    """Return a log of a store that nobody else uses, with its keys; ConfigError for no store, or keys not known."""
    log, url = open_as_written(path, key_provider, storage, context, otherwise=NO_STORE), normalise(os.fspath(path))
    head = log.read_on()
    refuse_files(head, url)
    if head.encoding is None:
        raise ConfigError(f"{url!r} is {NO_ROWS}")
    return log
