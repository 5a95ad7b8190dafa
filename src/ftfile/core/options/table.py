"""The option table."""

from __future__ import annotations

from ftfile.core.options.encryption import ENCRYPTION, INLINE_KEYS, NEVER_INLINE
from ftfile.core.options.kinds import (
    BOOLEAN,
    COLUMNS,
    COUNT,
    DURATION,
    FORMAT,
    FORMATS,
    INTEGER,
    NAMES,
    SIZE,
    TEXT,
    one_of,
)
from ftfile.core.options.option import BOTH, Option
from ftfile.core.options.placing import PLACING
from ftfile.core.options.records import RECORDS
from ftfile.core.options.rolling import ROLLING
from ftfile.core.options.versions import VERSIONS

__all__ = ("ELSEWHERE", "GROUPS", "NOT_OFFERED", "OPTIONS", "OWN_PREFIXES", "SPARK_KEYS", "STORAGE_PREFIX", "Option")

GROUPS = {
    "where": "Where and what",
    "buckets": "Buckets: directories, and files chosen by records",
    "names": "Names of files",
    "files": "Files",
    "rolling": "Files that stay open over batches",
    "publishing": "Publishing",
    "format": "Formats",
    "encryption": "Encryption",
    "guarantees": "Guarantees",
    "reading": "Reading",
}


OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        TEXT,
        None,
        "The directory: a local path, or a URL such as `file:///data/out`. A relative path is made absolute on the "
        "driver. Options `storage.<name>` are settings of its file system; see [object stores](object-stores.md).",
        "where",
        used_by=BOTH,
    ),
    Option(
        "fileFormat",
        FORMAT,
        "parquet",
        "The encoding of rows. Options `format.<name>` are settings of a format of your own; see "
        "[extending](extending.md#a-format).",
        "where",
    ),
    Option(
        "partitionBy",
        COLUMNS,
        (),
        "Columns that become directories `column=value`, named as Spark names them. "
        "Spark's own `.partitionBy()` never reaches a Python sink: use this option.",
        "buckets",
    ),
    Option(
        "maxBytesPerFile",
        SIZE,
        None,
        "A file closes after the record with which it reaches this size; for Parquet, about there.",
        "files",
    ),
    Option("maxRecordsPerFile", COUNT, None, "A file closes after this many records.", "files"),
    *ROLLING,
    Option(
        "maxOpenBytes",
        SIZE,
        64 << 20,
        "The memory of a task for records that it has not written yet.",
        "files",
        default_text="`64MiB`",
    ),
    Option(
        "maxSegmentsPerPart",
        COUNT,
        1_000,
        "A file ends when it consists of this many pieces: a batch and task gives each open file one.",
        "rolling",
    ),
    Option(
        "maxOpenSegments",
        COUNT,
        100_000,
        "With more pieces open in the whole directory that are not due, the files that are open for longest end.",
        "rolling",
    ),
    Option(
        "compression",
        one_of("none", "gzip", "zstd", "lz4", "lz4frame", "snappy", "bzip2", "xz", "brotli", "deflate", "zlib"),
        None,
        "The codec: of lines and binary records, that of the whole file (see [compression](compression.md)); of other "
        "formats, that within the file (see [formats](formats/README.md#compression)).",
        "format",
        formats=FORMATS,
        default_text="`zstd` for parquet, orc, arrow; `deflate` for avro; else `none`",
    ),
    Option(
        "compressionLevel",
        INTEGER,
        None,
        "The codec's level, where it has levels; see [compression](compression.md).",
        "format",
        formats=FORMATS,
        default_text="one that costs little",
    ),
    Option(
        "filters",
        NAMES,
        (),
        "Byte filters of your own, by the names of their entry points, applied after the compression in this order; "
        "see [compression](compression.md#filters-of-your-own).",
        "format",
    ),
    *ENCRYPTION,
    Option(
        "timeZone",
        TEXT,
        "UTC",
        "The zone whose clocks show TIMESTAMP values as text, in json, csv and directory names, and the time in file "
        "names: `UTC`, `Europe/Berlin`, `+02:00`. Timestamps without time zone (NTZ) have none.",
        "format",
    ),
    Option(
        "timestampFormat",
        TEXT,
        "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "The form of TIMESTAMP values, in Spark's pattern letters `yyyy MM dd HH mm ss`, `S` to `SSSSSS`, `XXX`.",
        "format",
        formats=("json", "csv"),
    ),
    Option(
        "timestampNTZFormat",
        TEXT,
        "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        "The form of TIMESTAMP_NTZ values.",
        "format",
        formats=("json", "csv"),
    ),
    Option(
        "dateFormat",
        TEXT,
        "yyyy-MM-dd",
        "The form of DATE values.",
        "format",
        formats=("json", "csv"),
    ),
    Option(
        "ignoreNullFields",
        BOOLEAN,
        True,  # noqa: FBT003 - a default
        "Leave out fields that are null, as Spark does; `false` writes `null`.",
        "format",
        formats=("json",),
    ),
    Option(
        "lineSep",
        TEXT,
        "\n",
        "The end of a record. csv takes line feed, carriage return, or both.",
        "format",
        formats=("json", "csv", "text"),
    ),
    *RECORDS,
    Option(
        "onNewQuery",
        one_of("fail", "continue"),
        "fail",
        "The reaction to a query's first write where other queries have written: a deleted checkpoint "
        "looks just like it. `continue` lets several queries share the directory.",
        "guarantees",
    ),
    Option(
        "onGap",
        one_of("fail", "accept"),
        "fail",
        "The reaction to a batch that does not follow the last one recorded. `accept` records a new start.",
        "guarantees",
    ),
    Option(
        "onReplayMismatch",
        one_of("fail", "keep"),
        "fail",
        "The reaction to a committed batch that is repeated with other content: a copied or restored checkpoint. "
        "`keep` keeps the recorded rows.",
        "guarantees",
    ),
    Option(
        "onMissingPart",
        one_of("warn", "fail"),
        "warn",
        "The reaction to a published file that is missing: another program moved or deleted it.",
        "guarantees",
    ),
    Option(
        "onSchemaChange",
        one_of("fail", "widen", "any"),
        "fail",
        "The reaction to a schema other than the recorded one. `widen` takes new columns and wider types, `any` "
        "everything that each file can hold.",
        "guarantees",
    ),
    Option(
        "fingerprint",
        one_of("content", "strong"),
        None,
        "The way to compare rows of a repeated batch: `strong` hashes rows, and proves that they are the same; "
        "`content` sums columns, costs a quarter of that, and only shows that they are not. Where Spark's offsets tell "
        "(`checkpointLocation` is set on the writer), `content` is enough, and only warns.",
        "guarantees",
        default_text="`strong` where offsets do not tell, and with `txnAppId`; else `content`",
    ),
    Option(
        "badRecords",
        one_of("fail", "deadLetter", "drop"),
        "fail",
        "The treatment of a record that cannot be written: it names no file or directory, a value has no text in the "
        "format, or it is larger than `maxRecordBytes`. `fail` fails the batch, `deadLetter` keeps it in "
        "`_ftfile/deadLetters` for `ftfile.open(path).dead_letters()`, `drop` only counts it.",
        "guarantees",
    ),
    Option(
        "maxRecordBytes",
        SIZE,
        None,
        "A record whose values take more bytes than this is one that cannot be written: some readers have limits "
        "(DuckDB takes JSON objects of up to 16 MiB), and a task holds whole records in memory.",
        "guarantees",
    ),
    Option(
        "publishTimeout",
        DURATION,
        60.0,
        "The time for which publishing a committed batch is retried while the store fails.",
        "guarantees",
    ),
    *VERSIONS,
    *PLACING,
)

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
    "filterpushdown": f"filterPushdown {_NOT_OFFERED}: filter the DataFrame",
}

