"""The methods that Spark calls, without a JVM: pickling, settings, messages, the worker's sockets."""

from __future__ import annotations

import gc
import json
import logging
import pickle
import socket
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

import ftfile
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import Transaction
from ftfile.spark import attach
from ftfile.spark.datasource import FtFileDataSource
from ftfile.spark.file_writers import sink_config
from ftfile.spark.settings import absolute_options
from ftfile.spark.workers.tuning import SWITCH, acknowledge_at_once, importing, tune_worker
from ftfile.spark.writers import SessionValues, TaskMessage, stream_task, unwrap
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.spark.pickled import pickled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceReader

SCHEMA = StructType().add("id", LongType()).add("word", StringType())


@pytest.fixture
def written(tmp_path: Path) -> str:
    path = str(tmp_path / "out")
    MicroBatch(path, {"id": "long", "word": "string"}).run(0, [[{"id": 1, "word": "a"}], [{"id": 2, "word": None}]])
    return path


def rows_of(reader: DataSourceReader, partitions: Any) -> list[dict[str, Any]]:
    rows = []
    for partition in partitions:
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize(
    "use",
    [
        lambda source: source.schema(),
        lambda source: source.reader(SCHEMA),
        lambda source: source.writer(SCHEMA, overwrite=False),
        lambda source: source.streamWriter(SCHEMA, overwrite=False),
    ],
    ids=["schema", "read", "batch", "stream"],
)
def test_what_other_processes_cannot_see_is_refused(use: Callable[[FtFileDataSource], object]) -> None:
    # In this process, the storage may contain the files.
    MicroBatch("memory://store/out", {"id": "long", "word": "string"}).run(0, [[{"id": 1, "word": "a"}]])
    with pytest.raises(ConfigError, match=r"memory://store/out.*inside one process"):
        use(FtFileDataSource({"path": "memory://store/out"}))


def test_the_entry_module_is_what_spark_looks_for() -> None:
    import pyspark_ftfile

    assert pyspark_ftfile.DefaultSource.name() == "ftfile"


def test_the_stream_writer_gets_arrow_on_every_spark(tmp_path: Path) -> None:
    writer: Any = FtFileDataSource({"path": str(tmp_path / "out")}).streamWriter(schema=SCHEMA, overwrite=False)
    assert {DataSourceStreamWriter, DataSourceArrowWriter} < set(type(writer).__mro__)
    assert len(pickled(writer)) < 8192


def test_the_reader_reads_after_pickling(written: str) -> None:
    source = FtFileDataSource({"path": written})
    assert source.schema() == SCHEMA
    reader = source.reader(SCHEMA)
    partitions = pickle.loads(pickled(reader.partitions()))
    again = pickle.loads(pickled(reader))
    assert rows_of(again, partitions) == [{"id": 1, "word": "a"}, {"id": 2, "word": None}]


def test_the_reader_stays_at_the_version_it_was_made_for(written: str) -> None:
    reader: Any = FtFileDataSource({"path": written}).reader(SCHEMA)
    MicroBatch(written, {"id": "long", "word": "string"}).run(1, [[{"id": 3, "word": "c"}]])
    assert sum(len(partition.share.ranges) for partition in reader.partitions()) == 2


@parametrize("moment", ["made", "planned"], quick=1)
@pytest.mark.parametrize(
    "maintain", [ftfile.compact, lambda out: ftfile.delete(out, "id = 1")], ids=["compact", "delete"]
)
def test_the_reader_has_the_rows_of_its_version_beside_maintenance(
    written: str, maintain: Callable[[str], object], moment: str
) -> None:
    MicroBatch(written, {"id": "long", "word": "string"}).run(1, [[{"id": 3, "word": "c"}]])
    reader = FtFileDataSource({"path": written}).reader(SCHEMA)
    if moment == "made":
        maintain(written)
    partitions = reader.partitions()
    if moment == "planned":
        maintain(written)
    ftfile.vacuum(written, dry_run=False)
    assert [row["id"] for row in rows_of(reader, partitions)] == [1, 2, 3]


