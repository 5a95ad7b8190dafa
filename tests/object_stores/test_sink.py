"""The whole sink on S3: commits, replays, rolling, vacuum, reading back, names of files, and numbers of requests."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, Unsupported
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import BatchWriteAuthor, Body
from ftfile.log.protocol import commit
from ftfile.log.publish import HINT_EVERY
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files import file_writer as sink_writer
from ftfile.writing.files.file_writer import FileSink
from tests.object_stores.servers import BUCKET, client
from tests.object_stores.wire import Wire
from tests.unit.tools.cli.running import documents, run
from tests.unit.writing.files.encrypted import SECOND, forget_all, ring, words_in, write_ring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.testing.checker import DirectoryReport
    from tests.object_stores.servers import Storage

__all__ = ("ring",)

_directories = (f"sink-{number}" for number in itertools.count())

COLUMNS = {"value": "string"}
TEXT = {"fileFormat": "text"}


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    sink_writer.forget_caches()
    yield
    sink_writer.forget_caches()


class Sink:
    """The directory of one test."""

    def __init__(self, storage: Storage, checkpoint: Path) -> None:
        self.storage = storage
        self.directory = next(_directories)
        self.url = f"{storage.url}/{self.directory}"
        self.checkpoint = str(checkpoint)

    def query(self, columns: dict[str, str] = COLUMNS, /, **options: str) -> MicroBatch:
        settings = {f"storage.{name}": text for name, text in self.storage.settings.items()}
        return MicroBatch(self.url, columns, settings | TEXT | options, checkpoint=self.checkpoint)

    def open(self) -> Any:
        return ftfile.open(self.url, storage=self.storage.settings)

    def names(self) -> set[str]:
        """Return all names in the directory, read without the driver."""
        pages = client(self.storage.endpoint).get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        keys = (each["Key"] for page in pages for each in page.get("Contents", ()))
        return {key.partition("/")[2] for key in keys if key.startswith(f"{self.directory}/")}

    def data(self) -> set[str]:
        return {key for key in self.names() if not key.startswith("_ftfile/")}

    def staged(self) -> set[str]:
        return {key for key in self.names() if key.startswith("_ftfile/staged/")}

    def checked(self, *letters: str, direct: bool = False) -> DirectoryReport:
        """Check the directory: a plain lister and ftfile's reader see each of these rows once."""
        report = check_directory(open_filesystem(self.url, settings=self.storage.settings), direct=direct)
        assert report.live_rows == report.visible_rows == Counter(letter.encode() for letter in letters)
        assert sorted(self.open().to_arrow().column("value").to_pylist()) == sorted(letters)
        return report


@pytest.fixture
def sink(storage: Storage, tmp_path: Path) -> Sink:
    return Sink(storage, tmp_path / "checkpoint")


def rows(*letters: str) -> list[dict[str, Any]]:
    return [{"value": letter} for letter in letters]


@pytest.mark.parametrize("publish", ["auto", "direct"])
def test_batches_replays_and_restarts(each_storage: Storage, tmp_path: Path, publish: str) -> None:
    sink = Sink(each_storage, tmp_path / "checkpoint")
    query = sink.query(publish=publish)
    query.run(0, [rows("a"), rows("b")])
    query.run(1, [[], []])
    query.restart()
    assert query.next_batch() == 2
    query.run(2, [rows("c", "d")])
    query.restart()
    assert query.run(2, [rows("d"), rows("c")]).replayed
    report = sink.checked("a", "b", "c", "d")
    assert report.committed == {query.query_id: [0, 1, 2]}
    assert len(sink.data()) == 3
    # The notes by which vacuum finds uncommitted files remain until vacuum deletes them.
    assert {key.rpartition(".")[2] for key in sink.staged()} == ({"finalPath"} if publish == "direct" else set())


