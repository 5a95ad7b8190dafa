"""Random conditions on random files: no file with a matching row is excluded, and certain files match in all rows.

The rows of a condition are the rows that ftfile's row filter and DuckDB select.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ftfile.read.selection import matching_rows
from ftfile.rows.bounds.guarantees import possible_by_expression
from ftfile.rows.conditions import predicate
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.micro_batch import spark_schema
from tests.kit.file_statistics import BoundedFiles, bounds_columns, entries_of
from tests.kit.random_conditions import COLUMNS, Condition, RandomConditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kit.file_statistics import Entry

# of each part; the planted mistakes fail with every seed
CONDITIONS = int(os.environ.get("FTFILE_CONDITIONS", "10000" if os.environ.get("FTFILE_THOROUGH") else "200"))
PARTS = 10
OF_THE_FILES = 100
FILES = 30
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]
_LAST = "\U0010ffff"
MORE: dict[str, list[Any]] = {
    "City": ["x" * 32, "x" * 33, "x" * 32 + "y", "x" * 31 + _LAST * 3, _LAST * 40, "\ud7ff" * 33, "\ue000"],
    "raw": [b"a" * 32, b"a" * 33, b"a\x00", b"\xff" * 31 + b"a" * 9, b"\xff" * 40, b"\x80"],
    "small": [3, 5, 9],
    "Number": [3, 5, 9],
    "real": [7.0, 8.0],
}


class Files:
    """Files with few values, their statistics, and their rows in DuckDB."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.zone = dice.choice(ZONES)
        self.draw = RandomConditions(dice, [*COLUMNS], self.zone, MORE)
        schema = arrow_schema(spark_schema({"id": "long"} | {name: kind for name, (kind, _) in COLUMNS.items()}))
        files, rows = [], list[dict[str, Any]]()
        self.file_of = list[int]()  # by id
        for number in range(FILES):
            file_rows = self._file(len(rows))
            rows += file_rows
            self.file_of += [number] * len(file_rows)
            files.append(self._with_unknowns(entries_of(pa.Table.from_pylist(file_rows, schema))))
        self.rows = pa.Table.from_pylist(rows, schema)
        self.counts = [self.file_of.count(number) for number in range(FILES)]
        self.bounded = BoundedFiles(schema, bounds_columns(files), self.counts, self.zone)

    def condition(self) -> Condition:
        """Return a random condition with literals as times, as for `+ INTERVAL 1 DAY`."""
        condition = self.draw.condition()
        return condition._replace(where=with_clock_values(condition.where, 0, self.zone))

    def expression(self, condition: Condition) -> pc.Expression:
        return predicate(condition.where, self.rows.schema, time_zone=self.zone)

    def _file(self, first: int) -> list[dict[str, Any]]:
        few, nulls = self.draw.rows(0, 2), self._dice.choice([0, 0, 0.3, 1])
        rows = []
        for row_id in range(first, first + self._dice.choice([1, 1, 2, 3, 8])):
            row = {name: None if self._dice.random() < nulls else self._dice.choice(few)[name] for name in COLUMNS}
            rows.append(row | {"id": row_id})
        return rows

    def _with_unknowns(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        for name, entry in [*entries.items()]:
            if self._dice.random() < 0.05:
                del entries[name]
            elif self._dice.random() < 0.1:
                entry[self._dice.randrange(3)] = None
        return entries


def named_columns(expression: pc.Expression, schema: pa.Schema) -> pa.Schema:
    try:
        text = str(expression)
    except UnicodeDecodeError:  # Arrow shortens long texts within a character
        return schema
    return pa.schema([column for column in schema if column.name in text])


def check(files: Files, condition: Condition, ids: Sequence[int]) -> Counter[str]:
    """Compare all answers about the files with the ids of the matching rows; return how many files have an answer."""
    expression = files.expression(condition)
    assert sorted(matching_rows(files.rows, expression)["id"].to_pylist()) == ids, condition
    matches = Counter(files.file_of[row_id] for row_id in ids)
    named = named_columns(expression, files.rows.schema)
    by_guarantee = possible_by_expression(expression, named, files.bounded.bounds, files.counts)
    masks = [by_guarantee]
    certain = [False] * FILES
    if not isinstance(condition.where, pc.Expression):
        masks.append(files.bounded.possible(condition.where))
        certain = [*files.bounded.certain(condition.where)]
    for number, count in enumerate(files.counts):
        message = f"{condition} on file {number}: {files.rows.take([files.file_of.index(number)]).to_pylist()[:1]}"
        for mask in masks:
            assert mask[number] or not matches[number], message
        assert not certain[number] or matches[number] == count, message
    return Counter(excluded=FILES - sum(masks[-1]), by_guarantee=FILES - sum(by_guarantee), certain=sum(certain))


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("part", range(PARTS))
def test_no_file_with_a_matching_row_is_excluded_and_all_rows_of_certain_files_match(seed: int, part: int) -> None:
    dice = random.Random(f"{seed} {part}")
    answers = Counter[str]()
    for first in range(0, CONDITIONS, OF_THE_FILES):
        files = Files(dice)
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'; SET threads = 1")
            database.register("given", files.rows)
            # Copy the table: DuckDB passes conditions on Arrow tables to Arrow, which orders NaN below all numbers.
            database.execute("CREATE TABLE rows AS SELECT * FROM given")
            for _ in range(min(OF_THE_FILES, CONDITIONS - first)):
                condition = files.condition()
                database.execute(f"SELECT id FROM rows WHERE {condition.sql} ORDER BY id")
                answers += check(files, condition, [row_id for (row_id,) in database.fetchall()])
    assert answers["excluded"] > CONDITIONS
    assert answers["by_guarantee"] > CONDITIONS
    assert answers["certain"] > CONDITIONS
