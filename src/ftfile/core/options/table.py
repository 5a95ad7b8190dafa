"""The option table; docs/options.md describes the options."""

from __future__ import annotations

import functools

from ftfile.core.codecs import CODECS
from ftfile.core.options import kinds
from ftfile.core.options.kinds import FORMATS, Option, one_of, write_option

ENCRYPTION: tuple[Option, ...] = (
    write_option("encryption", one_of("none", "aes-gcm", "parquet"), default="none"),
    write_option("encryptionKeyId", kinds.TEXT),
    Option("keyProvider", kinds.TEXT, used_by=kinds.EVERYWHERE),
)

NEVER_INLINE = "keys are never set in options, which Spark shows to all users: name their location with keyProvider"

# Names that other programs use for keys, and similar names.
INLINE_KEYS = (
    *("aeskey", "datakey", "encryption.key", "encryption_key", "encryptionkey", "encryptionkeys"),
    *("encryptionpassword", "key", "keys", "kmskey", "masterkey", "password", "passphrase", "secret", "secretkey"),
    *("parquet.encryption.key.list", "parquet.encryption.footer.key"),
    *("parquet.encryption.column.keys", "parquet.encryption.uniform.key"),
)


_store_option = functools.partial(Option, used_by=kinds.STORE_WRITE)

STORE: tuple[Option, ...] = (
    _store_option("keyColumns", kinds.COLUMNS),
    _store_option("bucketBy", kinds.COLUMNS, default=()),
    _store_option("buckets", kinds.COUNT, default=16),
    Option("merge", kinds.TEXT, default="last", used_by=kinds.STORE_WRITE | kinds.STORE_READ | kinds.STORE_FOLLOW),
    _store_option("deleteColumn", kinds.TEXT),
    _store_option("sequenceColumn", kinds.TEXT),
    _store_option("tombstoneTtl", kinds.DURATION, default=7 * 86_400.0),
    _store_option("compression", one_of("none", "lz4", "zstd", uncompressed="none"), default="lz4"),
    _store_option("blockBytes", kinds.SIZE, default=16 << 10),
    _store_option("flushIntervalCount", kinds.COUNT, default=16),
    _store_option("flushBytes", kinds.SIZE, default=2 << 20),
    _store_option("flushSize", kinds.COUNT, default=1_000_000),
    _store_option("maxFileSize", kinds.SIZE, default=128 << 20),
    _store_option("grace", kinds.DURATION, default=7200.0),
    _store_option("vacuumInterval", kinds.DURATION, default=3600.0),
    Option("readChangeFeed", kinds.BOOLEAN, default=False, used_by=kinds.STORE_FOLLOW),
    Option("cacheBytes", kinds.SIZE, default=256 << 20, used_by=kinds.STORE_READ),
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


_limit = functools.partial(Option, used_by=kinds.FOLLOW | kinds.FILES | kinds.STORE_FOLLOW)
_files_option = functools.partial(Option, used_by=kinds.FILES)

FOLLOWING: tuple[Option, ...] = (
    Option("startingVersion", kinds.LATEST_OR_VERSION, used_by=kinds.FOLLOW | kinds.STORE_FOLLOW),
    Option("startingTimestamp", kinds.TIME, used_by=kinds.FOLLOW | kinds.STORE_FOLLOW),
    _limit("maxFilesPerTrigger", kinds.COUNT),
    _limit("maxBytesPerTrigger", kinds.SIZE),
    Option("maxRowsPerTrigger", kinds.COUNT, used_by=kinds.FOLLOW | kinds.STORE_FOLLOW),
    Option("skipChangeCommits", kinds.BOOLEAN, default=False, used_by=kinds.FOLLOW),
)

FILES: tuple[Option, ...] = (
    _files_option("stateLocation", kinds.TEXT),
    _files_option("startingOffsets", one_of("earliest", "latest"), default="earliest"),
    _files_option("pathGlobFilter", kinds.TEXT),
    _files_option("filePattern", kinds.PATTERN),
    _files_option("ignoreFilePattern", kinds.PATTERN),
    _files_option("recursiveFileLookup", kinds.BOOLEAN, default=False),
    _files_option("followLinks", kinds.BOOLEAN, default=False),
    _files_option("scanInterval", kinds.DURATION, default=1.0),
    _files_option("maxFileAge", kinds.DURATION, default=7 * 86_400.0),
    _files_option("maxTrackedFiles", kinds.COUNT, default=1_000_000),
    _files_option("tail", kinds.BOOLEAN),
    _files_option("multiLine", kinds.BOOLEAN, default=False, formats=("json", "csv")),
    _files_option("encoding", kinds.TEXT, default="UTF-8", formats=("json", "csv", "text")),
    _files_option("closeInactive", kinds.DURATION, default=300.0),
    _files_option("minFileAge", kinds.DURATION, default=10.0),
    _files_option("fileIdentity", one_of("native", "content"), default="native"),
    _files_option("allowOverwrites", kinds.BOOLEAN, default=False),
    _files_option("failOnDataLoss", kinds.BOOLEAN, default=False),
    _files_option("maxRetries", kinds.VERSION, default=5),
    Option("maxPartitionBytes", kinds.SIZE, default=32 << 20, used_by=kinds.FILES | kinds.READ),
    _files_option("comment", kinds.CHARACTER, formats=("csv",)),
    _files_option(
        "columnNameOfCorruptRecord",
        kinds.TEXT,
        default="_corrupt_record",
        formats=("json", "csv", "parquet", "orc", "arrow", "avro"),
    ),
    _files_option("ignoreMissingFiles", kinds.BOOLEAN, default=False),
    _files_option("ignoreCorruptFiles", kinds.BOOLEAN, default=False),
    _files_option("allowClearFiles", kinds.BOOLEAN, default=False),
    _files_option("skipRanges", kinds.FILE_RANGES, default=()),
    _files_option("cleanSource", one_of("off", "archive", "delete"), default="off"),
    _files_option("sourceArchiveDir", kinds.TEXT),
)

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
    "maxcachedfiles": "use maxTrackedFiles",
    "latestfirst": "the oldest files are always read first",
    "filenameonly": "a file is identified by its path and content: see fileIdentity",
    **dict.fromkeys(("modifiedbefore", "modifiedafter"), "use filePattern, or startingOffsets=latest"),
}


