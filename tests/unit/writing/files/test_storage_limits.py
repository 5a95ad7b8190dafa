"""Names that the storage does not keep, or that are too long for it, are found out before anything is committed."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, EncodingError, Unsupported
from ftfile.storage.api import Capabilities
from ftfile.storage.registry import WrapperFileSystem, register, unregister
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.naming import PathCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.paths import Location

COLUMNS = {"value": "string", **dict.fromkeys("abcde", "string")}
TEXT = {"fileFormat": "text", "partitionBy": "a,b,c,d,e"}
USER_CODE = "tests.unit.writing.files.user_code"
KEY_BYTES = 1024

numbers = itertools.count()


class Strict(WrapperFileSystem):
    """A storage system that refuses names outside its capabilities when it is too late to choose others."""

    @property
    def capabilities(self) -> Capabilities:
        return dataclasses.replace(self.inner.capabilities, **self.limits)

    def __init__(self, location: Location) -> None:
        super().__init__(MemoryFileSystem(f"strict{location.path}"))
        prefix = len(location.path.encode())
        self.limits: dict[str, Any] = {"path_bytes_max": KEY_BYTES - prefix, "blank_ends": False, "forbidden": "#"}

    def _require(self, operation: str, path: str) -> None:
        if fault := self.capabilities.fault_of(path):
            raise Unsupported(operation, path, f"it {fault}")

    def make_directories(self, path: str) -> None:
        self._require("make_directories", path)
        super().make_directories(path)

    def rename(self, source: str, target: str) -> None:
        self._require("rename", target)
        super().rename(source, target)


@pytest.fixture
def out() -> Iterator[str]:
    register("strict", Strict)
    yield f"strict://bucket/{next(numbers):06}/{'p' * 41}"
    unregister("strict")


def row(value: str, *, size: int = 1) -> dict[str, str]:
    return {"value": value, **dict.fromkeys("abcde", "x" * size)}


def values(out: str) -> list[str]:
    report = check_directory(open_filesystem(out))
    assert report.live_rows == report.visible_rows
    return sorted(bytes(row).decode() for row in report.live_rows.elements() if isinstance(row, bytes))


@pytest.mark.parametrize("rolling", [{}, {"rolling": "policy", "maxBatchesPerFile": "1"}], ids=["at once", "rolled"])
class TestPaths:
    @pytest.mark.slow
    def test_of_directories_that_are_too_long_together(self, out: str, rolling: dict[str, str]) -> None:
        query = MicroBatch(out, COLUMNS, TEXT | rolling)
        with pytest.raises(
            EncodingError, match=r"would be written to a file such as 'a=x.*can have \d+ bytes, and .* 975 below"
        ):
            query.run(0, [[row("good"), row("bad", size=240)]])
        query.options = TEXT | rolling | {"badRecords": "deadLetter"}
        for batch in range(3):
            query.run(batch, [[row("good"), row("bad", size=240)]])
        ftfile.flush(out)
        assert values(out) == ["good"] * 3
        assert [letter.row["value"] for letter in ftfile.open(out).dead_letters()] == ["bad"] * 3

    def test_that_are_as_long_as_they_may_be(self, out: str, rolling: dict[str, str]) -> None:
        query = MicroBatch(out, COLUMNS, TEXT | rolling | {"badRecords": "drop"})
        sizes = range(175, 190)
        query.run(0, [[row(str(size), size=size) for size in sizes]])
        query.run(1, [[]])
        ftfile.flush(out)
        found = values(out)
        assert found == [str(size) for size in sizes][: len(found)]
        # Ten letters of the columns' names, five slashes, and the file's own name with room for more digits.
        assert len(found) == (975 - 15 - 38 - 20) // 5 - 175 + 1

    def test_of_names_that_records_choose(self, out: str, rolling: dict[str, str]) -> None:
        good, bad = ("/".join(["n" * 100] * count) for count in (9, 10))
        bad = bad[:950]
        options = {"fileFormat": "text", "fileNameColumn": "name", "badRecords": "deadLetter"} | rolling
        query = MicroBatch(out, {"value": "string", "name": "string"}, options)
        for batch in range(2):
            query.run(batch, [[{"value": name[:1] + str(len(name)), "name": name} for name in (good[:880], bad)]])
        ftfile.flush(out)
        assert values(out) == ["n880"] * 2
        assert [letter.row["name"] for letter in ftfile.open(out).dead_letters()] == [bad] * 2

    def test_of_names_that_a_function_makes(self, out: str, rolling: dict[str, str]) -> None:
        options = TEXT | rolling | {"badRecords": "drop", "partFileName": f"{USER_CODE}:by_rows"}
        query = MicroBatch(out, COLUMNS, options)
        query.run(0, [[row(str(size), size=size) for size in (100, 141, 142, 180)]])
        query.run(1, [[]])
        ftfile.flush(out)
        assert values(out) == ["100", "141"]

    def test_of_directories_that_all_rows_share(self, out: str, rolling: dict[str, str]) -> None:
        for pattern, text in {
            f"yyyy'{'x' * 252}'": "256 bytes, but a part may have at most 255",
            f"yyyy/'{'/'.join(['x' * 200] * 4 + ['x' * 110])}'": "this storage allows 975",
            "yyyy' '": "begins or ends with a space",
        }.items():
            query = MicroBatch(out, {"value": "string"}, {"fileFormat": "text", "directoryPattern": pattern} | rolling)
            with pytest.raises(ConfigError, match=text):
                query.pickled_plan()

    @pytest.mark.parametrize(
        "naming",
        [
            {"partPrefix": " a"},
            {"partPrefix": "#"},
            {"partPrefix": "a:"},
            {"partFileName": "{batch} "},
            {"partFileName": "{batch}#"},
        ],
        ids=str,
    )
    def test_of_templates_are_refused_at_the_start(
        self, out: str, rolling: dict[str, str], naming: dict[str, str]
    ) -> None:
        query = MicroBatch(out, {"value": "string"}, {"fileFormat": "text", "ifExists": "fail"} | naming | rolling)
        if "partFileName" not in naming:
            query.options = {"fileFormat": "text"} | naming | rolling
        with pytest.raises(
            ConfigError, match=r"(the name of a new file would be|partFileName returns the name) .*, which has"
        ):
            query.pickled_plan()
        assert not open_filesystem(out).exists("_ftfile")


def test_a_directory_that_leaves_too_little_room_is_refused_at_the_start(out: str) -> None:
    query = MicroBatch(f"{out}/{'/'.join(['x' * 200] * 4 + ['x' * 80])}", {"value": "string"}, {"fileFormat": "text"})
    with pytest.raises(ConfigError, match=r"the sink would write a file '_ftfile/staged/.*can have"):
        query.pickled_plan()


def test_a_marker_that_the_storage_does_not_keep_is_refused_at_the_start(out: str) -> None:
    query = MicroBatch(out, {"value": "string"}, {"fileFormat": "text", "successFile": "_SUCCESS "})
    with pytest.raises(ConfigError, match="successFile='_SUCCESS ' has a name that begins or ends with a space"):
        query.pickled_plan()


def test_what_stands_before_what_records_say_may_shield_it(out: str) -> None:
    options = {"fileFormat": "text", "fileNameColumn": "name", "partFileName": "of{name}-{unique}"}
    query = MicroBatch(out, {"value": "string", "name": "string"}, options)
    query.run(0, [[{"value": "a", "name": " a"}]])
    assert values(out) == ["a"]
    query.options = options | {"partFileName": "{name}-{unique}"}
    with pytest.raises(EncodingError, match="begins or ends with a space"):
        query.run(1, [[{"value": "a", "name": " a"}]])


def path_check(**options: str) -> Callable[..., str | None]:
    config = SinkConfig.from_options({"path": "/x", **TEXT, **options}, spark_schema(COLUMNS))
    storage = Capabilities("d", True, "close", False, False, path_bytes_max=1000)
    return PathCheck(config.publishing.naming, config.extension, storage).fault_of


def test_names_that_repeat_the_directory_count_it_twice() -> None:
    fault = path_check(partFileName="{directory}-{unique}")("x" * 243, "")
    assert fault is not None
    assert re.search("of up to 2.. bytes, and 255 are", fault)
    assert path_check(partFileName="{directory}-{unique}")("x" * 242, "") is None


def test_only_numbers_get_longer() -> None:
    assert path_check(partFileName="{name}-{unique}")("a", "x" * 242) is None
    assert path_check(partFileName="{name}-{unique}")("a", "x" * 243) is not None
    assert path_check(partFileName="{name}-{index}-{unique}")("a", "x" * 217) is not None


def test_bytes_are_counted_and_not_letters() -> None:
    assert path_check()("/".join(["x" * 100] * 9), "") is None
    assert path_check()("/".join(["é" * 100] * 5), "") is not None
    assert path_check()("é" * 128, "") is not None