def test_encrypted_batches(storage: Storage, tmp_path: Path, ring: Path) -> None:
    """Files of one batch and of two, a replay after a restart, compaction, and a reader with another key."""
    secret = "a secret that nobody may read"
    for rolling in ({}, {"maxBatchesPerFile": "2"}):
        sink = Sink(storage, tmp_path / f"checkpoint-{len(rolling)}")
        query = sink.query(encryption="aes-gcm", keyProvider=f"file:{ring}", compression="gzip", **rolling)
        query.run(0, [rows("a", secret), rows("b")])
        query.restart()
        assert query.run(0, [rows("b"), rows("a", secret)]).replayed
        query.run(1, [rows("c"), rows("d")])
        query.run(2, [rows("e")])
        for finish in (ftfile.flush, ftfile.compact):
            finish(sink.url, storage=storage.settings)
            forget_all()
            assert sorted(sink.open().to_arrow()["value"].to_pylist()) == ["a", secret, "b", "c", "d", "e"]
        check_directory(sink.open().file_system, rows_of=words_in)
        assert {key.partition(".")[2] for key in sink.data()} == {"txt.gz.enc"}
        found = client(storage.endpoint)
        keys = [f"{sink.directory}/{name}" for name in sink.names()]
        assert not any(secret.encode() in found.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys)
        other = tmp_path / "other-keys"
        write_ring(other, first=SECOND)
        with pytest.raises(CorruptData, match="another key has this name"):
            ftfile.open(sink.url, storage=storage.settings, key_provider=f"file:{other}").to_arrow()


def commit_requests(sink: Sink, parts: int, *, like_aws: bool = False, **options: str) -> tuple[Wire, Wire]:
    """Return the requests of the tasks and the commit of a third batch."""
    query = sink.query(**options)
    for batch in range(2):
        query.run(batch, [rows("a")] * parts)
    planned = query.pickled_plan()
    with Wire(sink.storage)() as writing:
        messages = [query.run_task(planned, query.identity(2), part, rows("a")) for part in range(parts)]
    plan = plan_write(FileSink(), query.config(), current())
    with Wire(sink.storage, like_aws=like_aws)() as committing:
        commit_batch(plan.sink, plan.config, messages, 2, current())
    sink.checked(*"a" * 3 * parts)
    return writing, committing


# Reading the newest record, and creating the next one.
PROTOCOL = Counter({"read": 1, "put": 1})


@pytest.mark.parametrize("parts", [1, 8])
def test_what_a_commit_asks_the_storage_for(sink: Sink, parts: int) -> None:
    writing, committing = commit_requests(sink, parts, like_aws=True)
    assert writing.counts() == {"put": parts}
    assert committing.counts() == PROTOCOL + Counter({"copy": parts, "delete": parts})


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({}, {"read": 2, "put": 2, "copy": 1, "delete": 1}),
        ({"rolling": "policy"}, {"read": 2, "put": 2}),
        ({"publish": "direct"}, {"read": 2, "put": 3}),
    ],
)
def test_the_requests_of_a_batch_of_one_file(sink: Sink, options: dict[str, str], requests: dict[str, int]) -> None:
    """Plan, task and commit; at each 16th version, the commit also writes the hint."""
    query = sink.query(**options)
    query.run(0, [rows("a")])
    for batch in range(1, 20):
        with Wire(sink.storage, like_aws=True)() as wire:
            query.run(batch, [rows("a")])
        if batch > 2:
            assert wire.counts() == Counter(requests) + Counter({"put": int(batch == 16)}), batch
    computed = sink.open().status(request_prices=(5, 1)).requests
    assert computed is not None
    sums = {name: sum(getattr(step, name) for step in computed.steps) for name in ("get", "put", "copy", "delete")}
    assert sums == {
        "get": requests["read"],
        "put": requests["put"] + 1 / HINT_EVERY,
        "copy": requests.get("copy", 0),
        "delete": requests.get("delete", 0),
    }
    assert sum(step.cost for step in computed.steps) == 5 * (sums["put"] + sums["copy"]) + sums["get"]
    ftfile.flush(sink.url, storage=sink.storage.settings)
    sink.checked(*"a" * 20, direct="publish" in options)


def test_a_second_writer_is_noticed_by_the_conditional_request(sink: Sink) -> None:
    """The creation of a record fails once; then the commit reads on, and assumes nothing while others write."""
    query = sink.query()
    for batch in range(3):
        query.run(batch, [rows("a")])
    for batch in range(3):
        others = CommitLog(open_filesystem(sink.url, settings=sink.storage.settings))
        commit(others, BatchWriteAuthor(f"other {batch}"), lambda *_: Body())
        with Wire(sink.storage, like_aws=True)() as wire:
            query.run(3 + batch, [rows("a")])
        assert wire.counts()["put"] == (3 if batch == 0 else 2), batch
    sink.checked(*"a" * 6)


