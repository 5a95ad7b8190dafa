"""The store's definition at a head of its log, and what a writer may change of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays.spark_types import spark_schema_json
from ftfile.attempt.kind_of_directory import refuse_files, store_of
from ftfile.attempt.schema_change import check_schema_change, is_wider
from ftfile.kv.definition import StoreDefinition, require_same

if TYPE_CHECKING:
    from ftfile.commit.log.state import LogState
    from ftfile.kv.config import StoreConfig

__all__ = ("definition_after",)


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
    check_schema_change(old, new, config.on_schema_change)
    return _joined(recorded, given)


def _values_of(definition: StoreDefinition) -> pa.Schema:
    return pa.schema([definition.schema.field(name) for name in definition.values])


def _joined(recorded: StoreDefinition, given: StoreDefinition) -> StoreDefinition:
    """Return the recorded definition with the wider types and the new columns of another one."""
    fields = {field.name: field for field in recorded.schema}
    for field in given.schema:
        known = fields.get(field.name)
        if known is None or is_wider(known.type, field.type):
            fields[field.name] = field
    return replace(recorded, schema=pa.schema(list(fields.values())), merge={**recorded.merge, **given.merge})
