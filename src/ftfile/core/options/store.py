"""The options of keyed stores, `format("ftkv")`, beside those that they share with files."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.encryption import INLINE_KEYS, NEVER_INLINE
from ftfile.core.options.kinds import Option, one_of

STORE: tuple[Option, ...] = (
    Option(
        "keyColumns",
        kinds.COLUMNS,
        "The columns that make the key, in the order in which rows are sorted by them: strings, binaries, integers, "
        "booleans, dates, timestamps, decimals of at most 18 digits. A row in which one is null cannot be written. The "
        "first record fixes this, `bucketBy`, `buckets`, `merge` and `sequenceColumn`; later writes need not.",
        used_by=kinds.STORE_WRITE,
        default_text="that of the store; a new one needs it",
    ),
    Option(
        "bucketBy",
        kinds.COLUMNS,
        "The key columns whose hash, Spark's `xxhash64`, gives a row's bucket.",
        default=(),
        used_by=kinds.STORE_WRITE,
        default_text="all key columns",
    ),
    Option(
        "buckets",
        kinds.COUNT,
        "The number of buckets, a power of two: reads and merges are done bucket by bucket.",
        default=16,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "merge",
        kinds.TEXT,
        "The function that makes one value of those with the same key: `last`, `sum`, `min`, `max`, `append`, "
        "`coalesce`, or `module:Class` of your own. It is for all value columns, or for some, as in "
        "`n:sum,seen:max`; `last` for the others. See [keyed state](keyed-state.md#merge).",
        default="last",
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "deleteColumn",
        kinds.TEXT,
        "A boolean column, which is not stored: where it is true, the row deletes its key.",
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "sequenceColumn",
        kinds.TEXT,
        "A value column: of rows with the same key the one wins in which it is greatest, in whichever batch it comes.",
        used_by=kinds.STORE_WRITE,
        default_text="none: the last row wins",
    ),
    Option(
        "tombstoneTtl",
        kinds.DURATION,
        "With `sequenceColumn`, a deleted key stays deleted for this long when older rows come late.",
        default=7 * 86_400.0,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "compression",
        one_of("none", "lz4", "zstd", uncompressed="none"),
        "The codec of the blocks of rows. `none` is read fastest from local disks.",
        default="lz4",
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "blockBytes",
        kinds.SIZE,
        "A block of rows has about this size before compression. A lookup reads one; larger ones make scans faster.",
        default=128 << 10,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "flushIntervalCount",
        kinds.COUNT,
        "The new runs of a bucket are merged when there are as many: a batch and task gives each bucket one.",
        default=16,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "flushBytes",
        kinds.SIZE,
        "The new runs of a bucket are merged when they have this size.",
        default=2 << 20,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "flushSize",
        kinds.COUNT,
        "The new runs of a bucket are merged when they have this number of rows.",
        default=1_000_000,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "maxFileSize",
        kinds.SIZE,
        "A merge begins another run after this size.",
        default=128 << 20,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "jobBytes",
        kinds.SIZE,
        "A merge reads at most about this much; a larger one is done in parts, by keys.",
        default=256 << 20,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "grace",
        kinds.DURATION,
        "The time for which runs that a merge has replaced stay, for readers of older versions and for tasks of "
        "batches that take long.",
        default=7200.0,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "vacuumInterval",
        kinds.DURATION,
        "The driver deletes what is older than `grace` once in this time, after a commit; `0s` leaves it to you.",
        default=3600.0,
        used_by=kinds.STORE_WRITE,
    ),
    Option(
        "readChangeFeed",
        kinds.BOOLEAN,
        "With `readStream`, read the changes of a store; see [keyed state](keyed-state.md#the-change-feed). It must be "
        "`true`, since columns are other ones than those of the store.",
        default=False,
        used_by=kinds.STORE_FOLLOW,
    ),
    Option(
        "cacheBytes",
        kinds.SIZE,
        "The memory of a process for pages and blocks that it has read.",
        default=256 << 20,
        used_by=kinds.STORE_READ,
    ),
)

_KEYS = "the key columns are keyColumns; keys of encryption are never given in options"

# What others, and the file sink, call these things.
COMMON_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ("mergeschema", "merge-schema", "schemaevolution"),
        "new columns and wider types are taken with onSchemaChange=widen, where rows are written; a reader has the "
        "newest columns",
    ),
    "overwriteschema": "mode('overwrite') takes any schema; leave it out",
    "outputmode": "it is no option, but a call: writeStream.outputMode(…)",
    "trigger": "it is no option, but a call: writeStream.trigger(…)",
    **dict.fromkeys(
        ("mode", "savemode", "writemode", "append", "overwrite"),
        "append and overwrite are no option, but a call: write.mode(…); a reader has no modes, and fails at damage",
    ),
    **dict.fromkeys(("where", "filter", "select", "columns", "limit"), "it is no option, but a call of a DataFrame"),
    **dict.fromkeys(
        ("numpartitions", "repartition", "coalesce"),
        "the tasks that write are those of the DataFrame: DataFrame.repartition(…)",
    ),
    # Whatever begins so.
    **dict.fromkeys(
        ("delta.*", "hoodie.*", "cloudfiles.*", "write.*", "read.*"),
        "it is of another program's tables, and ftfile has nothing like it by this name: leave it out",
    ),
    "spark.*": "settings of Spark are those of the session: spark.conf.set(…)",
    "fs.*": "settings of a store are options storage.<name>; those of Hadoop are for Spark's own readers",
}

STORE_ELSEWHERE: dict[str, str] = {
    **COMMON_ELSEWHERE,
    **dict.fromkeys(INLINE_KEYS, NEVER_INLINE),
    **dict.fromkeys(("key", "keys"), _KEYS),
    **dict.fromkeys(
        ("primarykey", "primary-key", "recordkey", "hoodie.datasource.write.recordkey.field"),
        "the key columns are keyColumns",
    ),
    "partitionby": "rows go to buckets by the hash of bucketBy",
    "clusterby": "rows are sorted by keyColumns",
    "datachange": "each write is a change of data; ftfile.kv.compact(path) rewrites runs without one",
    **dict.fromkeys(("bucket", "numbuckets"), "the number of buckets is buckets"),
    **dict.fromkeys(("merge-engine", "mergeoperator"), "the function that merges values is merge"),
    **dict.fromkeys(
        ("sequence.field", "precombine.field", "hoodie.datasource.write.precombine.field"),
        "the column whose greatest value wins is sequenceColumn",
    ),
    "maxbytesperfile": "the size of files is maxFileSize",
    "maxwritebuffersize": "the memory of a task for rows that it has not written is maxOpenBytes",
    "retention": "the time for which replaced runs stay is grace",
}
