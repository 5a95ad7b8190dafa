"""The rows of an attempt as they come: which batch they are of, and its fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.attempt.identity import StreamIdentity
from ftfile.commit.format.model import JobAuthor, StreamAuthor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.attempt.directory_marker import DirectoryMarker
    from ftfile.attempt.fingerprint import FingerprintAccumulator
    from ftfile.attempt.identity import WriterIdentity
    from ftfile.commit.format.model import Author, Transaction
    from ftfile.commit.log.state import LogView

__all__ = ("Planned", "fingerprint_kind", "fingerprinted", "recognisable")


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned view of the log; at most 64 KiB pickled."""

    view: LogView
    time_ms: int  # the driver's clock: the time of all tasks of the batch, whenever they run
    definitions: dict[str, Any]  # of the encodings that due jobs need, by key
    marker: DirectoryMarker | None  # of the driver's directory; None where tasks cannot see another
    offsets_known: bool  # the driver sees the checkpoint: offsets identify a repeated batch


def recognisable(writer: WriterIdentity, transaction: Transaction | None) -> Author | None:
    """Return this write's identity in the log; None if a retry cannot be recognised."""
    if isinstance(writer, StreamIdentity):
        return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id)
    return JobAuthor(writer.job_id, transaction) if transaction is not None else None


def fingerprint_kind(writer: WriterIdentity, transaction: Transaction | None, *, offsets_known: bool) -> str:
    """Return the kind of fingerprint: where nothing else can tell that a batch comes again, rows must prove it."""
    needs_proof = not offsets_known if isinstance(writer, StreamIdentity) else transaction is not None
    return "strong" if needs_proof else "content"


def fingerprinted(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, fingerprint: FingerprintAccumulator
) -> Iterator[pa.RecordBatch]:
    """Yield batches with rows, in the recorded schema, and add them to a fingerprint."""
    for batch in filter(len, batches):
        rows = batch if batch.schema.equals(schema) else _cast(batch, schema)
        fingerprint.update(rows)
        yield rows


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the recorded schema: Spark's has its session's time zone, and columns without null."""
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
