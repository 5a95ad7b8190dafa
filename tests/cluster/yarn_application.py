"""An application on YARN with its directories on HDFS, and the check of its rows and words."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import ftfile
from ftfile import kv
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.cluster import yarn_job
from tests.cluster.held_commit import PREFIX
from tests.demos.files.hdfs_path import HdfsPath

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.yarn import Yarn
    from tests.hdfs.minicluster import MiniCluster

__all__ = ("Application",)

FILES = 4
ROWS_PER_FILE = 10
WORDS = ("in", "each", "file", "is", "each", "word", "in", "order")


class Application:
    """An application with its directories on HDFS.

    Attributes:
        name: of the application.
        home: the directory of `spark-submit`, with `application.py`.
        store: the URL of the store for the words.

    Args:
        yarn: runs it.
        hdfs: the file system.
        home: an empty directory, whose name is the name of the application.
        variables: the environment of `spark-submit`, without PYSPARK_PYTHON.
    """

    def __init__(self, yarn: Yarn, hdfs: MiniCluster, home: Path, variables: dict[str, str]) -> None:
        self.name, self.home = home.name, home
        self._yarn = yarn
        self._variables = variables
        self._urls = [f"{hdfs.url}/{self.name}/{kind}" for kind in ("in", "out", "checkpoint")]
        self.store = f"{hdfs.url}/{self.name}/words"
        self._output = HdfsPath(hdfs.pages, hdfs.url, f"/{self.name}/out")
        self._rows = range(0)
        shutil.copy(yarn_job.__file__, home / "application.py")
        open_filesystem(f"{hdfs.url}/").make_directories(f"{self.name}/in")
        self.extend_input(FILES)

    def extend_input(self, files: int) -> None:
        """Write more files, until the input has this number."""
        for number in range(len(self._rows) // ROWS_PER_FILE, files):
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            lines = "".join(json.dumps({"id": row, "word": word_of(row)}) + "\n" for row in ids)
            open_filesystem(f"{self._urls[0]}/").create_exclusive(f"{number}.json", lines.encode())
        self._rows = range(files * ROWS_PER_FILE)

    def hold_commits(self) -> None:
        """Write through the driver of `tests.cluster.held_commit`."""
        self._urls[1] = f"{PREFIX}{self._output}"

    def start(self, python: str, *options: str, more: Sequence[str] = ()) -> None:
        """Run `spark-submit` with these options, and more arguments of the application."""
        variables = self._variables | {"PYSPARK_PYTHON": python}
        arguments = [*options, "application.py", *self._urls, *more]
        self._yarn.submit(self.name, self.home, variables, arguments)

    def run(self, python: str, *options: str, more: Sequence[str] = ()) -> None:
        """Run `spark-submit` to its end."""
        self.start(python, *options, more=more)
        self._yarn.wait_for_end(self.name)

    def batches(self) -> int:
        """Return the number of committed batches."""
        log = self._output / "_ftfile/log"
        if not log.exists():
            return 0
        return sum(file.name.endswith(".record") for file in log.iterdir())

    def newest_run(self) -> str | None:
        """Return the id of the run that wrote the newest version, as the history names it."""
        directory = ftfile.open(str(self._output))
        [newest] = directory.history(limit=1)
        return directory.version_details(newest.version).run_id

    def check_words(self) -> None:
        """Check that the store has the exact count of each word."""
        with kv.open(self.store) as store:
            counts = {row["word"]: row["n"] for batch in store.scan() for row in batch.to_pylist()}
        assert counts == Counter(map(word_of, self._rows))

    def check(self) -> None:
        """Check that each row is there once, for a plain reader and for ftfile, and the log and its files."""
        rows: Counter[int] = Counter()
        for file in self._output.visible_files():
            rows.update(json.loads(line)["id"] for line in file.read_text("utf-8").splitlines())
        assert rows == Counter(self._rows)
        assert Counter(ftfile.open(str(self._output)).to_arrow().column("id").to_pylist()) == Counter(self._rows)
        report = check_directory(open_filesystem(str(self._output)))
        assert report.live_rows == report.visible_rows


def word_of(row: int) -> str:
    return WORDS[row % len(WORDS)]
