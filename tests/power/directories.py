"""Workloads of directories of files: queries, a program of `ftfile.writer` and maintenance."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

import ftfile
from ftfile.formats.columnar import RowSegments
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.sealed import open_with_keys
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.applications import application_of
from tests.power.workload import Workload
from tests.unit.writing.files.encrypted import FIRST, ring_text

if TYPE_CHECKING:
    import random
    from collections.abc import Hashable, Iterable

    from ftfile.operate.writers.application_writer import DirectoryWriter

__all__ = ("Encrypted", "Partitioned", "Plain", "Rolled", "check_findings")

COLUMNS = {"id": "long", "word": "string"}
SCHEMA = pa.schema({"id": pa.int64(), "word": pa.string()})
PROGRAM = "program"
STEPS = 24
Kind = Literal["batch", "program", "delete", "compact", "flush", "vacuum"]
WEIGHTS: dict[Kind, int] = {"batch": 10, "program": 8, "delete": 3, "compact": 3, "flush": 2, "vacuum": 2}


@dataclass(frozen=True)
class Step:
    """A step, and the state of the directory after it.

    Attributes:
        first: the first id that is written or deleted.
        last: the end of these ids.
        number: of the batch.
        live: the ids in the directory.
        position: of the program.
    """

    kind: Kind
    first: int
    last: int
    number: int
    live: frozenset[int]
    position: int


class Directory(Workload):
    """A directory into which a query and a program write, and from which rows are deleted."""

    options: dict[str, str]
    formats: tuple[str, ...] = ("json", "parquet")
    is_plain = True  # whether readers without ftfile can read all rows

    def draw(self, drawn: random.Random) -> None:
        self.format = drawn.choice(self.formats)
        self.options = {"fileFormat": self.format} | self.more_options(drawn)
        self.has_checkpoint = drawn.random() < 0.5
        self.list: list[Step] = []
        live: frozenset[int] = frozenset()
        next_id, batch, position = 0, 0, 0
        for number in range(STEPS):
            kind: Kind = drawn.choices([*WEIGHTS], [*WEIGHTS.values()])[0] if number else "batch"
            first = next_id
            if kind in {"batch", "program"}:
                next_id += drawn.randrange(1, 40)
                live |= frozenset(range(first, next_id))
            if kind == "delete":
                first = drawn.randrange(next_id)
                live -= frozenset(range(first, first + 5))
            last = first + 5 if kind == "delete" else next_id
            position = next_id if kind == "program" else position
            self.list.append(Step(kind, first, last, batch, live, position))
            batch += kind == "batch"
        self.steps = STEPS
        self.query: MicroBatch | None = None
        self.program: DirectoryWriter | None = None

    def more_options(self, drawn: random.Random) -> dict[str, str]:  # noqa: ARG002
        """Return the options of a kind of directories."""
        return {}

    @property
    def path(self) -> str:
        """Return the path of the directory."""
        return f"{self.place}/out"

    @property
    def access(self) -> dict[str, Any]:
        """Return the arguments with which readers and maintenance open the directory."""
        return {}

    def perform(self, number: int) -> None:
        step = self.list[number]
        if step.kind == "batch":
            rows = rows_of(step)
            self.opened_query().run(step.number, [rows[::2], rows[1::2]])
        elif step.kind == "program":
            self.write_by_program(step)
        elif step.kind == "delete":
            ftfile.delete(self.path, f"id >= {step.first} and id < {step.last}", **self.access)
        elif step.kind == "compact":
            ftfile.compact(self.path, **self.access)
        elif step.kind == "flush":
            ftfile.flush(self.path, **self.access)
        else:
            ftfile.vacuum(self.path, retention="0s", force=True, dry_run=False, **self.access)

    def opened_query(self) -> MicroBatch:
        """Return the query of this process."""
        if self.query is None:
            checkpoint = f"{self.place}/checkpoint" if self.has_checkpoint else None
            self.query = MicroBatch(self.path, COLUMNS, self.options, checkpoint=checkpoint)
        return self.query

    def write_by_program(self, step: Step) -> None:
        """Write the rows, unless the position is after them."""
        if self.program is None:
            options: dict[str, Any] = {"file_format": self.format} | self.program_options()
            self.program = ftfile.writer(self.path, PROGRAM, threads=1, **options)
        before = next((one.position for one in self.list[: self.list.index(step)][::-1]), 0)
        position = self.program.position or 0
        assert position in {before, step.position}, f"position {position}, not {before} or {step.position}"
        if position == before:
            rows = rows_of(step)
            self.program.write(pa.Table.from_pylist(rows, schema=SCHEMA))
            self.program.commit(step.position)

    def program_options(self) -> dict[str, Any]:
        """Return the options of the program."""
        return {}

    def close(self) -> None:
        if self.program is not None:
            self.program.close()

    def check(self, done: int, *, tried: bool) -> None:
        before = self.list[done - 1] if done else Step("batch", 0, 0, -1, frozenset(), 0)
        after = self.list[done] if tried else before
        if not done and not (self.place / "out" / layout.record_path(0)).exists():
            assert not self.visible_ids(), "rows are visible without a record"
            return
        fs = open_with_keys(self.path, current(), self.access.get("key_provider"), ())
        head = CommitLog(fs).refresh()
        if done or head.encoding is not None:
            found = Counter(ftfile.open(self.path, **self.access).to_arrow()["id"].to_pylist())
        else:
            found = Counter()
        check_once(found, "the reader of ftfile")
        assert set(found) in (before.live, after.live), describe(set(found), before.live, after.live)
        if self.is_plain:
            self.check_plainly(before, after, tried=tried)
        application = application_of(head, PROGRAM)
        position = int(application.position or 0) if application is not None else 0
        assert position in {before.position, after.position}, f"position {position}, not {after.position}"
        if before.position != after.position:
            assert (position == after.position) == (set(found) == after.live), "the position differs from the rows"
        check_directory(fs, rows_of=self.rows_in, old_names=self.second_names() if self.keeps_old_names else ())
        report = ftfile.open(self.path, **self.access).verify(full=True)
        check_findings(report, tried=tried, keeps_old_names=self.keeps_old_names)

    def second_names(self) -> set[str]:
        """Return the paths of the files with several names."""
        root = self.place / "out"
        names = set()
        for path in root.rglob("*"):
            if path.is_file() and path.stat().st_nlink > 1:
                names.add(str(path.relative_to(root)))
        return names

    def check_plainly(self, before: Step, after: Step, *, tried: bool) -> None:
        """Check the rows for a reader that reads all visible files."""
        visible = Counter(self.visible_ids())
        check_once(visible, "a plain reader")
        extra = set(visible) - (before.live | after.live)
        assert not extra, f"a plain reader sees {sorted(extra)[:5]}, which are not in the directory"
        if not tried or after.kind in {"batch", "program"}:
            self.check_complete(set(visible), before)

    def check_complete(self, visible: set[int], step: Step) -> None:
        """Check that a plain reader sees each acknowledged row."""
        missing = step.live - visible
        assert not missing, f"a plain reader misses {sorted(missing)[:5]}, and {len(missing)} rows in all"

    def visible_ids(self) -> list[int]:
        """Return the ids in all visible files, read without ftfile."""
        found: list[int] = []
        root = self.place / "out"
        for path in sorted(root.rglob(f"*.{self.format}")):
            if not any(name.startswith(("_", ".")) for name in path.relative_to(root).parts):
                found += ids_in(self.format, path.read_bytes())
        return found

    def rows_in(self, content: bytes) -> Iterable[Hashable]:
        """Return the rows of a file, or of a segment of an open file."""
        if self.format == "parquet" and not content.startswith(b"PAR1"):
            batches = RowSegments(SCHEMA).decode(content, "segment", SCHEMA)
            return [number for batch in batches for number in batch["id"].to_pylist()]
        return ids_in(self.format, content)


class Plain(Directory):
    """Each batch makes files."""

    name = "plain"


class Partitioned(Directory):
    """Files are in the directories of partitions."""

    name = "partitioned"

    def more_options(self, drawn: random.Random) -> dict[str, str]:  # noqa: ARG002
        return {"partitionBy": "word"}

    def program_options(self) -> dict[str, Any]:
        return {"partition_by": ["word"]}


class Rolled(Directory):
    """Files stay open over batches, so plain readers see rows later."""

    name = "rolled"

    def more_options(self, drawn: random.Random) -> dict[str, str]:
        return {"maxRecordsPerFile": str(drawn.randrange(20, 80)), "rolloverInterval": "10min"}

    def program_options(self) -> dict[str, Any]:
        return {"max_records_per_file": int(self.options["maxRecordsPerFile"]), "rollover_interval": "10min"}

    def check_complete(self, visible: set[int], step: Step) -> None:
        if step.kind == "flush":
            super().check_complete(visible, step)


class Encrypted(Rolled):
    """Files and the log are encrypted; the key file is on the disk."""

    name = "encrypted"
    is_plain = False

    def prepare(self) -> None:
        keys = self.place / "keys"
        keys.write_text(ring_text(first=FIRST))
        keys.chmod(0o600)

    @property
    def access(self) -> dict[str, Any]:
        return {"key_provider": f"file:{self.place}/keys"}

    def opened_query(self) -> MicroBatch:
        self.options |= {"encryption": "aes-gcm", "keyProvider": self.access["key_provider"]}
        return super().opened_query()

    def program_options(self) -> dict[str, Any]:
        return super().program_options() | {"encryption": "aes-gcm", **self.access}


def rows_of(step: Step) -> list[dict[str, Any]]:
    """Return the rows of a batch or of a commit of the program."""
    return [{"id": number, "word": "ab"[number % 2]} for number in range(step.first, step.last)]


def ids_in(file_format: str, content: bytes) -> list[int]:
    """Return the ids in a file."""
    if file_format == "json":
        return [json.loads(line)["id"] for line in content.splitlines()]
    found: list[int] = pq.ParquetFile(pa.BufferReader(content)).read(["id"])["id"].to_pylist()
    return found


def check_once(found: Counter[int], reader: str) -> None:
    """Check that no row is there twice."""
    twice = [number for number, times in found.items() if times > 1]
    assert not twice, f"{reader} sees {twice[:5]} more than once"


def check_findings(report: Any, *, tried: bool, keeps_old_names: bool = False) -> None:
    """Check the result of `verify`.

    Hints are not synced. The next commit publishes the record of a begun step. A renamed part that keeps its staged
    name has this name until a vacuum, even after the part was removed.
    """
    expected = {"bad-hint", "not-published", "not-hidden"} if tried else {"bad-hint"}
    if keeps_old_names:
        expected.add("removed-part-staged")
    wrong = [one for one in report.findings if one.severity not in {"ok", "info"} and one.code not in expected]
    assert not wrong, f"verify finds {wrong[:3]}"


def describe(found: set[int], before: frozenset[int], after: frozenset[int]) -> str:
    """Return the difference between the rows and the acknowledged rows."""
    missing, extra = sorted((before & after) - found), sorted(found - before - after)
    return f"missing {missing[:5]} ({len(missing)}), extra {extra[:5]} ({len(extra)}), or a part of a step"
