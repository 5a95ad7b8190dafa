"""Stores built from runs by hand: batches of writes, merges of neighbours, and the equal dict."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.kv.definition import DELETE, MERGE, OP, SET, StoreDefinition, define, operations, ops_in
from ftfile.kv.fold import fold
from ftfile.kv.hashing import KeyHasher, bucket_name
from ftfile.kv.planning.picker import DEFAULT_PLAN
from ftfile.kv.planning.plan import CompactionPlanner
from ftfile.kv.planning.runs import Run, RunMetadata, place_adds
from ftfile.kv.run.writer import write_run
from ftfile.kv.user_keys import UserKeys
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, BatchWriteAuthor, Body, Origin, Remove
from ftfile.log.protocol import commit
from ftfile.log.sealed import SealedFileSystem
from ftfile.storage.registry import open_filesystem
from tests.kit.store_check import key_at
from tests.unit.kv.runs import Stream, open_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.core.context import Context
    from ftfile.filters.aes_gcm import AesGcm
    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.kv.planning.plan import PlannedCompaction

__all__ = ("COUNTS", "WORDS", "Builder")

WORDS = define(pa.schema([("word", pa.string()), ("seen", pa.int64())]), ["word"], buckets=4)
COUNTS = define(pa.schema([("word", pa.string()), ("n", pa.int64())]), ["word"], buckets=4, merge="n:sum")

Row = tuple[int, Any, Any]  # operation, key and values as users have them


class Builder:
    """Writes a store without its sink: each batch is a record with a run for each bucket."""

    def __init__(
        self,
        path: str,
        definition: StoreDefinition = WORDS,
        *,
        compression: str = "lz4",
        block_bytes: int = 4096,
        encryption: AesGcm | None = None,
        context: Context = SYSTEM,
    ) -> None:
        fs = open_filesystem(path, context)
        if encryption is not None:
            assert encryption.keys is not None
            fs = SealedFileSystem(fs, encryption.keys, encryption.key_id)
        self.path, self.definition = path, definition
        self.log = CommitLog(fs)
        self.settings = structs.replace(DEFAULT_PLAN, flush_runs=4)
        self._encryption = encryption
        self._compression, self._block_bytes = compression, block_bytes
        self._batches = 0

    # ------------------------------------------------------------------------------------------------- what users do
    def put(self, rows: Mapping[Any, Any]) -> int:
        """Commit sets; a value is a tuple where there are several value columns."""
        return self.write([(SET, key, value) for key, value in rows.items()])

    def merge(self, rows: Mapping[Any, Any]) -> int:
        return self.write([(MERGE, key, value) for key, value in rows.items()])

    def delete(self, *keys: Any) -> int:
        return self.write([(DELETE, key, None) for key in keys])

    def purge(self, start: Any, end: Any) -> int:
        prefix = UserKeys(self.definition).prefix
        return self.write([], purges=[(prefix(start), None if end is None else prefix(end))])

    def write(self, rows: Iterable[Row], purges: Sequence[KeyRange] = (), *, overwrite: bool = False) -> int:
        """Commit rows, later ones newer, and purges that end earlier rows; return the version."""
        by_bucket: defaultdict[int, list[Row]] = defaultdict(list)
        for row in rows:
            by_bucket[self.bucket_of(UserKeys(self.definition).to_stored(row[1]))].append(row)
        tables = {
            bucket: fold([self.table(own)], self.definition, is_bottommost=False) for bucket, own in by_bucket.items()
        }
        return self.write_tables(tables, purges, overwrite=overwrite)

    def write_tables(
        self, tables: Mapping[int, pa.Table], purges: Sequence[KeyRange] = (), *, overwrite: bool = False
    ) -> int:
        """Commit sorted rows by bucket; return the version."""
        buckets = range(self.definition.buckets) if purges else sorted(tables)
        empty = self.table([])
        outputs = self.outputs([(bucket_name(bucket), tables.get(bucket, empty)) for bucket in buckets])
        adds = [each.with_metadata(replace(each.metadata, purges=tuple(purges))) for each in outputs]
        return self.record(adds, overwrite=overwrite)

    def record(
        self,
        adds: Sequence[Add] = (),
        removes: Sequence[Add] = (),
        merged: Sequence[Add] = (),
        *,
        overwrite: bool = False,
    ) -> int:
        """Commit new runs, and runs that replace others."""
        encoding = {"format": {"name": "run"}, "filters": [], "partitionBy": [], "store": self.definition.to_json()}

        def prepare(head: Any, _: Any) -> Body:
            at = place_adds(adds, head.version + 1, self.log.clock.now_ms())
            return Body(
                adds=(*at, *merged),
                removes=tuple(map(Remove.of, head.segments.values() if overwrite else removes)),
                overwrite=overwrite,
                encoding=self._encoding,
                schema=f"schema-{self._encoding}",
                definitions={self._encoding: encoding, f"schema-{self._encoding}": self.definition.to_json()["schema"]},
            )

        return commit(self.log, BatchWriteAuthor(self.log.ids.unique()), prepare).version

    # --------------------------------------------------------------------------------------------------------- jobs
    def jobs(self) -> int:
        """Do all compactions that are due; return how many."""
        planner = CompactionPlanner(self.settings, self.definition.key_types, self.log.clock.now_ms())
        due = planner.list_due(self.log.refresh().segments.values())
        for planned in due:
            adds = [*planned.move_runs(self.log.ids), *(self._compacted(planned) if planned.inputs else ())]
            self.record([], [run.add for run in planned.compaction.runs], adds)
        return len(due)

    def _compacted(self, compaction: PlannedCompaction) -> list[Add]:
        """Write the rows of a compaction, a run between two cuts."""
        terms, purges = compaction.terms, [run.metadata.purges for run in compaction.inputs]
        tables = [self.rows_of(run.add) for run in compaction.inputs]
        rows = fold(
            tables, self.definition, is_bottommost=terms.is_bottommost, purges=purges, expired_ms=terms.expired_ms
        )
        keys = [key_at(rows, row, self.definition.keys) for row in range(rows.num_rows)]
        bounds = sorted({0, len(keys), *(bisect_left(keys, cut) for cut in compaction.cuts)})
        bucket = compaction.inputs[0].add.directory_key
        pieces = [(bucket, rows.slice(start, end - start)) for start, end in pairwise(bounds)]
        results = compaction.results(self.outputs(pieces) if pieces else [])
        return [
            compaction.add_of(result.run or self.outputs([(bucket, rows.slice(0, 0))])[0], result.purges)
            for result in results
        ]

    def rows_of(self, add: Add) -> pa.Table:
        """Return the rows of a run."""
        content = self.log.fs.read(add.path)[add.offset : add.offset + add.length]
        if self._encryption is not None:
            decoder = self._encryption.decoder(layout.storage_identity("segment", add.path, add.offset))
            content = decoder.feed(content) + decoder.finish()
        reader = open_run(content)
        return pa.Table.from_batches(reader.scan(), reader.schema)

    # -------------------------------------------------------------------------------------------------------- files
    @property
    def _encoding(self) -> str:
        return checksum(repr(self.definition).encode())[6:]

    def outputs(self, tables: Sequence[tuple[str, pa.Table]]) -> list[Run]:
        """Write sorted rows as runs, one file for all."""
        owner, batch = f"job-{self.log.ids.unique()}", self._batches
        self._batches += 1
        self.log.prepare_directory()
        directory = layout.staged_directory(owner)
        self.log.fs.make_directories(directory)
        path = f"{directory}/{self.log.ids.unique()}.spool"
        keys, found, content = self.definition.keys, [], bytearray()
        for bucket, table in tables:
            stream = Stream()
            write_run(
                stream,
                table.combine_chunks().to_batches(),
                table.schema,
                keys,
                compression=self._compression,
                block_bytes=self._block_bytes,
            )
            stored = bytes(stream.content)
            if self._encryption is not None:
                encoder = self._encryption.encoder(layout.storage_identity("segment", path, len(content)))
                stored = encoder.feed(stored) + encoder.finish()
            add = Add(
                self.log.ids.unique(),
                "segment",
                path,
                None,
                len(stored),
                len(stream.content),
                checksum(stored),
                table.num_rows,
                bucket,
                self._encoding,
                Origin(owner, batch, batch),
                len(content),
                () if self._encryption is None else (self._encryption.name,),
            )
            ends = (key_at(table, 0, keys), key_at(table, -1, keys)) if table.num_rows else None
            deletes = int((operations(table) == DELETE).sum())
            found.append(Run(add, RunMetadata((0, 0), ends, (), ops_in(table), deletes=deletes)))
            content += stored
        with self.log.fs.create(path) as file:
            file.write(content)
        return found

    def bucket_of(self, key: Key) -> int:
        definition = self.definition
        places = [definition.keys.index(name) for name in definition.bucket_by]
        hashed = KeyHasher([definition.schema.field(name).type for name in definition.bucket_by]).hash
        return hashed(tuple(key[place] for place in places)) & definition.buckets - 1

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Return rows in Arrow, in their order."""
        schema, keys = self.definition.schema, len(self.definition.keys)
        full = [(*_tuple(key, keys), *_values(value, len(schema) - keys)) for _, key, value in rows]
        columns = [pa.array([row[place] for row in full], field.type) for place, field in enumerate(schema)]
        if any(op != SET for op, _, _ in rows):
            columns.append(pa.array([op for op, _, _ in rows], pa.int8()))
            return pa.table(columns, names=[*schema.names, OP])
        return pa.table(columns, names=schema.names)


def _tuple(key: Any, count: int) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,) * count


def _values(value: Any, count: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) * count
