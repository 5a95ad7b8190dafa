"""The options of keyed stores, `format("ftkv")`, beside those that they share with files."""

from __future__ import annotations

import functools

from ftfile.core.options import kinds
from ftfile.core.options.encryption import INLINE_KEYS, NEVER_INLINE
from ftfile.core.options.kinds import Option, one_of

_store_option = functools.partial(Option, used_by=kinds.STORE_WRITE)

STORE: tuple[Option, ...] = (
    _store_option("keyColumns", kinds.COLUMNS),
    _store_option("bucketBy", kinds.COLUMNS, default=()),
    _store_option("buckets", kinds.COUNT, default=16),
    _store_option("merge", kinds.TEXT, default="last"),
    _store_option("deleteColumn", kinds.TEXT),
    _store_option("sequenceColumn", kinds.TEXT),
    _store_option("tombstoneTtl", kinds.DURATION, default=7 * 86_400.0),
    _store_option("compression", one_of("none", "lz4", "zstd", uncompressed="none"), default="lz4"),
    _store_option("blockBytes", kinds.SIZE, default=128 << 10),
    _store_option("flushIntervalCount", kinds.COUNT, default=16),
    _store_option("flushBytes", kinds.SIZE, default=2 << 20),
    _store_option("flushSize", kinds.COUNT, default=1_000_000),
    _store_option("maxFileSize", kinds.SIZE, default=128 << 20),
    _store_option("jobBytes", kinds.SIZE, default=256 << 20),
    _store_option("grace", kinds.DURATION, default=7200.0),
    _store_option("vacuumInterval", kinds.DURATION, default=3600.0),
    Option("readChangeFeed", kinds.BOOLEAN, default=False, used_by=kinds.STORE_FOLLOW),
    Option("cacheBytes", kinds.SIZE, default=256 << 20, used_by=kinds.STORE_READ),
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
