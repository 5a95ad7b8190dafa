"""Cases of the operators that Apex Malhar derives from AbstractFileOutputOperator.

They write one file, a file for each window, files that end by count or by idleness, and packed files that are reported
to other programs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.testing.context import current
from tests.spark.ancestors.operators import SIZE, Operator, later
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    Make = Callable[..., Operator]

PLAIN = {"partFileName": "{name}"}
# The older operator counts idle windows; here a window is a time.
WINDOW_S = 720.0


def test_sfo_1(operator: Make) -> None:
    single = operator(**PLAIN, rolling="policy")
    single.run([0, 1], [2, 3])
    single.crash()
    ftfile.flush(single.out)
    assert single.visible() == {"file": "0\n1\n2\n3\n"}


def test_sfo_2(operator: Make) -> None:
    single = operator()
    single.run([0, 1])
    single.crash_in(2)
    single.run([4, 5], [6, 7])
    assert single.end() == {"file": [[0, 1], [4, 5], [6, 7]]}


def test_wfo_1(operator: Make) -> None:
    """A file for each window, with the records of its last repetition."""
    single = operator()
    single.run([0, 0])
    single.crash_in(1)
    single.run([2, 3], [4, 4])
    assert single.end() == {"file": [[0, 0], [2, 3], [4, 4]]}


def test_wfo_2(operator: Make) -> None:
    """A window of two micro-batches with a restore between them: the file continues at its end."""
    windows = operator(str, **PLAIN, rolling="policy")
    windows.run([0, 0], [1])
    windows.crash_in(1)
    windows.run([1, 1], [2, 2])
    windows.crash()
    ftfile.flush(windows.out)
    assert windows.visible() == {"0": "0\n0\n", "1": "1\n1\n1\n", "2": "2\n2\n"}


def test_gfo_1(operator: Make) -> None:
    """Five idle windows end a file; four do not."""
    idle = operator(inactivityInterval="1h")
    found = []
    for windows, idle_windows in ((2, 4), (2, 5), (2, 4), (2, 5), (1, 0)):
        idle.run(*[[idle.windows, idle.windows]] * windows)
        with later(idle_windows * WINDOW_S):
            ftfile.flush(idle.out, due_only=True, context=current())
        found.append([len(part) for part in idle.files().get("file", [])])
    assert found == [[], [8], [8], [8, 8], [8, 8]]
    assert [len(part) for part in idle.end()["file"]] == [8, 8, 2]


def test_gfo_2(operator: Make) -> None:
    counting = operator(rolling="policy", maxRecordsPerFile="10")
    counting.run([0, 1, 2, 3, 4, 5], [], [6, 7, 8], [9, 10, 11, 12, 13], [], [], [14, 15, 16, 17, 18], [19, 20])
    counting.run([21, 22, 23, 24, 25, 26], [])
    assert counting.files() == {"file": [[*range(10)], [*range(10, 20)]]}
    assert counting.end() == {"file": [[*range(10)], [*range(10, 20)], [*range(20, 27)]]}


def test_gfo_3(attached: SparkSession, paths: dict[str, Any]) -> None:
    """The file is published while the stream is idle."""
    lines = Operator(attached, paths, lambda _: "output.txt_2", lineSep="-", inactivityInterval="500ms")
    try:
        lines.run(list("abcd"))
        file = lines.out / "output.txt_2.0"
        wait_until(file.exists, "the end of the interval")
        assert file.read_text() == "a-b-c-d-"
    finally:
        lines.crash()


def test_gfo_4(operator: Make) -> None:
    empty = operator(maxBatchesPerFile="5")
    empty.run(*[[]] * 6)
    assert empty.end() == {}


def test_frc_1(operator: Make) -> None:
    """A function is called for each part, with its path, its records and its size."""
    packing = operator(**SIZE, onPublish="tests.spark.ancestors.user_code:note")
    packing.run([0, 1, 2], [3, 4, 55], [])
    packing.end()
    told = [json.loads(line) for line in (packing.out.parent / "published").read_text().splitlines()]
    assert told == [["file.0", 3, 6], ["file.1", 3, 7]]
