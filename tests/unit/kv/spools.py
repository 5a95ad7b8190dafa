"""Runs in files of a stage, as tasks write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ftfile.attempt.message import StagedSegment
from ftfile.core.checksum import Crc32
from ftfile.kv.columns import ops_in
from ftfile.kv.run.writer import write_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.attempt.stage import Stage, StagedFile
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_ranges import KeyRange
    from ftfile.kv.key_values import Key


class Written(NamedTuple):
    segment: StagedSegment
    keys: tuple[Key, Key] | None
    ops: int


class _End:
    def __init__(self, file: StagedFile) -> None:
        self._file = file
        self.crc = Crc32()

    @property
    def position(self) -> int:
        return self._file.position

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.crc.update(data)
        return self._file.write(data)


class PlainSpool:
    """A spool without filters."""

    def __init__(self, stage: Stage, definition: StoreDefinition, block_bytes: int = 1) -> None:
        self._stage = stage
        self._definition = definition
        self._block_bytes = block_bytes
        self._file = stage.create("spool")
        self._runs = 0

    @property
    def position(self) -> int:
        return self._file.position

    def write(self, bucket: str, rows: Iterable[pa.RecordBatch], purges: Sequence[KeyRange] = ()) -> Written:
        assert not purges
        self._file.write(bytes(-self._file.position % 64))
        offset, end, ops = self._file.position, _End(self._file), 0
        batches = iter(rows)
        first = next(batches, None)
        schema = self._definition.schema if first is None else first.schema

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal ops
            for batch in () if first is None else (first, *batches):
                ops |= ops_in(batch)
                yield batch

        summary = write_run(end, counted(), schema, self._definition.keys, block_bytes=self._block_bytes)
        length, self._runs = self._file.position - offset, self._runs + 1
        segment = StagedSegment(
            f"{self._file.id}-{self._runs}",
            self._file.path,
            length,
            length,
            end.crc.text(),
            summary.rows,
            bucket,
            offset=offset,
        )
        keys = (summary.first_key, summary.last_key) if summary.first_key and summary.last_key else None
        return Written(segment, keys, ops)

    def end(self) -> None:
        self._stage.end(self._file)

    def discard(self) -> None:
        self._stage.drop(self._file)
