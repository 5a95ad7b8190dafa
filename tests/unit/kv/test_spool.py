from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ftfile.core.checksum import checksum
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.keys import Keys
from ftfile.kv.definition import DELETE, OP, SET, define
from ftfile.kv.hashing import bucket_name, bucket_number, by_bucket, hash_rows
from ftfile.kv.key_columns import decode_ranges
from ftfile.kv.planning.runs import RunMetadata
from ftfile.kv.run_files import RunSpool
from ftfile.log.format.layout import storage_identity
from ftfile.testing.context import open_filesystem
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.stage import Stage
from tests.unit.kv.documented_run import Documented
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("ring",)

DEFINITION = define(pa.schema([("id", pa.int64()), ("text", pa.string())]), ["id"], buckets=4)


def rows_of(*ids: int, **columns: object) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"text {id_}" for id_ in ids], **columns})


def stage_in(path: Path) -> Stage:
    return Stage(open_filesystem(str(path)), TaskIdentity(OperationIdentity("job"), 0, 0))


def test_runs_lie_in_one_file(tmp_path: Path) -> None:
    spool = RunSpool(stage_in(tmp_path), DEFINITION, Chain())
    deleted = rows_of(4, 5, **{OP: pa.array([SET, DELETE], pa.int8())})
    purges = [((1,), (3,)), ((7,), None)]
    runs = [
        spool.write("b=00000", rows_of(1, 2, 3).to_batches()),
        spool.write("b=00001", deleted.to_batches(max_chunksize=1), purges),
        spool.write("b=00002", [], purges),
    ]
    spool.end()
    content = (tmp_path / runs[0].path).read_bytes()
    assert len(content) == spool.position
    documented = []
    for run in runs:
        piece = content[run.offset : run.offset + run.length]
        assert (run.offset % 64, run.checksum, run.logical_length) == (0, checksum(piece), len(piece))
        documented.append(Documented(piece))
        assert [field["nullable"] for field in documented[-1].fields[:2]] == [False, True]
    assert [len(run.rows) for run in documented] == [run.rows for run in runs] == [3, 2, 0]
    assert documented[1].rows[1] == {"id": 5, "text": "text 5", OP: DELETE}
    metadata = [RunMetadata.from_json({**run.rolling_stats}) for run in runs]
    assert [(run.level, run.deletes) for run in metadata] == [(0, 0), (0, 1), (0, 0)]
    assert [run.plain_bytes for run in metadata] == [3 * (8 + 4 + 6), 2 * (8 + 4 + 6 + 1), 0]
    assert [run.keys for run in metadata] == [((1,), (3,)), ((4,), (5,)), None]
    assert [run.ops for run in metadata] == [1 << SET, 1 << SET | 1 << DELETE, 0]
    assert decode_ranges(runs[2].rolling_stats["purges"]) == tuple(purges)
    assert len({run.id for run in runs}) == 3


def test_filters_go_around_each_run(tmp_path: Path, ring: Path) -> None:
    envelope = Chain((AesGcm("first", Keys.from_reference(f"file:{ring}")),))
    spool = RunSpool(stage_in(tmp_path), DEFINITION, envelope, "none")
    segments = [spool.write("b=00000", rows_of(number).to_batches()) for number in range(2)]
    spool.end()
    content = (tmp_path / segments[0].path).read_bytes()
    assert b"text 0" not in content
    for number, segment in enumerate(segments):
        piece = content[segment.offset : segment.offset + segment.length]
        plain = envelope.decode(piece, storage_identity("segment", segment.path, segment.offset))
        assert len(plain) == segment.logical_length < segment.length
        assert Documented(plain).rows == rows_of(number).to_pylist()
        assert segment.filters == ("aes-gcm",)


@pytest.mark.parametrize("ended", [False, True])
def test_a_discarded_file_is_gone(tmp_path: Path, ended: bool) -> None:
    spool = RunSpool(stage_in(tmp_path), DEFINITION, Chain())
    segment = spool.write("b=00000", rows_of(1).to_batches())
    if ended:
        spool.end()
        assert (tmp_path / segment.path).exists()
    spool.discard()
    assert not (tmp_path / segment.path).exists()


def test_rows_go_to_the_bucket_of_their_hash_in_their_order() -> None:
    rows = rows_of(*range(100))
    found = dict(by_bucket(rows, DEFINITION))
    assert [*found] == [bucket_name(number) for number in range(4)]
    hashes = hash_rows([rows["id"].combine_chunks()])
    for name, table in found.items():
        ids = [id_ for id_, hashed in enumerate(hashes.tolist()) if hashed % 4 == bucket_number(name)]
        assert table["id"].to_pylist() == ids
    assert not [*by_bucket(rows.slice(0, 0), DEFINITION)]
