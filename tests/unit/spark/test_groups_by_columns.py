"""Parts are grouped by columns of the log: the same parts from records and from compacted logs, and no listing."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import ftfile
from ftfile.core.arguments import Access
from ftfile.log.format import layout
from ftfile.log.opening import open_log
from ftfile.operate.compact import compact_log
from ftfile.read.directory import Directory
from ftfile.spark.native.groups import Ways, plan_groups
from ftfile.spark.native.listed_files import FileList, hadoop_url
from ftfile.testing.micro_batch import MicroBatch

COLUMNS = {"id": "long", "p": "string"}


def written(out: Path, batches: int = 3, **options: str) -> str:
    """Write batches of one row for each of two values of `p`."""
    query = MicroBatch(str(out), COLUMNS, options)
    for batch in range(batches):
        query.run(batch, [[{"id": batch, "p": value} for value in ("x y", "z%#:")]])
    return str(out)


def ways_of(out: str, version: int | None = None, **named: Any) -> Ways:
    directory = Directory(out, Access())
    return plan_groups(directory, directory.snapshot(version), **named)


def sizes(files: FileList) -> Counter[tuple[str, int]]:
    """Return the paths and lengths of the files of a list, each with its number of entries."""
    pairs: Counter[tuple[str, int]] = Counter()
    for directory, texts in files.texts.items():
        for text in texts:
            length, name, _ = text.split("\0")
            pairs[f"{directory}/{name}".removeprefix("/"), int(length)] += 1
    return pairs


def on_disk(out: str) -> Counter[tuple[str, int]]:
    return Counter((str(path.relative_to(out)), path.stat().st_size) for path in Path(out).glob("p=*/*.parquet"))


def test_parts_in_records_and_in_compacted_logs(tmp_path: Path) -> None:
    out = written(tmp_path / "out", partitionBy="p")
    (before,) = ways_of(out).groups
    assert compact_log(out)
    MicroBatch(out, COLUMNS, {"partitionBy": "p"}).run(3, [[{"id": 3, "p": "z%#:"}]])
    (after,) = ways_of(out).groups
    assert sizes(before.files) < sizes(after.files) == on_disk(out)
    assert set(after.files.ids) == {*ftfile.open(out).snapshot().adds}
    assert after.files.size_bytes == sum(size for _, size in on_disk(out))
    assert len(after.files) == 7


def test_no_directory_is_listed(tmp_path: Path) -> None:
    out = written(tmp_path / "out", partitionBy="p")
    directory = Directory(out, Access())
    snapshot = directory.snapshot()
    listing = mock.Mock(side_effect=directory.file_system.list)
    with mock.patch.object(type(directory.file_system), "list", listing):
        assert len(plan_groups(directory, snapshot).groups[0].files) == 6
    directories = {call.args[0].partition("/")[0] for call in listing.call_args_list}
    assert directories <= {layout.META}


def test_the_list_for_spark(tmp_path: Path) -> None:
    """Of each directory its URL, the length of its files, and the files; names are encoded."""
    out = written(tmp_path / "a b", partitionBy="p", partFileName="a b%20#{unique}{ext}")
    (group,) = ways_of(out).groups
    content = b"".join(group.files.encode(f"file://{out}"))
    paths = {}
    while content:
        url, length, content = content.split(b"\0", 2)
        entries, content = content[: int(length)], content[int(length) :]
        *fields, end = entries.decode().split("\0")
        assert end == ""
        for size, name in zip(fields[::2], fields[1::2], strict=True):
            paths[f"{url.decode()}/{name}"] = int(size)
    assert paths == {hadoop_url(f"file://{out}", path): size for path, size in on_disk(out)}
    assert {file.path.partition("/")[0] for file in group.files.samples()} == {"p=x y", "p=z%25%23%3A"}


@pytest.mark.parametrize("merged", [False, True])
def test_names_that_can_repeat_are_read_by_ftfile(tmp_path: Path, *, merged: bool) -> None:
    out = written(tmp_path / "out", 2, ifExists="fail", partFileName="{batch}-{index}{ext}")
    if merged:
        compact_log(out)
    assert ways_of(out).reasons == {"names of files may be used again": 2}


def test_versions_that_are_not_published(tmp_path: Path) -> None:
    """Parts of unpublished versions are requested one by one: a part can be at its name already."""
    out = written(tmp_path / "out", 2)
    fs = open_log(out, Access()).fs
    fs.delete(layout.PUBLISHED_HINT)
    assert ways_of(out).reasons == {}
    (*_, add) = ftfile.open(out).snapshot().adds.values()
    os.renames(Path(out, add.final_path or ""), Path(out, add.path))
    ways = ways_of(out)
    assert (ways.reasons, ways.rest) == ({"files are not published": 1}, [add.id])
    assert len(ways.groups[0].files) == 1


def test_places_that_a_condition_excludes(tmp_path: Path) -> None:
    out = written(tmp_path / "out", partitionBy="p")
    place = next((add.directory_key, add.encoding) for add in ftfile.open(out).snapshot().adds.values())
    ways = ways_of(out, places={place})
    assert [[*group.files.texts] for group in ways.groups] == [[place[0]]]
    assert (len(ways.groups[0].files), ways.rest) == (3, [])
