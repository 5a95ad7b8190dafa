"""Conversion of columnar files to the rows of a schema, with the treatment of values that do not fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.logs import get_logger
from ftfile.formats.reading.batches import batch_of
from ftfile.rows.buffers import from_texts, map_leaf_types, numbers_from, rebuild
from ftfile.source.decoding.casts import MISFIT, present_columns
from ftfile.source.decoding.records import bad_record, in_halves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.source.decoding.casts import ColumnCast
    from ftfile.source.settings import FileDecoding


_log = get_logger(__name__)

_SHOWN_CHARS = 200


class Misfit(NamedTuple):
    """A value that does not fit its type."""

    column: int  # number of the column in the schema
    reason: str


class ColumnsReader:
    """Converts the batches of one file, in order."""

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        casts: Sequence[tuple[str, ColumnCast | None]],
        decoding: FileDecoding,
    ) -> None:
        self._path = path
        self._schema = schema
        self._casts = casts
        self._fails = decoding.bad_records == "fail"
        self._corrupt_name = decoding.column_name_of_corrupt_record
        self._corrupt = self._corrupt_column(self._corrupt_name)
        self._rows_before = 0

    def _corrupt_column(self, name: str) -> int | None:
        """Return the place of the column for the text of bad records; None if the file itself has this column."""
        place: int = self._schema.get_field_index(name)
        if place >= 0 and self._casts[place][1] is None:
            return place
        return None

    def rows(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch.

        Raises:
            SourceError: a value does not fit, with `badRecords=fail`.
        """
        columns, failed = self._convert_columns(batch)
        if not failed:
            yield batch_of(columns, self._schema, batch.num_rows)
        elif bad := self._misfits(batch, failed):
            yield from self._drop_bad(batch, bad)
        else:  # each row fits, but one array cannot hold all of them, for example texts of more than 2 GiB
            middle = batch.num_rows // 2
            yield from self.rows(batch.slice(0, middle))
            yield from self.rows(batch.slice(middle))
            return
        self._rows_before += batch.num_rows

    def _convert_columns(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[int]]:
        """Return the converted columns, and the places of the columns with a value that does not fit."""
        columns, failed = [], []
        for place, (field, (name, cast)) in enumerate(zip(self._schema, self._casts, strict=True)):
            if cast is None:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            try:
                columns.append(cast(batch.column(name)))
            except MISFIT:
                failed.append(place)
        return columns, failed

    def _misfits(self, batch: pa.RecordBatch, columns: Sequence[int]) -> dict[int, Misfit]:
        """Return the misfits by bad row. If bad rows raise an error, return only the first misfit of each column."""
        bad: dict[int, Misfit] = {}
        for place in columns:
            name, cast = self._casts[place]
            assert cast is not None, "a column that is not in the file has no misfits"
            values = batch.column(name)

            def convert(start: int, end: int, cast: ColumnCast = cast, values: pa.Array = values) -> None:
                cast(values.slice(start, end - start))

            for untaken in in_halves(convert, batch.num_rows, MISFIT):
                bad.setdefault(untaken.start, Misfit(place, str(untaken.error).partition("\n")[0]))
                if self._fails and self._corrupt is None:
                    break
        return bad

    def _drop_bad(self, batch: pa.RecordBatch, bad: dict[int, Misfit]) -> Iterator[pa.RecordBatch]:
        """Yield the good rows of a batch. With a column for bad records, also yield the bad rows, in their places."""
        number, misfit = min(bad.items())
        if self._corrupt is None:
            shown = self._show_value(batch, number, misfit)
            if self._fails:
                raise bad_record(shown, self._corrupt_name)
            _log.warning("dropped %d records of %s, the first: %s", len(bad), self._path, shown)
        is_good = np.ones(batch.num_rows, np.bool_)
        is_good[list(bad)] = False
        good = np.flatnonzero(is_good)
        columns, failed = self._convert_columns(batch.take(numbers_from(good)))
        assert not failed, "all good rows of a batch fit in one batch"
        rows = batch_of(columns, self._schema, len(good))
        if self._corrupt is not None:
            bad_numbers = np.array(sorted(bad))
            order = np.argsort(np.concatenate([good, bad_numbers]), kind="stable")
            bad_rows = self._bad_rows(batch, bad_numbers.tolist(), self._corrupt)
            rows = pa.concat_batches([rows, bad_rows]).take(numbers_from(order))
        if rows.num_rows:
            yield rows

    def _show_value(self, batch: pa.RecordBatch, number: int, misfit: Misfit) -> str:
        field = self._schema.field(misfit.column)
        name, cast = self._casts[misfit.column]
        assert cast is not None
        (bad_value,) = _values(cast, batch.column(name).slice(number, 1))
        value = _text(bad_value)[:_SHOWN_CHARS]
        row = self._rows_before + number + 1
        return (
            f"{self._path!r}: row {row} has {value} in the column `{name}`, which does not fit {field.type} "
            f"({misfit.reason})"
        )

    def _bad_rows(self, batch: pa.RecordBatch, numbers: list[int], place: int) -> pa.RecordBatch:
        """Return one row for each bad record, with its text in the column `place` and nulls in all other columns."""
        rows = batch.take(pa.array(numbers, pa.int64()))
        records: list[dict[str, Any]] = [{} for _ in numbers]
        for name, cast in present_columns(self._casts):
            for record, value in zip(records, _values(cast, rows.column(name)), strict=True):
                record[name] = value
        texts = list(map(_text, records))
        columns = [pa.nulls(len(numbers), kind) for kind in self._schema.types]
        columns[place] = from_texts(texts, pa.string())
        return batch_of(columns, self._schema, len(numbers))


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _values(cast: ColumnCast, array: pa.Array) -> list[Any]:
    """Return values of a column as JSON values. Invalid bytes become U+FFFD."""
    plain = cast.as_plain(array)
    shown = rebuild(plain, map_leaf_types(plain.type, _type_to_show), _as_shown)
    return [_json_value(value) for value in shown.to_pylist()]


def _type_to_show(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()  # Python cannot represent a text with invalid bytes
    if pa.types.is_temporal(kind):
        return pa.string()  # Python's times do not have nanoseconds or the year 10000
    return kind


def _as_shown(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target)


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    return value
