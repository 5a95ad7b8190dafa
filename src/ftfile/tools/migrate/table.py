"""The part of a migration's record that names the files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import structs

from ftfile.core.codecs import filters_of_name
from ftfile.core.errors import ConfigError, CorruptData, SchemaError, SourceError
from ftfile.core.options.kinds import FORMATS, columns_text
from ftfile.core.progress import Tracker
from ftfile.core.remedies import Advice, Argument
from ftfile.core.units import names_text
from ftfile.filters.chain import Chain
from ftfile.formats.partition_paths import (
    columns_of_directory,
    parse_partition_path,
    partition_schema,
    values_of_path,
    without_escaped_bytes,
)
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Origin, StreamAuthor
from ftfile.log.format.record import definition_key
from ftfile.rows.spark_types import arrow_schema, has_variant, quoted_name, spark_schema_json
from ftfile.rows.value_text import UTC
from ftfile.tools.migrate.migrated_statistics import comparable_columns
from ftfile.tools.migrate.reading import (
    SELF_DESCRIBING,
    FileFacts,
    Reading,
    given_schema,
    join_schemas,
    merge_schemas,
    without_columns,
)
from ftfile.writing.files.file_options import SinkConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ftfile.core.progress import OnProgress
    from ftfile.log.format.model import Author
    from ftfile.storage.api import FileInfo, FileSystem
    from ftfile.tools.migrate.inventory import Inventory
    from ftfile.writing.workers import Workers


# By file extension.
_FORMATS = {name: name for name in FORMATS} | {"jsonl": "json", "ndjson": "json", "txt": "text", "log": "text"}
del _FORMATS["binary"]
# The last group has the length of the unique part of ftfile's names.
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-([0-9a-f]{12})")
_TEXT = "value string"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedTable:
    """The part of a record that names the files."""

    adds: tuple[Add, ...]
    file_format: str
    partition_by: tuple[str, ...]
    schema_key: str
    encoding_key: str  # of files with all columns, as the sink writes them by default
    definitions: dict[str, Any]  # by key


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `migrate`, and the workers that read the files."""

    from_: str
    file_format: str | None
    schema: object
    partition_by: Mapping[str, str] | None
    options: Mapping[str, str]
    checkpoint: str | os.PathLike[str] | None
    leave_unfinished: bool
    dry_run: bool
    confirm: Callable[[Any], bool] | None
    workers: Workers
    progress: OnProgress | None


def rows_of(adds: Iterable[Add]) -> int:
    """Return the number of rows in adds."""
    return sum(add.rows for add in adds)


def bytes_of(adds: Iterable[Add]) -> int:
    """Return the stored bytes of adds."""
    return sum(add.length for add in adds)


def table_of(fs: FileSystem, url: str, inventory: Inventory, author: Author, request: Request) -> MigratedTable:
    """Read all committed files, and return their part of a record.

    Raises:
        ConfigError, SchemaError: see `migrate`.
    """
    name = request.file_format or _format_of(inventory.files)
    columns = _path_columns(inventory.files)
    in_paths = _typed_columns(columns, inventory, request.partition_by)
    _require_time_zone(in_paths, request.options)
    in_files = _given_columns(name, inventory, request.schema, columns)
    settings = {**request.options, "path": url, "fileFormat": name}
    if columns:
        settings["partitionBy"] = columns_text(columns)
    _check_paths({layout.parent(info.path) for info in inventory.files}, in_paths)
    if in_files is None:
        config = None
    else:
        config = SinkConfig.from_options(settings, join_schemas(in_files, in_paths))
    if config is None:
        definition = {"name": name}
    else:
        definition = config.encoding["format"]
    facts = _read_all(fs, inventory.files, Reading(definition, in_files), request)
    file_schemas: dict[str, str] = {}
    first: dict[str, str] = {}  # one file for each schema
    for info, fact in zip(inventory.files, facts, strict=True):
        if fact.schema not in file_schemas:
            file_schemas[fact.schema] = without_columns(fact.schema, columns)
        first.setdefault(file_schemas[fact.schema], info.path)
    merged = merge_schemas(first, in_files)
    _refuse_variants(merged)
    config = SinkConfig.from_options(settings, join_schemas(merged, in_paths))
    encoding, recorded = config.encoding, config.recorded_schema_json
    definitions: dict[str, Any] = {definition_key(recorded): recorded, definition_key(encoding): encoding}
    keys: dict[tuple[str, tuple[str, ...]], str] = {}
    comparable: dict[str, set[str]] = {}  # columns with statistics, by encoding
    origin = _origin(author)
    adds = []
    for info, fact in zip(inventory.files, facts, strict=True):
        kind = fact.schema, fact.filters
        if kind not in keys:
            filters = Chain.for_reading(fact.filters).definition()
            file_encoding = {**encoding, "schema": file_schemas[fact.schema], "filters": filters}
            keys[kind] = definition_key(file_encoding)
            definitions[keys[kind]] = file_encoding
            comparable[keys[kind]] = comparable_columns(
                arrow_schema(file_schemas[fact.schema]), config.file_schema, encoding.get("statistics", ())
            )
        add = _add(info, fact, encoding=keys[kind], origin=origin, unique=fs.context.ids.unique())
        statistics = {key: entry for key, entry in fact.statistics.items() if key in comparable[keys[kind]]}
        adds.append(structs.replace(add, statistics=statistics))
    return MigratedTable(
        adds=tuple(adds),
        file_format=name,
        partition_by=columns,
        schema_key=definition_key(recorded),
        encoding_key=definition_key(encoding),
        definitions=definitions,
    )


