"""The options that say how records look in files: of csv, of bytes, of Avro."""

from __future__ import annotations

from ftfile.core.options.kinds import BOOLEAN, BYTES, CHARACTER, TEXT, one_of
from ftfile.core.options.option import Option

__all__ = ("RECORDS",)

RECORDS: tuple[Option, ...] = (
    Option(
        "header",
        BOOLEAN,
        False,  # noqa: FBT003 - a default
        "Write the column names as the first line of every file.",
        "format",
        formats=("csv",),
    ),
    Option("sep", CHARACTER, ",", "The separator of fields.", "format", formats=("csv",)),
    Option("quote", CHARACTER, '"', "The quote around fields that need one.", "format", formats=("csv",)),
    Option(
        "escape",
        CHARACTER,
        "\\",
        'The character before a quote within quotes. Spark reads the default by default; `"` doubles quotes, as '
        "RFC 4180, pandas and DuckDB have it, and Spark reads with `escape='\"'`.",
        "format",
        formats=("csv",),
    ),
    Option(
        "quoteAll",
        BOOLEAN,
        False,  # noqa: FBT003 - a default
        "Quote every value but null.",
        "format",
        formats=("csv",),
    ),
    Option(
        "nullValue",
        TEXT,
        "",
        "The text for null; an empty string is written as two quotes.",
        "format",
        formats=("csv",),
        default_text="nothing",
    ),
    Option(
        "delimiter",
        BYTES,
        b"\n",
        "The bytes after each record. A record with it inside is one that cannot be written.",
        "format",
        formats=("binary",),
        default_text=r"`\n`, but none with `lengthPrefix`",
    ),
    Option(
        "lengthPrefix",
        one_of("int32", "int32le", "varint"),
        None,
        "The bytes before each record instead of a delimiter after it: its length, as four bytes, the highest or "
        "the lowest first, or as Protobuf has it.",
        "format",
        formats=("binary",),
    ),
    Option(
        "encoder",
        TEXT,
        None,
        "A class of your own that makes the bytes of each record, as `module:Class` or the name of an entry point; its "
        "constructor gets the options `encoder.<name>`. See [binary](formats/binary.md#an-encoder-of-your-own).",
        "format",
        formats=("binary",),
    ),
    Option(
        "recordName",
        TEXT,
        "topLevelRecord",
        "The name of a row in the schema of the files.",
        "format",
        formats=("avro",),
    ),
    Option(
        "recordNamespace",
        TEXT,
        "",
        "The namespace of `recordName`, as in `com.example`.",
        "format",
        formats=("avro",),
        default_text="none",
    ),
)
