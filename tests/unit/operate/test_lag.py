"""The lag of queries: their checkpoints, and the unread versions and files of sources that ftfile reads."""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError, HistoryGone, Unavailable
from ftfile.log.opening import open_log
from ftfile.operate import lag
from ftfile.read.log_positions import check_position
from ftfile.storage.registry import WrapperFileSystem, register
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.testing.source_run import SourceRun
from ftfile.writing.spark_checkpoint import CHECKPOINTS, read_progress
from tests.hostile.forging import ANY, forge
from tests.kit.files_run import FilesRun
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.commit_log import CommitLog
    from ftfile.operate.lag import CheckpointStatus
    from ftfile.storage.api import FileSystem
    from ftfile.storage.paths import Location

QUERY = "00000000-0000-0000-0000-000000000001"
KAFKA = {"events": {"0": 1350, "1": 17}}


@dataclass
class Sink:
    """A query with a checkpoint, whose offsets tests write."""

    place: Path

    @property
    def out(self) -> str:
        return str(self.place / "out")

    @property
    def checkpoint(self) -> Path:
        return self.place / "checkpoint"

    def query(self, **options: Any) -> MicroBatch:
        return MicroBatch(self.out, {"id": "long"}, {"fileFormat": "json"}, **options)

    def plan(self, batch: int, *offsets: object, version: int = 1) -> None:
        """Write the file of a batch as Spark does; in version 2, sources have names."""
        about = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": {}}
        named = (f"{number if version > 1 else ''}{':' if version > 1 else ''}" for number in range(len(offsets)))
        lines = [f"{name}{json.dumps(offset)}" for name, offset in zip(named, offsets, strict=True)]
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (self.checkpoint / f"offsets/{batch}").write_text("\n".join([f"v{version}", json.dumps(about), *lines]))

    def run(self, *batches: int) -> None:
        for batch in batches:
            self.query(checkpoint=str(self.checkpoint)).run(batch, [[{"id": batch}]])

    def status(self, **arguments: Any) -> CheckpointStatus:
        (query,) = ftfile.open(self.out).status(**arguments).queries
        assert query.checkpoint is not None
        return query.checkpoint


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


def test_a_batch_that_is_under_way(sink: Sink) -> None:
    sink.plan(1, KAFKA)
    sink.run(0, 1)
    found = sink.status()
    assert (found.path, found.problem) == (f"file://{sink.checkpoint}", "")
    assert (found.planned_batch, found.committed_batch, found.under_way) == (1, 1, False)
    sink.plan(2, KAFKA)
    found = sink.status()
    assert (found.planned_batch, found.planned_ms, found.committed_batch) == (2, 1_700_000_000_002, 1)
    assert found.under_way


@pytest.mark.parametrize("version", [1, 2])
def test_sources_of_others_have_what_was_read_alone(sink: Sink, version: int) -> None:
    sink.plan(0, KAFKA, {"logOffset": 7}, 1_700_000_000, None, version=version)
    sink.run(0)
    sources = sink.status().sources
    assert [(each.source, each.kind, each.offset) for each in sources] == [
        (0, "kafka", KAFKA),
        (1, "other", {"logOffset": 7}),
        (2, "other", 1_700_000_000),
        (3, "other", None),
    ]
    assert "only Kafka has" in sources[0].unknown
    assert all("ftfile_source_backlog" in each.unknown for each in sources)


@pytest.mark.parametrize("offset", [{"kind": {"0": 5}}, {"a": {"0": 1}, "kind": {"0": 5, "1": -1}}])
def test_topics_may_have_any_name(sink: Sink, offset: object) -> None:
    sink.plan(0, offset)
    sink.run(0)
    assert [each.kind for each in sink.status().sources] == ["kafka"]


@pytest.mark.parametrize("offset", [{"shard-0": {"iteratorType": "LATEST"}}, {"a": {}}, {}, "-"])
def test_what_is_no_topic_is_of_another_source(sink: Sink, offset: object) -> None:
    sink.plan(0, offset)
    sink.run(0)
    assert [each.kind for each in sink.status().sources] == ["other"]


