"""The immutable values of the log, with the JSON names, types and defaults of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, field

_Of = TypeVar("_Of")

if TYPE_CHECKING:
    OrAbsent: TypeAlias = _Of | None
else:

    class OrAbsent:
        """The type of a field that is absent in JSON if the attribute is None; it is never null in JSON."""

        def __class_getitem__(cls, kind: object) -> object:
            return kind


# The maximum of lengths, versions, times and other numbers.
NUMBER_MAX = (1 << 63) - 1
Count = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Level = Annotated[int, Meta(ge=0, le=1)]  # the level of a run in a store
Number = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
MIGRATION = "migration"  # the table for the first files of a directory, if another program wrote them
APPLICATIONS = "applications"  # the table of the applications that write by `ftfile.writer`
# Tables of the records of flushes, and of batches of applications, whose parts may be unreported: by version, the query
# or the application whose function must still be called.
UNREPORTED_FLUSHES, UNREPORTED_BATCHES = "unreportedFlushes", "unreportedBatches"


class Value(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A value that is JSON in the log: a field with its default value is omitted.

    Unknown fields are ignored: see docs/internals/format.md on versions. Values have no cycles, so the garbage
    collector does not track them.
    """


def convert(value: object, kind: Any, name: str) -> Any:  # noqa: ANN401 - of any type
    """Convert plain JSON to a value of a type; for a field of another type, raise a ValueError that names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name} is {value!r:.80}: {error}") from None


class Origin(Value, frozen=True):
    """The batches of a query, or of a batch write, that the rows of an add come from."""

    query_id: str
    first_batch: Count
    last_batch: Count


class SourceRange(Value, frozen=True):
    """The range of a segment that a part contains: `[start, end)` in bytes or rows."""

    add_id: str = field(name="segmentId")
    unit: Literal["bytes", "rows"]
    start: Count
    end: Count


# Statistics by column. The garbage collector stops tracking tuples of plain values, but not lists.
Entries: TypeAlias = dict[str, tuple[Any, ...]]


class Add(Value, frozen=True):
    """Rows that a record adds: a part (a separate file) or a segment (a range of a spool)."""

    id: str  # unique for ever; removes, tasks and compacted logs refer to it
    kind: Literal["part", "segment"]
    path: str  # where it was written, relative to the directory
    final_path: str | None  # the name under which a part is published; None for a segment
    length: Count = field(name="lengthBytes")  # on storage
    logical_length: Count = field(name="logicalLengthBytes")  # before the filters
    checksum: str  # of the bytes on storage, as in `core.checksum`
    rows: Count
    directory_key: str = field(name="directory")  # see `layout.directory_key`; empty for the root
    encoding: str  # key of the definition for decoding
    origin: Origin
    offset: Count = field(default=0, name="offsetBytes")  # first byte within `path`; 0 for a part
    filters: tuple[str, ...] = ()  # in the order in which they were applied
    # of the segments that a part was assembled from
    ranges: tuple[SourceRange, ...] = field(default=(), name="segmentRanges")
    skip_rows: Count = 0  # rows at the start of a segment that a part already contains; not counted in `rows`
    rolling_stats: dict[str, Any] = field(default_factory=dict)  # opaque, plain JSON
    # of the rows, by column, opaque; see `rows.statistics`. Adds from compacted logs have none
    statistics: Entries = field(default_factory=dict)

    def without_statistics(self) -> Add:
        """Return the same add for tasks, which read its rows and not its statistics."""
        if not self.statistics:
            return self
        return msgspec.structs.replace(self, statistics={})


class Remove(Value, frozen=True):
    """The removal of a live add. Length and checksum distinguish a part from another file of the same name."""

    id: str
    kind: Literal["part", "segment"]
    final_path: OrAbsent[str] = None  # None for a segment
    length: Count = field(default=0, name="lengthBytes")  # of a part on storage
    checksum: str = ""  # of these bytes; empty for a segment

    def __post_init__(self) -> None:
        if self.final_path is None and self.kind == "part":
            raise ValueError(f"finalPath is missing for a part, {self.id!r:.80}")

    @classmethod
    def of(cls, add: Add) -> Remove:
        """Return the remove of `add`."""
        if add.kind == "segment":
            return cls(add.id, add.kind)
        return cls(add.id, add.kind, add.final_path, add.length, add.checksum)


class Job(Value, frozen=True):
    """The assembly of a part, or a merge of runs. Tasks of a later batch need only the record to execute it."""

    id: str
    reason: str  # the reason why it is due
    inputs: tuple[Add, ...]  # in the order of their rows
    attempts: Count = 0  # failed attempts
    payload: Any = field(default=None, name="plan")  # opaque, plain JSON


class StreamAuthor(Value, frozen=True, tag_field="kind", tag="stream"):
    """One micro-batch of a streaming query."""

    query_id: str
    run_id: str
    batch_id: Count
    offsets_hash: OrAbsent[str] = None  # of Spark's `offsets/N` file; None if unknown
    offsets: list[Any] | None = None  # of each source; None if unknown


class Application(Value, frozen=True):
    """The newest opening of a directory by an application, and the application's position in its source."""

    epoch: Count  # number of the opening: 1, 2, 3 …
    run_id: str  # unique for each opening; only the newest one can commit
    opened_ms: Count  # the clock of the process
    process: str = ""  # `user@host` of the process; empty: unknown
    position: Any = None  # of the last commit; the application's, plain JSON

    def at(self, position: Any) -> Application:  # noqa: ANN401 - JSON
        """Return the same opening with another position."""
        return msgspec.structs.replace(self, position=position)


