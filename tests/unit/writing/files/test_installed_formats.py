"""A format of another package, from its installation to the readers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.extensions import forget_extensions
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.packages import install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE = """
from dataclasses import dataclass, replace
from ftfile.formats.arrow_files import ArrowFormat
from ftfile.formats.json_lines import JsonLines

@dataclass(frozen=True)
class Rows(JsonLines):
    name = "rows"
    ending: str = ".rows"
    extension = property(lambda self: self.ending)

    @classmethod
    def from_options(cls, options):
        return replace(super().from_options(options), ending=options.get("ending", ".rows"))

    def definition(self, schema):
        return {**super().definition(schema), "ending": self.ending}

@dataclass(frozen=True)
class Misnamed(ArrowFormat):
    name = "other"

class Columns(ArrowFormat):
    name = "Columns"
"""
ENTRIES = """[ftfile.formats]
rows = formats_of_users:Rows
Columns = formats_of_users:Columns
misnamed = formats_of_users:Misnamed
gone = no.such.module:Format
none = builtins:str
"""


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages on the search path."""
    install(tmp_path / "packages", "formats_of_users", ENTRIES, CODE)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    yield tmp_path / "packages"
    sys.modules.pop("formats_of_users", None)
    forget_extensions()


def query(tmp_path: Path, **options: str) -> MicroBatch:
    return MicroBatch(str(tmp_path / "out"), {"id": "long", "word": "string"}, options)


ROWS: list[dict[str, Any]] = [{"id": 1, "word": "one"}, {"id": 2, "word": None}]


@parametrize(
    ("options", "ending"),
    [
        ({"fileFormat": "rows"}, ".rows"),
        ({"fileFormat": "rows", "format.ending": ".lines", "compression": "gzip"}, ".lines.gz"),
        ({"fileFormat": "Columns", "compression": "lz4"}, ".Columns"),
        ({"fileFormat": "rows", "partitionBy": "word", "rolling": "policy", "rolloverInterval": "1h"}, ".rows"),
    ],
    quick=1,
)
def test_is_written_rolled_and_read(options: dict[str, str], ending: str, tmp_path: Path) -> None:
    written = query(tmp_path, **options)
    written.run(0, [ROWS[:1], ROWS[1:]])
    written.run(1, [ROWS])
    ftfile.flush(written.path)
    check_directory(open_filesystem(written.path))
    opened = ftfile.open(written.path)
    assert sorted(opened.to_arrow().column("id").to_pylist()) == [1, 1, 2, 2]
    parts = [path for path in (tmp_path / "out").rglob("*") if path.name.endswith(ending)]
    assert parts
    assert not ftfile.open(written.path).verify().findings


@pytest.mark.slow
def test_readers_and_executors_need_it(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = query(tmp_path, fileFormat="rows")
    written.run(0, [ROWS])
    planned = written.pickled_plan()
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(packages)])
    sys.modules.pop("formats_of_users")
    with pytest.raises(ModuleNotFoundError, match="formats_of_users"):
        written.run_task(planned, written.identity(1), 0, ROWS)
    with pytest.raises(ConfigError, match="the fileFormat 'rows' cannot be loaded from 'formats_of_users:Rows'"):
        ftfile.open(written.path).to_arrow()
    forget_extensions()
    with pytest.raises(ConfigError, match=r"there is no fileFormat 'rows'; .* where the driver and the executors run"):
        ftfile.open(written.path).to_arrow()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"fileFormat": "gone"}, "the fileFormat 'gone' cannot be loaded from 'no.such.module:Format': No module"),
        ({"fileFormat": "none"}, "not a class derived from ftfile.formats.api.Format"),
        ({"fileFormat": "misnamed"}, "the fileFormat 'misnamed' has the name 'other'"),
        ({"fileFormat": "../x"}, "is not understood: it takes one of `parquet`.*or the name of an installed format"),
        ({"fileFormat": "rows", "header": "true"}, "option 'header' is for fileFormat=csv, but fileFormat is rows"),
        ({"fileFormat": "json", "format.ending": ".x"}, "format.ending is an option for your format"),
        ({"fileFormat": "rows", "encoder": "a:B"}, "option 'encoder' is for fileFormat=binary"),
        ({"fileFormat": "rows", "encoder.x": "1"}, "encoder.x is an option for your class"),
    ],
)
def test_errors(options: dict[str, str], error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=error):
        query(tmp_path, **options).run(0, [ROWS])