def test_files_that_are_left_to_read(sink: Sink) -> None:
    """The counts are equal to `source_status` with the options in the state."""
    place = sink.place / "in"
    place.mkdir()
    (place / "a.log").write_text("one\n")
    options = {"fileFormat": "text", "filePattern": r".*\.log", "checkpointLocation": str(sink.checkpoint)}
    source = FilesRun(str(place), {"value": "string"}, options)
    source.run()
    sink.plan(0, json.loads(source.offsets[-1]))
    sink.run(0)
    (found,) = sink.status().sources
    assert (found.kind, found.path, found.files_behind, found.unknown) == ("files", f"file://{place}", 0, "")
    (place / "b.log").write_text("two\n")
    (place / "c.txt").write_text("not read\n")
    (found,) = sink.status().sources
    (same,) = ftfile.source_status(place, checkpointLocation=sink.checkpoint)
    assert (found.files_behind, found.bytes_behind, found.parked, found.refused, found.late) == (1, 4, 0, 0, 0)
    assert (same.files_behind, same.bytes_behind, same.path) == (1, 4, found.path)
    assert found.oldest_unread_ms == same.oldest_unread_ms
    shutil.rmtree(sink.checkpoint / "ftfile-source")
    (found,) = sink.status().sources
    assert found.files_behind is None
    assert "stateLocation" in found.unknown


@pytest.mark.slow
def test_versions_that_are_left_to_read(sink: Sink, tmp_path: Path) -> None:
    """The query follows one of several given directories."""
    followed, other = (MicroBatch(str(tmp_path / name), {"id": "long"}, {"fileFormat": "json"}) for name in "ab")
    for query in (followed, other):
        query.run(0, [[{"id": 1}]])
    source = SourceRun(followed.path, {"id": "long"})
    source.run()
    sink.plan(0, json.loads(source.offsets[-1]))
    sink.run(0)
    for batch in (1, 2):
        followed.run(batch, [[{"id": 1}]])
    (found,) = sink.status().sources
    assert (found.kind, found.versions_behind) == ("ftfile", None)
    assert "give it" in found.unknown
    (found,) = sink.status(sources=[other.path, followed.path]).sources
    assert (found.path, found.versions_behind, found.unknown) == (f"file://{followed.path}", 2, "")
    (found,) = sink.status(sources=[other.path]).sources
    assert (found.versions_behind, "none of the directories" in found.unknown) == (None, True)
    with pytest.raises(ConfigError, match="no log"):
        sink.status(sources=[str(tmp_path / "nowhere")])
    sink.plan(1, {"kind": "start"})
    (found,) = sink.status().sources
    assert "no batch read it" in found.unknown