class Transaction(Value, frozen=True):
    """The user's identity of a batch write, which prevents a second write. Versions of an application must increase."""

    app_id: str
    version: Number


class BatchWriteAuthor(Value, frozen=True, tag_field="kind", tag="batchWrite"):
    """One batch write."""

    operation_id: str
    transaction: OrAbsent[Transaction] = None


class MaintenanceAuthor(Value, frozen=True, tag_field="kind", tag="maintenance"):
    """One maintenance operation, such as `compact`."""

    operation: str
    operation_id: str


Author = StreamAuthor | BatchWriteAuthor | MaintenanceAuthor


class Fingerprint(Value, frozen=True):
    """The content of a batch, independent of the order of rows and their partitioning."""

    kind: str  # the algorithm with its version; only equal kinds are compared
    digest: str
    covers_content: bool  # True if equality proves equal rows


class Changes(Value, frozen=True, kw_only=True):
    """The fields that the body of a writer and its record have in common."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    overwrite: bool = False  # removes everything that was live
    replaces: OrAbsent[str] = None  # the condition of an overwrite or a drop of partitions; None for other records
    # the restored version; None for other records
    restored: OrAbsent[Count] = field(default=None, name="restoredVersion")
    rows_removed: Count = 0  # rows that were live, and are in no add of this record
    dead_letters: tuple[Add, ...] = ()  # records that could not be written; published like parts, in no snapshot
    # number of tasks that wrote the record; the next batch distributes the jobs to the same number of tasks
    tasks: Count = field(default=0, name="taskCount")
    # Staged files that are older can be deleted; None: unchanged.
    horizon_ms: OrAbsent[Count] = field(default=None, name="vacuumHorizonMs")
    # Records before this version can be deleted; None: unchanged.
    log_start: OrAbsent[Count] = field(default=None, name="logStartVersion")
    # Files of adds that were removed at this version or before can be deleted; None: unchanged.
    vacuumed_to: OrAbsent[Count] = field(default=None, name="vacuumedToVersion")
    # Keys of definitions: the schema of rows, the encoding of new rows, and the rolling rules of the author's query.
    schema: OrAbsent[str] = None
    encoding: OrAbsent[str] = None
    settings: OrAbsent[str] = None
    # a record only contains definitions that are new to the log
    definitions: dict[str, Any] = field(default_factory=dict)
    user_metadata: OrAbsent[str] = None  # the user's text
    metrics: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)  # changes; see `log.apply.TablesBuilder`
    payload: Any = None  # of a log without files; opaque, plain JSON


class Body(Changes, frozen=True, kw_only=True):
    """The changes that a writer makes to the log: a record without author and version."""

    # None for the remaining jobs of the previous record
    jobs: tuple[Job, ...] | None = None


class Record(Changes, frozen=True):
    """One version of the directory. Creating it is the commit."""

    version: Count  # 0, 1, 2 … without a gap
    nonce: str  # unique and the same in retries: identifies the record of a process
    author: Author
    time_ms: Count  # the author's clock
    storage_ms: OrAbsent[Count] = field(default=None, name="storageTimeMs")  # the storage's clock, if it differs
    jobs: tuple[Job, ...] = ()
    # the first batch of the query's lineage
    lineage_start: OrAbsent[Count] = field(default=None, name="lineageStartBatch")
    fingerprint: OrAbsent[Fingerprint] = None
    previous_nonce: OrAbsent[str] = None  # empty for the first record; None: unknown
    # All records up to this version were published, with durable names, before this record was created.
    published: OrAbsent[Count] = field(default=None, name="publishedVersion")
    writer: str = ""  # `user@host` of the process that created it; empty: unknown

    @property
    def created_ms(self) -> int:
        """Return the time of creation by the storage's clock, as estimated by the author; the error is some seconds."""
        if self.storage_ms is None:
            return self.time_ms
        return self.storage_ms

    @property
    def is_change(self) -> bool:
        """Return True if the record removes live rows or restores a version, such as an overwrite or a restore."""
        return self.restored is not None or self.rows_removed > 0
