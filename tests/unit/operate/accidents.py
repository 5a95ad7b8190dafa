"""Accidents to a directory: the programs of a shell, `ftfile`, and a Spark job, as named in `accidents.txt`.

`python -m tests.unit.operate.accidents` plays all accidents and prints docs/internals/accidents.md.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.kv.operator.store import KeyValueStore
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.files.file_writer import forget_caches
from tests.unit.tools.cli.running import invoke

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = (
    "BATCHES",
    "PAGE",
    "SCENES",
    "Scene",
    "as_after_long",
    "commands",
    "is_as_shown",
    "on_terminal",
    "sections",
    "shown_outputs",
    "to_markdown",
)

COLUMNS = {"id": "long", "month": "string"}
BATCHES = 3
# The first position of other queries.
OTHERS = 1000
DAY_MS = 86_400_000
GOES_ON = {"onNewQuery": "continue"}
QUERY = "00000000-0000-0000-0000-{:012d}"
# Accidents that need a log so long that a vacuum deletes records.
LONG = {"All log checkpoints are lost, and old records are gone"}
# The programs that the page may use to damage or repair a directory.
PROGRAMS = frozenset({"chmod", "cp", "find", "mkdir", "mv", "rm", "rmdir", "touch"})
CHANGING = (
    (" +$", ""),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", "2026-11-22 19:07:52"),
    (r"\d+(\.\d)? (s|min|h|d) ago", "3 s ago"),
    (r"in \d+(\.\d)? (s|min|h|d)\b", "3 s ago"),  # if the clock jumped back
    (r"\b\d{7,} s\b", "3 s"),
    (r"\b\d+\.\d s old\b", "3 s old"),
    (r"\b[0-9a-f]{12}\b", "c8be2bf32d91"),
    (r"\b[0-9a-f]{32}\b", "0" * 32),
    (r"crc32:[0-9a-f]{8}", "crc32:bdd898d6"),
    (r"^(durability +)\w+$", r"\g<1>none"),
    (r"^(seconds +)\d+\.\d+$", r"\g<1>0.123"),
    (r"^(writer +)\S+@\S+ *$", r"\g<1>spark@node-1"),
    (r"\s+", " "),  # the page wraps its lines
)


def sections(page: str) -> dict[str, str]:
    """Return the text below each heading of the second level."""
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page, each with its output."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


# The commands of each accident, by the title of the accident.
SCENES = {
    title: re.findall(r"^\$ (.*)$", text, flags=re.MULTILINE)
    for title, text in sections(Path(__file__).with_suffix(".txt").read_text()).items()
}
PAGE = Path(__file__).parents[3] / "docs/internals/accidents.md"
HEAD = """\
# Accidents

This page shows the commands that damage and repair a directory in each accident, and their output.
[Disaster recovery](../disaster-recovery.md) explains the repairs. `make docs` writes this page: it runs the commands of
`tests/unit/operate/accidents.txt`. `unit/operate/test_accidents.py` also runs them and compares their output with this
page. It repeats them without hints, with several queries, with open files, and in encrypted directories.

A query has written three batches, 0 to 2, to `/data/out`. Its checkpoint is `/data/checkpoint`, and `/backup` has a
copy from before batch 2. `spark-submit job.py` runs the next batch of the query. After it, `onGap=accept` is an option
of the sink, and `startingOffset=3` is the offset at which its source starts. `spark-submit full.py` runs the batch on
a full disk. `python counts.py` prints the window after which its store resumes, and ends another window. `...` replaces
omitted lines.
"""
# Modules that call `is_terminal`.
PRINTING = ("terminal", "output", "check_commands", "inspect_commands", "row_formats")


def to_markdown(scenes: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Return the page with the commands of each accident, and their outputs."""
    parts = [HEAD]
    for title, steps in scenes.items():
        console = "".join(f"$ {command}\n{output}" for command, output in steps)
        parts.append(f"## {title}\n\n```console\n{console}```\n")
    return "\n".join(parts)


def settled(text: str) -> str:
    """Return an output without the parts that differ between runs."""
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text.strip()