_ANOTHER_TYPE = Advice("give another type with ", Argument("partition_by"))


def _format_of(files: Sequence[FileInfo]) -> str:
    first: dict[str, str] = {}  # one file for each format
    unclear = []
    for info in files:
        file_format = _FORMATS.get(_plain_ending(info.path))
        if file_format is None:
            unclear.append(info.path)
        else:
            first.setdefault(file_format, info.path)
    if unclear:
        raise ConfigError(
            Advice(
                f"the format cannot be derived from these names: {names_text(unclear)}. If these files contain rows, "
                "give the format of all files, such as ",
                Argument("file_format", "json"),
                ". Otherwise move them away, or rename them to begin with an underscore. Nothing was changed",
            )
        )
    if len(first) > 1:
        examples = ", ".join(f"{name} ({path!r})" for name, path in sorted(first.items()))
        raise ConfigError(
            f"files have different formats: {examples}. All files of a directory must have the same format: move the "
            "other files away. Nothing was changed"
        )
    return next(iter(first))


def _plain_ending(path: str) -> str:
    """Return the extension of a name, before the extension of a compression of the whole file."""
    pieces = path.rpartition("/")[2].lower().split(".")[1:]
    if pieces and filters_of_name(path):
        pieces.pop()
    if pieces:
        return pieces[-1]
    return ""


def _path_columns(files: Sequence[FileInfo]) -> tuple[str, ...]:
    """Return the columns in the paths, outermost first.

    Raises:
        ConfigError: paths have different columns, or programs read different texts from a path.
    """
    _refuse_escaped_bytes({layout.parent(info.path) for info in files})
    example_paths: dict[tuple[str, ...], str] = {}
    for info in files:
        example_paths.setdefault(columns_of_directory(layout.parent(info.path)), info.path)
    if len(example_paths) > 1:
        texts = []
        for columns, path in list(example_paths.items())[:2]:
            texts.append(f"{path!r} has {', '.join(columns) or 'none'}")
        examples = ", ".join(texts)
        raise ConfigError(
            f"paths have different columns: {examples}. Move the files of one kind to a separate directory, and "
            "migrate each directory. Nothing was changed"
        )
    return next(iter(example_paths))


def _typed_columns(
    columns: tuple[str, ...], inventory: Inventory, partition_by: Mapping[str, str] | None
) -> str | None:
    """Return the schema of the columns in paths; None without columns. `ConfigError` if types do not match them."""
    if inventory.partition_by is not None and inventory.schema is not None:
        table_schema = arrow_schema(inventory.schema)
        if columns:
            return spark_schema_json(partition_schema(table_schema, columns))
        return None
    types = dict(partition_by or {})
    if inventory.source == "kafka-connect" and columns == ("partition",):
        types = {"partition": "int"} | types
    if list(types) != list(columns) and {*types} != {*columns}:
        raise _partition_by_error(columns, inventory.files[0].path, types)
    if columns:
        return given_schema({column: types[column] for column in columns})
    return None


def _partition_by_error(columns: Sequence[str], path: str, types: Mapping[str, str]) -> ConfigError:
    """Return the error for columns in paths (as in this example path) that differ from the columns with given types."""
    if not columns:
        return ConfigError(
            Advice(
                f"no path contains partition columns, for example {path!r}: omit {', '.join(types)} from ",
                Argument("partition_by"),
            )
        )
    proposal = {column: types.get(column, "string") for column in columns}
    unknown = []
    for name in types:
        if name not in columns:
            unknown.append(name)
    but = ""
    if unknown:
        but = f"; {', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not among them"
    return ConfigError(
        Advice(
            f"paths such as {path!r} have columns{but}: give the type of each, such as ",
            Argument("partition_by", proposal),
        )
    )


