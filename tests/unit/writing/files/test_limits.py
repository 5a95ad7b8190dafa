"""Bounds of tasks that no other test exceeds: values on both sides of each bound are handled correctly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, EncodingError, NotFound
from ftfile.filters.chain import Chain
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing import fingerprint
from ftfile.writing import stage as staging
from ftfile.writing.files import naming as settings
from ftfile.writing.files import part_writer as encodable
from ftfile.writing.files import segment_joiners as joining
from ftfile.writing.files.segment_joiners import merging_saves
from ftfile.writing.fingerprint import row_hashes
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.stage import Stage
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import OutputStream


LONG_BYTES: int = vars(fingerprint)["_LONG_BYTES"]
DIGITS_MAX: int = vars(settings)["_DIGITS_MAX"]
STRICT_ROUNDS: int = vars(joining)["_STRICT_ROUNDS"]


class VanishingDirectory(WrapperFileSystem):
    """Others take the directory away whenever it was made, for some times."""

    def __init__(self, inner: MemoryFileSystem, times: int) -> None:
        super().__init__(inner)
        self.times = times

    def create(self, path: str) -> OutputStream:
        if self.times:
            self.times -= 1
            raise NotFound("create", path, "its directory is gone")
        return super().create(path)


@pytest.mark.parametrize("more", [-1, 0])
def test_directories_of_the_stage_that_vanish(more: int, request: pytest.FixtureRequest) -> None:
    storage = MemoryFileSystem(request.node.name)
    fs = VanishingDirectory(storage, staging.CREATE_TRIES + more)
    if more < 0:
        storage.make_directories("_ftfile/staged/job")
    stage = Stage(fs, TaskIdentity(OperationIdentity("job"), 0, 0))
    if more < 0:
        assert stage.create("staged").path.startswith("_ftfile/staged/job/")
    else:
        with pytest.raises(NotFound):
            stage.create("staged")


@pytest.mark.slow
def test_more_files_are_closed_than_at_once(tmp_path: Path) -> None:
    directories = 3 * staging.CLOSERS_MAX
    query = MicroBatch(str(tmp_path), {"k": "string", "v": "long"}, {"fileFormat": "json", "partitionBy": "k"})
    query.run(0, [[{"k": str(number), "v": number} for number in range(directories)]])
    assert sorted(ftfile.open(tmp_path).to_arrow()["v"].to_pylist()) == list(range(directories))
    assert len(list(tmp_path.glob("k=*/*.json"))) == directories


@pytest.mark.parametrize("length", [LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, 3 * LONG_BYTES])
def test_values_that_are_hashed_one_by_one_or_together(length: int) -> None:
    values = ["x" * length, "x" * length + "y", "y" * length, "x" * (length - 1) + "y", ""]
    together = row_hashes(pa.record_batch({"a": pa.array(values)}))
    assert len(set(together.tolist())) == len(values)
    alone = [row_hashes(pa.record_batch({"a": pa.array([value])})).tolist()[0] for value in values]
    assert together.tolist() == alone


@pytest.mark.parametrize("digits", [DIGITS_MAX, DIGITS_MAX + 1])
def test_digits_of_a_name(tmp_path: Path, digits: int) -> None:
    options = {"fileFormat": "text", "partFileName": f"part-{{batch:{digits}}}-{{unique}}{{ext}}"}
    query = MicroBatch(str(tmp_path), {"value": "string"}, options)
    if digits > DIGITS_MAX:
        with pytest.raises(ConfigError, match="partFileName"):
            query.run(0, [[{"value": "a"}]])
        return
    query.run(0, [[{"value": "a"}]])
    (file,) = tmp_path.glob("*.txt")
    assert file.name.split("-")[1] == "0" * DIGITS_MAX


@pytest.mark.parametrize("more", [0, 1])
def test_values_that_errors_show(tmp_path: Path, more: int) -> None:
    value = "\n" + "x" * (encodable.SHOWN - 1 + more)
    query = MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"})
    with pytest.raises(EncodingError) as raised:
        query.run(0, [[{"value": value}]])
    assert (repr(value) in str(raised.value)) == (not more)
    assert (f"{value[: encodable.SHOWN]}..."[1:] in str(raised.value)) == bool(more)


def test_frames_are_merged_where_that_makes_them_smaller() -> None:
    chain = Chain.for_reading(["gzip"])
    alike, apart = [chain.frame(b"one line\n" * 20)] * 10, [chain.frame(bytes(range(256)) * 64)] * 2
    whole = chain.frame(b"one line\n" * 200)
    assert len(whole) < joining.MERGED_SHARE_MAX * sum(map(len, alike))
    assert merging_saves(chain, alike)
    large = [chain.frame(SYSTEM.ids.unique().encode() * 2000) for _ in apart]
    assert not merging_saves(chain, large[:1])


@pytest.mark.parametrize("sample_bytes", [1, joining.SAMPLE_BYTES])
@parametrize("rounds", [0, 1, STRICT_ROUNDS], quick=1)
def test_rows_of_compressed_files_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_bytes: int, rounds: int
) -> None:
    """However little is looked at, and however often a strict part is filled up."""
    monkeypatch.setattr("ftfile.writing.files.segment_joiners.SAMPLE_BYTES", sample_bytes)
    monkeypatch.setattr(joining, "_STRICT_ROUNDS", rounds)
    options = {"fileFormat": "json", "compression": "gzip", "rolling": "policy"}
    options |= {"maxBytesPerFile": "300", "strictFileSize": "true"}
    query = MicroBatch(str(tmp_path), {"v": "string"}, options)
    rows = [{"v": f"{number} {SYSTEM.ids.unique()}"} for number in range(60)]
    for batch in range(6):
        query.run(batch, [rows[10 * batch : 10 * batch + 10]])
    ftfile.flush(tmp_path)
    assert sorted(ftfile.open(tmp_path).to_arrow()["v"].to_pylist()) == sorted(row["v"] for row in rows)
    assert all(file.stat().st_size <= 300 or rounds == 0 for file in tmp_path.glob("*.json.gz")), json.dumps(rows)
