"""Options that files and stores have in common: checks, and the settings made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.kind_of_directory import refuse_checkpoint
from ftfile.commit.format.layout import dead_letter_path, staged_directory
from ftfile.commit.format.model import Transaction
from ftfile.commit.policy import Policy
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from ftfile.attempt.storage import Encryption, Storage
    from ftfile.commit.log.log import CommitLog
    from ftfile.core.context import Context
    from ftfile.core.options import ParsedOptions
    from ftfile.filters.chain import Chain
    from ftfile.fs.api import Capabilities

# Batch and numbers may come to need more digits, together, than they have at first.
MORE_DIGITS = 20

# Dummy id of the greatest length that a path can contain.
_ID = "00000000-0000-0000-0000-000000000000"

_C = TypeVar("_C", bound="WriteConfig")


@dataclass(frozen=True, slots=True)
class WriteConfig(ABC):
    """The settings of a write, from its options and schema."""

    path: str  # normalised URL of the directory
    schema_json: str  # of the rows as they come, as Spark's `StructType.json()`, everything nullable
    encryption: Encryption | None
    policy: Policy
    bad_records: Literal["fail", "deadLetter", "drop"]
    max_record_bytes: int | None
    max_open_bytes: int  # of memory that a task takes for rows it has not written
    on_schema_change: Literal["fail", "widen", "any"]
    fingerprint: str | None
    checkpoint: str | None  # the query's directory, when the writer was given it
    overwrite: bool  # each commit replaces all that is in the directory
    transaction: Transaction | None  # the user's own identity of a batch write
    user_metadata: str | None  # the user's own text about each commit

    @abstractmethod
    def for_store(self: _C, store: Capabilities) -> _C:
        """Return the settings as this store takes them; a ConfigError where it has less than was asked for."""

    @property
    @abstractmethod
    def storage_options(self) -> Storage:
        """Return how files are stored."""

    @property
    @abstractmethod
    def hidden_chain(self) -> Chain:
        """Return the filters of segments and dead letters, which no format encrypts."""

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the rows as they come."""
        return arrow_schema(self.schema_json)

    def log(self, context: Context) -> CommitLog:
        """Return this process's log of the directory, see `logs.log_at`."""
        return self.storage_options.log_at(self.path, self.encryption, context)


def common_settings(parsed: ParsedOptions) -> dict[str, Any]:
    """Return the settings that are options as they were given; a ConfigError for a checkpoint within a log."""
    refuse_checkpoint(parsed.spark.get("checkpointlocation"))
    return {
        "policy": Policy.from_options(parsed),
        "bad_records": parsed["badRecords"],
        "max_record_bytes": parsed["maxRecordBytes"],
        "max_open_bytes": parsed["maxOpenBytes"],
        "on_schema_change": parsed["onSchemaChange"],
        "fingerprint": parsed["fingerprint"],
        "user_metadata": parsed["userMetadata"],
        "checkpoint": parsed.spark.get("checkpointlocation"),
    }


def column_named(
    option: str,
    name: str,
    schema: pa.Schema,
    is_right: Callable[[pa.DataType], bool] | None = None,
    needed: str = "",
    advice: str = "",
) -> str:
    """Return a column in its schema's spelling; a ConfigError if there is none, or its type is not right."""
    spelling: dict[str, str] = {known.lower(): known for known in schema.names}
    if name.lower() not in spelling:
        raise ConfigError(f"{option} names no column: {name!r}; the columns are {', '.join(schema.names)}{advice}")
    column = spelling[name.lower()]
    kind = schema.field(column).type
    if is_right is not None and not is_right(kind):
        raise ConfigError(f"{option}: column {column!r} is {kind}, and {needed} is needed")
    return column


def transaction_of(parsed: ParsedOptions) -> Transaction | None:
    """Return the user's own identity of a batch write; None without `txnAppId` and `txnVersion`."""
    app_id, version = parsed["txnAppId"], parsed["txnVersion"]
    if (app_id is None) != (version is None):
        given, missing = ("txnAppId", "txnVersion") if version is None else ("txnVersion", "txnAppId")
        raise ConfigError(f"{given} without {missing}: together they say which write this is; set both or neither")
    if app_id == "":
        raise ConfigError("option txnAppId='': it takes a name, such as that of the application")
    return Transaction(app_id, version) if app_id is not None and version is not None else None


def refuse_in_stream(transaction: Transaction | None) -> None:
    """Raise a ConfigError for an identity that the user gives the batches of a stream."""
    if transaction is not None:
        raise ConfigError(
            "txnAppId and txnVersion are for batch writes, as in foreachBatch: a stream's query and batch ids "
            "already make each batch exactly once. Leave both out"
        )


def check_staged_names(path: str, letters: Chain, store: Capabilities) -> None:
    """Raise a ConfigError for names of files that tasks stage, or of dead letters, that the store cannot keep."""
    staged = f"{staged_directory(_ID, 0)}/00000-0-{_ID}.staged"
    for own in (staged, dead_letter_path(_ID, 0, 0, _ID, letters.names)):
        if fault := store.fault_of(own, MORE_DIGITS):
            raise ConfigError(f"path={path!r}: a file of the sink's own would be {own!r}, which {fault}")
