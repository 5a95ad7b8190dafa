"""A store writer's settings, checked once on the driver and sent to the tasks as immutable data."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.core.options.kinds import by_lower_case, in_lower_case
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import StoreSinkOptions
from ftfile.filters.chain import Chain
from ftfile.kv.definition import StoreDefinition, define
from ftfile.kv.merge_functions import LAST
from ftfile.kv.planning.picker import PlanSettings
from ftfile.kv.run_files import RunSpool
from ftfile.log.directory import directory_url
from ftfile.log.format.record import definition_key
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json
from ftfile.writing.options import CommonSettings, Encryption, WriteConfig, client_settings, resolve_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.writing.stage import Stage


# Default for one row: the rows of a block, and of a window of a merge, are in memory together.
_RECORD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(WriteConfig):
    """The settings of a write to a store, from its options and schema."""

    definition: StoreDefinition  # from the options; the records contain the definition of the store
    delete_column: str | None  # boolean, not stored: true for rows that delete their key
    plan: PlanSettings
    compression: str  # of the blocks of runs
    grace_s: float  # how long files of older versions are kept
    vacuum_interval_s: float

    @classmethod
    def from_options(
        cls,
        options: Mapping[str, str],
        schema_json: str,
        *,
        overwrite: bool = False,
        stream: bool = False,
        recorded: StoreDefinition | None = None,
        definition: StoreDefinition | None = None,
    ) -> StoreConfig:
        """Check options and schema. Reads at most an encryption key; writes nothing.

        Unless the write is an overwrite, missing options default to `recorded`, the definition of the store. Column
        names that differ from the store's only in case are spelled as in the store, as in Spark. If `definition` is
        given, options and schema do not define the store.

        Raises:
            ConfigError: an option is unknown, malformed, or contradicts another.
            SchemaError: a column cannot be stored.
        """
        parsed = parse_options(options, StoreSinkOptions)
        path = parsed.required_path(_NO_PATH)
        encryption, clients = Encryption.from_options(parsed), client_settings(parsed)
        common = CommonSettings.from_options(parsed, encryption, clients, stream=stream)
        _check_values(common)
        delete_column = None
        if definition is None:
            recorded = None if overwrite else recorded
            schema_json = as_nullable(_respell_schema(schema_json, recorded))
            delete_column, definition = _define(parsed, arrow_schema(schema_json), recorded)
        return cls(
            path=directory_url(path),
            schema_json=schema_json,
            overwrite=overwrite,
            common=replace(common, max_record_bytes=common.max_record_bytes or _RECORD_BYTES),
            definition=definition,
            delete_column=delete_column,
            plan=PlanSettings.from_options(parsed),
            compression=parsed.compression,
            grace_s=parsed.grace,
            vacuum_interval_s=parsed.vacuum_interval,
        )

    @property
    def hidden_chain(self) -> Chain:
        """Return the filters for runs, and for dead letters."""
        encryption = self.common.encryption
        if encryption is None:
            return Chain()
        return Chain((encryption.around_others,))

    @property
    def definition_key(self) -> str:
        """Return the key of the definition for which a task writes rows."""
        return definition_key(self.definition.to_json())

    def spool(self, stage: Stage, definition: StoreDefinition) -> RunSpool:
        """Return a new spool for runs of a store with a definition."""
        return RunSpool(stage, definition, filters=self.hidden_chain, compression=self.compression)

    def encoding(self, definition: StoreDefinition) -> dict[str, Any]:
        """Return the encoding that the log records for the store and its runs, given its definition."""
        return {
            "format": {"name": "run"},
            "filters": self.hidden_chain.definition(),
            "partitionBy": [],
            "schema": spark_schema_json(definition.schema),
            "store": definition.to_json(),
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings that the log records for maintenance, as plain JSON."""
        store = {
            "plan": msgspec.to_builtins(self.plan),
            "compression": self.compression,
            "graceSeconds": self.grace_s,
        }
        return {"store": store, **self.common.storage.to_json()}


