"""The store's definition at a head of its log, and what a writer may change of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays.spark_types import spark_schema_json
from ftfile.attempt.kind_of_directory import refuse_files, refusing_file, store_of
from ftfile.attempt.options import Encryption, Storage
from ftfile.attempt.schema_change import check_schema_change
from ftfile.core.options import parse_options
from ftfile.fs.registry import normalise
from ftfile.kv.definition import StoreDefinition, joined, require_same

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.commit.log.state import LogState
    from ftfile.core.context import Context
    from ftfile.kv.config import StoreConfig


def recorded_definition(
    options: Mapping[str, str], context: Context, *, durable: bool = False
) -> StoreDefinition | None:
    """Return the definition of the store that a writer's options name; None if nothing was committed there.

    For `durable`, see `CommitLog.read_on`.

    Raises:
        ConfigError: an option is wrong.
        StorageError, CorruptData: the log cannot be read.
    """
    parsed = parse_options(options, "ftkv-write")
    if parsed["path"] is None:
        return None
    path, storage = normalise(parsed["path"]), Storage.from_options(parsed)
    log = storage.log_at(path, Encryption.from_options(parsed), context)
    with refusing_file(log, path):
        text = store_of(log.read_on(durable=durable))
    return None if text is None else StoreDefinition.from_json(text)


def definition_after(config: StoreConfig, head: LogState) -> StoreDefinition:
    """Return the definition of the store once a record of this writer follows the head.

    Raises:
        ConfigError: the directory is no store, or an option differs from the store's.
        SchemaError: value columns differ more than `onSchemaChange` allows.
    """
    refuse_files(head, config.path)
    text = store_of(head)
    if text is None or config.overwrite:
        return config.definition
    recorded, given = StoreDefinition.from_json(text), config.definition
    require_same(recorded, given)
    old, new = (spark_schema_json(_values_of(each)) for each in (recorded, given))
    check_schema_change(old, new, config.on_schema_change, has_any=False)
    return joined([recorded, given])


def _values_of(definition: StoreDefinition) -> pa.Schema:
    return pa.schema([definition.schema.field(name) for name in definition.values])
