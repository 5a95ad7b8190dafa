"""The rows of a task in the recorded schema, and their fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.writing.messages import StreamIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.writing.fingerprint import FingerprintAccumulator
    from ftfile.writing.messages import WriterIdentity
    from ftfile.writing.options import CommonSettings


def fingerprint_for(
    writer: WriterIdentity, common: CommonSettings, *, offsets_known: bool
) -> FingerprintAccumulator | None:
    """Return an empty fingerprint for the rows of a task; None if no commit compares the rows.

    It is of the kind `strong` if only the rows can prove that a batch is a replay.
    """
    if isinstance(writer, StreamIdentity):
        needs_proof, is_compared = not offsets_known, not common.is_application
    else:
        needs_proof = is_compared = common.transaction is not None
    if not is_compared and common.fingerprint is None:
        return None
    from ftfile.writing.fingerprint import FingerprintAccumulator  # noqa: PLC0415 - only tasks need it

    kind = "content"
    if needs_proof and is_compared:
        kind = "strong"
    return FingerprintAccumulator(common.fingerprint or kind)


def fingerprint_json(fingerprint: FingerprintAccumulator | None) -> dict[str, Any] | None:
    """Return a fingerprint as in the message of a task."""
    if fingerprint is None:
        return None
    return fingerprint.to_json()


def recorded_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, fingerprint: FingerprintAccumulator | None
) -> Iterator[pa.RecordBatch]:
    """Yield the non-empty batches in the recorded schema, and add them to a fingerprint."""
    for batch in filter(len, batches):
        if batch.schema.equals(schema):
            rows = batch
        else:
            rows = _cast(batch, schema)
        if fingerprint is not None:
            fingerprint.update(rows)
        yield rows


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the recorded schema; Spark sends its session's time zone and non-nullable columns."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
