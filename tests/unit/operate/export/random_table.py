"""A directory of random files, whose statistics are exported."""

from __future__ import annotations

import datetime
import math
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.random_conditions import COLUMNS, RandomConditions
from tests.unit.operate.export.formats import export

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

UTC = datetime.timezone.utc
CONDITIONS = int(os.environ.get("FTFILE_CONDITIONS", "400" if os.environ.get("FTFILE_THOROUGH") else "60"))
TYPES = {name: kind for name, (kind, _) in COLUMNS.items()}
MORE: dict[str, list[Any]] = {
    "City": ["x" * 32, "x" * 33, "x" * 31 + "\U0010ffff" * 3, "\U0010ffff" * 40, "\ud7ff" * 33],
    "raw": [b"a" * 33, b"\xff" * 40],
    "at": [datetime.datetime(2024, 7, 1, 12, 0, 0, 500_999, tzinfo=UTC)],
    "local": [datetime.datetime.fromisoformat("2024-07-01T12:00:00.500001")],
    "date": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
}


class RandomTable:
    """A directory of random files with few values: some have NaN, infinity, only nulls, or lack statistics.

    `wide` contains the types of columns after the first two batches. `nan_ids` contains the ids of the rows with NaN.
    """

    def __init__(self, dice: random.Random, url: str, wide: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._dice, self.url = dice, url
        self.draw = RandomConditions(dice, [*TYPES], "UTC", MORE)
        self._ids = 0
        self.nan_ids: set[int] = set()
        names = dice.sample([*TYPES], 3)  # are added later
        self._few = {name: kind for name, kind in TYPES.items() if name not in names}
        self._all = TYPES | dict(wide)
        self.schema = arrow_schema(spark_schema({"id": "long", **self._all}))

    def write(self, to: str) -> None:
        """Write batches with different options, and export before and after them."""
        options = [{}, {"statisticsColumns": "none"}, {"statisticsColumns": "id,real,Number"}, {}]
        for batch, more in enumerate(options):
            columns = self._few if batch < 2 else self._all
            query = MicroBatch(self.url, {"id": "long", **columns}, {"onSchemaChange": "any", **more})
            query.run(batch, [self._file(columns) for _ in range(4)])
            if self._dice.random() < 0.7:
                export(self.url, to)
        if self._dice.random() < 0.5:
            ftfile.compact(self.url, context=current())
        export(self.url, to)

    def _file(self, columns: dict[str, Any]) -> list[dict[str, Any]]:
        few, nulls = self.draw.rows(0, 2), self._dice.choice([0, 0, 0.3, 1])
        rows: list[dict[str, Any]] = []
        for _ in range(self._dice.choice([1, 2, 3, 8])):
            row = {name: None if self._dice.random() < nulls else self._dice.choice(few)[name] for name in columns}
            rows.append(row | {"id": self._ids})
            if any(isinstance(value, float) and math.isnan(value) for value in row.values()):
                self.nan_ids.add(self._ids)
            self._ids += 1
        return rows