def _refuse_variants(schema: str) -> None:
    for field in arrow_schema(schema):
        if has_variant(field.type):
            raise SchemaError(
                f"column {quoted_name(field.name)} is VARIANT: Spark may have stored parts of its values in other "
                "columns, which ftfile cannot read. Rewrite these rows with ftfile"
            )


def _require_time_zone(in_paths: str | None, options: Iterable[str]) -> None:
    if in_paths is None or "timezone" in {name.lower() for name in options}:
        return
    for field in arrow_schema(in_paths):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            raise ConfigError(
                Advice(
                    f"the paths contain times of the column `{field.name}` in the time zone of their writer: give this "
                    "time zone, such as ",
                    Argument("options", {"timeZone": "UTC"}),
                )
            )


def _given_columns(name: str, inventory: Inventory, schema: object, columns: Iterable[str]) -> str | None:
    """Return the columns in files from the user or a log; None if the files contain their schema."""
    if schema is None and inventory.schema is not None:
        schema = inventory.schema
    if schema is None and name == "text":
        schema = _TEXT
    if schema is None:
        if name not in SELF_DESCRIBING:
            raise ConfigError(
                Advice(
                    f"files of format {name} do not contain their schema: give it, such as ",
                    Argument("schema", "id long, at timestamp"),
                )
            )
        return None
    return without_columns(given_schema(schema), columns)


def _refuse_escaped_bytes(directories: Iterable[str]) -> None:
    """Raise a ConfigError for names of partitions that Spark reads as another text than DuckDB, Polars and pyarrow."""
    for directory in sorted(directories):
        try:
            plain = without_escaped_bytes(directory)
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the directory {directory!r} has escaped bytes that are not UTF-8, so programs read different values: "
                "rename it, with the characters of the value instead of these bytes. Nothing was changed"
            ) from error
        if plain != directory:
            raise ConfigError(
                f"the directory {directory!r} has escaped bytes of UTF-8, which DuckDB, Polars and pyarrow decode, and "
                f"Spark reads as one character each. Rename it to {plain!r}, which all programs read as the same "
                "value; docs/migrating/README.md shows this for many directories. Nothing was changed"
            )


def _check_paths(directories: Iterable[str], in_paths: str | None) -> None:
    if in_paths is None:
        return
    types = arrow_schema(in_paths)
    for directory in directories:
        try:
            values = parse_partition_path(directory, types)
        except CorruptData as error:
            raise ConfigError(
                Advice(f"the directory {directory!r} has {error.found} instead of {error.expected}: ", _ANOTHER_TYPE)
            ) from error
        try:
            expected = values_of_path(directory, types, UTC)
        except SourceError as error:
            raise ConfigError(Advice(error.text, ". For migrate, ", _ANOTHER_TYPE)) from error
        for name, value in values.items():
            if str(value) != str(expected[name]):  # NaN is not equal to NaN, but their texts are equal
                raise ConfigError(
                    Advice(
                        f"the directory {directory!r} has {value.as_py()!r} for column {name!r}, and Spark reads "
                        f"{expected[name].as_py()!r}: ",
                        _ANOTHER_TYPE,
                    )
                )


def _read_all(fs: FileSystem, files: Sequence[FileInfo], work: Reading, request: Request) -> list[FileFacts]:
    total_bytes = sum(map(work.size_of, files))
    tracker = Tracker(
        "migrate", fs.context.clock, on_progress=request.progress, total=len(files), total_bytes=total_bytes
    )
    facts: dict[int, FileFacts] = {}
    for number, fact in request.workers.do(work, files, fs, {}):
        facts[number] = fact
        tracker.add(1, work.size_of(files[number]))
    return [facts[number] for number in range(len(files))]


def _origin(author: Author) -> Origin:
    """Return the origin of all files; for a query, it is the last batch, so followers read all files as that batch."""
    if isinstance(author, StreamAuthor):
        return Origin(author.query_id, author.batch_id, author.batch_id)
    return Origin(author.operation_id, 0, 0)


def _add(info: FileInfo, facts: FileFacts, encoding: str, origin: Origin, unique: str) -> Add:
    """Return the add of a file.

    If its name contains a UUID, as Spark's names do, the id begins with the UUID's last group. This marks the name as
    unique.
    """
    uuids = _UUID.findall(info.path.rpartition("/")[2])
    add_id = unique
    if uuids:
        add_id = uuids[-1] + unique[len(uuids[-1]) :]
    return Add(
        id=add_id,
        kind="part",
        path=info.path,
        final_path=info.path,
        length=info.size_bytes,
        logical_length=facts.plain_bytes,
        checksum=facts.checksum,
        rows=facts.rows,
        directory_key=layout.parent(info.path),
        encoding=encoding,
        origin=origin,
        filters=facts.filters,
    )
