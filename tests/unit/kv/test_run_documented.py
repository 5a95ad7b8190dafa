"""docs/internals/format.md has all of a run, and the names in the records of a store, as the code has them."""

from __future__ import annotations

import re
import struct
from itertools import accumulate
from pathlib import Path

import pytest

from ftfile.kv.config import StoreConfig
from ftfile.kv.hashing import hash_rows
from ftfile.kv.planning.picker import Backoff, Compaction
from ftfile.kv.planning.plan import job_of
from ftfile.kv.planning.runs import RunMetadata, run_of
from ftfile.kv.run.block_batch import COMPRESSIONS
from ftfile.kv.run.index import TRAILER
from ftfile.log.format.model import Add, Origin
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.micro_batch import spark_schema
from tests.unit.kv.documented_run import Documented
from tests.unit.kv.runs import written
from tests.unit.kv.test_runs import TYPED, TYPED_KEYS, typed

METADATA = RunMetadata((0, 0), None).to_json()

PAGE = (Path(__file__).parents[3] / "docs/internals/format.md").read_text()


def test_the_trailer_is_that_of_the_code() -> None:
    (rows,) = re.findall(r"<!-- trailer -->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
    documented = [tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows.splitlines()]
    assert documented == [(name, str(struct.calcsize(f"<{kind}"))) for name, kind in TRAILER.items()]
    assert sum(int(size) for _, size in documented) == 70


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", [0, 1, 300, 5000])
def test_rows_are_read_as_the_page_describes_them(rows: int, compression: str) -> None:
    batch = typed(rows)
    run = Documented(written([batch], TYPED, TYPED_KEYS, compression))
    assert run.rows == batch.to_pylist()
    assert arrow_schema(run.schema) == TYPED
    firsts = [0, *accumulate(run.block_rows)] if rows else []
    assert run.keys == [{name: run.rows[min(row, rows - 1)][name] for name in TYPED_KEYS} for row in firsts]
    assert (len(run.pages) > 0) == (rows >= 4096)
    if run.pages:
        for row, key_hash in [*enumerate(hash_rows(batch.columns[:7]).tolist())][::97]:
            assert run.place_of(key_hash, row.__eq__) == row
            assert run.place_of(key_hash, lambda _: False) is None


def test_names_in_records_are_those_of_the_code() -> None:
    config = StoreConfig.from_options({"path": "memory://x", "keyColumns": "k"}, spark_schema({"k": "string"}))
    settings = config.settings()
    add = Add("id", "segment", "p", None, 0, 0, "", 0, "b=00000", "e", Origin("q", 0, 0), rolling_stats=METADATA)
    retry = job_of(Compaction("level0", (run_of(add),), Backoff("id", 0, attempts=3, not_before=64)), 1)
    written = {
        "definition": config.definition.to_json(),
        "settings": settings["store"],
        "plan": settings["store"]["plan"],
        "metadata": METADATA,
        "job": retry.payload,
    }
    assert {*settings} == {"store", "storage", "durability"}
    tables = dict(re.findall(r"<!-- names: (\w+) -->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE))
    documented = {name: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) for name, text in tables.items()}
    assert documented == {name: [*text] for name, text in written.items()}
