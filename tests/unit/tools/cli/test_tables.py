"""Tables in terminals of every width, and in pipes."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ftfile.core.units import ago, bytes_text, count_text, duration_text, exact_time, time_text
from ftfile.tools.cli import terminal
from ftfile.tools.cli.terminal import chosen_columns, print_table
from ftfile.tools.report.views import BYTES, COUNT, TIME, TableColumn
from tests.unit.tools.cli.running import in_terminal

ROWS = [
    {
        "file": "month=7/" + "日本語" * 10 + ".json",
        "rows": 1_234_567,
        "bytes": 12_345_678,
        "time": 0,
        "query": "q" * 36,
    },
    {"file": "short\t\x1b[31mred", "rows": 1, "bytes": 0, "time": 1_700_000_000_123, "query": None},
]
COLUMNS = [
    TableColumn("file", lambda row: row["file"], folds=True),
    TableColumn("rows", lambda row: row["rows"], COUNT),
    TableColumn("bytes", lambda row: row["bytes"], BYTES, keep=5),
    TableColumn("time", lambda row: row["time"], TIME, keep=4),
    TableColumn("query", lambda row: row["query"], keep=1),
    TableColumn("nothing", lambda row: row.get("nothing"), keep=2),
]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_fits_its_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS)
    text, notes = capsys.readouterr()
    shown = text.splitlines()
    assert all(cell_len(line) <= width for line in (*shown, *notes.splitlines()))
    assert "".join(line[: line.find("  ")] for line in shown if "日本" in line).count("日本語") >= 9, "no text is cut"
    assert ("query" in shown[0]) == (width == 200)
    assert ("query" in notes) == (width < 200)
    assert "nothing" not in text + notes
    assert "1,234,567" in text
    assert "11.8 MiB" in text
    assert "\x1b" not in text


def test_a_long_table_has_one_heading(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setattr(terminal, "ROWS_AT_ONCE", 2)
    for number in (0, 2, 5):
        print_table(COLUMNS[1:2], ROWS[1:] * number)
        assert capsys.readouterr().out.split() == ["rows", *["1"] * number]


def test_a_pipe_gets_all_of_it_in_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading == "file\trows\tbytes\ttime\tquery\tnothing"
    assert first == f"{ROWS[0]['file']}\t1234567\t12345678\t1970-01-01T00:00:00.000Z\t{'q' * 36}\t"
    assert second == "short\\t\\x1b[31mred\t1\t0\t2023-11-14T22:13:20.123Z\t\t"


def test_which_columns_are_left_out() -> None:
    columns = [TableColumn(name, str, keep=keep, folds=folds) for name, keep, folds in
               [("a", 9, True), ("b", 5, False), ("c", 2, False), ("d", 5, False)]]  # fmt: skip
    widths = [40, 10, 10, 10]
    assert chosen_columns(columns, widths, 100) == ([0, 1, 2, 3], [])
    assert chosen_columns(columns, widths, 70) == ([0, 1, 3], [2]), "a column is omitted rather than folded"
    assert chosen_columns(columns, widths, 48) == ([0, 1, 3], [2])
    assert chosen_columns(columns, widths, 47) == ([0, 1], [2, 3]), "of equally important columns, the last is omitted"
    assert chosen_columns(columns, widths, 10) == ([0], [1, 2, 3])


@pytest.mark.slow
@pytest.mark.packages
def test_in_a_real_terminal(out: str) -> None:
    text = in_terminal(80, "ls", out)
    assert "\x1b[" in text, "colours"
    assert "published" in text
    assert "\t" not in text


def test_numbers_as_people_read_them() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 1_048_000: "1.0 MiB", 150 << 30: "150 GiB"}
    assert {size: bytes_text(size) for size in sizes} == sizes
    durations = {0.04: "0.0 s", 9.9: "9.9 s", 119: "119 s", 120: "2 min", 7199: "120 min", 7200: "2 h", 172_800: "2 d"}
    assert {seconds: duration_text(seconds) for seconds in durations} == durations
    assert (ago(1_000, 6_000), ago(6_000, 1_000)) == ("5.0 s ago", "in 5.0 s")
    assert (count_text(1, "file"), count_text(1_000, "file")) == ("1 file", "1,000 files")
    assert time_text(None) == exact_time(None) == ""
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20"
