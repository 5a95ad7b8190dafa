"""The option table; docs/options.md describes the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.options import kinds
from ftfile.core.options.typed import (
    DirectoryFollowOptions,
    FilesOptions,
    ReadOptions,
    SinkOptions,
    StoreFollowOptions,
    StoreReadOptions,
    StoreSinkOptions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.core.options.declaration import Option
    from ftfile.core.options.typed import Options, Use


def _options_of(*classes: type[Options]) -> tuple[Option[Any], ...]:
    """Return the options of all classes; classes can share options."""
    options: dict[Option[Any], None] = {}
    for each in classes:
        options |= dict.fromkeys(each.BY_NAME.values())
    return tuple(options)


OPTIONS = _options_of(
    SinkOptions,
    ReadOptions,
    DirectoryFollowOptions,
    FilesOptions,
    StoreSinkOptions,
    StoreReadOptions,
    StoreFollowOptions,
)


def _by_key() -> dict[str, list[Option[Any]]]:
    """Return the options by name in lower case; files and stores can have options of the same name."""
    options: dict[str, list[Option[Any]]] = {}
    for option in OPTIONS:
        options.setdefault(option.name.lower(), []).append(option)
    return options


_BY_KEY = _by_key()


def option_named(name: str, uses: Iterable[Use]) -> Option[Any] | None:
    """Return the option with a name that is for one of the uses, else any option with this name."""
    options = _BY_KEY.get(name.lower(), [])
    for option in options:
        if not option.used_by.isdisjoint(uses):
            return option
    return options[0] if options else None


NEVER_INLINE = "keys are never set in options, which Spark shows to all users: name their location with keyProvider"

# Names that other programs use for keys, and similar names.
INLINE_KEYS = (
    *("aeskey", "datakey", "encryption.key", "encryption_key", "encryptionkey", "encryptionkeys"),
    *("encryptionpassword", "key", "keys", "kmskey", "masterkey", "password", "passphrase", "secret", "secretkey"),
    *("parquet.encryption.key.list", "parquet.encryption.footer.key"),
    *("parquet.encryption.column.keys", "parquet.encryption.uniform.key"),
)

_KEYS = "use keyColumns for the key columns; encryption keys are never set in options"

# Names of these options in other programs and in the file sink.
COMMON_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ("mergeschema", "merge-schema", "schemaevolution"),
        "the writer accepts new columns and wider types with onSchemaChange=widen; a reader returns the newest columns",
    ),
    "overwriteschema": "mode('overwrite') accepts any schema; leave it out",
    "outputmode": "call writeStream.outputMode(…)",
    "trigger": "call writeStream.trigger(…)",
    **dict.fromkeys(
        ("mode", "savemode", "writemode", "append", "overwrite"),
        "call write.mode(…); a reader has no modes, and fails if data is damaged",
    ),
    **dict.fromkeys(("where", "filter", "select", "columns", "limit"), "call the method of the DataFrame"),
    **dict.fromkeys(
        ("numpartitions", "repartition", "coalesce"),
        "call DataFrame.repartition(…)",
    ),
    "inferschema": (
        "the log of a directory of ftfile contains its columns; give the columns of other files with .schema(…)"
    ),
    # All names with this beginning.
    **dict.fromkeys(
        ("delta.*", "hoodie.*", "cloudfiles.*", "write.*", "read.*"),
        "it is an option of another program: leave it out",
    ),
    "spark.*": "set it in the session: spark.conf.set(…)",
    "fs.*": "use storage.<name>; settings of Hadoop are for Spark's own readers",
    "replication": "use storage.replication",
    "blocksize": "use storage.blockSize",
}

STORE_ELSEWHERE: dict[str, str] = {
    **COMMON_ELSEWHERE,
    **dict.fromkeys(INLINE_KEYS, NEVER_INLINE),
    **dict.fromkeys(("key", "keys"), _KEYS),
    **dict.fromkeys(
        ("primarykey", "primary-key", "recordkey", "hoodie.datasource.write.recordkey.field"),
        "use keyColumns",
    ),
    "partitionby": "use bucketBy: its hash chooses the bucket of a row",
    "clusterby": "rows are sorted by keyColumns",
    "datachange": "each write changes data; ftfile.kv.compact(path) rewrites runs without a change of data",
    **dict.fromkeys(("bucket", "numbuckets"), "use buckets"),
    **dict.fromkeys(("merge-engine", "mergeoperator"), "use merge"),
    **dict.fromkeys(
        ("sequence.field", "precombine.field", "hoodie.datasource.write.precombine.field"),
        "use sequenceColumn",
    ),
    "maxbytesperfile": "use maxFileSize",
    "maxwritebuffersize": "use maxOpenBytes",
    "retention": "use grace",
}

_BEGINNING = "use startingVersion or startingTimestamp"
_CHANGES = "use skipChangeCommits=true"
FOLLOWING_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("startingoffset", "stream-from-timestamp"), _BEGINNING),
    **dict.fromkeys(("ignorechanges", "ignoredeletes", "ignorefiledeletion"), _CHANGES),
    **dict.fromkeys(
        (
            "schematrackinglocation",
            "schemalocation",
            "allowsourcecolumndrop",
            "allowsourcecolumnrename",
            "allowsourcecolumntypechange",
        ),
        "a stream has the newest columns, or the columns of .schema(…); it ends when the columns change: load and "
        "start it again",
    ),
    **dict.fromkeys(("streaming-skip-overwrite-snapshots", "streaming-skip-delete-snapshots"), _CHANGES),
    "streaming-max-files-per-micro-batch": "use maxFilesPerTrigger",
    **dict.fromkeys(
        ("streaming-max-rows-per-micro-batch", "maxoffsetspertrigger", "maxrecordspertrigger"),
        "use maxRowsPerTrigger",
    ),
    "scanintervalmillis": "use scanInterval",
    **dict.fromkeys(("filepatternregexp", "filepatternregularexp"), "use filePattern"),
    "ignorefilepatternregularexp": "use ignoreFilePattern",
    "maxretrycount": "use maxRetries",
    "maxcachedfiles": "the state has at most a million files; maxFileAge forgets files sooner",
    "latestfirst": "the oldest files are always read first",
    "filenameonly": "a file is identified by its path and content: see fileIdentity",
    **dict.fromkeys(("modifiedbefore", "modifiedafter"), "use filePattern, or startingOffsets=latest"),
}

# Defaults for files that stay open over micro-batches. Other files have no limits.
ROLLED_BYTES = 128 << 20
ROLLED_INACTIVITY_S = 3600.0
# Only for files: a store has another option compression.
DEFAULTS = {option.name: option.default for option in OPTIONS if option.used_by & kinds.OF_FILES}

SPARK_KEYS = frozenset(
    {"checkpointlocation", "queryname", "owner", "location", "provider", "external", "is_managed_location"}
)

# The beginnings of options for classes of the user,
OWN_PREFIXES = ("directoryassigner.", "encoder.", "format.")
# and for the driver of the file system.
STORAGE_PREFIX = "storage."

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("format", "filetype", "write-format", "write.format.default"), "use fileFormat"),
    "filepath": "use path",
    **dict.fromkeys(
        ("maxlength", "batchsize", "maxfilesize", "filesize", "sink.rolling-policy.file-size", "targetfilesize"),
        "use maxBytesPerFile",
    ),
    "flush.size": "use maxRecordsPerFile",
    **dict.fromkeys(("partitioncolumns", "partition.fields"), "use partitionBy"),
    **dict.fromkeys(("path.format", "partition.duration.ms"), "use directoryPattern"),
    "partitioner.class": "use directoryAssigner",
    "getfilename": "use fileNameColumn",
    **dict.fromkeys(("outputfilename", "partitionedfilenameformat"), "use partFileName"),
    "filename.offset.zero.pad.width": "use partFileName with {number:10}",
    **dict.fromkeys(("success-file.name", "sink.partition-commit.success-file.name"), "use successFile"),
    "sink.partition-commit.policy.kind": "use successFile, or onPublish for your function",
    "sink.partition-commit.delay": "use successDelay",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "use successFile=_SUCCESS",
    "errors.tolerance": "use badRecords",
    "errors.deadletterqueue.topic.name": "use badRecords=deadLetter",
    "avroschema": "use recordName; the rows define the columns",
    "recordnamespace": "use recordName with the namespace, such as com.example.Row",
    "tupleseparator": "use lineSep for text, delimiter for binary",
    "getbytesfortuple": "use encoder with fileFormat=binary",
    "format.bytearray.separator": "use delimiter",
    **dict.fromkeys(
        ("avro.codec", "codec", "compression.codec", "orc.compress", "parquet.compression"), "use compression"
    ),
    **FOLLOWING_ELSEWHERE,
    **dict.fromkeys(INLINE_KEYS, NEVER_INLINE),
    **COMMON_ELSEWHERE,
    **dict.fromkeys(
        ("optimizewrite", "autocompact", "delta.autooptimize.optimizewrite", "delta.autooptimize.autocompact"),
        "merge small files with ftfile.compact(path), or avoid them with rolling=policy",
    ),
    **dict.fromkeys(
        ("delta.dataskippingstatscolumns", "delta.dataskippingnumindexedcols"),
        "use statisticsColumns",
    ),
    "datachange": "each write changes data; ftfile.compact(path) does not: streams do not read its rows again",
    **dict.fromkeys(
        ("clusterby", "zorder", "zorderby"),
        "use partitionBy for directories, DataFrame.sortWithinPartitions for the order within a file",
    ),
    **dict.fromkeys(("replaceon", "replaceusing"), "use replaceWhere, or partitionOverwriteMode=dynamic"),
    "basepath": "load the whole directory, and choose partitions with DataFrame.where",
    "retention": "give it to ftfile.vacuum(path, retention='7d'), which is the only call that deletes",
    "excluderegex": "choose rows with DataFrame.where",
    **dict.fromkeys(
        ("splitsize", "read.split.target-size", "spark.sql.files.maxpartitionbytes"),
        "use maxPartitionBytes",
    ),
    "pushdownpredicate": "use filterPushdown=true, or ftfile.spark.load",
    "wholetext": "use fileFormat=binary in a stream of other programs' files",
    "paths": "a reader reads one directory: load each directory, and combine them with DataFrame.unionByName",
    "bucketby": "use partitionBy for directories, fileNameColumn for files",
    "sortby": "use DataFrame.sortWithinPartitions before the write",
    "emptyvalue": 'an empty text is "", and null is nullValue',
    **dict.fromkeys(
        ("escapequotes", "chartoescapequoteescaping"), "quotes within values are always escaped: use escape"
    ),
    **dict.fromkeys(
        ("ignoreleadingwhitespace", "ignoretrailingwhitespace"), "blanks around values are kept: use trim(column)"
    ),
    **dict.fromkeys(
        ("datetimerebasemode", "int96rebasemode", "outputtimestamptype"),
        "times have today's calendar and microseconds",
    ),
    "pretty": "each row is a line",
    "spark.sql.sources.partitionoverwritemode": "use partitionOverwriteMode, or set this in the session",
    **dict.fromkeys(("snapshot-id", "version-as-of", "branch", "tag"), "use versionAsOf"),
    **dict.fromkeys(("as-of-timestamp", "as.of.instant"), "use timestampAsOf"),
    **dict.fromkeys(
        (
            "readchangefeed",
            "readchangedata",
            "startingversion",
            "startingtimestamp",
            "endingversion",
            "endingtimestamp",
            "start-snapshot-id",
            "end-snapshot-id",
        ),
        "read new rows with readStream and startingVersion, or in Python with ftfile.open(path).follow()",
    ),
    **dict.fromkeys(("encoding", "charset"), "text is written in UTF-8"),
    **dict.fromkeys(
        ("parquet.block.size", "parquet.page.size", "orc.stripe.size", "rowgroupsize", "row_group_size"),
        "row groups have a size that readers scan fast; use maxBytesPerFile for the size of files",
    ),
    **dict.fromkeys(("maxfilespertrigger", "maxbytespertrigger"), "set it on readStream"),
}