def _check_values(common: CommonSettings) -> None:
    """Raise a ConfigError for option values that are valid for files but not for stores."""
    if common.encryption is not None and common.encryption.kind != "aes-gcm":
        raise ConfigError(
            f"encryption={common.encryption.kind}: a store does not support this encryption; set encryption=aes-gcm"
        )
    if common.on_schema_change == "any":
        raise ConfigError(
            "onSchemaChange=any: rows of all versions of a store are merged, so their columns must be compatible; set "
            "onSchemaChange=widen for new columns and wider types"
        )


def _respell_schema(schema_json: str, recorded: StoreDefinition | None) -> str:
    """Return a schema with the store's spelling of columns whose names differ only in case."""
    if recorded is None:
        return schema_json
    schema = json.loads(schema_json)
    spelled = by_lower_case(recorded.schema.names)
    for field in schema["fields"]:
        field["name"] = spelled.get(field["name"].lower(), field["name"])
    return json.dumps(schema)


def _define(
    parsed: StoreSinkOptions, schema: pa.Schema, recorded: StoreDefinition | None
) -> tuple[str | None, StoreDefinition]:
    """Return the delete column, and the definition for the other columns; names are spelled as in the schema."""
    fixed = _defining_options(parsed, schema, recorded)
    names, deletes, sequence = fixed["keyColumns"], parsed.delete_column, fixed["sequenceColumn"]
    if names is None:
        raise ConfigError(
            f"keyColumns is not given: name the columns of the key, from {', '.join(schema.names)}, as in "
            f"keyColumns={schema.names[0]}"
        )
    keys = _resolve_columns("keyColumns", names, schema)
    if deletes is not None:
        deletes = resolve_column(
            "deleteColumn", deletes, schema=schema, is_right=pa.types.is_boolean, needed="a boolean column"
        )
        if deletes in keys:
            raise ConfigError(f"deleteColumn={deletes}: it is also a key column, and a deleteColumn is not stored")
        schema = pa.schema([field for field in schema if field.name != deletes])
    definition = define(
        schema,
        keys,
        bucket_by=_resolve_columns("bucketBy", fixed["bucketBy"], schema),
        buckets=fixed["buckets"],
        merge=fixed["merge"],
        sequence=sequence and resolve_column("sequenceColumn", sequence, schema),
        code=None if parsed.is_given("merge") else (),
    )
    return deletes, definition


def _defining_options(parsed: StoreSinkOptions, schema: pa.Schema, recorded: StoreDefinition | None) -> dict[str, Any]:
    """Return the options that the first record fixes: as given, else as in the store."""
    values: dict[str, Any] = {
        "keyColumns": parsed.key_columns,
        "bucketBy": parsed.bucket_by,
        "buckets": parsed.buckets,
        "merge": parsed.merge,
        "sequenceColumn": parsed.sequence_column,
    }
    keys = parsed.key_columns
    # Other keys raise a separate error.
    if recorded is None or (keys and in_lower_case(keys) != in_lower_case(recorded.keys)):
        return values
    of_store = {
        "keyColumns": recorded.keys,
        "bucketBy": recorded.bucket_by,
        "buckets": recorded.buckets,
        "merge": recorded.merge_of(schema.names),
        "sequenceColumn": recorded.sequence if parsed.merge == LAST else None,
    }
    for name, value in of_store.items():
        if not parsed.is_given(name):
            values[name] = value
    return values


def _resolve_columns(option: str, names: Iterable[str], schema: pa.Schema) -> list[str]:
    """Return the columns that an option names, spelled as in the schema; ConfigError for a missing column."""
    return [resolve_column(option, name, schema) for name in names]


_NO_PATH = (
    "the option `path` is missing: give the directory of the store, as in "
    "df.writeStream.format('ftkv').option('path', '/data/counts').option('keyColumns', 'word')"
)
