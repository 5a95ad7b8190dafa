"""The values of the log: what a record says. Frozen; `format.record` turns them into bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

__all__ = (
    "Add",
    "AssemblyJob",
    "Author",
    "Body",
    "Fingerprint",
    "JobAuthor",
    "MaintenanceAuthor",
    "Origin",
    "Record",
    "Remove",
    "SourceRange",
    "StreamAuthor",
    "Transaction",
)


class Origin(NamedTuple):
    """Which batches of which query (or batch-write job) the rows of an add come from."""

    query_id: str
    first_batch: int
    last_batch: int


class SourceRange(NamedTuple):
    """The piece of a segment that went into a part made from segments: `[start, end)` in bytes or rows."""

    add_id: str
    unit: Literal["bytes", "rows"]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Add:
    """Rows that a record brings: a part (a file of its own) or a segment (a range of a spool).

    Attributes:
        id: unique for ever; what removes, jobs and ranges refer to.
        path: where it was written, relative to the directory.
        final_path: the name under which a part is published; None for a segment, which never is.
        offset: first byte within `path`; 0 for a part.
        length: bytes on storage.
        logical_length: bytes before the filters.
        checksum: of the bytes on storage, as `core.checksum` writes it.
        bucket: output sub-directory, empty for the directory itself, with the beginning of its files' names where the
            rows chose it; see `layout.bucket_key`.
        encoding: key of the definition that says how to decode.
        filters: byte filters in the order in which they were applied.
        ranges: for a part made from segments, the piece of each.
        skip_rows: rows at the start of a segment that are in another part already; `rows` does not count them.
        rolling_stats: what the use case keeps of the rows; opaque, plain JSON.
    """

    id: str
    kind: Literal["part", "segment"]
    path: str
    final_path: str | None
    length: int
    logical_length: int
    checksum: str
    rows: int
    bucket: str
    encoding: str
    origin: Origin
    offset: int = 0
    filters: tuple[str, ...] = ()
    ranges: tuple[SourceRange, ...] = ()
    skip_rows: int = 0
    rolling_stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remove:
    """A live add that a record ends.

    Attributes:
        final_path: where a part lies; None for a segment.
        length: bytes of a part on storage. With the checksum it tells the part from another file of its name.
        checksum: of these bytes; empty for a segment.
    """

    id: str
    kind: Literal["part", "segment"]
    final_path: str | None = None
    length: int = 0
    checksum: str = ""

    @classmethod
    def of(cls, add: Add) -> Remove:
        """Return the remove that ends `add`."""
        if add.kind == "segment":
            return cls(add.id, add.kind)
        return cls(add.id, add.kind, add.final_path, add.length, add.checksum)


@dataclass(frozen=True, slots=True)
class AssemblyJob:
    """Parts to be made from segments: of which, in their order, why now, and how often it has failed.

    It holds all that is needed to do it, so that a task finds its jobs in one record.

    Attributes:
        payload: what the use case wants of the parts; opaque, plain JSON.
    """

    id: str
    inputs: tuple[Add, ...]
    reason: str
    attempts: int = 0
    payload: Any = None


@dataclass(frozen=True, slots=True)
class StreamAuthor:
    """One micro-batch of one streaming query.

    `offsets_hash` is the hash of Spark's whole `offsets/N` file and `offsets` its source offsets; None when unknown.
    """

    query_id: str
    run_id: str
    batch_id: int
    offsets_hash: str | None = None
    offsets: Any = None


class Transaction(NamedTuple):
    """A user's own identity of a batch write: versions of one application only go up."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class JobAuthor:
    """One batch write."""

    job_id: str
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceAuthor:
    """One maintenance operation, such as `compact`."""

    operation: str
    job_id: str


Author = StreamAuthor | JobAuthor | MaintenanceAuthor


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The content of a batch, independent of the order of rows and of partitioning.

    Attributes:
        kind: how it was made, with its version; only equal kinds compare.
        digest: the sums.
        covers_content: whether equality proves equal rows.
    """

    kind: str
    digest: str
    covers_content: bool

    def same_content(self, other: Fingerprint | None) -> bool:
        """Return True if both prove equal content."""
        return other is not None and self.covers_content and self == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The changes of a writer to the log: a record without its author and its place.

    Attributes:
        overwrite: it removes everything that was live.
        dead_letters: files published like parts that hold no rows of any snapshot: records that could not be written.
        assembly_jobs: jobs for tasks; None for those of the record before that nobody has done.
        tasks: how many tasks wrote it: due jobs are dealt to that many in the next batch.
        horizon_ms: staged files not younger than this may be deleted; None when unchanged.
        log_start: records before this version may be deleted; None when unchanged.
        schema: key of the definition of the rows' schema.
        settings: key of the definition of how the author's query makes parts of its open segments.
        encoding: key of the definition of how new rows are written.
        definitions: schemas and encodings; a record has only those that are new to the log.
        tables: changes of what the use case remembers; see `commit.log.tables`.
    """

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    overwrite: bool = False
    dead_letters: tuple[Add, ...] = ()
    assembly_jobs: tuple[AssemblyJob, ...] | None = None
    tasks: int = 0
    horizon_ms: int | None = None
    log_start: int | None = None
    schema: str | None = None
    settings: str | None = None
    encoding: str | None = None
    definitions: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record(Body):
    """One version of the directory. Creating it is the commit.

    Attributes:
        version: 0, 1, 2 … without a gap.
        nonce: unique per record and kept over retries: tells an own record from another's.
        time_ms: the author's clock, for information.
        previous_nonce: nonce of the record before, empty for the first one; None where that is not said.
        lineage_start: the batch with which the author's query starts anew; None when it goes on.
    """

    version: int
    nonce: str
    author: Author
    time_ms: int
    assembly_jobs: tuple[AssemblyJob, ...] = field(default=(), kw_only=True)
    lineage_start: int | None = field(default=None, kw_only=True)
    fingerprint: Fingerprint | None = field(default=None, kw_only=True)
    previous_nonce: str | None = field(default=None, kw_only=True)
