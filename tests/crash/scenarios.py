"""What is crashed, failed and raced."""

from __future__ import annotations

from tests.crash.world import Batch, Scenario

BATCHES = Scenario(
    "batches, one of them empty, with attempts that lose or fail",
    (Batch("ab"), Batch("", batch_id=1), Batch("cd", batch_id=2, troubled=True)),
    new_processes=True,
)
PARTITIONED = Scenario("partitioned directory", (Batch("abab"), Batch("bc", batch_id=1)), partitioned=True)
REPLACING = Scenario(
    "compaction and overwrite",
    (Batch("a"), Batch("b", "compact", batch_id=1), Batch("c", "overwrite", batch_id=2)),
    settled=1,
)
TWO_QUERIES = Scenario(
    "two queries in one directory",
    (Batch("a"), Batch("b", query="b"), Batch("c", batch_id=1)),
    settled=1,
    options=(("onNewQuery", "continue"),),
)
