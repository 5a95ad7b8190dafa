"""The examples of the pages, run in sequence as a user would paste them."""

from __future__ import annotations

import base64
import os
import re
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ftfile
import ftfile.kv
import ftfile.spark
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Their examples need servers, and demonstrations or tests with servers run them; or a separate test does.
ELSEWHERE = {
    "README.md": "tests/spark/test_readme.py",
    "docs/quick-start.md": "tests/spark/test_readme.py",
    "docs/extending.md": "tests/unit/testing/test_extending.py",
    "docs/test-kit.md": "tests/unit/testing/test_page.py",
    "docs/internals/adr/0002-json-encoder.md": "tests/unit/formats/test_documented.py",
    "docs/kafka.md": "tests/kafka/job.py",
    "docs/keyed-state.md": "tests/spark/test_page_of_stores.py",
    "docs/object-stores.md": "tests/spark/test_on_s3.py",
    "docs/report.md": "tests/unit/tools/report/test_report.py",
    "docs/questions.md": "tests/unit/tools/cli/test_questions.py",
    "docs/running.md": "tests/cluster/test_pipelines.py",
    "docs/tuning.md": "tests/spark/test_launcher.py",
    "docs/python.md": "tests/unit/read/test_python_page.py",
    "docs/python-writing.md": "tests/unit/operate/test_python_writing_page.py",
    "docs/restoring.md": "tests/unit/operate/test_restore.py",
    **{
        f"docs/migrating/{name}.md": "tests/unit/tools/migrate/test_migrate_pages.py"
        for name in ("README", "apex", "delta", "flink", "kafka-connect")
    },
}
# Directories in pages, which are replaced by directories below that of a test.
PLACES = re.compile(r"(?<![\w])/(data|var/log|etc/ftfile|media/mine)/")


def examples(page: str) -> list[str]:
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in blocks]


class Page:
    """A page's examples, the names that they use, and its directory.

    Attributes:
        names: names that the examples use and define.
        home: replaces `/data` and similar directories.
    """

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.home = home
        self.spark = spark
        self.names: dict[str, Any] = {"spark": spark, "ftfile": ftfile, "pc": pc}

    def run(self, *blocks: str) -> None:
        """Run examples. Queries of an example read all existing rows before the next example."""
        for block in blocks:
            exec(compile(PLACES.sub(f"{self.home}/", block), "page", "exec"), self.names)
            for query in self.spark.streams.active:
                query.processAllAvailable()

    def write(self, columns: dict[str, str], rows: list[dict[str, Any]], **options: str) -> None:
        """Write each row as a separate batch below `out`."""
        query = MicroBatch(str(self.home / "out"), columns, options)
        for batch, row in enumerate(rows):
            query.run(batch, [[row]])

    def write_months(self) -> None:
        """Write a row a month, in eight versions."""
        rows = [{"id": 10 * month, "name": "a", "month": month} for month in range(1, 9)]
        self.write({"id": "long", "name": "string", "month": "integer"}, rows, partitionBy="month")

    def stream(self, columns: dict[str, str], row: dict[str, Any]) -> None:
        """Set `df` to a stream of one row."""
        MicroBatch(str(self.home / "in"), columns, {}).run(0, [[row]])
        self.names["df"] = self.spark.readStream.format("ftfile").load(str(self.home / "in"))


