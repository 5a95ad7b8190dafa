"""Only permanently lost bytes are skipped. A warning names each skipped range."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError, FileChanged
from ftfile.core.options.kinds import FileRange
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.testing.source_run import Killed

if TYPE_CHECKING:
    from tests.unit.source.planned import Files
    from tests.unit.source.plans import Source

ROWS = [f"line {number:02}" for number in range(20)]  # 8 bytes each, including the line end
LOG = "".join(f"{row}\n" for row in ROWS).encode()


def ranges_of(text: str) -> tuple[FileRange, ...]:
    parsed: tuple[FileRange, ...] = parse_options({"skipRanges": text}, FilesOptions).skip_ranges
    return parsed


@pytest.mark.slow
@given(path=st.text(min_size=1), start=st.integers(0, 9), length=st.integers(0, 9))
def test_any_name_has_a_text(path: str, start: int, length: int) -> None:
    named = (FileRange(path, start, start + length), FileRange("a,b:1-2", 3, 4))
    assert ranges_of(",".join(one.to_text() for one in named)) == named


@pytest.mark.parametrize("path", ["caf\udce9.log", "50%, a:b c/ü.log"])
def test_names_with_any_bytes_have_a_text_in_ascii(path: str) -> None:
    text = FileRange(path, 1, 2).to_text()
    assert text.isascii()
    assert ranges_of(text) == (FileRange(path, 1, 2),)
    assert ranges_of(" ü.log:1-2, b:3-4") == (FileRange("ü.log", 1, 2), FileRange("b", 3, 4))


@pytest.mark.parametrize("text", ["", "app.log", "app.log:1", "app.log:1-", ":1-2", "a:2-1", "a:1-2,", "%ff:1-2"])
def test_what_names_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"skipRanges.*such as `app\.log:1024-2048`"):
        ranges_of(text)


@pytest.mark.parametrize("there", [True, False])
def test_a_range_with_these_bounds_has_no_rows(files: Files, there: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The range is skipped even if its file exists. The ranges before and after it are read."""
    file = files.write("app.log", LOG)
    ranges = [files.range("app.log", 0, 40), files.range("app.log", 40, 80), files.range("app.log", 80)]
    skipped = {"skip_ranges": (FileRange("app.log", 40, 80),), "max_partition_bytes": 10}
    if there:
        assert files.lines(ranges, **skipped) == [*ROWS[:5], *ROWS[10:]]
    else:
        file.unlink()
        assert files.lines(ranges[1], **skipped) == []
    warning = "skipped by skipRanges; remove this option after the batch: the bytes 40 to 80 of 'app.log'"
    assert caplog.text.count(warning) == 1


@pytest.mark.parametrize("bounds", [(40, 79), (41, 80), (0, 160), (40, 160), (0, 80), (40, 81)])
def test_a_range_with_other_bounds_is_read(
    files: Files, bounds: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    files.write("app.log", LOG)
    files.write("b.log", LOG)
    ranges = [files.range("app.log", 40, 80), files.range("b.log", 40, 80)]
    assert files.lines(ranges, skip_ranges=(FileRange("app.log", *bounds),)) == ROWS[5:10] * 2
    assert "left out" not in caplog.text


def test_a_file_that_is_read_as_a_whole_is_skipped_by_its_length(files: Files) -> None:
    files.write("app.log.gz", b"damaged")
    assert files.lines(files.whole("app.log.gz"), skip_ranges=ranges_of("app.log.gz:0-7")) == []


@pytest.mark.parametrize("there", [True, False])
def test_the_error_ends_with_the_option_that_has_all_ranges(files: Files, there: bool) -> None:
    """The error repeats the ranges of the option: a batch may lack several ranges, and each run reports one."""
    names = ["a, b.log", "c:1-2.log"]
    files.write("d.log", LOG)
    ranges = [files.range("d.log")]
    for name in names:
        file = files.write(name, LOG)
        ranges.append(files.range(name, 8, 16))
        file.unlink()
        if there:
            files.write(name, LOG.upper())
    skipped: dict[str, Any] = {}
    for number in range(2):
        with pytest.raises(FileChanged) as raised:
            files.lines(ranges, **skipped)
        option = str(raised.value).rpartition("skipRanges=")[2]
        assert option.count("8-16") == number + 1
        skipped = {"skip_ranges": ranges_of(option)}
    assert files.lines(ranges, **skipped) == ROWS


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_waits")
def test_a_log_that_was_moved_beyond_reach_is_read_on_without_exactly_its_bytes(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """While its batch waits, the log is copied to another directory and truncated. All other rows are read once."""
    source.add("app.log", 10)
    run = source.query(protocol="4.2")
    run.run()
    rows_before = len(run.rows)
    source.add("app.log", 5)
    source.add("other.log", 5)
    lost = set(source.lines[10:15])
    run.kill_at = "offsets written"
    with pytest.raises(Killed):
        run.run_batch()
    (source.path.parent / "archive").mkdir()
    shutil.copy(source.path / "app.log", source.path.parent / "archive")
    (source.path / "app.log").write_bytes(b"")
    for _ in range(2):
        run.restart()
        with pytest.raises(FileChanged) as raised:
            run.run()
    assert len(run.rows) == rows_before
    option = str(raised.value).rpartition("skipRanges=")[2]
    run.options = {**run.options, "skipRanges": option}
    run.restart()
    run.run()
    assert "skipped by skipRanges" in caplog.text
    assert sorted(row["value"] for row in run.rows) == sorted({*source.lines} - lost)
    run.options = {name: text for name, text in run.options.items() if name != "skipRanges"}
    source.add("app.log", 3)
    source.add("other.log", 3)
    run.restart()
    run.run()
    assert sorted(row["value"] for row in run.rows) == sorted({*source.lines} - lost)
