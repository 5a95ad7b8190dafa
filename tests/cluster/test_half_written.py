"""Executors killed with a half-written file: on HDFS, and on S3 with credentials in variables that options name."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.cluster import held_files, storage_job
from tests.cluster.cluster import executor_of, kill, wait_for
from tests.cluster.held_files import Order
from tests.demos.files.process import SparkApp
from tests.object_stores import servers
from tests.object_stores.servers import BUCKET, CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cluster.cluster import Cluster
    from tests.cluster.held_files import Held
    from tests.hdfs.minicluster import MiniCluster
    from tests.object_stores.servers import Storage

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
# Names that no client uses by default.
VARIABLES = dict(zip(("STORAGE_ACCESS", "STORAGE_SECRET"), CREDENTIALS.values(), strict=True))
BY_NAME = dict(zip(("accessKeyVariable", "secretKeyVariable"), VARIABLES, strict=True))


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with (
        servers.versity() if servers.VERSITY.exists() else servers.moto() as storage,
        pytest.MonkeyPatch.context() as own,
    ):
        for name, text in VARIABLES.items():
            own.setenv(name, text)
        yield storage


class Stream:
    """A stream of one batch, whose only task stops in the middle of its file.

    Args:
        home: for its input and its checkpoint; does not exist yet.
        orders: a directory.
        url: of the output.
        storage: settings of the file system.
        rows: number of rows.
        row_bytes: of the text of each row.
    """

    def __init__(
        self, home: Path, orders: Path, url: str, storage: Mapping[str, str], rows: int, row_bytes: int
    ) -> None:
        self.url, self.storage, self._home = url, dict(storage), home
        lines = [json.dumps({"id": number, "text": f"{number:07}" * (row_bytes // 7)}) for number in range(rows)]
        (home / "in").mkdir(parents=True)
        (home / "in/all.json").write_text("\n".join(lines))
        self.rows = Counter(lines)
        self.half_bytes = rows * row_bytes * 3 // 4
        self._order = Order(orders, url.partition(":")[0])
        self._order.give(self.half_bytes)

    def job(self) -> dict[str, Any]:
        return {
            "input": str(self._home / "in"),
            "checkpoint": str(self._home / "checkpoint"),
            "output": f"held+{self.url}",
            "options": {"fileFormat": "json"} | {f"storage.{name}": text for name, text in self.storage.items()},
        }

    def held(self) -> Held | None:
        return self._order.held()

    def check(self) -> None:
        """Check that all rows are in the output once, for ftfile and for a plain lister."""
        table = ftfile.open(self.url, storage=self.storage).to_arrow()
        assert Counter(map(json.dumps, table.select(["id", "text"]).to_pylist())) == self.rows
        report = check_directory(open_filesystem(self.url, settings=self.storage))
        assert report.live_rows == report.visible_rows
        assert report.visible_rows.total() == len(self.rows)


def started(home: Path, cluster: Cluster, environment: dict[str, str], streams: list[Stream]) -> SparkApp:
    held_files.install(home / "packages")
    path = os.pathsep.join(map(str, (home / "packages", ROOT / "src", ROOT)))
    more = {"PYTHONPATH": path, held_files.ORDERS: str(home / "orders"), **VARIABLES}
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.sql.files.minPartitionNum": "1",  # each stream is one task and has a separate executor
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.executorEnv.{name}": text for name, text in more.items()},
    }
    job = {"master": cluster.url, "settings": settings, "streams": [stream.job() for stream in streams]}
    (home / "job.json").write_text(json.dumps(job))
    nothing_else = {name: text for name, text in environment.items() if not name.startswith("AWS_")}
    return SparkApp(Path(storage_job.__file__), home / "job.json", home / "driver.log", {**nothing_else, **more})


def uploads(storage: Storage) -> dict[str, int]:
    """Return, by key, the number of bytes in unfinished uploads of the storage."""
    asked = servers.client(storage.endpoint)
    found = {}
    for each in asked.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        parts = asked.list_parts(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"]).get("Parts", [])
        found[each["Key"]] = sum(part["Size"] for part in parts)
    return found


def test_executors_are_killed_with_half_a_file_written(
    cluster: Cluster,
    hdfs: MiniCluster,
    storage: Storage,
    plain_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in VARIABLES.items():
        monkeypatch.setenv(name, text)
    orders = tmp_path / "orders"
    orders.mkdir()
    on_hdfs = Stream(tmp_path / "hdfs", orders, f"{hdfs.url}/half", {}, rows=40, row_bytes=70)
    settings = storage.settings | BY_NAME | {"partSize": "5MiB"}
    on_s3 = Stream(tmp_path / "s3", orders, f"{storage.url}/half", settings, rows=8, row_bytes=MIB)
    # The native driver cannot read the content of an open file, so WebHDFS reads it.
    seen = open_filesystem(f"{hdfs.web_url}/half")
    app = started(tmp_path, cluster, plain_environment, [on_hdfs, on_s3])
    try:

        def held() -> bool:
            assert app.exit_code is None, app.last_words()
            return all(stream.held() for stream in (on_hdfs, on_s3))

        wait_for(held, "files that are half written")
        ours, theirs = on_hdfs.held(), on_s3.held()
        assert ours is not None
        assert theirs is not None
        half = seen.read(ours.path)
        assert len(half) == on_hdfs.half_bytes
        key = f"half/{theirs.path}"
        wait_for(lambda: uploads(storage).get(key) == 5 * MIB, "the part that is sent")
        executors = {executor_of(each.process) for each in (ours, theirs)}
        assert len(executors) == 2
        kill(*executors, *(process for each in executors for process in cluster.python_workers(each)))
        wait_for(lambda: app.exit_code is not None, "the end of the input")
        assert app.exit_code == 0, app.last_words()
    finally:
        app.kill()
    on_hdfs.check()
    on_s3.check()
    # The remains do no harm: a file of a dead writer, and parts of an upload that no client lists.
    assert seen.read(ours.path) == half
    assert uploads(storage)[key] == 5 * MIB
    ftfile.vacuum(on_hdfs.url, retention="0s", force=True, dry_run=False)
    assert ours.path not in {each.path for each in seen.list("_ftfile/staged")}
    on_hdfs.check()
    assert not any(secret in (tmp_path / "driver.log").read_text() for secret in VARIABLES.values())
