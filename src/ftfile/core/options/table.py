"""The option table."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.encryption import ENCRYPTION, INLINE_KEYS, NEVER_INLINE
from ftfile.core.options.kinds import Option, one_of
from ftfile.core.options.placing import BUCKETS, NAMES, PUBLISHING
from ftfile.core.options.records import RECORDS
from ftfile.core.options.rolling import ROLLING
from ftfile.core.options.source import FILES, FOLLOWING, FOLLOWING_ELSEWHERE
from ftfile.core.options.store import COMMON_ELSEWHERE, STORE

WHERE: tuple[Option, ...] = (
    Option(
        "path",
        kinds.TEXT,
        "The directory: a local path, or a URL such as `file:///data/out`. A relative path, or one that "
        "begins with `~`, is made absolute on the driver. Options `storage.<name>` are settings of its file system; "
        "see [object stores](object-stores.md).",
        used_by=kinds.EVERYWHERE,
    ),
    Option(
        "fileFormat",
        kinds.FORMAT,
        "The encoding of rows. Options `format.<name>` are settings of a format of your own; see "
        "[extending](extending.md#a-format). With `readStream`, it says that the files are foreign ones: no ftfile "
        "directory.",
        default="parquet",
        used_by=kinds.WRITE | kinds.FILES,
    ),
)

SIZES: tuple[Option, ...] = (
    Option(
        "maxBytesPerFile",
        kinds.SIZE,
        "A file closes after the record with which it reaches this size; for Parquet, about there.",
    ),
    Option("maxRecordsPerFile", kinds.COUNT, "A file closes after this many records."),
    Option(
        "maxOpenBytes",
        kinds.SIZE,
        "The memory of a task for records that it has not written yet.",
        default=64 << 20,
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
)

OVERWRITES: tuple[Option, ...] = (
    Option(
        "partitionOverwriteMode",
        one_of("static", "dynamic"),
        "What `mode('overwrite')` replaces: `static` everything, `dynamic` only the partitions that the written rows "
        "have; see [replacing partitions](buckets-and-names.md#replacing-partitions).",
        default_text="that of the session, `spark.sql.sources.partitionOverwriteMode`",
    ),
    Option(
        "replaceWhere",
        kinds.TEXT,
        "`mode('overwrite')` replaces the partitions that match this condition on the columns of `partitionBy`, such "
        "as `month >= 7 AND city = 'a'`; rows of others are refused.",
    ),
)

GUARANTEES: tuple[Option, ...] = (
    Option(
        "onNewQuery",
        one_of("fail", "continue"),
        "The reaction to a query's first write where other queries have written: a deleted checkpoint "
        "looks just like it. `continue` lets several queries share the directory.",
        default="fail",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "onGap",
        one_of("fail", "accept"),
        "The reaction to a batch that does not follow the last one recorded. `accept` records a new start.",
        default="fail",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "onReplayMismatch",
        one_of("fail", "keep"),
        "The reaction to a committed batch that is repeated with other content: a copied or restored checkpoint. "
        "`keep` keeps the recorded rows.",
        default="fail",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "onMissingPart",
        one_of("warn", "fail"),
        "The reaction to a published file that is missing: another program moved or deleted it.",
        default="warn",
    ),
    Option(
        "onSchemaChange",
        one_of("fail", "widen", "any"),
        "The reaction to a schema other than the recorded one. `widen` takes new columns and wider types; `any` also "
        "takes columns, and fields of structs, that are gone, and types in which every format reads the old values "
        "back. Names that differ by case only are refused always, and so is a partition column that becomes a DECIMAL "
        "with other digits behind the point than before.",
        default="fail",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "onFormatChange",
        one_of("fail", "accept"),
        "The reaction to another `fileFormat` than that of the newest rows. `accept` writes files of both, which only "
        "ftfile reads as one directory.",
        default="fail",
    ),
    Option(
        "fingerprint",
        one_of("content", "strong"),
        "The way to compare rows of a repeated batch: `strong` hashes rows, and proves that they are the same; "
        "`content` sums columns, costs a quarter of that, and only shows that they are not. Where Spark's offsets tell "
        "(`checkpointLocation` is set on the writer), `content` is enough, and only warns.",
        default_text="`strong` where offsets do not tell, and with `txnAppId`; else `content`",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "badRecords",
        one_of("fail", "deadLetter", "drop"),
        "The treatment of a record that cannot be written: it names no file or directory, a value has no text in the "
        "format, or it is larger than `maxRecordBytes`. `fail` fails the batch, `deadLetter` keeps it in "
        "`_ftfile/deadLetters`, for [calls that read it](buckets-and-names.md#records-that-cannot-be-written), `drop` "
        "only counts it. Of foreign files, a record that cannot be read as the schema has it, with `fail` or `drop`.",
        default="fail",
        used_by=kinds.WRITE | kinds.FILES | kinds.STORE_WRITE,
    ),
    Option(
        "maxRecordBytes",
        kinds.SIZE,
        "A record whose values take more bytes than this is one that cannot be written: some readers have limits "
        "(DuckDB takes JSON objects of up to 16 MiB), and a task holds whole records in memory.",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
        default_text="none; `64MiB` for stores",
    ),
    Option(
        "publishTimeout",
        kinds.DURATION,
        "The time for which publishing a committed batch is retried while the store fails.",
        default=60.0,
    ),
    Option(
        "txnAppId",
        kinds.TEXT,
        "The writer of this batch, in your own words; with `txnVersion`, a repeated batch write is written once, "
        "as in `foreachBatch`. Not for streams, which are exactly once by themselves.",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "txnVersion",
        kinds.VERSION,
        "The number of this write of `txnAppId`, such as the batch id. One not above the last recorded counts as "
        "written already: equal rows are not written again, and other rows are an error, unless "
        "`onReplayMismatch=keep` drops them.",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "userMetadata",
        kinds.NOTE,
        "Your own text about each commit of this write, for `history()`, such as the job that made it; also in an "
        "encrypted directory, it can be read without keys.",
        default_text="that of the session, `spark.ftfile.userMetadata`",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
)

READING: tuple[Option, ...] = (
    Option(
        "versionAsOf",
        kinds.VERSION,
        "Read the directory as it was at this version of its log.",
        used_by=kinds.READ | kinds.STORE_READ,
        default_text="the newest",
    ),
    Option(
        "timestampAsOf",
        kinds.TIME,
        "Read the newest version that was created at or before this time, as the store's clock tells.",
        used_by=kinds.READ | kinds.STORE_READ,
        default_text="the newest",
    ),
    Option(
        "filterPushdown",
        kinds.BOOLEAN,
        "Use filters to read less. Of files: directories of `partitionBy`, and row groups of Parquet, in which no row "
        "meets them are left out. Of stores: equality and `IN` on all key columns become lookups, on `bucketBy` they "
        "choose buckets, and ranges choose blocks. Call `load` for each query, see "
        "[reading with Spark](reading-with-spark.md#filters) and [keyed state](keyed-state.md#read-with-spark). It "
        "needs Spark 4.1 and "
        "`spark.sql.python.filterPushdown.enabled=true`.",
        default=False,
        used_by=kinds.READ | kinds.STORE_READ,
    ),
)

GROUPS = {
    "Where and what": WHERE,
    "Buckets: directories, and files chosen by records": BUCKETS,
    "Names of files": NAMES,
    "Files": SIZES,
    "Files that stay open over batches": ROLLING,
    "Publishing": PUBLISHING,
    "Overwrites": OVERWRITES,
    "Formats": RECORDS,
    "Encryption": ENCRYPTION,
    "Guarantees": GUARANTEES,
    "Reading": READING,
    "Following": FOLLOWING,
    "Foreign files": FILES,
    "Keyed stores": STORE,
}
OPTIONS = tuple(option for group in GROUPS.values() for option in group)
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