@pytest.mark.slow
def test_versions_that_another_directory_has_forgotten_are_not_those_that_are_followed(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed, other = (MicroBatch(str(tmp_path / name), {"id": "long"}, {"fileFormat": "json"}) for name in "ab")
    for query in (followed, other):
        query.run(0, [[{"id": 1}]])
    source = SourceRun(followed.path, {"id": "long"})
    source.run()
    sink.plan(0, json.loads(source.offsets[-1]))
    sink.run(0)

    def check(log: CommitLog, *arguments: Any) -> None:
        if str(log.refresh().nonce) == open_log(other.path, Access()).refresh().nonce:
            raise HistoryGone("version 1 must be read next, and the oldest version that vacuum has kept is 100")
        check_position(log, *arguments)

    monkeypatch.setattr(lag, "check_position", check)
    (found,) = sink.status(sources=[other.path, followed.path]).sources
    assert (found.path, found.versions_behind) == (f"file://{followed.path}", 0)
    (found,) = sink.status(sources=[other.path]).sources
    assert "oldest version that vacuum has kept" in found.unknown


def lose_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()


def tear_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text("{")


def exchange(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_text('{"id": "another"}')


def go_back(checkpoint: Path) -> None:
    for directory in ("offsets", "commits"):
        (checkpoint / directory / "1").unlink()


def empty(checkpoint: Path) -> None:
    for directory in ("offsets", "commits"):
        shutil.rmtree(checkpoint / directory)


def go_on(checkpoint: Path) -> None:
    for directory in ("offsets", "commits"):
        shutil.copy(checkpoint / directory / "1", checkpoint / directory / "2")


@parametrize(
    ("change", "problem"),
    [
        (shutil.rmtree, "it does not exist"),
        (lose_metadata, "it does not exist"),
        (tear_metadata, "names no query"),
        (exchange, "belongs to another query, another"),
        (go_back, "it ends with batch 0, but the directory with batch 1"),
        (empty, "it ends with no batch, but the directory with batch 1"),
        (go_on, "it has completed batch 2, but the directory ends with batch 1"),
    ],
    quick=3,
)
def test_checkpoints_with_a_problem(sink: Sink, change: Callable[[Path], None], problem: str) -> None:
    sink.run(0, 1)
    assert sink.status().problem == ""
    change(sink.checkpoint)
    assert problem in sink.status().problem


def test_a_batch_that_ends_meanwhile_is_no_problem(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may end after the log was read, or it may start and end after the checkpoint was read."""
    sink.run(0)
    for moment in ("before", "after"):
        batch, real = {"before": 1, "after": 2}[moment], read_progress

        def read(*arguments: Any, moment: str = moment, batch: int = batch, real: Any = real) -> Any:
            found = real(*arguments) if moment == "after" else None
            sink.run(batch)
            return found or real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(lag, "read_progress", read)
            assert sink.status().problem == ""


class Silent(WrapperFileSystem):
    """Blocks until its event is set."""

    answers = threading.Event()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        del operation, path
        self.answers.wait(30)
        return call()


@pytest.mark.slow
def test_a_checkpoint_that_does_not_answer_holds_nothing_up(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoints of other queries are read."""
    monkeypatch.setattr(lag, "LOOK_S", 0.2)
    sink.run(0)
    other = MicroBatch(sink.out, {"id": "long"}, {"fileFormat": "json", "onNewQuery": "continue"}, query_id="other")
    other.checkpoint = str(sink.place / "other")
    other.run(0, [[{"id": 1}]])
    answers = threading.Event()

    def read_late(url: str, *arguments: Any) -> object:
        if url.endswith("/other"):
            answers.wait(30)
        return read_progress(url, *arguments)

    monkeypatch.setattr(lag, "read_progress", read_late)
    began_s = time.monotonic()
    try:
        first, last = ftfile.open(sink.out).status().queries
        took_s = time.monotonic() - began_s
    finally:
        answers.set()
    assert took_s < 2.5
    assert first.checkpoint is not None
    assert last.checkpoint is not None
    assert (first.checkpoint.planned_batch, first.checkpoint.problem) == (0, "")
    assert (last.checkpoint.planned_batch, "did not answer" in last.checkpoint.problem) == (None, True)


@pytest.mark.slow
def test_places_that_are_given_hold_it_up_no_longer(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "LOOK_S", 0.2)
    sink.run(0)
    with mounted(Silent(open_filesystem(sink.out))) as url:
        Silent.answers.clear()
        began_s = time.monotonic()
        try:
            for given in ({"sources": [url]}, {"checkpoints": [url]}):
                with pytest.raises(Unavailable, match="did not answer within"):
                    sink.status(**given)
            took_s = time.monotonic() - began_s
        finally:
            Silent.answers.set()
    assert took_s < 5


def test_many_queries(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the checkpoints of the queries that wrote last are read."""
    monkeypatch.setattr(lag, "CHECKPOINTS_MAX", 1)
    for number in range(2):
        query = sink.query(query_id=str(number), checkpoint=str(sink.place / str(number)))
        query.options = {**query.options, "onNewQuery": "continue"}
        query.run(0, [[{"id": 1}]])
    first, last = (query.checkpoint for query in ftfile.open(sink.out).status().queries)
    assert first is not None
    assert last is not None
    assert ("it was not read" in first.problem, last.problem) == (True, "")


def test_places_that_no_record_has(sink: Sink, tmp_path: Path) -> None:
    sink.query().run(0, [[{"id": 1}]])
    (query,) = ftfile.open(sink.out).status().queries
    assert query.checkpoint is None
    sink.plan(0, KAFKA)
    (sink.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    assert sink.status(checkpoints=[str(sink.checkpoint)]).planned_batch == 0
    with pytest.raises(ConfigError, match="not a readable checkpoint"):
        sink.status(checkpoints=[str(tmp_path / "nowhere")])
    exchange(sink.checkpoint)
    with pytest.raises(ConfigError, match=f"the checkpoint of query another; the queries that wrote here are {QUERY}"):
        sink.status(checkpoints=[str(sink.checkpoint)])


def test_a_place_that_is_given_goes_before_the_one_recorded(sink: Sink) -> None:
    sink.run(0)
    sink.checkpoint.rename(sink.place / "moved")
    assert "it does not exist" in sink.status().problem
    assert sink.status(checkpoints=[str(sink.place / "moved")]).planned_batch == 0


@pytest.mark.parametrize("url", ["memory://elsewhere/checkpoint", "file://host/checkpoint", "checkpoint:"])
def test_a_place_on_another_storage_is_not_looked_at(sink: Sink, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.run(0)
    forge(Path(sink.out), ("tables", "checkpoints", "set", ANY), url)
    monkeypatch.setattr(lag, "read_progress", None)
    status = sink.status()
    assert (status.path, status.planned_batch) == (url, None)
    assert "give its path as one of checkpoints" in status.problem


def test_nobody_looks_unless_asked(sink: Sink) -> None:
    sink.run(0)
    (query,) = ftfile.open(sink.out).status(lag=False).queries
    assert query.checkpoint is None


def test_the_place_is_recorded_once(sink: Sink) -> None:
    """It is recorded again if it changes. A log checkpoint contains the place after the records are deleted."""
    sink.run(0, 1)
    log = open_log(sink.out, Access())

    def changes_of(version: int) -> dict[str, Any]:
        record = log.read_record(version)
        assert record is not None
        return record.tables

    changes = [changes_of(version) for version in (0, 1)]
    assert changes == [{CHECKPOINTS: {"set": {QUERY: f"file://{sink.checkpoint}"}}}, {}]
    sink.query(checkpoint=str(sink.place / "moved")).run(2, [[{"id": 2}]])
    assert CHECKPOINTS in changes_of(2)
    assert sink.status().path == f"file://{sink.place}/moved"


@pytest.mark.slow
def test_a_query_that_writes_a_store(sink: Sink, tmp_path: Path) -> None:
    """The place of the checkpoint is recorded once, and the unread input is counted, as for a directory."""
    followed = MicroBatch(str(tmp_path / "in"), {"id": "long"}, {"fileFormat": "json"})
    followed.run(0, [[{"id": 1}]])
    source = SourceRun(followed.path, {"id": "long"})
    source.run()
    store = StoreBatch(
        str(tmp_path / "store"), {"k": "string", "n": "long"}, {"keyColumns": "k"}, checkpoint=str(sink.checkpoint)
    )
    for batch in range(2):
        store.run(batch, [[{"k": "a", "n": batch}]])
    sink.plan(2, json.loads(source.offsets[-1]))
    log = open_log(store.path, Access())
    records = [log.read_record(version) for version in range(2)]
    place = f"file://{sink.checkpoint}"
    assert [record and record.tables for record in records] == [{CHECKPOINTS: {"set": {QUERY: place}}}, {}]
    followed.run(1, [[{"id": 2}]])
    status = ftfile.status(store.path, sources=[followed.path])
    (query,) = status.queries
    assert query.checkpoint is not None
    assert (query.checkpoint.path, query.checkpoint.problem, query.checkpoint.planned_batch) == (place, "", 2)
    (read,) = query.checkpoint.sources
    assert (read.kind, read.path, read.versions_behind) == ("ftfile", f"file://{followed.path}", 1)
    assert status.verdict.endswith(f", query {QUERY} has 1 version to read")
    ftfile.kv.compact(store.path, full=True)
    assert ftfile.status(store.path).queries[0].checkpoint is not None


def test_settings_are_for_checkpoints_on_the_storage_of_the_directory(sink: Sink) -> None:
    sink.run(0)
    asked: dict[str, dict[str, str]] = {}

    def opened(location: Location) -> FileSystem:
        asked[f"{location.authority}{location.path}"] = dict(location.settings)
        return open_filesystem(location.path)

    register("asked", opened)
    directory = ftfile.open(f"asked://store{sink.out}", storage={"setting": "1"})
    for host in ("store", "elsewhere"):
        (query,) = directory.status(checkpoints=[f"asked://{host}{sink.checkpoint}"]).queries
        assert query.checkpoint is not None
        assert query.checkpoint.problem == ""
    mine = {f"store{place}": {"setting": "1"} for place in (sink.out, sink.checkpoint)}
    assert asked == mine | {f"elsewhere{sink.checkpoint}": {}}


def test_a_place_that_only_spark_knows_is_not_recorded(sink: Sink) -> None:
    sink.query(checkpoint=None).run(0, [[{"id": 1}]])
    query = sink.query()
    query.options = {**query.options, "checkpointlocation": "relative"}
    query.run(1, [[{"id": 1}]])
    assert ftfile.open(sink.out).status().queries[0].checkpoint is None