# Codecs of line formats, and codecs within the files of columnar formats.
_CODECS = dict.fromkeys(("none", *CODECS, "brotli", "deflate", "zlib"))

# Formats of lines and binary records.
_record_option = functools.partial(Option, used_by=kinds.WRITE | kinds.FILES)
_time_format = functools.partial(_record_option, formats=("json", "csv"))
_csv_option = functools.partial(_record_option, formats=("csv",))
_read_option = functools.partial(Option, used_by=kinds.READ | kinds.STORE_READ)

OPTIONS: tuple[Option, ...] = (
    # Location and content.
    Option("path", kinds.TEXT, used_by=kinds.EVERYWHERE),
    Option("fileFormat", kinds.FORMAT, default="parquet", used_by=kinds.WRITE | kinds.FILES),
    # Directories.
    Option("partitionBy", kinds.COLUMNS, default=()),
    Option("directoryPattern", kinds.TEXT),
    Option("fileNameColumn", kinds.TEXT),
    Option("directoryAssigner", kinds.TEXT),
    # File names.
    Option("partPrefix", kinds.TEXT, default="part"),
    Option("partSuffix", kinds.TEXT, default=""),
    Option("partFileName", kinds.TEXT),
    Option("ifExists", one_of("newName", "fail"), default="newName"),
    Option("directoryStateTtl", kinds.DURATION, default=7 * 86_400.0),
    # Files.
    Option("maxBytesPerFile", kinds.SIZE),
    Option("maxRecordsPerFile", kinds.COUNT),
    write_option("maxOpenBytes", kinds.SIZE, default=64 << 20),
    Option("statisticsColumns", kinds.STATISTICS_COLUMNS, default="auto"),
    # Rolling over micro-batches.
    Option("rolling", one_of("batch", "policy"), default="batch"),
    Option("maxBatchesPerFile", kinds.COUNT),
    Option("rolloverInterval", kinds.DURATION),
    Option("inactivityInterval", kinds.DURATION),
    Option("rolloverSchedule", kinds.CLOCK),
    Option("eventTimeInterval", kinds.COLUMN_AND_DURATION),
    Option("finalizeColumn", kinds.TEXT),
    Option("rollingPolicy", kinds.TEXT),
    Option("strictFileSize", kinds.BOOLEAN, default=False),
    Option("maxSegmentsPerPart", kinds.COUNT, default=1_000),
    Option("maxOpenSegments", kinds.COUNT, default=100_000),
    # Publishing.
    Option("successFile", kinds.TEXT),
    Option("successDelay", kinds.DURATION, default=3600.0),
    Option("onPublish", kinds.TEXT),
    Option("exportTo", kinds.TABLES, default=()),
    write_option("durability", one_of("auto", "hsync", "close"), default="auto"),
    Option("publish", one_of("auto", "rename", "copy", "direct"), default="auto"),
    write_option("filePermission", kinds.PERMISSION),
    write_option("directoryPermission", kinds.PERMISSION),
    write_option("replication", kinds.COUNT),
    write_option("blockSize", kinds.SIZE),
    # Overwrites.
    Option("partitionOverwriteMode", one_of("static", "dynamic")),
    Option("replaceWhere", kinds.TEXT),
    # Formats.
    Option("compression", one_of(*_CODECS, uncompressed="none"), formats=FORMATS),
    Option("compressionLevel", kinds.INTEGER, formats=FORMATS),
    Option("filters", kinds.NAMES, default=()),
    _record_option("timeZone", kinds.TEXT, default="UTC"),
    _time_format("timestampFormat", kinds.TEXT, default="yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"),
    _time_format("timestampNTZFormat", kinds.TEXT, default="yyyy-MM-dd'T'HH:mm:ss.SSSSSS"),
    _time_format("dateFormat", kinds.TEXT, default="yyyy-MM-dd"),
    Option("ignoreNullFields", kinds.BOOLEAN, default=True, formats=("json",)),
    _record_option("lineSep", kinds.TEXT, default="\n", formats=("json", "csv", "text")),
    _csv_option("header", kinds.BOOLEAN, default=False),
    _csv_option("sep", kinds.CHARACTER, default=","),
    _csv_option("quote", kinds.CHARACTER, default='"'),
    _csv_option("escape", kinds.CHARACTER, default="\\"),
    Option("quoteAll", kinds.BOOLEAN, default=False, formats=("csv",)),
    _csv_option("nullValue", kinds.TEXT, default=""),
    _record_option("delimiter", kinds.BYTES, default=b"\n", formats=("binary",)),
    _record_option("lengthPrefix", one_of("int32", "int32le", "varint"), formats=("binary",)),
    Option("encoder", kinds.TEXT, formats=("binary",)),
    Option("recordName", kinds.TEXT, default="topLevelRecord", formats=("avro",)),
    Option("recordNamespace", kinds.TEXT, default="", formats=("avro",)),
    *ENCRYPTION,
    # Guarantees.
    write_option("onNewQuery", one_of("fail", "continue"), default="fail"),
    write_option("onGap", one_of("fail", "accept"), default="fail"),
    write_option("onReplayMismatch", one_of("fail", "keep"), default="fail"),
    Option("onMissingPart", one_of("warn", "fail"), default="warn"),
    write_option("onSchemaChange", one_of("fail", "widen", "any"), default="fail"),
    Option("onFormatChange", one_of("fail", "accept"), default="fail"),
    write_option("fingerprint", one_of("content", "strong")),
    Option("badRecords", one_of("fail", "deadLetter", "drop"), "fail", used_by=kinds.FILES | kinds.WRITERS),
    write_option("maxRecordBytes", kinds.SIZE),
    Option("publishTimeout", kinds.DURATION, default=60.0),
    write_option("txnAppId", kinds.TEXT),
    write_option("txnVersion", kinds.VERSION),
    write_option("userMetadata", kinds.NOTE),
    # Reading.
    _read_option("versionAsOf", kinds.VERSION),
    _read_option("timestampAsOf", kinds.TIME),
    Option("atLeastVersion", kinds.VERSION, used_by=kinds.WRITERS | kinds.READ | kinds.STORE_READ),
    _read_option("filterPushdown", kinds.BOOLEAN, default=False),
    *FOLLOWING,
    *FILES,
    *STORE,
)
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
    "avroschema": "use recordName and recordNamespace; the rows define the columns",
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
