"""The scenarios that are crashed, failed and raced."""

from __future__ import annotations

from tests.crash.world import CRASH_KEYS, Batch, Scenario

# One batch is empty; of another, attempts lose and fail; Spark keeps no Python process.
BATCHES = Scenario(
    "batches",
    (Batch("ab"), Batch("", batch_id=1), Batch("cd", batch_id=2, troubled=True)),
    new_processes=True,
)
# The same under final names.
DIRECT = Scenario("direct", BATCHES.batches, new_processes=True, options=(("publish", "direct"),))
# Replays are recognised by their offsets, not by their content.
PARTITIONED = Scenario("partitioned", (Batch("abab"), Batch("bc", batch_id=1)), partitioned=True, checkpoint=True)
# The last record hides what was there and shows nothing.
REPLACING = Scenario(
    "replacing",
    (Batch("ab"), Batch("", "compact", "upkeep"), Batch("", "overwrite", batch_id=1)),
    settled=1,
)
# A compaction of two records.
COMPACTING = Scenario(
    "compacting",
    (Batch("ab"), Batch("ba", batch_id=1), Batch("", "compact", "upkeep")),
    settled=2,
    partitioned=True,
)
# One partition of two is replaced, and one is new.
REPLACING_PARTITIONS = Scenario(
    "replacing-partitions",
    (Batch("ab"), Batch("bc", "replace", batch_id=1)),
    settled=1,
    partitioned=True,
)
# What was replaced comes back, what the overwrite of partitions brought goes.
RESTORING = Scenario(
    "restoring",
    (
        Batch("ab"),
        Batch("bc", "replace", batch_id=1),
        Batch("ab", "restore", "upkeep", 0),
        Batch("d", batch_id=2),
    ),
    settled=2,
    partitioned=True,
)
# The same, undone, without partitions.
UNDOING = Scenario(
    "undoing",
    (
        Batch("ab"),
        Batch("", "drop", "upkeep"),
        Batch("ab", "restore", "undo", 0),
        Batch("", "restore", "undo", 1),
        Batch("ab", "restore", "undo", 2),
    ),
    settled=3,
)
# What was open comes back open, with the job that was due.
RESTORING_OPEN = Scenario(
    "restoring-open",
    (Batch("abc"), Batch("", batch_id=1), Batch("abc", "restore", "upkeep", 0), Batch("d", batch_id=2)),
    settled=2,
    options=(("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Of one file all rows go, of another some, one stays as it is, and one comes later.
DELETING = Scenario(
    "deleting",
    (
        Batch("ab"),
        Batch("b", batch_id=1),
        Batch("c", batch_id=2),
        Batch("b", "delete", "upkeep"),
        Batch("d", batch_id=3),
    ),
    settled=3,
)
# What is open is finished first.
DELETING_OPEN = Scenario(
    "deleting-open",
    (Batch("abc"), Batch("b", batch_id=1), Batch("b", "delete", "upkeep"), Batch("d", batch_id=2)),
    settled=2,
    options=(("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# A batch write that is repeated, what it brings is dropped in part, and what is left is repeated over.
REPEATING = Scenario(
    "repeating",
    (
        Batch("ab"),
        Batch("bc", "transaction", "app", 3),
        Batch("b", "drop", "upkeep"),
        Batch("d", "transaction", "app", 4),
    ),
    settled=1,
    partitioned=True,
)
# Parts of two batches each; the second is made in the third batch, the last by a flush. Of the first there is no room
# for the third row, so that the rest of its segment stays open.
ROLLING = Scenario(
    "rolling",
    (Batch("abc"), Batch("d", batch_id=1), Batch("", batch_id=2), Batch("e", batch_id=3)),
    settled=1,
    options=(("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Of two queries, each makes the parts of its own.
TWO_ROLLING = Scenario(
    "two-rolling",
    (Batch("ab"), Batch("c", query="b"), Batch("d", batch_id=1), Batch("", query="b", batch_id=1)),
    settled=2,
    options=(("maxBatchesPerFile", "1"), ("onNewQuery", "continue")),
    flush=True,
)
# Of two hours, each has a file of two batches, and the first goes on after the second has begun.
WINDOWS = Scenario(
    "windows",
    (Batch("ad"), Batch("be", batch_id=1), Batch("c", batch_id=2)),
    settled=1,
    options=(("maxBatchesPerFile", "2"),),
    flush=True,
    timed=True,
)
# As `ROLLING` in frames: of the first part's three rows there is room for two, so that a frame is opened and made anew.
COMPRESSED = Scenario(
    "compressed",
    (Batch("abc", troubled=True), Batch("d", batch_id=1), Batch("", batch_id=2)),
    options=(("compression", "gzip"), ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# As `COMPRESSED`, with keys.
ENCRYPTED = Scenario(
    "encrypted",
    (Batch("ab", troubled=True), Batch("c", batch_id=1)),
    options=(("encryption", "aes-gcm"), ("keyProvider", CRASH_KEYS), ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Names go on counting, and are not unique by themselves; some rows become dead letters.
NAMED = Scenario(
    "named",
    (Batch("a.b"), Batch(".a", batch_id=1, troubled=True)),
    options=(("partFileName", "{name}.{number}"), ("ifExists", "fail")),
    named=True,
)
# Long ago: what attempts left, what was replaced, and records that checkpoints and ranges stand for.
VACUUMED = Scenario(
    "vacuumed",
    (
        Batch("ab", troubled=True),
        Batch("c", batch_id=1),
        Batch("", "compact", "upkeep"),
        *(Batch("", batch_id=batch_id) for batch_id in range(2, 6)),
        Batch("d", batch_id=6),
        Batch("", "compact", "upkeep", 1),
        Batch("e", batch_id=7),
    ),
    settled=7,
    vacuum=True,
)
TWO_QUERIES = Scenario(
    "two-queries",
    (Batch("a"), Batch("b", query="b"), Batch("c", batch_id=1)),
    settled=1,
    options=(("onNewQuery", "continue"),),
)
