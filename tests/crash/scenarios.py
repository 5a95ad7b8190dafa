"""The scenarios in which processes are crashed, calls fail, and drivers race."""

from __future__ import annotations

from tests.crash.world import CRASH_KEYS, Batch, Scenario

# Lines with statistics, which text has not.
CSV = (("fileFormat", "csv"), ("nullValue", "-"))
# One batch is empty. In the last batch, attempts lose and fail. Spark starts a new Python process for each batch.
BATCHES = Scenario(
    "batches",
    (Batch("ab"), Batch("", batch_id=1), Batch("cd", batch_id=2, troubled=True)),
    new_processes=True,
)
# One process, which remembers the directories that it has synced.
ONE_PROCESS = Scenario("one process", tuple(Batch(letter, batch_id=number) for number, letter in enumerate("abcd")))
# The same, written directly under final names.
DIRECT = Scenario("direct", BATCHES.batches, new_processes=True, options=(("publish", "direct"),))
# Replays are recognized by their offsets, not by their content.
PARTITIONED = Scenario("partitioned", (Batch("abab"), Batch("bc", batch_id=1)), partitioned=True, checkpoint=True)
# The last record removes the existing rows and adds none.
REPLACING = Scenario(
    "replacing",
    (Batch("ab"), Batch("", "compact", "upkeep"), Batch("", "overwrite", batch_id=1)),
    settled=1,
)
# A compaction of the parts of two records.
COMPACTING = Scenario(
    "compacting",
    (Batch("ab"), Batch("ba", batch_id=1), Batch("", "compact", "upkeep")),
    settled=2,
    partitioned=True,
    options=CSV,
)
# A compaction that sorts the rows of the parts of two records.
SORTING = Scenario(
    "sorting",
    (Batch("dbac"), Batch("ca", batch_id=1), Batch("", "sort", "upkeep")),
    settled=2,
    options=CSV,
)
# One of two partitions is replaced, and one partition is new.
REPLACING_PARTITIONS = Scenario(
    "replacing-partitions",
    (Batch("ab"), Batch("bc", "replace", batch_id=1)),
    settled=1,
    partitioned=True,
)
# The replaced rows reappear, and the rows of the partition overwrite disappear.
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
    options=CSV,
)
# The same by undo, without partitions.
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
# Segments that were open are open again, with the job that was due.
RESTORING_OPEN = Scenario(
    "restoring-open",
    (Batch("abc"), Batch("", batch_id=1), Batch("abc", "restore", "upkeep", 0), Batch("d", batch_id=2)),
    settled=2,
    options=(("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# All rows of one file are deleted, and some rows of another. One file is unchanged, and one is added later.
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
    options=CSV,
)
# Open files are finished first.
DELETING_OPEN = Scenario(
    "deleting-open",
    (Batch("abc"), Batch("b", batch_id=1), Batch("b", "delete", "upkeep"), Batch("d", batch_id=2)),
    settled=2,
    options=(("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# A transaction is repeated, its rows are dropped in part, and a later transaction follows.
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
# Parts of two batches each. The second part is assembled in the third batch, the last part by a flush. The first part
# has no room for the third row, so the rest of its segment stays open.
ROLLING = Scenario(
    "rolling",
    (Batch("abc"), Batch("d", batch_id=1), Batch("", batch_id=2), Batch("e", batch_id=3)),
    settled=1,
    options=(*CSV, ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Each of two queries assembles separate parts.
TWO_ROLLING = Scenario(
    "two-rolling",
    (Batch("ab"), Batch("c", query="b"), Batch("d", batch_id=1), Batch("", query="b", batch_id=1)),
    settled=2,
    options=(("maxBatchesPerFile", "1"), ("onNewQuery", "continue")),
    flush=True,
)
# Each of two hours has a file of two batches. The first file grows after the second has begun.
WINDOWS = Scenario(
    "windows",
    (Batch("ad"), Batch("be", batch_id=1), Batch("c", batch_id=2)),
    settled=1,
    options=(("maxBatchesPerFile", "2"),),
    flush=True,
    timed=True,
)
# Like `ROLLING` in frames: the first part has room for two of three rows, so a frame is decompressed and rewritten.
COMPRESSED = Scenario(
    "compressed",
    (Batch("abc", troubled=True), Batch("d", batch_id=1), Batch("", batch_id=2)),
    options=(("compression", "gzip"), ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Like `COMPRESSED`, with encryption keys.
ENCRYPTED = Scenario(
    "encrypted",
    (Batch("ab", troubled=True), Batch("c", batch_id=1)),
    options=(("encryption", "aes-gcm"), ("keyProvider", CRASH_KEYS), ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    flush=True,
)
# Numbers of names continue from batch to batch, and names are not unique without them. Some rows become dead letters.
NAMED = Scenario(
    "named",
    (Batch("a.b"), Batch(".a", batch_id=1, troubled=True)),
    options=(("partFileName", "{name}.{number}"), ("ifExists", "fail")),
    named=True,
)
# Old files: leftovers of attempts, replaced parts, and records that checkpoints and ranges replace.
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