ELSEWHERE: dict[str, str] = {
    "format": "the file format is fileFormat",
    "filepath": "the directory is path",
    "maxlength": "the size limit is maxBytesPerFile",
    "batchsize": "the size limit is maxBytesPerFile",
    "maxfilesize": "the size limit is maxBytesPerFile",
    "sink.rolling-policy.file-size": "the size limit is maxBytesPerFile",
    "targetfilesize": "the size limit is maxBytesPerFile",
    "flush.size": "the limit of records is maxRecordsPerFile",
    "partitioncolumns": "partition columns are partitionBy",
    "partition.fields": "partition columns are partitionBy",
    "path.format": "directories by time are bucketPattern",
    "partition.duration.ms": "directories by time are bucketPattern",
    "partitioner.class": "a class that chooses directories is bucketer",
    "getfilename": "the column that chooses files is fileNameColumn",
    "outputfilename": "names of files are partFileName",
    "partitionedfilenameformat": "names of files are partFileName",
    "filename.offset.zero.pad.width": "names of files are partFileName, with digits as in {number:10}",
    "success-file.name": "the marker is successFile",
    "sink.partition-commit.success-file.name": "the marker is successFile",
    "sink.partition-commit.policy.kind": "markers are successFile, a function of your own is onPublish",
    "sink.partition-commit.delay": "when a directory is done is successDelay",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "the marker is successFile=_SUCCESS",
    "errors.tolerance": "records that cannot be written are badRecords",
    "errors.deadletterqueue.topic.name": "records that cannot be written are badRecords=deadLetter",
    "avroschema": "the schema is that of the rows; recordName and recordNamespace name its record",
    "tupleseparator": "the bytes after each record are lineSep for text, delimiter for binary",
    "getbytesfortuple": "a class that makes the bytes of records is encoder, with fileFormat=binary",
    "format.bytearray.separator": "the bytes after each record are delimiter",
    "avro.codec": "the codec is compression",
    "codec": "the codec is compression",
    "compression.codec": "the codec is compression",
    **dict.fromkeys(INLINE_KEYS, NEVER_INLINE),
    "mergeschema": "changes of the schema are governed by onSchemaChange",
}