def test_what_it_asks_storage_that_keeps_no_conditions_for_copies(sink: Sink) -> None:
    _, committing = commit_requests(sink, 8)
    assert committing.counts() == PROTOCOL + Counter({"look": 8, "read": 8, "put": 8, "delete": 8})


def test_what_it_asks_for_where_names_are_final(sink: Sink) -> None:
    writing, committing = commit_requests(sink, 8, publish="direct")
    assert writing.counts() == {"put": 16}
    assert committing.counts() == PROTOCOL


def test_files_stay_open_over_batches_and_are_assembled(sink: Sink) -> None:
    columns = {"letter": "string", "id": "long"}
    query = sink.query(columns, fileFormat="json", partitionBy="letter", maxRecordsPerFile="4", rolling="policy")
    for batch in range(5):
        query.run(batch, [[{"letter": letter, "id": batch * 2 + task} for letter in "xy"] for task in range(2)])
    assert len(sink.open().files()) >= 2
    ftfile.flush(sink.url, storage=sink.storage.settings)
    assert sorted(sink.open().to_arrow().column("id").to_pylist()) == sorted([*range(10)] * 2)
    assert {file.path for file in sink.open().files()} == sink.data()
    assert all(path.startswith(("letter=x/", "letter=y/")) for path in sink.data())


@pytest.mark.parametrize(
    ("options", "copied", "sent"),
    [
        ({}, 3, 0),
        # The bytes before the segments are too short for a separate part.
        ({"fileFormat": "csv", "header": "true", "nullValue": "-"}, 2, 1),
    ],
    ids=["text", "csv"],
)
def test_large_segments_are_copied_within_the_storage(
    each_storage: Storage, tmp_path: Path, options: dict[str, str], copied: int, sent: int
) -> None:
    sink = Sink(each_storage, tmp_path / "checkpoint")
    query = sink.query(maxBatchesPerFile="3", **options)
    texts = [letter * (3 << 20) for letter in "abcdef"]
    for batch in range(3):
        query.run(batch, [rows(*texts[2 * batch : 2 * batch + 2])])
    assert not sink.data()
    planned = query.pickled_plan()
    with Wire(each_storage)() as wire:
        message = query.run_task(planned, query.identity(3), 0, [])
    commit_batch(FileSink(), query.config(), [message], 3, current())
    assert (wire.counts()["copy part"], wire.counts()["part"]) == (copied, sent)
    head = ["value"] if "header" in options else []
    check_directory(open_filesystem(sink.url, settings=each_storage.settings), rows_of=lambda content: content.split())
    (name,) = sink.data()
    found = client(each_storage.endpoint).get_object(Bucket=BUCKET, Key=f"{sink.directory}/{name}")["Body"].read()
    assert found.decode().split() == head + texts
    assert sink.open().to_arrow()["value"].to_pylist() == texts


@pytest.mark.parametrize("publish", ["copy", "direct"])
def test_compacting_dropping_and_vacuum(sink: Sink, publish: str) -> None:
    query = sink.query(publish=publish)
    for batch, letter in enumerate("abc"):
        query.run(batch, [rows(letter)])
    ftfile.compact(sink.url, storage=sink.storage.settings)
    assert len(sink.open().files()) == 1
    sink.checked("a", "b", "c")
    ftfile.drop(sink.url, "all", storage=sink.storage.settings)
    query.run(3, [rows("d")])
    hidden = [key for key in sink.names() if key.startswith(("_ftfile/staged/", "_ftfile/retired/"))]
    assert len(hidden) >= 3
    vacuum(sink)
    sink.checked("d")
    assert len(sink.data()) == 1
    assert not [key for key in sink.names() if key.startswith(("_ftfile/staged/", "_ftfile/retired/"))]


def vacuum(sink: Sink) -> None:
    # The storage's times are in whole seconds.
    time.sleep(1.1)
    ftfile.vacuum(sink.url, retention="0s", force=True, dry_run=False, storage=sink.storage.settings)


def test_vacuum_finds_what_was_written_under_its_name_and_never_committed(sink: Sink) -> None:
    query = sink.query(publish="direct")
    query.run(0, [rows("a")])
    client(sink.storage.endpoint).put_object(
        Bucket=BUCKET, Key=f"{sink.directory}/part-0000000007-foreign.txt", Body=b"f"
    )
    lost = query.run_tasks(1, [rows("lost")])[0].parts[0].path
    late = query.run_tasks(2, [rows("late")])[0].parts[0].path
    assert {lost, late} < sink.data()
    query.restart()
    query.run(1, [rows("b")])
    vacuum(sink)
    assert not {lost, late} & sink.data()
    assert "part-0000000007-foreign.txt" in sink.data()
    assert sorted(sink.open().to_arrow().column("value").to_pylist()) == ["a", "b"]
    assert not sink.staged()


