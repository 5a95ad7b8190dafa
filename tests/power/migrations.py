"""A workload of migrations from Spark's file sink, and of their undoing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import ftfile
from ftfile.log.format import layout
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.power.directories import check_findings
from tests.power.workload import Workload
from tests.unit.tools.migrate.foreign import spark_log

if TYPE_CHECKING:
    import random
    from pathlib import Path

__all__ = ("Migrations",)

STEPS = 12
FAILED = "part-9-of-a-failed-attempt.json"
Kind = Literal["migrate", "undo"]


class Migrations(Workload):
    """Directories of Spark's sink that are migrated one after the other; some migrations are undone."""

    name = "migrations"

    def draw(self, drawn: random.Random) -> None:
        self.list: list[tuple[Kind, int]] = []
        self.files: list[list[range]] = []  # the ids of each file of a directory
        while len(self.list) < STEPS:
            number = len(self.files)
            first, ranges = 0, []
            for _ in range(drawn.randrange(1, 5)):
                ranges.append(range(first, first + drawn.randrange(1, 30)))
                first = ranges[-1].stop
            self.files.append(ranges)
            self.list.append(("migrate", number))
            if drawn.random() < 0.4:
                self.list.append(("undo", number))
        self.steps = len(self.list)

    def folder(self, number: int) -> Path:
        """Return the path of a directory."""
        return self.place / f"out-{number}"

    def prepare(self) -> None:
        for number, ranges in enumerate(self.files):
            folder = self.folder(number)
            folder.mkdir()
            for index, ids in enumerate(ranges):
                (folder / f"part-{index}.json").write_text(lines(ids))
            (folder / FAILED).write_text('{"id":-1}\n')
            spark_log(folder, "0", [("add", f"part-{index}.json") for index in range(len(ranges))])

    def perform(self, number: int) -> None:
        kind, directory = self.list[number]
        folder = self.folder(directory)
        if kind == "migrate":
            ftfile.migrate(folder, schema="id long", dry_run=False, threads=1)
        elif not self.is_undone(folder):
            ftfile.undo_migration(folder)

    def is_undone(self, folder: Path) -> bool:
        """Return True if nothing of a migration remains that an undo would have to revert."""
        return not any((folder / path).exists() for path in (layout.FORMAT_FILE, layout.record_path(1)))

    def check(self, done: int, *, tried: bool) -> None:
        begun = self.list[done] if tried else None
        last: dict[int, Kind] = dict.fromkeys(range(len(self.files)), "undo")
        last.update({directory: kind for kind, directory in self.list[:done]})
        for directory, kind in last.items():
            folder = self.folder(directory)
            if begun is not None and begun[1] == directory:
                self.check_begun(folder, directory, begun[0])
            elif kind == "migrate":
                self.check_migrated(folder, directory)
            else:
                self.check_undone(folder, directory)

    def check_begun(self, folder: Path, directory: int, kind: Kind) -> None:
        """Check that all data is there, for Spark's readers or for readers without its log.

        While a migration is undone, no reader may use the directory.
        """
        found = plain_ids(folder)
        missing = set(self.ids(directory)) - set(found)
        assert not missing, f"{folder.name} misses {sorted(missing)[:5]}"
        if kind == "migrate" and not (folder / "_spark_metadata/0").exists():
            assert sorted(found) == self.ids(directory), f"{folder.name} has {sorted(found)[:5]} without Spark's log"
            rows = ftfile.open(folder).to_arrow()["id"].to_pylist()
            assert sorted(rows) == self.ids(directory), "the rows without Spark's log"

    def check_migrated(self, folder: Path, directory: int) -> None:
        """Check that every reader sees each row once."""
        assert not (folder / "_spark_metadata/0").exists(), f"{folder.name} still has Spark's log"
        assert sorted(plain_ids(folder)) == self.ids(directory), f"a plain reader of {folder.name}"
        opened = ftfile.open(folder)
        assert sorted(opened.to_arrow()["id"].to_pylist()) == self.ids(directory), f"the reader of {folder.name}"
        check_directory(open_filesystem(str(folder)))
        check_findings(opened.verify(full=True), tried=False)

    def check_undone(self, folder: Path, directory: int) -> None:
        """Check that the directory is as Spark's sink had left it."""
        names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        parts = {f"part-{index}.json" for index in range(len(self.files[directory]))}
        assert names == parts | {FAILED, "_spark_metadata/0"}, f"{folder.name} has {sorted(names)}"
        for index, ids in enumerate(self.files[directory]):
            assert (folder / f"part-{index}.json").read_text() == lines(ids)

    def ids(self, directory: int) -> list[int]:
        """Return the valid ids of a directory."""
        return [each for ids in self.files[directory] for each in ids]


def lines(ids: range) -> str:
    """Return the content of a file."""
    return "".join(f'{{"id":{number}}}\n' for number in ids)


def plain_ids(folder: Path) -> list[int]:
    """Return the ids in all visible files."""
    found = []
    for path in folder.glob("[!_.]*.json"):
        found += [json.loads(line)["id"] for line in path.read_text().splitlines()]
    return found