def is_as_shown(output: str, shown: str) -> bool:
    """Return True if an output is equal to the output on the page, where a line of three dots replaces some lines."""
    pieces = [settled(piece) for piece in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    return re.fullmatch(r".*?".join(map(re.escape, pieces)).replace(r"\ ", " "), settled(output)) is not None


@contextlib.contextmanager
def on_terminal() -> Iterator[None]:
    """Set the terminal of programs to a width of 100 columns."""
    with contextlib.ExitStack() as stack:
        for module in PRINTING:
            stack.enter_context(mock.patch(f"ftfile.tools.cli.{module}.is_terminal", return_value=True))
        stack.enter_context(mock.patch.dict("os.environ", COLUMNS="100"))
        yield


@contextlib.contextmanager
def as_after_long(title: str) -> Iterator[None]:
    """For accidents that need it, write a log checkpoint and a range at each commit, and delete young records."""
    with contextlib.ExitStack() as stack:
        if title in LONG:
            stack.enter_context(mock.patch("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0))
            stack.enter_context(mock.patch("ftfile.log.publish.COMPACTED_EVERY", 1))
            stack.enter_context(mock.patch("ftfile.log.garbage.RECORD_AGE_MIN_MS", 0))
        yield


class Scene:
    """A directory at `/data/out`, which a query has written, and a copy of it without the last batch.

    The source of the query has a row at each position for two months. Batch N of the first query reads position N. For
    accidents that need them, a query also writes a store of words, and windows write a store of counts.
    """

    def __init__(self, root: Path, title: str, options: Mapping[str, str] | None = None, *, queries: int = 1) -> None:
        self.root = root
        script = "\n".join(SCENES[title])
        self.options = {"fileFormat": "json", "partitionBy": "month", **(options or {})}
        self._checkpoints = 0
        for batch in range(BATCHES):
            self._job({})
            for number in range(2, queries + 1):
                self._query(f"/data/other-{number}", QUERY.format(1000 * number), GOES_ON).run(
                    batch, rows(number * 1000)
                )
            if batch == BATCHES - 2:
                shutil.copytree(self.at("/data/out"), self.at("/backup/out"))
        for batch in range(BATCHES) if "/data/words" in script else ():
            self._words().run(batch, [[{"word": word, "n": 1} for word in (f"batch{batch}", "all")]])
        if "/data/counts" in script:
            _told(lambda: self._count(committed=1))
            _told(self._count)

    def at(self, path: str) -> Path:
        """Return the path on this machine for a path on the page."""
        return self.root / path.lstrip("/")

    def do(self, command: str) -> str:
        """Run a command of the page. Return its output, with the exit code unless it is 0."""
        words = shlex.split(command)
        settings = dict(word.split("=", 1) for word in words[2:] if re.match(r"\w+=", word))
        if words[0] in {"spark-submit", "python"}:
            counts = functools.partial(self._count, restore=settings.get("restore"))
            programs: dict[str, Callable[[], object]] = {
                "job.py": lambda: self._job(settings),
                "full.py": self._full,
                "counts.py": counts,
            }
            return self._shown(_told(programs.get(words[1], self._add_word)))
        if words[0] == "faketime":
            with _ahead(int(words[1].removeprefix("+").removesuffix(" days")) * DAY_MS):
                return self.do(shlex.join(words[2:]))
        if words[0] == "ftfile":
            return self._ftfile(words[1:])
        assert words[0] in PROGRAMS, command
        here = re.sub(r"(?<![\w.])/(data|backup)\b", rf"{self.root}/\1", command)
        done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, check=False)
        return self._shown(done.stdout + done.stderr)

    def read(self) -> Counter[int]:
        """Return how often ftfile's reader returns each position of the first query's source."""
        forget_caches()
        found = ftfile.open(str(self.at("/data/out"))).to_arrow()["id"].to_pylist()
        return Counter(position for position in found if position < OTHERS)

    def seen(self) -> Counter[int]:
        """Return how often a program that lists the directory returns each position."""
        out = self.at("/data/out")
        files = [
            path for path in out.rglob("*.json") if not any(part[0] in "_." for part in path.relative_to(out).parts)
        ]
        found = [json.loads(line)["id"] for path in files for line in path.read_text().splitlines()]
        return Counter(position for position in found if position < OTHERS)

    def _ftfile(self, words: list[str]) -> str:
        forget_caches()
        found = [str(self.at(word)) if re.match(r"/(data|backup)\b", word) else word for word in words]
        result = invoke(found)
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        code = f"# ends with {result.exit_code}\n" if result.exit_code else ""
        return self._shown(result.output) + code

    def _job(self, options: dict[str, str]) -> None:
        """Run the next batch of the query in a new process."""
        start = self.at("/data/checkpoint/start")
        if not start.exists():
            self._checkpoints += 1
            start.parent.mkdir(parents=True)
            start.write_text(f"{self._checkpoints} {options.get('startingOffset', 0)}")
        number, first = map(int, start.read_text().split())
        options = {name: value for name, value in options.items() if name != "startingOffset"}
        query = self._query("/data/checkpoint", QUERY.format(number), options)
        query.restart()
        batch = query.next_batch()
        query.run(batch, rows(first + batch))

    def _query(self, checkpoint: str, query_id: str, options: dict[str, str]) -> MicroBatch:
        out = str(self.at("/data/out"))
        return MicroBatch(out, COLUMNS, self.options | options, query_id, checkpoint=str(self.at(checkpoint)))

    def _full(self) -> None:
        """Run the next batch on a disk without space."""
        with mock.patch("ftfile.storage.local.os.write", side_effect=OSError(errno.ENOSPC, "")):
            self._job({})

    def _add_word(self) -> None:
        self._words().run(BATCHES, [[{"word": "all", "n": 1}]])

    def _words(self) -> StoreBatch:
        forget_caches()
        options = {"keyColumns": "word", "merge": "n:sum", "buckets": "1"}
        return StoreBatch(str(self.at("/data/words")), {"word": "string", "n": "long"}, options)

    def _count(self, *, committed: int | None = None, restore: str | None = None) -> None:
        """End another window in a new process, and record the windows up to a number."""
        forget_caches()
        settings: dict[str, Any] = {
            "keys": {"word": "string"},
            "values": {"n": "bigint"},
            "merge": "sum",
            "writer": "counts",
        }
        last = None if restore is None else int(restore)
        store = KeyValueStore(str(self.at("/data/counts")), restore=last, **settings)
        print(f"goes on behind window {store.last_window}")
        window = max(store.last_window + 1, 1)
        store.begin_window(window)
        store.merge(f"window{window}", 1)
        store.end_window()
        if committed is not None:
            store.committed(committed)
        store.close()

    def _shown(self, text: str) -> str:
        return text.replace(f"file://{self.root}", "file://").replace(str(self.root), "")


def rows(position: int) -> list[list[dict[str, Any]]]:
    """Return the rows at a position of the source, for two tasks."""
    months = ("7", "8") if position < BATCHES or position >= OTHERS else ("8", "9")
    return [[{"id": position, "month": month}] for month in months]


def _told(run: Callable[[], object]) -> str:
    """Return the output of a program, including the error with which it ends."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            run()
        except FtfileError as error:
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


@contextlib.contextmanager
def _ahead(ahead_ms: int) -> Iterator[None]:
    """Set the storage's clock ahead."""
    now_ms = round(time.time() * 1000) + ahead_ms
    with mock.patch("ftfile.log.vacuum.storage_now_ms", return_value=now_ms):
        yield


def shown_outputs() -> dict[str, list[tuple[str, str]]]:
    """Return the commands of each accident on the page, with their outputs."""
    return {title: list(commands(text)) for title, text in sections(PAGE.read_text()).items()}


def main() -> None:
    """Print the page with new outputs. Outputs that are still correct stay, with their omitted lines."""
    page = shown_outputs()
    scenes: dict[str, list[tuple[str, str]]] = {}
    for title, script in SCENES.items():
        before = page.get(title, [])
        with tempfile.TemporaryDirectory(dir="/tmp") as root, on_terminal(), as_after_long(title):
            scene = Scene(Path(root), title)
            steps = [(command, scene.do(command)) for command in script]
        for number, (command, output) in enumerate(steps):
            shown = before[number] if number < len(before) else ("", "")
            if shown[0] == command and is_as_shown(output, shown[1]):
                steps[number] = shown
        scenes[title] = steps
    sys.stdout.write(to_markdown(scenes))


if __name__ == "__main__":
    main()