def test_the_reader_takes_columns_by_name(written: str) -> None:
    columns = StructType().add("word", StringType()).add("missing", IntegerType()).add("id", IntegerType())
    reader = FtFileDataSource({"path": written}).reader(columns)
    rows = rows_of(reader, reader.partitions())
    assert rows == [{"word": "a", "missing": None, "id": 1}, {"word": None, "missing": None, "id": 2}]


def test_names_match_whatever_their_case_as_in_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    query = MicroBatch(path, {"Id": "long", "Kind": "string"}, {"fileFormat": "json", "partitionBy": "kind"})
    query.run(0, [[{"Id": 1, "Kind": "a"}]])
    columns = StructType().add("KIND", StringType()).add("id", LongType())
    reader = FtFileDataSource({"path": path}).reader(columns)
    assert rows_of(reader, reader.partitions()) == [{"KIND": "a", "id": 1}]


@pytest.mark.parametrize("path", ["out", "a/b", "./x"])
def test_relative_paths_become_absolute(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = absolute_options({"Path": path, "checkpointLocation": path, "fileFormat": "json"})
    absolute = str((tmp_path / path).resolve())
    assert found == {"Path": absolute, "checkpointLocation": absolute, "fileFormat": "json"}


def test_paths_of_ftfile_know_the_home_directory_and_those_of_spark_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home-of-the-driver")
    monkeypatch.chdir(tmp_path)
    found = absolute_options({"path": "~/out", "stateLocation": "~/state", "checkpointLocation": "~/checkpoint"})
    assert found == {
        "path": "/home-of-the-driver/out",
        "stateLocation": "/home-of-the-driver/state",
        "checkpointLocation": f"{tmp_path}/~/checkpoint",
    }


@pytest.mark.parametrize("path", ["/x", "file:/x", "hdfs://nn/x"])
def test_absolute_paths_stay(path: str) -> None:
    assert absolute_options({"path": path}) == {"path": path}


def test_transactions_are_refused_for_streams() -> None:
    options = {"path": "/x", "txnAppId": "a", "txnVersion": "1"}
    assert sink_config(options, SCHEMA, overwrite=False, stream=False).common.transaction == Transaction("a", 1)
    with pytest.raises(ConfigError, match="for batch writes, as in foreachBatch"):
        sink_config(options, SCHEMA, overwrite=False, stream=True)


def test_a_path_inside_one_process_is_refused() -> None:
    with pytest.raises(ConfigError, match="inside one process"):
        sink_config({"path": "memory://x"}, SCHEMA, overwrite=False, stream=True)


def test_a_missing_message_stays_missing() -> None:
    (task,) = MicroBatch("memory://messages", {"id": "long"}).run_tasks(0, [[{"id": 1}]])
    assert task is not None
    messages = pickle.loads(pickle.dumps([TaskMessage(task), None]))
    assert unwrap(messages) == [task, None]


def test_a_task_without_spark_says_so() -> None:
    with pytest.raises(ConfigError, match="no Spark task here"):
        stream_task()


def test_acknowledging_at_once_leaves_connections_as_they_are() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            acknowledge_at_once()
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            client.sendall(b"still open")
            assert accepted.recv(20) == b"still open"


def test_nothing_is_tuned_where_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def noted(call: str) -> list[int]:
        calls.append(call)
        return []

    monkeypatch.setattr("ftfile.spark.workers.tuning.is_worker", lambda: True)
    monkeypatch.setattr("ftfile.spark.workers.tuning._freeze_modules", lambda: calls.append("frozen"))
    monkeypatch.setattr("ftfile.spark.workers.tuning._sockets", lambda: noted("sockets"))
    was_enabled = []

    def use() -> None:
        tune_worker()
        acknowledge_at_once()
        with importing():
            was_enabled.append(gc.isenabled())
        assert gc.isenabled()

    use()
    assert (calls, was_enabled) == (["frozen", "sockets"], [False])
    monkeypatch.setenv(SWITCH, "false")
    use()
    assert (calls, was_enabled) == (["frozen", "sockets"], [False, True])


def test_programs_of_users_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: pytest.fail("frozen"))
    tune_worker()
    tune_worker()
    with importing():
        assert gc.isenabled()


