"""Files as one row each, or as records that a delimiter or their lengths tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa

from ftfile.core.errors import CorruptData
from ftfile.encoding.base.reading import batch_of
from ftfile.encoding.binary.format import BinaryRecords
from ftfile.source.files.decoding.lines import LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.source.files.decoding.opened import OpenedFile
    from ftfile.source.files.decoding.settings import FileDecoding
    from ftfile.source.files.decoding.split import Cut


def binary_rows(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield one row for the file, with its bytes as they are stored, or one for each record in its plain content."""
    del cut
    if decoding.framing is None:
        yield _whole_file(opened, schema)
        return
    end = b"" if decoding.length_prefix else decoding.delimiter or b""
    file = cast("BinaryIO", _Pieces(opened.plain_pieces(), opened.planned.path, end))
    yield from BinaryRecords(decoding.framing).decode(file, schema)


def _whole_file(opened: OpenedFile, schema: pa.Schema) -> pa.RecordBatch:
    planned = opened.planned
    values: dict[str, Any] = {
        "path": planned.path,
        "length": planned.end,
        "modificationtime": 1000 * planned.modified_ms,
    }
    if "content" in map(str.lower, schema.names):
        if planned.end > LINE_BYTES_MAX:
            raise CorruptData(planned.path, f"files of at most {LINE_BYTES_MAX} bytes", f"one of {planned.end}")
        values["content"] = b"".join(opened.stored_pieces(0, planned.end))
    columns = [pa.array([values[name.lower()]], kind) for name, kind in zip(schema.names, schema.types, strict=True)]
    return batch_of(columns, schema, 1)


class _Pieces:
    """A file of pieces, which ends with `end`, added where it does not."""

    def __init__(self, pieces: Iterator[bytes], name: str, end: bytes) -> None:
        self.name = name
        self._pieces = pieces
        self._end = end
        self._last = b""

    def read(self, _: int) -> bytes:
        """Return the next bytes, however many; none at the end."""
        for piece in self._pieces:
            if piece:
                self._last = (self._last + piece)[-len(self._end) :] if self._end else b""
                return piece
        missing = self._end if self._last not in {b"", self._end} else b""
        self._last = b""
        return missing
