"""Column names with any characters: in schemas, in files and in the output of `migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError, SchemaError
from ftfile.rows.spark_types import arrow_schema, quoted_name
from ftfile.tools.migrate.reading import given_schema
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a`b", "a.b", "it's", 'a "b"', "a, b", "a (b", "two\nlines", "`", "x`` long, `y", "`whole`", "a=b"]


@parametrize("name", NAMES, quick=6)
@pytest.mark.parametrize("way", ["text", "mapping", "pyarrow", "JSON"])
def test_names_survive_in_schemas(name: str, way: str) -> None:
    schemas: dict[str, Any] = {
        "text": f"id long, {quoted_name(name)} decimal(10, 2) , last string",
        "mapping": {"id": "long", name: "decimal(10, 2)", "last": "string"},
        "pyarrow": pa.schema([("id", pa.int64()), (name, pa.decimal128(10, 2)), ("last", pa.string())]),
    }
    schemas["JSON"] = given_schema(schemas["pyarrow"])
    assert arrow_schema(given_schema(schemas[way])) == arrow_schema(schemas["JSON"])
    assert arrow_schema(schemas["JSON"]).names == ["id", name, "last"]


@pytest.mark.parametrize(
    "text", ["", " ", "id", "id long,", ",", "`a` b` long", "`a`` long", "`` long", "a`b long", "id long name string"]
)
def test_texts_that_are_no_columns(text: str) -> None:
    with pytest.raises(SchemaError, match="is not a column name with a simple type"):
        given_schema(text)


@pytest.mark.parametrize("kind", ["long, `x` long", "struct<a: long>", "long) (", "`long`", "decimal(1,x)"])
def test_a_type_in_a_mapping_is_one_type(kind: str) -> None:
    with pytest.raises(SchemaError):
        given_schema({"a": kind})


@parametrize("name", NAMES, quick=3)
def test_names_survive_a_migration(tmp_path: Path, name: str) -> None:
    struct = pa.struct([(name, pa.int64())])
    columns = {name: pa.array([1, 2]), "nested": pa.array([{name: 3}, None], struct)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    shown = run("migrate", tmp_path, "--dry-run").output
    assert quoted_name(name).split("\n")[0] in shown
    assert f"struct<{quoted_name(name)}:bigint>".split("\n")[0] in shown
    ftfile.migrate(str(tmp_path), dry_run=False)
    assert ftfile.open(str(tmp_path)).to_arrow().to_pydict() == pa.table(columns).to_pydict()


def test_the_proposal_of_columns_in_paths_can_be_pasted(tmp_path: Path) -> None:
    directory = tmp_path / "it%27s $HOME=1"
    directory.mkdir()
    (directory / "a.json").write_text("{}\n")
    with pytest.raises(ConfigError, match="such as partition_by=") as caught:
        ftfile.migrate(str(tmp_path), schema="id long")
    assert """--partition-by 'it'"'"'s $HOME=string'""" in caught.value.in_commands()