def test_an_attempt_that_fails_takes_its_files_away(sink: Sink) -> None:
    query = sink.query(publish="direct")
    query.run(0, [rows("a")])
    before = sink.names()
    with pytest.raises(ConnectionError):
        query.run_task(query.pickled_plan(), query.identity(1), 0, rows("b"), error=ConnectionError("executor lost"))
    # The notes by which vacuum finds the files remain until vacuum deletes them.
    assert {key.rpartition(".")[2] for key in sink.names() - before} == {"finalPath"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"publish": "rename"}, "publish=rename: the file system 's3' has no atomic rename"),
        ({"publish": "direct", "rolling": "policy"}, "rolling=policy"),
        ({"publish": "direct", "maxBatchesPerFile": "3"}, "rolling=policy"),
        ({"publish": "direct", "ifExists": "fail", "partFileName": "{batch}"}, "ifExists=fail"),
        ({"publish": "direct", "partFileName": "{number}{ext}"}, "{number}"),
        ({"publish": "direct", "encryption": "aes-gcm", "encryptionKeyId": "k"}, "encryption"),
        ({"publish": "sideways"}, "it takes one of"),
        ({"replication": "2"}, "use storage.replication"),
        ({"storage.replication": "2"}, "no setting storage.replication: its settings are endpoint, region"),
        ({"storage.filePermission": "640"}, "write filePermission"),
        ({"storage.colour": "red"}, "no setting storage.colour: its settings are endpoint, region"),
    ],
)
def test_what_is_refused_at_start(sink: Sink, options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        sink.query(**options).pickled_plan()
    assert not sink.names()


def test_direct_names_say_what_the_template_says(sink: Sink) -> None:
    query = sink.query(publish="direct", partFileName="{name}_{batch:3}_{index:2}{ext}", partPrefix="p")
    with pytest.raises(ConfigError):
        query.pickled_plan()
    query = sink.query(
        {"value": "string", "day": "long"}, publish="direct", partitionBy="day", partFileName="{batch:3}_{index:2}{ext}"
    )
    query.run(0, [[{"value": "a", "day": 1}], [{"value": "b", "day": 1}, {"value": "c", "day": 2}]])
    names = sorted(re.sub("-[0-9a-f]{12}", "-U", path) for path in sink.data())
    assert names == ["day=1/000_00-U.txt", "day=1/000_01-U.txt", "day=2/000_01-U.txt"]


def test_storage_that_ignores_conditions_is_refused_at_start(sink: Sink) -> None:
    with Wire(sink.storage, ignores_conditions=True)(), pytest.raises(Unsupported, match="If-None-Match"):
        sink.query().pickled_plan()
    assert not sink.names()


def test_the_command(sink: Sink) -> None:
    query = sink.query({"month": "string", "value": "string"}, fileFormat="json", partitionBy="month")
    for batch in range(2):
        query.run(batch, [[{"month": month, "value": str(batch)} for month in ("7", "8")]])
    settings = [f"--storage={name}={text}" for name, text in sink.storage.settings.items()]
    assert [each["state"] for each in documents("ls", sink.url, *settings)] == ["published"] * 4
    assert "result\twhole\n" in run("verify", sink.url, "--full", *settings).stdout
    assert documents("tail", sink.url, "-n", 1, *settings) == [{"month": "8", "value": "1"}]
    assert "Merged 4 files" in run("compact", sink.url, *settings).stdout
    assert "no log" in run("ls", f"{sink.url}-nowhere", *settings, code=2).stderr
    assert documents("drop", sink.url, "--where", "month = '7'", "--yes", *settings)[0]["rows_removed"] == 2
    assert documents("status", sink.url, *settings)[0]["version"] == 3
    costs = documents("status", sink.url, "--request-prices", 0.005, 0.0004, *settings)[0]["requests"]
    assert [step["step"] for step in costs["steps"]] == ["plan", "tasks", "commit", "publish"]
    assert "Requests of a batch" in run("status", sink.url, "--request-prices", 0.005, 0.0004, *settings).stdout
    assert "Requests of a batch" in run("report", sink.url, "-o", "-", *settings).stdout
