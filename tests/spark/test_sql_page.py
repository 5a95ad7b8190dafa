"""The statements of docs/sql.md, run in sequence in Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs/sql.md"


def test_each_statement_does_what_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    def run(statement: str) -> None:
        spark.sql(statement.replace("/data/", f"{tmp_path}/")).collect()

    page = PAGE.read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    rows = re.findall(r"^\| (`{1,2})(.+?) ?\1 \| (ignored|error): (.*?)(?:\. .*?)? \|", page, re.MULTILINE)
    assert len(rows) == page.count("| ignored: ") + page.count("| error: ") > 10
    tables = re.findall(r"CREATE TABLE (\w+)", page)
    try:
        for statement in filter(str.strip, block.split(";")):
            run(statement)
        assert sorted(ftfile.open(str(tmp_path / "out")).to_arrow()["id"].to_pylist()) == [1, 3]
        for _, statement, effect, words in rows:
            if effect == "ignored":
                run(statement)
                continue
            with pytest.raises(Exception, match=re.escape(words.replace("`", "")) + "|" + re.escape(words)):
                run(statement)
        assert not (tmp_path / "located").exists()
        assert not (tmp_path / "optioned").exists()
        assert (tmp_path / "out").exists()
    finally:
        for name in tables:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
        for name in ("v", "v0"):
            spark.catalog.dropTempView(name)
