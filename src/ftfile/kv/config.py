"""A store writer's settings: checked once on the driver, then frozen data that travels to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ftfile.arrays.spark_types import arrow_schema
from ftfile.filters.chain import Chain

if TYPE_CHECKING:
    import pyarrow as pa

    from ftfile.attempt.encryption import Encryption
    from ftfile.attempt.storage import Storage
    from ftfile.commit.format.model import Transaction
    from ftfile.commit.policy import Policy
    from ftfile.fs.api import Capabilities
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.planning.settings import PlanSettings

__all__ = ("StoreConfig",)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The settings of a write to a store, from its options and schema."""

    path: str  # normalised URL of the directory
    schema_json: str  # of the rows as they come, as Spark's `StructType.json()`, everything nullable
    definition: StoreDefinition  # as the options have it; the store's own is that of its records
    delete_column: str | None  # boolean, in no run: true for rows that delete their key
    plan: PlanSettings
    compression: str  # of the blocks of runs
    block_bytes: int  # of a block before compression
    encryption: Encryption | None
    storage: Storage
    policy: Policy
    bad_records: Literal["fail", "deadLetter", "drop"]
    max_record_bytes: int | None
    on_schema_change: Literal["fail", "widen", "any"]
    fingerprint: str | None
    checkpoint: str | None  # the query's directory, when the writer was given it
    overwrite: bool  # each commit replaces all that is in the store
    transaction: Transaction | None  # the user's own identity of a batch write
    max_open_bytes: int  # of memory that a task takes for rows it has not written
    grace_s: float  # for which files of older versions are kept
    vacuum_interval_s: float

    def for_store(self, store: Capabilities) -> StoreConfig:
        """Return the settings as this store takes them; a ConfigError where it has less than was asked for."""
        return replace(self, storage=self.storage.for_store(store))

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows as they come."""
        return arrow_schema(self.schema_json)

    @property
    def chain(self) -> Chain:
        """Return the filters around runs, and around dead letters."""
        return Chain() if self.encryption is None else Chain((self.encryption.around_others,))

    def settings(self) -> dict[str, Any]:
        """Return the settings that the log keeps for maintenance, as plain JSON."""
        store = {
            "plan": self.plan.to_json(),
            "compression": self.compression,
            "blockBytes": self.block_bytes,
            "graceSeconds": self.grace_s,
        }
        return {"store": store, **self.storage.to_json()}
