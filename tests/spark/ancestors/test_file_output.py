"""Cases of Apex Malhar's AbstractFileOutputOperator (docs/internals/ancestors.md), as micro-batches of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.ancestors.operators import EVEN, ODD, SIZE, by_parity, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.ancestors.operators import Operator

    Make = Callable[..., Operator]

BY_DIRECTORY = {"fileNameColumn": None, "partitionBy": "name"}


def test_afo_1(operator: Make) -> None:
    single = operator()
    single.run([0, 1], [2, 3])
    assert joined(single.end()) == {"file": [0, 1, 2, 3]}


def test_afo_2(operator: Make) -> None:
    """Apex replaces an existing file of the name. Here the window is refused, and retried after the deletion."""
    single = operator()
    single.put("file.0")
    single.refused("'file.0' is taken: a file of that name exists. Nothing was committed", 0, 1)
    assert single.visible() == {}
    single.take_away()
    single.run([0, 1], [2, 3])
    assert joined(single.end()) == {"file": [0, 1, 2, 3]}


def test_afo_3(operator: Make) -> None:
    single = operator()
    single.run([0, 1])
    single.crash_in(2)
    single.run([4, 5], [6, 7])
    assert joined(single.end()) == {"file": [0, 1, 4, 5, 6, 7]}


def test_afo_4(operator: Make) -> None:
    """Or the files get other names, and the file of the other program is unchanged."""
    single = operator(ifExists=None, partFileName="{name}")
    single.put("file")
    single.run([0, 1])
    single.crash_in(2)
    single.run([4, 5], [6, 7])
    found = single.visible()
    assert all(name.startswith("file-") for name in found)
    assert sorted(found.values()) == ["0\n1\n", "4\n5\n", "6\n7\n"]
    single.take_away()


@pytest.mark.parametrize("directories", [{}, BY_DIRECTORY], ids=["names", "directories"])
def test_afo_5(operator: Make, directories: dict[str, str | None]) -> None:
    multi = operator(by_parity, **directories)
    multi.run([0, 1, 2, 3], [4, 5, 6, 7])
    assert joined(multi.end()) == {EVEN: [0, 2, 4, 6], ODD: [1, 3, 5, 7]}


def test_afo_6(operator: Make) -> None:
    multi = operator(by_parity)
    multi.put("even.0", "odd.0")
    multi.refused(r"'(even|odd)\.0' is taken", 0, 1, 2, 3)
    multi.take_away()
    multi.run([0, 1, 2, 3], [4, 5, 6, 7])
    assert joined(multi.end()) == {EVEN: [0, 2, 4, 6], ODD: [1, 3, 5, 7]}


def test_afo_7(operator: Make) -> None:
    multi = operator(by_parity)
    multi.run([0, 1, 2, 3])
    multi.crash_in(4, 5)
    multi.run([6, 7, 8, 9])
    assert joined(multi.end()) == {EVEN: [0, 2, 6, 8], ODD: [1, 3, 7, 9]}


def test_afo_8(operator: Make) -> None:
    rolling = operator(**SIZE)
    rolling.run([0, 1, 2], [3, 4, 5, 6], [], [])
    assert rolling.files() == {"file": [[0, 1, 2], [3, 4, 5]]}


def test_afo_9(operator: Make) -> None:
    """Existing names are skipped: a file gets the next number, and the existing files are unchanged."""
    rolling = operator(**SIZE)
    rolling.put("file.0", "file.1")
    rolling.run([0, 1, 2], [3, 4, 5, 6], [], [], [])
    assert sorted(rolling.files()["file"]) == [[0, 1, 2], [3, 4, 5]]
    rolling.take_away()
    assert sorted(rolling.end()["file"]) == [[0, 1, 2], [3, 4, 5], [6]]


def test_afo_10(operator: Make) -> None:
    rolling = operator(**SIZE, maxBatchesPerFile="1")
    rolling.run([0, 1, 2], [], [], [])
    assert rolling.end() == {"file": [[0, 1, 2]]}


def test_afo_11(operator: Make) -> None:
    rolling = operator(**SIZE)
    rolling.run([0, 1, 2])
    rolling.crash_in(3, 4)
    rolling.run([3, 4, 5], [6, 7, 8])
    assert rolling.end() == {"file": [[0, 1, 2], [3, 4, 5], [6, 7, 8]]}


def test_afo_12(operator: Make) -> None:
    """A second restore of the same checkpoint: the committed window is not written again."""
    rolling = operator(**SIZE)
    rolling.run([0, 1, 2], [3, 4])
    rolling.crash_in(5)
    rolling.run([5])
    rolling.forget()
    rolling.run([6, 7, 8])
    assert rolling.end() == {"file": [[0, 1, 2], [3, 4, 5], [6, 7, 8]]}


@pytest.mark.parametrize("directories", [{}, BY_DIRECTORY], ids=["names", "directories"])
def test_afo_13(operator: Make, directories: dict[str, str | None]) -> None:
    multi = operator(by_parity, **SIZE, **directories)
    multi.run([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 6, 7], [])
    assert multi.files() == {EVEN: [[0, 2, 4], [6, 8, 6]], ODD: [[1, 3, 5], [7, 9, 7]]}


def test_afo_14(operator: Make) -> None:
    multi = operator(by_parity, **SIZE)
    multi.run([0, 1])
    multi.crash_in(2, 3)
    multi.run([2, 3], [4, 5], [6, 7, 8, 9, 6, 7])
    assert multi.end() == {EVEN: [[0, 2, 4], [6, 8, 6]], ODD: [[1, 3, 5], [7, 9, 7]]}


def test_afo_15(operator: Make) -> None:
    multi = operator(by_parity, **SIZE)
    multi.run([0, 1])
    multi.crash_in(2, 3)
    multi.run([4, 5], [6, 7, 8, 9, 6, 7, 10, 11])
    found = multi.end()
    assert found == {EVEN: [[0, 4, 6], [8, 6, 10]], ODD: [[1, 5, 7], [9, 7, 11]]}


def test_afo_16(operator: Make) -> None:
    """Records that were written after the checkpoint and are not repeated are in no file."""
    rolling = operator(**SIZE)
    rolling.run([0, 1, 2], [3, 4])
    rolling.crash_in(3, 4, 5, 6, 7, 8)
    rolling.run([0, 1, 2], [3, 4, 5, 6], [])
    assert rolling.end() == {"file": [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 5, 6]]}


def test_afo_17(operator: Make) -> None:
    wrong = operator(maxBytesPerFile="-1")
    wrong.refused("maxBytesPerFile='-1' is not understood: it takes a size of at least one byte", 0)
    assert not wrong.out.exists()
    wrong.options["maxBytesPerFile"] = "1"
    wrong.run([0, 1])
    assert wrong.end() == {"file": [[0], [1]]}


def test_afo_18(operator: Make) -> None:
    """Rotation after two windows instead of thirty."""
    multi = operator(by_parity, maxBatchesPerFile="2")
    counts = []
    for records, windows in (([1, 3], 2), ([0, 1, 2], 6), ([0, 2], 4)):
        multi.run(*[records] * windows, [])
        counts.append({name: len(parts) for name, parts in multi.files().items()})
    assert counts == [{ODD: 1}, {ODD: 4, EVEN: 3}, {ODD: 4, EVEN: 5}]


def test_afo_19(operator: Make) -> None:
    multi = operator(by_parity, maxBatchesPerFile="2")
    multi.run([0], [], [0], [])
    first = multi.files()
    multi.run(*[[]] * 4)
    assert first == multi.end() == {EVEN: [[0, 0]]}


def test_afo_23(operator: Make) -> None:
    multi = operator(by_parity, **SIZE)
    multi.run([0, 1, 2, 3])
    multi.crash()
    multi.run([4, 5], [6, 7, 8, 9, 6, 7])
    assert multi.end() == {EVEN: [[0, 2, 4], [6, 8, 6]], ODD: [[1, 3, 5], [7, 9, 7]]}
