"""Files of other programs on a local disk, the ranges of plans in these files, and the rows of ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.filters.chain import codec
from ftfile.source.contents import fingerprints
from ftfile.source.decode import rows_of_share
from ftfile.source.plan import Range, SourcePlan
from ftfile.source.settings import FileDecoding
from ftfile.storage.api import lasting_identity
from ftfile.storage.registry import open_filesystem
from ftfile.testing.context import current

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem

__all__ = ("LINE", "Files", "packed")

LINE = pa.schema([("value", pa.string())])


def packed(name: str, *pieces: bytes) -> bytes:
    """Return pieces that a codec has compressed, each as a separate member."""
    data = b""
    for piece in pieces:
        stream = codec(name).encoder("")
        data += stream.feed(piece) + stream.finish()
    return data


@dataclass
class Files:
    """A directory of files of other programs."""

    root: Path

    @property
    def fs(self) -> FileSystem:
        return open_filesystem(str(self.root), current())

    def write(self, path: str, content: bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def range(self, path: str, start: int = 0, end: int | None = None, **fields: Any) -> Range:
        """Return a range as a plan contains it; by default, it ends at the end of the file."""
        content = (self.root / path).read_bytes()
        end = len(content) if end is None else end
        found = fingerprints(lambda offset, length: content[offset : offset + length], end)
        assert found is not None
        info = self.fs.stat(path)
        identity = lasting_identity(info.identity)
        return Range(path, start, end, *found, info.size_bytes, info.modified_ms, identity, **fields)

    def whole(self, path: str) -> Range:
        return self.range(path, whole=True)

    def batches(self, ranges: list[Range], schema: pa.Schema, decoding: FileDecoding) -> list[pa.RecordBatch]:
        shares = SourcePlan(tuple(ranges)).shares(decoding.max_partition_bytes)
        return [batch for share in shares for batch in rows_of_share(self.fs, share, schema, decoding)]

    def rows(self, ranges: Range | list[Range], schema: pa.Schema, decoding: FileDecoding) -> list[tuple[Any, ...]]:
        """Return the rows of ranges, task by task."""
        ranges = [ranges] if isinstance(ranges, Range) else ranges
        batches = self.batches(ranges, schema, decoding)
        assert all(batch.schema.equals(schema) for batch in batches)
        return [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]

    def lines(self, ranges: Range | list[Range], **options: Any) -> list[str]:
        return [row[0] for row in self.rows(ranges, LINE, FileDecoding("text", **options))]
