"""The values of the log: what a record says. Frozen; `format.record` turns them into bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MIGRATION = "migration"  # table of the log of a directory whose first files another program wrote


class Origin(NamedTuple):
    """The batches of a query, or of a batch-write job, that the rows of an add come from."""

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
    """Rows that a record brings: a part (a file of its own) or a segment (a range of a spool)."""

    id: str  # unique for ever; removes, jobs and ranges refer to it
    kind: Literal["part", "segment"]
    path: str  # where it was written, relative to the directory
    final_path: str | None  # the name under which a part is published; None for a segment
    length: int  # bytes on storage
    logical_length: int  # bytes before the filters
    checksum: str  # of the bytes on storage, as `core.checksum` writes it
    rows: int
    bucket: str  # see `layout.bucket_key`; empty for the directory itself
    encoding: str  # key of the definition that says how to decode
    origin: Origin
    offset: int = 0  # first byte within `path`; 0 for a part
    filters: tuple[str, ...] = ()  # in the order in which they were applied
    ranges: tuple[SourceRange, ...] = ()  # of the segments that a part was made from
    skip_rows: int = 0  # rows at the start of a segment that a part already holds; not counted in `rows`
    rolling_stats: dict[str, Any] = field(default_factory=dict)  # opaque, plain JSON


@dataclass(frozen=True, slots=True)
class Remove:
    """A live add that a record ends; length and checksum tell a part from another file of its name."""

    id: str
    kind: Literal["part", "segment"]
    final_path: str | None = None  # None for a segment
    length: int = 0  # bytes of a part on storage
    checksum: str = ""  # of these bytes; empty for a segment

    @classmethod
    def of(cls, add: Add) -> Remove:
        """Return the remove that ends `add`."""
        if add.kind == "segment":
            return cls(add.id, add.kind)
        return cls(add.id, add.kind, add.final_path, add.length, add.checksum)


@dataclass(frozen=True, slots=True)
class AssemblyJob:
    """Parts to be made from segments. A task finds all that it needs in one record."""

    id: str
    inputs: tuple[Add, ...]  # in the order of their rows
    reason: str  # why now
    attempts: int = 0  # failed ones
    payload: Any = None  # opaque, plain JSON


@dataclass(frozen=True, slots=True)
class StreamAuthor:
    """One micro-batch of one streaming query."""

    query_id: str
    run_id: str
    batch_id: int
    offsets_hash: str | None = None  # of Spark's whole `offsets/N` file; None when unknown
    offsets: Any = None  # of each source; None when unknown


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
    """The content of a batch, independent of the order of rows and of partitioning."""

    kind: str  # how it was made, with its version; only equal kinds compare
    digest: str
    covers_content: bool  # whether equality proves equal rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The changes of a writer to the log: a record without its author and its place."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    overwrite: bool = False  # removes everything that was live
    replaces: str | None = None  # what an overwrite or a drop of some partitions is for; None for other records
    restored: int | None = None  # version whose rows this one has again; None for other records
    dead_letters: tuple[Add, ...] = ()  # records that could not be written; published like parts, in no snapshot
    assembly_jobs: tuple[AssemblyJob, ...] | None = None  # None for those jobs of the record before that are not done
    tasks: int = 0  # that wrote it; the next batch deals the jobs to as many
    horizon_ms: int | None = None  # staged files not younger may be deleted; None: unchanged
    log_start: int | None = None  # records before this version may be deleted; None: unchanged
    schema: str | None = None  # key of the definition of the rows' schema
    settings: str | None = None  # key of the definition of how the author's query rolls its open parts
    encoding: str | None = None  # key of the definition of how new rows are written
    definitions: dict[str, Any] = field(default_factory=dict)  # a record has only those that are new to the log
    user_metadata: str | None = None  # the user's own text about it
    metrics: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)  # changes; see `commit.log.fold.TablesDraft`
    payload: Any = None  # of a use case that adds no files; opaque, plain JSON


@dataclass(frozen=True, slots=True)
class Record(Body):
    """One version of the directory. Creating it is the commit."""

    version: int  # 0, 1, 2 … without a gap
    nonce: str  # unique and kept over retries: tells an own record from another's
    author: Author
    time_ms: int  # the author's clock, for information
    assembly_jobs: tuple[AssemblyJob, ...] = field(default=(), kw_only=True)
    lineage_start: int | None = field(default=None, kw_only=True)  # batch with which the author's query starts anew
    fingerprint: Fingerprint | None = field(default=None, kw_only=True)
    previous_nonce: str | None = field(default=None, kw_only=True)  # empty for the first record; None: unknown
