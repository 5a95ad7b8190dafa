"""The columns that files of a format can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.encoding.base.reading import columns_within
from ftfile.encoding.partitions.paths import columns_of_directory
from ftfile.parts.reader import recorded_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.source.files.decoding.settings import FileDecoding

# Of a file that is one row, as in Spark's `binaryFile`.
_WHOLE_FILE = pa.schema(
    [
        ("path", pa.string()),
        ("modificationTime", pa.timestamp("us", tz="UTC")),
        ("length", pa.int64()),
        ("content", pa.binary()),
    ]
)


def default_schema(decoding: FileDecoding) -> pa.Schema | None:
    """Return the columns of formats that always have the same; None for those that need a schema."""
    if decoding.file_format == "text":
        return pa.schema([("value", pa.string())])
    if decoding.file_format == "binary":
        return _WHOLE_FILE if decoding.framing is None else pa.schema([("value", pa.binary())])
    return None


def own_columns(schema: pa.Schema, decoding: FileDecoding) -> pa.Schema:
    """Return the columns that are in the file: all but that of the text of bad records."""
    return pa.schema([field for field in schema if field.name != decoding.corrupt_column])


def columns_in_path(path: str, requested: pa.Schema) -> dict[str, str]:
    """Return the columns that the directories of a path name, case aside, with their spelling there."""
    named = columns_of_directory(path.rpartition("/")[0])
    spelled = zip(requested.names, recorded_names(named, requested.names), strict=True)
    return {name: spelling for name, spelling in spelled if spelling in named}


def require_columns_beside(paths: Iterable[str], schema: pa.Schema, decoding: FileDecoding) -> None:
    """Raise `ConfigError` for columns that files cannot have, beside those that their directories name."""
    if default_schema(decoding) is None:
        return
    for path in {path.rpartition("/")[0]: path for path in paths}.values():
        in_path = columns_in_path(path, schema)
        require_columns(pa.schema([field for field in schema if field.name not in in_path]), decoding, path=path)


def require_columns(
    schema: pa.Schema, decoding: FileDecoding, *, may_be_in_paths: bool = False, path: str | None = None
) -> None:
    """Raise `ConfigError` for columns that files of the format cannot have.

    Args:
        schema: columns in the files.
        decoding: names the format.
        may_be_in_paths: some of the columns may be named by directories, which are not known yet.
        path: of a file that is to be read; its directories name none of the columns.
    """
    problems = list(_problems(schema, decoding, may_be_in_paths=may_be_in_paths))
    if problems:
        which = "" if path is None else f" of {path!r}, beside the columns that its directories name"
        raise ConfigError(
            f"fileFormat={decoding.file_format} cannot be read with this schema{which}:\n  " + "\n  ".join(problems)
        )


def _problems(schema: pa.Schema, decoding: FileDecoding, *, may_be_in_paths: bool) -> Iterator[str]:
    file_format = decoding.file_format
    if file_format in {"csv", "json"} and decoding.corrupt_column in schema.names:
        kind = schema.field(decoding.corrupt_column).type
        if not pa.types.is_string(kind):
            yield f"column `{decoding.corrupt_column}`: {kind}; it has the text of bad records: make it a string"
    if file_format == "csv":
        for field in schema:
            if pa.types.is_nested(field.type):
                yield f"column `{field.name}`: {field.type}; read it as a string, and take it apart with from_json"
    if file_format == "json":
        for path, kind in columns_within(schema):
            if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
                yield f"column `{path}`: {kind}; keys in JSON are strings"
    if default_schema(decoding) is not None and not may_be_in_paths:
        yield from _of_fixed(schema, decoding)


def _of_fixed(schema: pa.Schema, decoding: FileDecoding) -> Iterator[str]:
    if decoding.file_format == "binary" and decoding.framing is None:
        fields = {field.name.lower(): field for field in _WHOLE_FILE}
        for field in schema:
            known = fields.get(field.name.lower())
            if known is None:
                yield f"column `{field.name}`: a file that is one row has {', '.join(_WHOLE_FILE.names)}"
            elif known.type != field.type:
                yield f"column `{field.name}`: {field.type}; it is {known.type}"
        return
    if len(schema) > 1:
        names = ", ".join(schema.names)
        yield f"columns {names}: give one in .schema(…), beside those that directories name as in `day=7`"
    for field in schema:
        if not pa.types.is_string(field.type) and not pa.types.is_binary(field.type):
            yield f"column `{field.name}`: {field.type}; make it a string, or binary for the bytes as they are"