def test_what_a_task_gets_first_acknowledges_at_once(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    calls: list[str] = []
    monkeypatch.setattr("ftfile.spark.shipping.acknowledge_at_once", lambda: calls.append("at once"))
    source = FtFileDataSource({"path": written})
    for made in (
        source.reader(SCHEMA),
        source.streamReader(SCHEMA),
        source.writer(SCHEMA, overwrite=False),
        source.streamWriter(SCHEMA, overwrite=False),
    ):
        shipped = pickled(made)
        assert not calls
        assert type(pickle.loads(shipped)).__name__ == type(made).__name__
        assert calls.pop() == "at once"


def test_attach_is_not_for_clients_of_spark_connect() -> None:
    class Session:
        """A session without a JVM, like a Spark Connect session."""

        range = None

    session: Any = Session()
    with pytest.raises(ConfigError, match=r"a Spark Connect session is only a client .* call ftfile.flush\(path\)"):
        attach(session)


def test_a_stream_whose_checkpoint_is_not_known_is_warned_before_its_first_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = StructType().add("id", LongType())

    def warned(out: str, batch: int = 0, **more: str) -> bool:
        caplog.clear()
        writer: Any = FtFileDataSource({"path": str(tmp_path / out), **more}).streamWriter(schema, overwrite=False)
        with pytest.raises(FtfileError):
            writer.commit([None], batch)
        return "the writer has no option checkpointLocation" in caplog.text

    assert warned("out")
    assert not warned("out", checkpointLocation=str(tmp_path / "checkpoint"))
    MicroBatch(str(tmp_path / "out"), {"id": "long"}).run(0, [[{"id": 1}]])
    assert warned("out")  # the first batch of another query
    assert not warned("out", batch=1)


def test_the_checkpoint_that_tasks_were_told_is_that_of_their_query(tmp_path: Path) -> None:
    """Tasks read it from a property of their thread, which may belong to another query."""
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long"})
    for batch, query_id, recorded in ((0, str(query.identity(0).query_id), True), (1, "another", False)):
        checkpoint = tmp_path / f"checkpoint-{batch}"
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": query_id}))
        (checkpoint / "offsets" / f"{batch}").write_text('v1\n{}\n{"at":7}')
        (task,) = query.run_tasks(batch, [[{"id": batch}]])
        assert task is not None
        writer: Any = FtFileDataSource({"path": out}).streamWriter(StructType().add("id", LongType()), overwrite=False)
        writer.commit([TaskMessage(task, SessionValues(checkpoint=f"file:{checkpoint}"))], batch)
        (known,) = CommitLog(open_filesystem(out)).refresh().queries.values()
        assert (known.last_batch, known.offsets_hash is not None) == (batch, recorded)


def test_the_option_goes_before_the_sessions_text(tmp_path: Path) -> None:
    for batch, options in enumerate(({}, {"userMetadata": "of the write"})):
        (task,) = MicroBatch(str(tmp_path), {"id": "long"}).run_tasks(batch, [[{"id": batch}]])
        source = FtFileDataSource({"path": str(tmp_path), **options})
        writer: Any = source.streamWriter(StructType().add("id", LongType()), overwrite=False)
        writer.commit([TaskMessage(task, SessionValues(user_metadata="of the session"))], batch)
    assert [version.user_metadata for version in ftfile.open(tmp_path).history()] == ["of the session", "of the write"]


@pytest.mark.parametrize("attached", [False, True])
def test_files_that_stay_open_are_a_warning_where_nothing_ends_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attached: bool
) -> None:
    caplog.set_level(logging.INFO, "ftfile")
    options = {"path": str(tmp_path), "fileFormat": "json", "rolling": "policy"}
    (task,) = MicroBatch(options["path"], {"id": "long"}, options).run_tasks(0, [[{"id": 1}]])
    assert task is not None
    writer: Any = FtFileDataSource(options).streamWriter(StructType().add("id", LongType()), overwrite=False)
    writer.commit([TaskMessage(task, SessionValues(is_attached=attached))], 0)
    ((level, text),) = [(line.levelno, line.message) for line in caplog.records if "in progress" in line.message]
    assert level == (logging.INFO if attached else logging.WARNING)
    assert text.endswith("1 files are in progress") if attached else "ftfile.spark.attach(spark), called before" in text
