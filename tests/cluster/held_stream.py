"""A stream with held tasks, during which processes are killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import ftfile
from ftfile.testing.checker import check_directory
from tests.cluster import job
from tests.cluster.cluster import command_of, wait_for
from tests.cluster.job import FILES_PER_BATCH
from tests.demos.files.process import SparkApp
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("HeldStream",)

FILES = 14
ROWS_PER_FILE = 40
OPTIONS = {"fileFormat": "json", "partitionBy": "k", "maxRecordsPerFile": "70", "maxBatchesPerFile": "4"}
SECRET = "secret text"


class HeldStream:
    """The application, its directories, its key ring, and a hold for its tasks.

    Args:
        master: of the cluster, as an address for Spark.
        environment: of the driver.
    """

    def __init__(self, home: Path, master: str, environment: dict[str, str]) -> None:
        self.output, self._hold = home / "out", home / "hold"
        self._home, self._environment, self._log = home, environment, home / "driver.log"
        for name in ("hold", "in", "scratch"):
            (home / name).mkdir()
        self.keys = home / "keys"
        write_ring(self.keys, first=FIRST)
        self.expected: Counter[str] = Counter()
        for number in range(FILES):
            rows = [
                {"id": number * ROWS_PER_FILE + each, "text": SECRET, "k": "xyz"[each % 3]}
                for each in range(ROWS_PER_FILE)
            ]
            text = [json.dumps(row) for row in rows]
            (home / "in" / f"{number:05}.json").write_text("\n".join(text))
            self.expected.update(text)
        names = {"input": "in", "checkpoint": "checkpoint", "output": "out", "hold": "hold", "scratch": "scratch"}
        protection = {"compression": "gzip", "encryption": "aes-gcm", "keyProvider": f"file:{self.keys}"}
        settings = {
            "master": master,
            "options": OPTIONS | protection,
            **{key: str(home / name) for key, name in names.items()},
        }
        (home / "job.json").write_text(json.dumps(settings))
        (self._hold / "now").touch()
        self.app = self._started()

    def _started(self) -> SparkApp:
        return SparkApp(Path(job.__file__), self._home / "job.json", self._log, self._environment)

    def records(self) -> int:
        return len(list((self.output / "_ftfile/log").glob("*.record")))

    def held(self) -> list[int]:
        """The processes of the held tasks."""
        found = (int(path.name.partition("-")[2]) for path in self._hold.glob("held-*"))
        return [process for process in found if command_of(process)]

    def interrupted(self, kill: Callable[[list[int]], None]) -> None:
        """Kill processes while two tasks are in the middle of their rows, and let a batch be committed.

        At most one more batch is committed before the kill is detected: all tasks are held, and only detected ones are
        released.
        """
        self.wait_for(lambda: len(self.held()) >= FILES_PER_BATCH, "tasks that are held")
        before = self.records()
        kill(self.held())

        def is_committed() -> bool:
            self.release()
            return self.records() > before

        self.wait_for(is_committed, "a batch after the kill")

    def driver_dies(self) -> None:
        """Kill the driver with all its processes, and restart it."""
        self.app.kill()
        self.app = self._started()

    def run_to_end(self) -> None:
        (self._hold / "now").unlink()

        def has_ended() -> bool:
            self.release()
            return self.app.exit_code is not None

        wait_for(has_ended, "the end of the input")
        assert self.app.exit_code == 0, self.app.last_words()

    def release(self) -> None:
        for path in self._hold.glob("held-*"):
            path.unlink()

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        def goes_on() -> bool:
            assert self.app.exit_code is None, f"it ended before {what}:\n{self.app.last_words()}"
            return holds()

        try:
            wait_for(goes_on, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.app.last_words()}") from error

    def rows(self) -> Counter[str]:
        """The rows that a reader with the keys sees."""
        found = ftfile.open(self.output, key_provider=f"file:{self.keys}").to_arrow()
        return Counter(json.dumps(row) for row in found.select(["id", "text", "k"]).to_pylist())

    def check(self) -> None:
        """Check that each row is there once, after the end of the input, and that only encrypted files have rows."""
        ftfile.flush(self.output)
        report = check_directory(ftfile.open(self.output).file_system)
        assert report.live_rows == report.visible_rows
        assert self.rows() == self.expected
        files = [path for path in self.output.rglob("*") if path.is_file()]
        assert {path.name.partition(".")[2] for path in files if "_ftfile" not in path.parts} == {"json.gz.enc"}
        assert not any(SECRET.encode() in path.read_bytes() for path in files)
