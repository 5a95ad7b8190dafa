"""The option table; docs/options.md says what each option means."""

from __future__ import annotations

import functools

from ftfile.core.options import kinds
from ftfile.core.options.encryption import ENCRYPTION, INLINE_KEYS, NEVER_INLINE
from ftfile.core.options.kinds import FORMATS, Option, one_of, write_option
from ftfile.core.options.source import FILES, FOLLOWING, FOLLOWING_ELSEWHERE
from ftfile.core.options.store import COMMON_ELSEWHERE, STORE

_CODECS = ("none", "gzip", "zstd", "lz4", "lz4frame", "snappy", "bzip2", "xz", "brotli", "deflate", "zlib")

# Of lines and binary records, which are written, and read as foreign files.
_record_option = functools.partial(Option, used_by=kinds.WRITE | kinds.FILES)
_time_format = functools.partial(_record_option, formats=("json", "csv"))
_csv_option = functools.partial(_record_option, formats=("csv",))
_read_option = functools.partial(Option, used_by=kinds.READ | kinds.STORE_READ)

OPTIONS: tuple[Option, ...] = (
    # Where and what.
    Option("path", kinds.TEXT, used_by=kinds.EVERYWHERE),
    Option("fileFormat", kinds.FORMAT, default="parquet", used_by=kinds.WRITE | kinds.FILES),
    # Buckets: directories, and files chosen by records.
    Option("partitionBy", kinds.COLUMNS, default=()),
    Option("bucketPattern", kinds.TEXT),
    Option("fileNameColumn", kinds.TEXT),
    Option("bucketer", kinds.TEXT),
    # Names of files.
    Option("partPrefix", kinds.TEXT, default="part"),
    Option("partSuffix", kinds.TEXT, default=""),
    Option("partFileName", kinds.TEXT),
    Option("ifExists", one_of("newName", "fail"), default="newName"),
    Option("bucketStateTtl", kinds.DURATION, default=7 * 86_400.0),
    # Files.
    Option("maxBytesPerFile", kinds.SIZE),
    Option("maxRecordsPerFile", kinds.COUNT),
    write_option("maxOpenBytes", kinds.SIZE, default=64 << 20),
    # Files that stay open over batches.
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
    Option(
        "badRecords",
        one_of("fail", "deadLetter", "drop"),
        default="fail",
        used_by=kinds.WRITE | kinds.FILES | kinds.STORE_WRITE,
    ),
    write_option("maxRecordBytes", kinds.SIZE),
    Option("publishTimeout", kinds.DURATION, default=60.0),
    write_option("txnAppId", kinds.TEXT),
    write_option("txnVersion", kinds.VERSION),
    write_option("userMetadata", kinds.NOTE),
    # Reading.
    _read_option("versionAsOf", kinds.VERSION),
    _read_option("timestampAsOf", kinds.TIME),
    _read_option("filterPushdown", kinds.BOOLEAN, default=False),
    *FOLLOWING,
    *FILES,
    *STORE,
)
# Defaults of maxBytesPerFile and inactivityInterval for files that stay open over batches; others have none.
ROLLED_BYTES = 128 << 20
ROLLED_INACTIVITY_S = 3600.0
# Of files: a store has another compression.
DEFAULTS = {option.name: option.default for option in OPTIONS if option.used_by & kinds.OF_FILES}

SPARK_KEYS = frozenset(
    {"checkpointlocation", "queryname", "owner", "location", "provider", "external", "is_managed_location"}
)

# What follows is for classes of the user's own,
OWN_PREFIXES = ("bucketer.", "encoder.", "format.")
# and for the driver of the file system.
STORAGE_PREFIX = "storage."

