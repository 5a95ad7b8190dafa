"""Cases of Apex Malhar's FileMerger, FileStitcher, Synchronizer and BlockWriter.

A block is the part of an open file that a window, or one of its tasks, adds. A file is merged from its blocks when it
ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import NameCollision, NotFound
from tests.spark.ancestors.operators import EVEN, ODD, by_parity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.ancestors.operators import Operator

    Make = Callable[..., Operator]

BLOCKS = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
FILE = "".join(f"{number}\n" for number in range(10))
PLAIN = {"partFileName": "{name}", "rolling": "policy"}


def named(name: str) -> Callable[..., str]:
    return lambda _: name


def blocks_of(operator: Operator) -> list[Path]:
    return sorted(path for path in operator.out.rglob("*.spool") if path.stat().st_size)


def test_mrg_1(operator: Make) -> None:
    merging = operator(named("output.txt"), **PLAIN)
    merging.run(*BLOCKS)
    ftfile.flush(merging.out)
    assert merging.visible() == {"output.txt": FILE}


def test_mrg_2(operator: Make) -> None:
    """Readers do not treat blocks as files."""
    merging = operator(named("output.txt"), **PLAIN)
    merging.run(*BLOCKS)
    (query,) = merging.out.joinpath("_ftfile", "staged").iterdir()
    assert {block.parent for block in blocks_of(merging)} == {query}
    assert [block.name.partition("-")[0] for block in blocks_of(merging)] == ["_0", "_1", "_2"]
    assert merging.visible() == {}


def test_mrg_3(operator: Make) -> None:
    """Apex may overwrite an existing file of the name. Here the write is refused, or the file gets another name."""
    merging = operator(named("output.txt"), **PLAIN)
    merging.put("output.txt")
    merging.run(*BLOCKS)
    with pytest.raises(NameCollision, match=r"'output\.txt' is taken"):
        ftfile.flush(merging.out)
    assert merging.visible() == {}
    merging.crash()
    del merging.options["ifExists"]
    merging.run([])
    ftfile.flush(merging.out)
    (name,) = found = merging.visible()
    assert name.startswith("output.txt-")
    assert found[name] == FILE
    merging.take_away()


def test_mrg_4(operator: Make) -> None:
    """An existing directory is used unchanged."""
    directory = "dummyDir/anotherDummyDir"
    merging = operator(named(f"{directory}/dummy.txt"), **PLAIN)
    merging.put(f"{directory}/foreign")
    merging.run(*BLOCKS)
    ftfile.flush(merging.out)
    assert merging.visible() == {f"{directory}/dummy.txt": FILE}
    merging.take_away()


def test_mrg_5(operator: Make) -> None:
    """A missing block is an error that names it. Other blocks become files; this one follows after it is restored."""
    merging = operator(by_parity, rolling="policy")
    merging.run([0, 2, 4], [1, 3], [5])
    missing = blocks_of(merging)[2]
    hidden = missing.rename(merging.source / ".hidden")
    with pytest.raises(NotFound, match=missing.name):
        ftfile.flush(merging.out)
    merging.run([7])
    hidden.rename(missing)
    assert merging.end() == {EVEN: [[0, 2, 4]], ODD: [[1, 3], [5, 7]]}


def test_mrg_6(operator: Make) -> None:
    """Directories are created with their first file."""
    merging = operator(named("dummyDir/anotherDummyDir/dummy.txt"), **PLAIN)
    merging.run(*BLOCKS)
    assert not (merging.out / "dummyDir").exists()
    ftfile.flush(merging.out)
    assert (merging.out / "dummyDir/anotherDummyDir").is_dir()


def test_mrg_7(operator: Make) -> None:
    merging = operator(named("dummyDir/anotherDummyDir/dummy.txt"), **PLAIN)
    merging.run(*BLOCKS)
    ftfile.flush(merging.out)
    assert merging.visible() == {"dummyDir/anotherDummyDir/dummy.txt": FILE}


def test_mrg_8(operator: Make) -> None:
    """By the stream: in the tasks of the window after the last block."""
    merging = operator(named("output.txt"), **PLAIN, maxBatchesPerFile="3")
    merging.run(*BLOCKS)
    assert merging.visible() == {}
    merging.run([])
    assert merging.visible() == {"output.txt": FILE}


def test_mrg_9(operator: Make) -> None:
    """A file is merged when its last block exists, and not earlier."""
    merging = operator(**PLAIN, select=("value", "name", "value like '%.' as last"), finalizeColumn="last")
    windows: list[list[tuple[str, str]]] = [
        [("a1", "a"), ("a2", "a")],
        [("a3.", "a"), ("b1", "b")],
        [("b2", "b"), ("c1", "c")],
        [("c2.", "c"), ("b3", "b")],
        [("b4.", "b")],
        [],
    ]
    found = []
    for window in windows:
        merging.run(window)
        found.append("".join(merging.visible()))
    assert found == ["", "", "a", "a", "ac", "abc"]
    assert merging.visible() == {"a": "a1\na2\na3.\n", "b": "b1\nb2\nb3\nb4.\n", "c": "c1\nc2.\n"}


def test_mrg_10(operator: Make) -> None:
    """Blocks are complete before a record names them. Blocks of a failed window belong to no file."""
    merging = operator(named("output.txt"), **PLAIN, partitions=2)
    merging.run(BLOCKS[0])
    first, second = [block.read_text().split() for block in blocks_of(merging)]
    assert sorted(first + second) == list("0123")
    merging.crash_in(4, 4, 4)
    merging.run(*BLOCKS[1:])
    assert sorted(ftfile.open(merging.out).to_arrow()["value"].to_pylist()) == FILE.split()
    ftfile.flush(merging.out)
    assert sorted(merging.visible()["output.txt"].split()) == FILE.split()
