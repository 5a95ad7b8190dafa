"""Rows whose files are written later, one after the other: in memory, or in a spill file when memory is short."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.filters.aes_gcm import PieceCipher
from ftfile.filters.decoded import stream_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.attempt.stage import Stage, StagedFile
    from ftfile.fs.api import InputFile

_CODEC = "lz4"


def as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of one or more batches as one batch; empties the list, to free their memory."""
    table = pa.Table.from_batches(batches)
    batches.clear()
    return table.combine_chunks().to_batches()[0]


class _Block(NamedTuple):
    """Rows of one bucket in the spill file."""

    offset: int
    length: int
    plain_bytes: int  # when decompressed


class SpilledRows:
    """Keeps rows by bucket until they are taken, each bucket's in their order.

    The spill file is staged beside the parts, and gone when the rows were taken. If it is encrypted, only this object
    ever has the key.
    """

    def __init__(self, stage: Stage, schema: pa.Schema, *, encrypted: bool = False) -> None:
        self._stage = stage
        self._schema = schema
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._pieces: dict[str, list[_Block]] = {}
        self._file: StagedFile | None = None
        self._cipher = PieceCipher() if encrypted else None
        self.held_bytes = 0

    def add(self, bucket: str, rows: pa.RecordBatch) -> None:
        """Take rows; they are copied, since a slice would keep the memory of all rows that it was cut from."""
        rows = pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in rows.columns], schema=rows.schema)
        self._held.setdefault(bucket, []).append(rows)
        self.held_bytes += rows.get_total_buffer_size()

    def spill(self) -> None:
        """Move the rows in memory to the spill file."""
        for bucket, batches in self._held.items():
            if self._file is None:
                self._file = self._stage.create("spill")
            plain = as_one(batches).serialize()
            data = pa.compress(plain, codec=_CODEC)
            if self._cipher is not None:
                data = self._cipher.encrypt(data, self._file.position)
            self._pieces.setdefault(bucket, []).append(_Block(self._file.position, len(data), plain.size))
            self._file.write(data)
        self._held, self.held_bytes = {}, 0

    def take_all(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield all rows, bucket by bucket, and keep nothing."""
        held, self._held, self.held_bytes = self._held, {}, 0
        if self._file is not None:
            with self._stage.read_back(self._file) as file:
                for bucket, pieces in self._pieces.items():
                    yield from ((bucket, rows) for rows in self._read(file, pieces))
                    yield from ((bucket, rows) for rows in held.pop(bucket, ()))
        for bucket in [*held]:
            yield from ((bucket, rows) for rows in held.pop(bucket))
        if self._file is not None:
            self._stage.drop(self._file)

    def _read(self, file: InputFile, pieces: list[_Block]) -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            data = file.read_at(piece.offset, piece.length)
            if self._cipher is not None:
                with stream_errors(file.path):
                    data = self._cipher.decrypt(data, piece.offset)
            plain = pa.decompress(data, decompressed_size=piece.plain_bytes, codec=_CODEC)
            yield pa.ipc.read_record_batch(plain, self._schema)
