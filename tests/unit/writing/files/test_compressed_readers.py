"""Readers of each codec: every claim of the table in docs/compression.md, but for Spark's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.json
import pytest
import zstandard

import ftfile
from ftfile.core.codecs import CODECS
from ftfile.filters.chain import codec
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import slow_after

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = [{"n": n, "s": f"a word, and {n * n} more"} for n in range(15_000)]
PAGE = Path(__file__).parents[4] / "docs" / "compression.md"
SHELL = ("zcat", "zstdcat", "lz4cat", "bzcat", "xzcat")


def claims() -> dict[str, dict[str, str]]:
    """The table: by codec and column."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    head = next(line for line in PAGE.read_text().splitlines() if line.startswith("| `compression`"))
    names = head.strip("| ").split(" | ")
    rows = [dict(zip(names, cells, strict=True)) for cells in lines if cells[0].strip("`") in CODECS]
    return {row["`compression`"].strip("`"): row for row in rows}


CLAIMS = claims()


@pytest.fixture(scope="module", params=slow_after(2, CODECS, packages=True))
def part(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of several frames, some of them joined."""
    out = tmp_path_factory.mktemp(request.param)
    query = MicroBatch(
        str(out),
        {"n": "long", "s": "string"},
        {"fileFormat": "json", "compression": request.param, "rolling": "policy"},
    )
    for batch in range(3):
        query.run(batch, [ROWS[batch * 5_000 :][:5_000]])
    ftfile.flush(str(out))
    (path,) = out.glob("part-*")
    return path


def claim(part: Path, reader: str) -> str:
    return next(row[reader] for row in CLAIMS.values() if part.name.endswith(row["files end in"].strip("`")))


def test_the_table_is_of_all_codecs() -> None:
    assert set(CLAIMS) == set(CODECS)
    for name, row in CLAIMS.items():
        settled = codec(name)
        levels = f"{settled.levels[0]} to {settled.levels[1]} ({settled.level_default})" if settled.levels else "none"
        assert (row["files end in"], row["levels (default)"]) == (f"`{settled.extension}`", levels)


def by_duckdb(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        found = connection.execute(f"select n, s from read_json('{path}')").fetchall()
    return [{"n": n, "s": s} for n, s in found]


def by_pandas(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pd.read_json(path, lines=True).to_dict("records")
    return rows


def by_pyarrow(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.json.read_json(path).to_pylist()
    return rows


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "DuckDB": by_duckdb,
    "pandas": by_pandas,
    "pyarrow": by_pyarrow,
}


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("reader", READERS)
def test_readers(part: Path, reader: str) -> None:
    if claim(part, reader) == "yes":
        assert READERS[reader](part) == ROWS
        return
    assert claim(part, reader) == "no"
    with pytest.raises((duckdb.Error, ValueError, OSError)):
        READERS[reader](part)


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("command", SHELL)
def test_commands(part: Path, command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"no {command} on this machine")
    lines = ftfile.open(str(part.parent)).to_arrow().num_rows
    run = subprocess.run([command, str(part)], capture_output=True, check=False)
    if claim(part, "shell") == f"`{command}`":
        assert run.returncode == 0, run.stderr
        assert run.stdout.count(b"\n") == lines == len(ROWS)
    elif command.removesuffix("cat") not in {"zstd", "lz4"}:  # these two try their best
        assert run.returncode
    elif claim(part, "shell") == "no":
        assert run.stdout == part.read_bytes()  # passed on as it is


@pytest.mark.slow
def test_pyarrow_reads_lz4_frames_when_told(part: Path) -> None:
    if part.suffix == ".lz4f":
        with pa.input_stream(str(part), compression="lz4") as file:
            assert file.read().count(b"\n") == len(ROWS)


def test_a_call_that_reads_one_frame_misses_the_others(part: Path) -> None:
    if part.suffix == ".zst":
        found = zstandard.ZstdDecompressor().decompress(part.read_bytes(), max_output_size=1 << 30)
        assert 0 < found.count(b"\n") < len(ROWS)


def test_pandas_needs_a_package_for_zstd(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if part.suffix == ".zst":
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(ImportError, match="zstandard"):
            by_pandas(part)
