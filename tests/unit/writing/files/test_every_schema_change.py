"""`onSchemaChange=any`: each change, in each format, is refused before a row is written, or alters no value.

Rows are written as Spark sends them, and read as users read them. `tests/unit/rows/test_widening.py` has the changes
that should be admitted. Here, each admitted change is made in directories that have every type at once.
"""

from __future__ import annotations

import random
import shutil
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.rows.spark_types import has_nearest
from tests.crash.share import THOROUGH
from tests.unit.writing.files.changing_columns import CASES, VARIANTS, Changing, tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

AS_DATASET = ("parquet", "orc", "arrow")


def rounds_of(kinds: Sequence[pa.DataType], changes: Sequence[Sequence[pa.DataType]]) -> Iterator[list[pa.DataType]]:
    """Yield types for all columns, so that each changes once to each type that it may change to; rounded ones last."""
    for is_rounded in (False, True):
        chosen = [
            [new for new in each if has_nearest(kind, new) == is_rounded]
            for each, kind in zip(changes, kinds, strict=True)
        ]
        for number in range(max(map(len, chosen))):
            yield [each[number] if number < len(each) else kind for each, kind in zip(chosen, kinds, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if THOROUGH or case not in VARIANTS])
def test_a_change_is_refused_or_changes_no_value(tmp_path: Path, case: str) -> None:
    for number, kinds in enumerate(tables_of(case)):
        first = Changing(tmp_path / str(number), case, kinds)
        before = {*first.path.rglob("*")}
        changes = first.changes()
        assert {*first.path.rglob("*")} == before
        for turn, new in enumerate(rounds_of(kinds, changes)):
            changed = first.copy(tmp_path / f"{number}-{turn}")
            changed.write(new)
            opened = ftfile.open(changed.path)
            changed.check(opened.to_arrow())
            first.check(opened.to_arrow(0))
            if case in AS_DATASET:
                is_rounded = any(map(has_nearest, kinds, new))
                with pytest.raises(ConfigError, match="with errors in the last digit") if is_rounded else nullcontext():
                    changed.check(opened.dataset().to_table())
            shutil.rmtree(changed.path)


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_changes_of_changes_change_no_value(tmp_path: Path, case: str, seed: int) -> None:
    """What came before the rows that a change begins from counts, too."""
    rng = random.Random(seed)
    changing = Changing(tmp_path / "out", case, tables_of(case)[0])
    for _ in range(9 if THOROUGH else 3):
        changing.write(changing.random_change(rng))
        changing.check(ftfile.open(changing.path).to_arrow())
