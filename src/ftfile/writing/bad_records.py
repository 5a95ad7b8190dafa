"""The handling of records that cannot be written, as set by the option `badRecords`."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ftfile.core.errors import EncodingError
from ftfile.core.logs import get_logger
from ftfile.filters.chain import FilteredFile
from ftfile.log.read.dead_letters import letter_excess
from ftfile.log.sealed import identity_of_letters
from ftfile.rows.buffers import (
    byte_ranges,
    from_numpy,
    is_byte_like,
    is_list_like,
    is_valid,
    list_lengths,
    rows_where,
    to_plain,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ftfile.filters.chain import Chain
    from ftfile.writing.messages import StagedPart, TaskIdentity
    from ftfile.writing.stage import Stage, StagedFile


_log = get_logger(__name__)


def raise_fault(rows: pa.RecordBatch, faults: Sequence[str], /) -> None:
    """Raise an EncodingError with the fault of the first row."""
    more = ""
    if rows.num_rows > 1:
        more = f" (and {rows.num_rows - 1} more of these rows)"
    raise EncodingError(
        f"{faults[0]}{more}. To continue without these records, set badRecords=deadLetter (keeps them) or "
        "badRecords=drop"
    )


@dataclass(kw_only=True)
class BadRecords:
    """The bad records of one attempt, which are handled as `badRecords` sets; stages the file of dead letters."""

    handling: Literal["fail", "deadLetter", "drop"]
    max_bytes: int | None
    chain: Chain
    stage: Stage
    identity: TaskIdentity
    count: int = 0
    _letters: tuple[StagedFile, FilteredFile] | None = None

    def take(self, rows: pa.RecordBatch, faults: Sequence[str], /) -> None:
        """Handle bad rows, each with a fault: drop them, write dead letters, or raise the error of `raise_fault`."""
        if self.handling == "fail":
            raise_fault(rows, faults)
        if not self.count:
            _log.warning("badRecords=%s: a record is not written: %s", self.handling, faults[0])
        self.count += rows.num_rows
        if self.handling == "deadLetter":
            letters = []
            for place, fault in enumerate(faults):
                letters.append(self._letter(rows.slice(place, 1), fault))
            self._keep(letters)

    def split_oversized(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Handle rows whose values exceed `maxRecordBytes` as bad records, and return the remaining rows."""
        # If all rows together are small enough, each row is small enough. The factor is 8, because a boolean counts as
        # a byte, but is stored as a bit.
        if self.max_bytes is None or 8 * batch.nbytes <= self.max_bytes:
            return batch
        sizes = np.array([value_sizes(column) for column in batch.columns])
        totals = sizes.sum(axis=0)
        places = np.flatnonzero(totals > self.max_bytes)
        if not len(places):
            return batch
        largest_columns = sizes.argmax(axis=0)[places]
        faults = []
        for place, column in zip(places.tolist(), largest_columns.tolist(), strict=True):
            faults.append(
                f"column {batch.schema.names[column]!r} takes {sizes[column, place]} of a record's {totals[place]} "
                f"bytes, and maxRecordBytes is {self.max_bytes}"
            )
        self.take(batch.take(from_numpy(places, pa.int64())), faults)
        return rows_where(batch, totals <= self.max_bytes)

    def finish(self) -> tuple[StagedPart, ...]:
        """Finish the file of dead letters and return it; empty if no dead letter was written."""
        if self._letters is None:
            return ()
        file, filtered = self._letters
        filtered.finish()
        self.stage.end(file)
        return (file.part(filtered.position, self.count, "", self.chain.names),)

    def _keep(self, lines: list[str]) -> None:
        if self._letters is None:
            file = self.stage.create("deadLetters")
            identity = identity_of_letters(self.stage.fs, file.path)
            self._letters = file, FilteredFile(file, self.chain, identity)
        self._letters[1].write("".join(lines).encode())

    def _letter(self, row: pa.RecordBatch, fault: str) -> str:
        writer = self.identity.writer
        letter = {
            "reason": fault,
            "queryId": writer.owner,
            "batchId": writer.batch_number,
            "partition": self.identity.partition,
            "row": row_to_json(row),
        }
        # JSON in ASCII, because reasons may quote values that are not valid UTF-8.
        line = json.dumps(letter, separators=(",", ":"))
        excess = letter_excess(line.encode())
        if excess:
            raise EncodingError(
                f"{fault}. The dead letter for this record would have {excess}, too large to be read: set "
                "badRecords=drop"
            )
        return line + "\n"


def value_sizes(array: pa.Array) -> NDArray[np.int64]:
    """Return the size of each value in bytes.

    It is the length of a string, the width of a fixed type, and the sum of the values in a nested value. A null has the
    width of its type, or 0 bytes for other types.
    """
    array = to_plain(array)
    if is_byte_like(array.type):
        offsets, _ = byte_ranges(array)
        return np.where(is_valid(array), np.diff(offsets), 0)
    if is_list_like(array.type):
        lengths = list_lengths(array)
        sizes_before = np.concatenate([[0], np.cumsum(value_sizes(array.flatten()))])
        ends = np.cumsum(lengths)
        starts = ends - lengths
        sizes: NDArray[np.int64] = sizes_before[ends] - sizes_before[starts]
        return sizes
    if pa.types.is_struct(array.type):
        return sum((value_sizes(field) for field in array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_null(array.type):
        width = 0
    else:
        width = -(-array.type.bit_width // 8)
    return np.full(len(array), width, np.int64)


def row_to_json(row: pa.RecordBatch) -> dict[str, Any]:
    """Return a batch of one row as JSON values by column.

    Numbers, booleans and strings are unchanged. NaN, infinities, decimals, dates and timestamps are text. Binary values
    are base64. A string that is not UTF-8 is an object `{"base64": …}`. A date or timestamp outside the years 0001 to
    9999 is the number of days or microseconds since 1970. A map is a list of its entries.
    """
    values = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        values[name] = _value(to_plain(column)[0])
    return values


def _value(scalar: pa.Scalar) -> Any:  # noqa: ANN401 - as many types as values
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[index]) for index, field in enumerate(kind)}
    if is_list_like(kind):
        return [_value(item) for item in to_plain(scalar.values)]
    return _plain_value(scalar)


def _plain_value(scalar: pa.Scalar) -> Any:  # noqa: ANN401 - as many types as values
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        return {"base64": _base64(scalar.as_buffer())}
    except (ValueError, OverflowError):  # a date or timestamp outside Python's range
        return int(scalar.value)
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, bool | int | float | str) else str(value)


def _base64(data: bytes | pa.Buffer) -> str:
    return base64.b64encode(data).decode()
