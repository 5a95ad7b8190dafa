"""An export to Delta warns of times in names of directories, which Polars reads as times in UTC."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.testing.context import current, open_filesystem
from tests.unit.operate.export.formats import commits, export

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
TIMES = pa.table({"at": pa.array([NOON], pa.timestamp("us", "UTC")), "n": [1]})
WARNING = "Polars' scan_delta reads the local times in the names of directories, which are in America/New_York"


def write(out: Path, table: pa.Table, **options: Any) -> None:
    ftfile.write(out, table, file_format="parquet", context=current(), **options)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def warnings(out: Path, caplog: pytest.LogCaptureFixture, to: str = "delta") -> int:
    """Export, and return the number of warnings since the last call: an overwrite also updates the export."""
    export(str(out), to)
    found = caplog.text.count(WARNING)
    assert caplog.text.count("scan_delta") == found
    caplog.clear()
    return found


def test_the_first_export_warns_once(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"partition_by": ["at"], "time_zone": "America/New_York"}
    for version in range(3):
        write(out, TIMES, **options)
        assert warnings(out, caplog) == (version == 0)
        assert warnings(out, caplog) == 0
    actions = [action for some in commits(open_filesystem(str(out))) for action in some]
    values = [action["add"]["partitionValues"] for action in actions if "add" in action]
    assert values == [{"at": "2024-07-01T12:00:00Z"}] * 3


def test_a_later_zone_is_warned_of(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(out, TIMES, partition_by=["at"], time_zone="UTC")
    assert warnings(out, caplog) == 0
    write(out, TIMES, time_zone="America/New_York", mode="overwrite")
    assert warnings(out, caplog) == 1
    write(out, TIMES, mode="overwrite", partition_by=[])
    assert warnings(out, caplog) == 0
    write(out, TIMES, mode="overwrite", partition_by=["at"], time_zone="America/New_York")
    assert warnings(out, caplog) == 1


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT"])
def test_names_in_utc_are_read_rightly(out: Path, caplog: pytest.LogCaptureFixture, zone: str) -> None:
    write(out, TIMES, partition_by=["at"], time_zone=zone)
    assert warnings(out, caplog) == 0


@pytest.mark.parametrize(
    ("kind", "options", "to"),
    [
        (pa.timestamp("us"), {"partition_by": ["at"]}, "delta"),
        (pa.date32(), {"partition_by": ["at"]}, "delta"),
        (pa.timestamp("us", "UTC"), {"partition_by": ["n"]}, "delta"),
        (pa.timestamp("us", "UTC"), {"partition_by": ["at"]}, "iceberg"),
    ],
)
def test_other_columns_and_formats_have_no_warning(
    out: Path, caplog: pytest.LogCaptureFixture, kind: pa.DataType, options: dict[str, Any], to: str
) -> None:
    if to == "iceberg":
        pytest.importorskip("fastavro")
    table = pa.table({"at": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")).cast(kind), "n": [1]})
    write(out, table, time_zone="America/New_York", **options)
    assert warnings(out, caplog, to) == 0
