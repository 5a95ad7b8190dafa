"""A sink's settings: checked once on the driver, then frozen data that travels to the tasks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ftfile.commit.policy import Policy
from ftfile.core.errors import ConfigError, SchemaError
from ftfile.core.options import parse_options
from ftfile.encoding.partition_paths import check_partition_column
from ftfile.encoding.registry import format_from_options
from ftfile.encoding.spark_types import arrow_schema, as_nullable
from ftfile.encoding.time_formats import TimeFormats
from ftfile.fs.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.encoding.api import Format

__all__ = ("SinkConfig", "definition_key")


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """What the options and the schema of a write come to.

    Attributes:
        path: normalised URL of the directory.
        schema_json: the rows' schema as Spark's `StructType.json()`, everything nullable.
        partition_by: columns in their schema's spelling.
        time_zone: of timestamps in directory names.
        checkpoint: the query's checkpoint directory, when it was given to the writer.
    """

    path: str
    schema_json: str
    format: Format
    partition_by: tuple[str, ...]
    time_zone: str
    max_bytes_per_file: int | None
    max_records_per_file: int | None
    policy: Policy
    on_schema_change: Literal["fail", "widen", "any"]
    fingerprint: str
    checkpoint: str | None

    @classmethod
    def from_options(cls, options: Mapping[str, str], schema_json: str) -> SinkConfig:
        """Check options and schema; nothing is read or written.

        Raises:
            ConfigError: an option is unknown, malformed, or contradicts another.
            SchemaError: a column cannot be stored.
        """
        parsed = parse_options(options, "write")
        if parsed["path"] is None:
            raise ConfigError(_NO_PATH)
        name = parsed["fileFormat"]
        file_format = format_from_options(name, {"timeZone": parsed["timeZone"], **parsed.for_format(name)})
        TimeFormats.from_options({"timeZone": parsed["timeZone"]})
        schema = arrow_schema(schema_json)
        partition_by = _partition_columns(parsed["partitionBy"], schema)
        config = cls(
            path=normalise(parsed["path"]),
            schema_json=as_nullable(schema_json),
            format=file_format,
            partition_by=partition_by,
            time_zone=parsed["timeZone"],
            max_bytes_per_file=parsed["maxBytesPerFile"],
            max_records_per_file=parsed["maxRecordsPerFile"],
            policy=Policy(
                on_new_query=parsed["onNewQuery"],
                on_gap=parsed["onGap"],
                on_replay_mismatch=parsed["onReplayMismatch"],
                on_missing_part=parsed["onMissingPart"],
                publish_timeout_s=parsed["publishTimeout"],
            ),
            on_schema_change=parsed["onSchemaChange"],
            fingerprint=parsed["fingerprint"],
            checkpoint=parsed.spark.get("checkpointlocation"),
        )
        # As it came: what is never null in these rows may be fit for a format that cannot say null.
        file_format.check_schema(pa.schema([field for field in schema if field.name not in partition_by]))
        return config

    @property
    def schema(self) -> pa.Schema:
        """Return the rows' Arrow schema."""
        return arrow_schema(self.schema_json)

    @property
    def file_schema(self) -> pa.Schema:
        """Return the schema within the files: without the partition columns, which are in the path."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def encoding(self) -> dict[str, Any]:
        """Return what a reader must know of the files, for the log."""
        return {
            "format": {"name": self.format.name, **self.format.definition(self.file_schema)},
            "partitionBy": list(self.partition_by),
            "timeZone": self.time_zone,
        }


def definition_key(definition: object) -> str:
    """Return the key of a definition in the log: the same for the same content."""
    text = definition if isinstance(definition, str) else json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_NO_PATH = (
    "the sink has no `path`. Spark does not hand a catalog table's location or options to a Python sink, so give the "
    "path as a write option: df.writeStream.format('ftfile').option('path', '/data/out'), "
    "INSERT INTO t WITH (path='/data/out') ..., df.writeTo('t').option('path', '/data/out').append(), "
    "df.writeStream.option('path', '/data/out').toTable('t')"
)


def _partition_columns(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in schema.names}
    unknown = [name for name in names if name.lower() not in spelling]
    if unknown:
        raise ConfigError(
            f"partitionBy names no column: {', '.join(unknown)}; the columns are {', '.join(schema.names)}"
        )
    if len(names) == len(schema.names):
        raise SchemaError("partitionBy names every column: at least one must be left for the files")
    columns = tuple(spelling[name.lower()] for name in names)
    for column in columns:
        check_partition_column(schema.field(column))
    return columns
