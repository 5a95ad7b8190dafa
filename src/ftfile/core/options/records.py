"""The options that say how records look in files."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import FORMATS, Option, one_of

# The codecs of formats that compress within the file; deflate is the one that every reader of Avro knows.
CODEC, AVRO_CODEC = "zstd", "deflate"

RECORDS: tuple[Option, ...] = (
    Option(
        "compression",
        one_of(
            "none",
            "gzip",
            "zstd",
            "lz4",
            "lz4frame",
            "snappy",
            "bzip2",
            "xz",
            "brotli",
            "deflate",
            "zlib",
            uncompressed="none",
        ),
        "The codec: of lines and binary records, that of the whole file (see [compression](compression.md)); of other "
        "formats, that within the file (see [formats](formats/README.md#compression)).",
        formats=FORMATS,
        default_text=f"`{CODEC}` for parquet, orc, arrow; `{AVRO_CODEC}` for avro; else `none`",
    ),
    Option(
        "compressionLevel",
        kinds.INTEGER,
        "The codec's level, where it has levels; see [compression](compression.md).",
        formats=FORMATS,
        default_text="one that costs little",
    ),
    Option(
        "filters",
        kinds.NAMES,
        "Byte filters of your own, by the names of their entry points, applied after the compression in this order; "
        "see [compression](compression.md#filters-of-your-own).",
        default=(),
    ),
    Option(
        "timeZone",
        kinds.TEXT,
        "The zone whose clocks show TIMESTAMP values as text, in json, csv and directory names, and the time in file "
        "names: `UTC`, `Europe/Berlin`, `+02:00`. Timestamps without time zone (NTZ) have none.",
        default="UTC",
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "timestampFormat",
        kinds.TEXT,
        "The form of TIMESTAMP values, in Spark's pattern letters `yyyy MM dd HH mm ss`, `S` to `SSSSSS`, `XXX`.",
        default="yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        formats=("json", "csv"),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "timestampNTZFormat",
        kinds.TEXT,
        "The form of TIMESTAMP_NTZ values.",
        default="yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        formats=("json", "csv"),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "dateFormat",
        kinds.TEXT,
        "The form of DATE values.",
        default="yyyy-MM-dd",
        formats=("json", "csv"),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "ignoreNullFields",
        kinds.BOOLEAN,
        "Leave out fields that are null, as Spark does; `false` writes `null`.",
        default=True,
        formats=("json",),
    ),
    Option(
        "lineSep",
        kinds.TEXT,
        "The end of a record. csv takes line feed, carriage return, or both.",
        default="\n",
        formats=("json", "csv", "text"),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "header",
        kinds.BOOLEAN,
        "Write the column names as the first line of every file.",
        default=False,
        formats=("csv",),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "sep",
        kinds.CHARACTER,
        "The separator of fields.",
        default=",",
        formats=("csv",),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "quote",
        kinds.CHARACTER,
        "The quote around fields that need one.",
        default='"',
        formats=("csv",),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "escape",
        kinds.CHARACTER,
        'The character before a quote within quotes. Spark reads the default by default; `"` doubles quotes, as '
        "RFC 4180, pandas and DuckDB have it, and Spark reads with `escape='\"'`.",
        default="\\",
        formats=("csv",),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option("quoteAll", kinds.BOOLEAN, "Quote every value but null.", default=False, formats=("csv",)),
    Option(
        "nullValue",
        kinds.TEXT,
        "The text for null; an empty string is written as two quotes.",
        default="",
        formats=("csv",),
        default_text="nothing",
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "delimiter",
        kinds.BYTES,
        "The bytes after each record. A record with it inside is one that cannot be written.",
        default=b"\n",
        formats=("binary",),
        default_text=r"`\n`, but none with `lengthPrefix`",
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "lengthPrefix",
        one_of("int32", "int32le", "varint"),
        "The bytes before each record instead of a delimiter after it: its length, as four bytes, the highest or "
        "the lowest first, or as Protobuf has it.",
        formats=("binary",),
        used_by=kinds.WRITE | kinds.FILES,
    ),
    Option(
        "encoder",
        kinds.TEXT,
        "A class of your own that makes the bytes of each record, as `module:Class` or the name of an entry point; its "
        "constructor gets the options `encoder.<name>`. See [binary](formats/binary.md#an-encoder-of-your-own).",
        formats=("binary",),
    ),
    Option(
        "recordName",
        kinds.TEXT,
        "The name of a row in the schema of the files.",
        default="topLevelRecord",
        formats=("avro",),
    ),
    Option(
        "recordNamespace",
        kinds.TEXT,
        "The namespace of `recordName`, as in `com.example`.",
        default="",
        formats=("avro",),
        default_text="none",
    ),
)