@pytest.fixture
def page(spark: SparkSession, tmp_path: Path) -> Iterator[Page]:
    """A page whose directory is empty."""
    yield Page(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_directories_and_names(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.names["path"] = str(page.home / "out")
    page.write({"value": "string"}, [{"value": "two\nlines"}], fileFormat="text", badRecords="deadLetter")
    page.run(*examples("docs/directories-and-names.md"))
    assert "two\\nlines" in capsys.readouterr().out
    batch = pa.RecordBatch.from_pydict({"country": ["ch", None]})
    assert page.names["ByCountry"]({"unknown": "xx"}).paths(batch).to_pylist() == ["ch", "xx"]


def test_cluster(page: Page) -> None:
    page.run(*examples("docs/cluster.md"))


def test_export(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_months()
    page.stream({"id": "long"}, {"id": 1})
    once, option, _, read = examples("docs/export.md")
    page.run(once, option, read)
    assert capsys.readouterr().out.startswith("ExportReport(version=7, ")


def test_monitoring(page: Page) -> None:
    page.write_months()
    page.stream({"id": "long"}, {"id": 1})
    page.names["path"] = str(page.home / "out")
    of_session, of_directory, metadata = examples("docs/monitoring.md")
    page.run(of_session.replace("9464", "0"), of_directory, metadata)
    assert page.names["monitor"].url
    ftfile.spark.unlisten(page.spark)
    page.spark.conf.unset("spark.ftfile.userMetadata")


def test_restoring(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_months()
    page.run(*examples("docs/restoring.md"))
    restored, undone = capsys.readouterr().out.splitlines()
    assert restored == "0 files come back, 0 are removed, 0 are missing"
    assert undone.startswith("version 7 would be undone: ")
    assert ftfile.open(page.home / "out").history()[-1].operation == "undo"


def test_migrating(page: Page) -> None:
    source, out = page.home / "in", page.home / "out"
    source.mkdir()
    for number in (1, 2):
        (source / f"{number}.json").write_text(f'{{"id": {number}, "day": "2024-07-01"}}\n')
        if number == 1:
            frame = page.spark.readStream.schema("id long, day date").json(str(source))
            writer = frame.writeStream.partitionBy("day").option("checkpointLocation", f"{page.home}/checkpoint")
            writer.trigger(availableNow=True).format("parquet").start(str(out)).awaitTermination()
    page.run(*examples("docs/migrating/spark.md"))
    assert sorted(ftfile.open(str(out)).to_arrow()["id"].to_pylist()) == [1, 2]


def test_encryption(page: Page) -> None:
    key = os.urandom(32)
    (page.home / "keys").write_text(f"2024-07 {base64.b64encode(key).decode()}\n")
    (page.home / "keys").chmod(0o600)
    page.stream({"word": "string"}, {"word": "secret"})
    write, read, parquet = examples("docs/encryption.md")
    page.run(write, read)
    assert ftfile.open(str(page.home / "out")).to_arrow().to_pylist() == [{"word": "secret"}]
    page.names |= {"pyarrow": pa, "base64": base64, "AESGCM": AESGCM, "KEYS": {"2024-07": key}}
    page.run(parquet)
    query = MicroBatch(
        str(page.home / "parquet"),
        {"word": "string"},
        {"encryption": "parquet", "keyProvider": f"file:{page.home}/keys", "encryptionKeyId": "2024-07"},
    )
    query.run(0, [[{"word": "hidden"}]])
    (part,) = (page.home / "parquet").glob("*.parquet*")
    crypto = pe.CryptoFactory(lambda _: page.names["Kms"]())
    keys = crypto.file_decryption_properties(pe.KmsConnectionConfig())
    assert pq.read_table(part, decryption_properties=keys).to_pylist() == [{"word": "hidden"}]


def test_following(page: Page) -> None:
    page.write_months()
    page.run(*examples("docs/following.md"))
    assert ftfile.open(str(page.home / "next")).count() == 8
    assert page.names["batch"].num_rows


def test_an_encoder(page: Page) -> None:
    module, write = examples("docs/formats/binary.md")
    package = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0], "my_package")
    package.mkdir()
    (package / "encoders.py").write_text(module)
    page.stream({"sensor": "long", "value": "double"}, {"sensor": 7, "value": 0.5})
    page.run(write)
    (part,) = (page.home / "out").glob("*.readings*")
    assert struct.unpack("<qd", part.read_bytes()[4:]) == (7, 0.5)


def test_hdfs(page: Page) -> None:
    page.stream({"word": "string"}, {"word": "a"})
    page.run(*examples("docs/hdfs.md"))
    ftfile.spark.detach(page.spark)


def test_maintenance(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_months()
    page.run(*examples("docs/maintenance.md"))
    assert "well: version 7, 8 files, 0 open segments, 8 rows, content read" in capsys.readouterr().out
    directory = ftfile.open(str(page.home / "out"))
    assert sorted(directory.to_arrow()["id"].to_pylist()) == [10, 20, 30, 40, 50, 60, 80]
    assert (directory.history()[-1].operation, directory.history()[-1].replaces) == ("delete", "id = 70")
    (purge,) = re.findall(r"`(ftfile\.vacuum\(out, retention=[^`]*)`", (DOCS / "maintenance.md").read_text())
    assert sum(file.kind == "retired" for file in eval(purge, page.names).files) == 1


def test_operator(page: Page) -> None:
    class Source:
        def windows(self, after: int) -> list[SimpleNamespace]:
            assert after == -1
            return [SimpleNamespace(number=number, words=["to", "be", "to"]) for number in range(61)]

    page.names["source"] = Source()
    page.run(*examples("docs/operator.md"))
    with ftfile.kv.open(str(page.home / "counts")) as counts:
        assert counts.get("to") == 122


def test_reading_files(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    (page.home / "app").mkdir()
    (page.home / "app" / "a.log").write_text("one\ntwo\n")
    orders = page.home / "incoming" / "monday" / "orders"
    orders.mkdir(parents=True)
    (orders / "a.json").write_text('{"id": 1}\n')
    page.run(*examples("docs/reading-files.md"))
    assert ftfile.open(str(page.home / "lines")).count() == 2
    assert page.names["orders"].isStreaming
    assert capsys.readouterr().out == "0 None ()\n"


def test_reading_with_spark(page: Page) -> None:
    page.write_months()
    page.run(*examples("docs/reading-with-spark.md"))
    assert page.names["df"].count() == 2
    assert page.names["july"].count() == 1


def test_repair(page: Page) -> None:
    page.write_months()
    page.run(*examples("docs/repair.md"))


def test_a_job_of_a_scheduler(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files continue from run to run: a run has two rows, a file three, and due files end without another batch."""
    *_, job = examples("docs/running.md")
    paths = [str(page.home / name) for name in ("in", "out", "checkpoint")]
    monkeypatch.setattr("sys.argv", ["job.py", *paths])
    (page.home / "in").mkdir()
    finished, left_open = [], []
    for run in range(3):
        (page.home / f"in/{run}.json").write_text(f'{{"word": "{run} a"}}\n{{"word": "{run} b"}}\n')
        page.run(job)
        directory = ftfile.open(paths[1])
        finished.append([file.rows for file in directory.files()])
        left_open.append(sum(file.rows for file in directory.status().open))
    assert (finished, left_open) == ([[], [3], [3, 3]], [2, 1, 0])
    assert sorted(directory.to_arrow()["word"].to_pylist()) == [f"{run} {word}" for run in range(3) for word in "ab"]


def test_rolling(page: Page) -> None:
    page.names |= {name: str(page.home / name) for name in ("out", "checkpoint")}
    page.stream({"word": "string"}, {"word": "a"})
    page.run(*examples("docs/rolling.md"))
    ftfile.spark.detach(page.spark)
    policy = page.names["AtMidnight"]()
    evening, morning = (SimpleNamespace(first_ms=number * 3_600_000) for number in (23, 24))
    assert policy.reason_to_end(evening, 24 * 3_600_000) == "midnight"
    assert policy.reason_to_end(morning, 47 * 3_600_000) is None


def test_a_cell_that_starts_a_query_may_run_twice(page: Page) -> None:
    """As in docs/running.md, on notebooks."""
    page.stream({"word": "string"}, {"word": "a"})
    cell = """
query = df.writeStream.format("ftfile").option("checkpointLocation", "/data/checkpoint").start("/data/out")
"""
    page.run(cell)
    first = page.names["query"]
    page.run(cell)
    assert not first.isActive
    assert page.names["query"].isActive
    assert ftfile.open(str(page.home / "out")).to_arrow().to_pylist() == [{"word": "a"}]


def test_every_page_with_examples_is_run() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    shown = {str(page.relative_to(ROOT)) for page in pages if "```python" in page.read_text()}
    here = set(re.findall(r'examples\("(.*?)"\)', Path(__file__).read_text()))
    assert shown == here | {*ELSEWHERE}
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())
