"""Names of partitions: `migrate` refuses names that Spark reads as another text than DuckDB, Polars and pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.formats.partition_paths import without_escaped_bytes
from ftfile.testing.context import current

if TYPE_CHECKING:
    from collections.abc import Callable

pl = pytest.importorskip("polars")

WORDS = ["é", "a b", "x/y%=+:", "日本 语", "😀", "Ã©", "%C3%A9", "plain"]
TABLE = pa.table({"n": range(len(WORDS)), "p": WORDS})


def by_pyarrow(out: str, table: pa.Table) -> None:
    columns = ds.partitioning(pa.schema([table.schema.field(name) for name in table.column_names[1:]]), flavor="hive")
    ds.write_dataset(table, out, format="parquet", partitioning=columns)


def by_polars(out: str, table: pa.Table) -> None:
    pl.DataFrame(table).write_parquet(out, partition_by=table.column_names[1:], mkdir=True)


def by_duckdb(out: str, table: pa.Table) -> None:
    names = ", ".join(f'"{name}"' for name in table.column_names[1:])
    duckdb.from_arrow(table).query("rows", f"COPY rows TO '{out}' (FORMAT parquet, PARTITION_BY ({names}))")


def read_by_pyarrow(out: Path) -> dict[int, str]:
    kinds = ds.partitioning(pa.schema({"p": pa.string()}), flavor="hive")
    schema = pa.schema({"n": pa.int64(), "p": pa.string()})
    files = [str(path) for path in out.glob("*/*.parquet")]
    return by_number(ds.dataset(files, schema, partitioning=kinds, partition_base_dir=str(out)).to_table())


def read_by_polars(out: Path) -> dict[int, str]:
    return by_number(pl.read_parquet(out / "**/*.parquet", hive_schema={"p": pl.String}).to_arrow())


def read_by_duckdb(out: Path) -> dict[int, str]:
    sql = f"FROM read_parquet('{out}/*/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
    return by_number(duckdb.connect().execute(sql).to_arrow_table())


def read_by_ftfile(out: Path) -> dict[int, str]:
    return by_number(ftfile.open(str(out), context=current()).to_arrow())


READERS = [read_by_pyarrow, read_by_polars, read_by_duckdb, read_by_ftfile]
WRITERS: dict[str, Callable[[str, pa.Table], None]] = {"pyarrow": by_pyarrow, "Polars": by_polars, "DuckDB": by_duckdb}


def by_number(table: pa.Table) -> dict[int, str]:
    return {row["n"]: row["p"] for row in table.to_pylist()}


def migrate(out: Path, **settings: Any) -> None:
    ftfile.migrate(str(out), dry_run=False, context=current(), **settings)


def put(directory: Path) -> None:
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), directory / "part.parquet")


def rename(out: Path) -> None:
    for path in [path for path in out.iterdir() if path.name[0] != "_"]:
        path.rename(out / without_escaped_bytes(path.name))


@pytest.mark.parametrize("writer", WRITERS)
def test_names_of_each_program_are_refused_until_they_are_renamed(tmp_path: Path, writer: str) -> None:
    out = tmp_path / "out"
    WRITERS[writer](str(out), TABLE)
    before = sorted(path.name for path in out.iterdir())
    for is_dry in (True, False):
        with pytest.raises(ConfigError, match=r"decode.*Spark reads as one character each\. Rename it to 'p="):
            ftfile.migrate(str(out), partition_by={"p": "string"}, dry_run=is_dry, context=current())
    assert sorted(path.name for path in out.iterdir()) == before
    rename(out)
    migrate(out, partition_by={"p": "string"})
    for read in READERS:
        assert read(out) == dict(enumerate(WORDS)), read.__name__


@pytest.mark.parametrize("writer", WRITERS)
def test_ascii_names_of_each_program_are_taken(tmp_path: Path, writer: str) -> None:
    out, words = tmp_path / "out", [word for word in WORDS if word.isascii()]
    WRITERS[writer](str(out), pa.table({"n": range(len(words)), "p": words}))
    migrate(out, partition_by={"p": "string"})
    for read in READERS:
        assert read(out) == dict(enumerate(words)), read.__name__


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("p=%C3%A9", "p=é"),
        ("p=%c3%a9%2F%25", "p=é%2F%25"),
        ("p=é%C3%A9", "p=éé"),
        ("p=%F0%9F%98%80x%E6%97%A5", "p=😀x日"),
        ("%C3%B6=1", "ö=1"),
        ("p=1/q=%C3%A9", "p=1/q=é"),
        ("p=%C3%83%C2%A9", "p=Ã©"),
        ("p=%C2%85", "p=\x85"),
    ],
)
def test_names_with_bytes_of_utf_8(tmp_path: Path, name: str, renamed: str) -> None:
    put(tmp_path / name)
    with pytest.raises(ConfigError) as error:
        migrate(tmp_path, partition_by=dict.fromkeys("pq", "string"))
    assert f"Rename it to {renamed!r}" in str(error.value)
    assert without_escaped_bytes(name) == renamed


@pytest.mark.parametrize("name", ["p=%E9", "p=%C3", "p=%A9%C3", "p=%C3x%A9", "p=%ff%fe", "p=%ED%A0%80", "p=é%E9"])
def test_names_with_other_bytes(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    with pytest.raises(ConfigError, match="escaped bytes that are not UTF-8, so programs read different values"):
        migrate(tmp_path, partition_by={"p": "string"})
    assert not (tmp_path / "_ftfile").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p=é", "é"),
        ("p=Ã©", "Ã©"),
        ("p=é %2F%25", "é /%"),
        ("p=%25C3%25A9", "%C3%A9"),
        ("p=%zz%C", "%zz%C"),
        ("%C3%A9/p=1", "1"),
    ],
)
def test_names_that_all_programs_read_alike(tmp_path: Path, name: str, value: str) -> None:
    put(tmp_path / name)
    migrate(tmp_path, partition_by={"p": "string"})
    assert read_by_ftfile(tmp_path) == {1: value}


def test_the_page_renames_many_directories(tmp_path: Path) -> None:
    out = tmp_path / "out"
    by_duckdb(str(out), pa.table({"n": [1, 2, 3], "ö": ["é", "é", "a b"], "p": ["日", "x/%", "é"]}))
    page = (Path(__file__).parents[4] / "docs/migrating/README.md").read_text()
    (code,) = [block for block in page.split("```python\n")[1:] if "fromhex" in block]
    code = code.partition("```")[0]
    assert "/data/out" in code
    exec(code.replace("/data/out", str(out)), {})
    migrate(out, partition_by={"ö": "string", "p": "string"})
    rows = ftfile.open(str(out), context=current()).to_arrow().sort_by("n").to_pylist()
    assert rows == [
        {"n": 1, "ö": "é", "p": "日"}, {"n": 2, "ö": "é", "p": "x/%"}, {"n": 3, "ö": "a b", "p": "é"}
    ]  # fmt: skip