_NOT_OFFERED = "is not offered by this version"
NOT_OFFERED: dict[str, str] = {
    "retention": f"retention {_NOT_OFFERED}: nothing is deleted but by ftfile.vacuum(path, retention='7d'), which "
    "takes it as an argument",
    "latestfirst": f"latestFirst {_NOT_OFFERED}: the oldest files are read first, so that the number of remembered "
    "files stays bounded",
    "filenameonly": f"fileNameOnly {_NOT_OFFERED}: a file is told by its path and content, see fileIdentity",
    **dict.fromkeys(
        ("modifiedbefore", "modifiedafter"),
        "modifiedBefore and modifiedAfter are not offered: choose files by filePattern, or begin with "
        "startingOffsets=latest",
    ),
    "inferschema": f"inferSchema {_NOT_OFFERED}: a directory of ftfile has its columns in its log; those of foreign "
    "files are given by .schema(…)",
}

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("format", "filetype", "write-format", "write.format.default"), "the file format is fileFormat"),
    "filepath": "the directory is path",
    **dict.fromkeys(
        ("maxlength", "batchsize", "maxfilesize", "filesize", "sink.rolling-policy.file-size", "targetfilesize"),
        "the size limit is maxBytesPerFile",
    ),
    "flush.size": "the limit of records is maxRecordsPerFile",
    **dict.fromkeys(("partitioncolumns", "partition.fields"), "partition columns are partitionBy"),
    **dict.fromkeys(("path.format", "partition.duration.ms"), "directories by time are bucketPattern"),
    "partitioner.class": "a class that chooses directories is bucketer",
    "getfilename": "the column that chooses files is fileNameColumn",
    **dict.fromkeys(("outputfilename", "partitionedfilenameformat"), "names of files are partFileName"),
    "filename.offset.zero.pad.width": "names of files are partFileName, with digits as in {number:10}",
    **dict.fromkeys(("success-file.name", "sink.partition-commit.success-file.name"), "the marker is successFile"),
    "sink.partition-commit.policy.kind": "markers are successFile, a function of your own is onPublish",
    "sink.partition-commit.delay": "when a directory is done is successDelay",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "the marker is successFile=_SUCCESS",
    "errors.tolerance": "records that cannot be written are badRecords",
    "errors.deadletterqueue.topic.name": "records that cannot be written are badRecords=deadLetter",
    "avroschema": "the schema is that of the rows; recordName and recordNamespace name its record",
    "tupleseparator": "the bytes after each record are lineSep for text, delimiter for binary",
    "getbytesfortuple": "a class that makes the bytes of records is encoder, with fileFormat=binary",
    "format.bytearray.separator": "the bytes after each record are delimiter",
    **dict.fromkeys(
        ("avro.codec", "codec", "compression.codec", "orc.compress", "parquet.compression"), "the codec is compression"
    ),
    **FOLLOWING_ELSEWHERE,
    **dict.fromkeys(INLINE_KEYS, NEVER_INLINE),
    **COMMON_ELSEWHERE,
    **dict.fromkeys(
        ("optimizewrite", "autocompact", "delta.autooptimize.optimizewrite", "delta.autooptimize.autocompact"),
        "small files are merged by ftfile.compact(path), and avoided by rolling=policy, which keeps them open over "
        "batches",
    ),
    "datachange": "each write is a change of data; ftfile.compact(path) rewrites files without one, and streams that "
    "follow the directory do not read their rows again",
    **dict.fromkeys(
        ("clusterby", "zorder", "zorderby"),
        "directories of a column's values are partitionBy; rows stay in their order within a file, so sort them before "
        "the write by DataFrame.sortWithinPartitions",
    ),
    **dict.fromkeys(("replaceon", "replaceusing"), "it is replaceWhere, or partitionOverwriteMode=dynamic"),
    "basepath": "load the whole directory, and choose partitions by DataFrame.where",
    "excluderegex": "all files of a version are read; choose rows by DataFrame.where",
    **dict.fromkeys(
        ("splitsize", "read.split.target-size", "spark.sql.files.maxpartitionbytes"),
        "the share of a task is maxPartitionBytes",
    ),
    "pushdownpredicate": "filters leave files out with filterPushdown=true, and by ftfile.spark.load",
    "wholetext": "a file as one row is fileFormat=binary, of a stream of foreign files",
    "paths": "a reader takes one directory; load each by itself, and unite them by DataFrame.unionByName",
    "bucketby": "directories of a column's values are partitionBy, files of its values fileNameColumn",
    "sortby": "rows stay in their order within a file: sort them before the write by DataFrame.sortWithinPartitions",
    "emptyvalue": 'an empty text is written as "", and null as nullValue',
    **dict.fromkeys(
        ("escapequotes", "chartoescapequoteescaping"), "quotes within values are always escaped, by the option escape"
    ),
    **dict.fromkeys(
        ("ignoreleadingwhitespace", "ignoretrailingwhitespace"), "blanks around values are kept: trim(column)"
    ),
    **dict.fromkeys(
        ("datetimerebasemode", "int96rebasemode", "outputtimestamptype"),
        "times are written and read by today's calendar, in microseconds",
    ),
    "pretty": "each row is a line",
    "spark.sql.sources.partitionoverwritemode": "the option is partitionOverwriteMode; that of the session counts, too",
    **dict.fromkeys(("snapshot-id", "version-as-of", "branch", "tag"), "the version to be read is versionAsOf"),
    **dict.fromkeys(("as-of-timestamp", "as.of.instant"), "the time whose version is read is timestampAsOf"),
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
        "rows that came since a version are read by readStream with startingVersion, and in Python by "
        "ftfile.open(path).follow()",
    ),
    **dict.fromkeys(("encoding", "charset"), "text is written in UTF-8"),
    **dict.fromkeys(
        ("parquet.block.size", "parquet.page.size", "orc.stripe.size", "rowgroupsize", "row_group_size"),
        "groups of rows have the size that readers scan fast; that of files is maxBytesPerFile",
    ),
    **dict.fromkeys(("maxfilespertrigger", "maxbytespertrigger"), "set it where the stream is read, on readStream"),
}
