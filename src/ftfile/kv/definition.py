"""The definition of a store, which its first record fixes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError
from ftfile.core.options.kinds import columns_text
from ftfile.kv.key_columns import is_key_type
from ftfile.kv.merge_functions import (
    LAST,
    check_functions,
    check_named_code,
    code_of,
    functions_text,
    merged_type,
    parse_merge,
)
from ftfile.log.format import layout
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, leaf_types, values_of
from ftfile.rows.spark_types import has_variant, is_wider, recorded_schema, spark_schema_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray


# The name of the last column of rows: the operation, an int8. Runs whose rows are all sets omit this column.
OP = "_op"
SET, MERGE, DELETE = 0, 1, 2
# Time of a delete, in milliseconds since 1970; null for other rows. Stored before `_op` if there is a sequence column.
DELETED_MS = "_deletedMs"
# The last column of the result of `lookup`: True if the key has a row.
FOUND = "_found"
_RESERVED = (OP, DELETED_MS, FOUND)
# Bucket numbers have five digits in bucket keys.
BUCKETS_MAX = 1 << 16
_BUCKETS = frozenset(1 << bits for bits in range(BUCKETS_MAX.bit_length()))

_KEY_TYPES = "types of the key columns"


def operations(rows: pa.Table) -> NDArray[np.int8]:
    """Return the operation of each row."""
    if OP not in rows.column_names:
        return np.zeros(rows.num_rows, np.int8)
    return values_of(rows[OP].combine_chunks(), np.int8)


def ops_in(rows: pa.Table) -> int:
    """Return the operations that occur in rows, as a bit set."""
    if OP not in rows.column_names:
        return int(rows.num_rows > 0) << SET
    return sum(1 << op for op in pc.unique(rows[OP]).to_pylist())


def deletes_in(rows: pa.RecordBatch) -> int:
    """Return the number of rows that are deletes."""
    if OP not in rows.schema.names:
        return 0
    return int(np.count_nonzero(values_of(rows[OP], np.int8) == DELETE))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDefinition:
    """The definition of a store.

    Attributes:
        keys: names of the key columns, in sort order.
        schema: key columns, then value columns, as stored in runs.
        bucket_by: key columns whose hash selects a row's bucket.
        buckets: a power of two.
        merge: the merge function by value column; `last` for columns that are not in it.
        sequence: the value column whose greatest value wins; None if the last row wins.
        code: the merge classes that the caller has named; only these are imported. Not recorded.
    """

    keys: tuple[str, ...]
    schema: pa.Schema
    bucket_by: tuple[str, ...]
    buckets: int
    merge: Mapping[str, str]
    sequence: str | None = None
    code: frozenset[str] = frozenset()

    @property
    def values(self) -> list[str]:
        """Return the names of the value columns."""
        return [*self.schema.names[len(self.keys) :]]

    @property
    def value_fields(self) -> list[pa.Field]:
        """Return the value columns."""
        return [*self.schema][len(self.keys) :]

    @property
    def key_fields(self) -> list[pa.Field]:
        """Return the key columns."""
        return [*map(self.schema.field, self.keys)]

    @property
    def key_types(self) -> list[pa.DataType]:
        """Return the types of the key columns."""
        return self.types_of(self.keys)

    def types_of(self, names: Iterable[str]) -> list[pa.DataType]:
        """Return the types of columns by name."""
        return [self.schema.field(name).type for name in names]

    def nullable_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return columns by name as nullable columns, without metadata."""
        return pa.schema(zip(names, self.types_of(names), strict=True))

    def merge_text(self, columns: Collection[str]) -> str:
        """Return the merge functions of some columns, in the syntax of the option `merge`."""
        functions = self.merge_of(columns)
        return functions_text(dict(sorted(functions.items()))) or LAST

    def merge_of(self, columns: Collection[str]) -> dict[str, str]:
        """Return the merge functions of some columns by column."""
        return {name: function for name, function in self.merge.items() if name in columns}

    def naming(self, code: Collection[str]) -> StoreDefinition:
        """Return the definition with the classes that a caller has named."""
        return replace(self, code=frozenset(code))

    def require_code(self) -> None:
        """Raise a ConfigError for a merge class that the caller has not named."""
        check_named_code(self.merge, self.code)

    def with_columns(self, schema_json: str) -> StoreDefinition:
        """Return the definition with the columns of a version; unchanged if the version has other key columns."""
        schema = recorded_schema(schema_json)
        if schema.names[: len(self.keys)] == [*self.keys]:
            return replace(self, schema=schema)
        return self

    def names_with(self, ops: int) -> list[str]:
        """Return the names of the columns to store for rows with these operations, which are a bit set."""
        names = [*self.schema.names]
        has_deletes = ops & (1 << DELETE)
        has_only_sets = not ops & ~(1 << SET)
        if self.sequence is not None and has_deletes:
            names.append(DELETED_MS)
        if not has_only_sets:
            names.append(OP)
        return names

    def align(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the schema, cast to its types, then `_op` and, before it, any delete time.

        Missing columns, such as value columns added later, are null. Rows without `_op` are sets.
        """
        fields = [*self.schema]
        if self.sequence is not None:
            fields.append(pa.field(DELETED_MS, pa.int64()))
        names = set(rows.column_names)
        columns = []
        for field in fields:
            if field.name in names:
                column = rows[field.name]
            else:
                column = pa.nulls(rows.num_rows, field.type)
            columns.append(column if column.type == field.type else column.cast(field.type))
        sets = from_numpy(np.full(max(rows.num_rows, 1), SET, np.int8), pa.int8())
        columns.append(rows[OP].fill_null(sets[0]) if OP in names else sets[: rows.num_rows])
        return pa.table(columns, names=[*pa.schema(fields).names, OP])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {
            "keys": list(self.keys),
            "schema": spark_schema_json(self.schema),
            "bucketBy": list(self.bucket_by),
            "buckets": self.buckets,
            "merge": dict(sorted(self.merge.items())),
            "sequenceColumn": self.sequence,
        }

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> StoreDefinition:
        """Build from `to_json()`; raise CorruptData for malformed JSON."""
        with Decoding(layout.LOG, "the definition of a store"):
            schema = recorded_schema(text["schema"])
            buckets = text["buckets"]
            definition = cls(
                keys=tuple(text["keys"]),
                schema=schema,
                bucket_by=tuple(text["bucketBy"]),
                buckets=buckets,
                merge=dict(text["merge"]),
                sequence=text["sequenceColumn"],
            )
            if type(buckets) is not int or buckets not in _BUCKETS or not definition.is_sound():
                raise ValueError(
                    f"keys {definition.keys!r:.80}, buckets {buckets!r:.20}, columns {schema.names!r:.200}"
                )
            return definition

    def is_sound(self) -> bool:
        """Return True if keys, buckets, functions and sequence refer to existing columns."""
        keys, names, values = {*self.keys}, {*self.schema.names}, {*self.values}
        for columns in (self.keys, self.bucket_by, self.schema.names):
            if not columns or len(columns) > len({*columns}):
                return False
        is_within = keys <= names and {*self.bucket_by} <= keys and {*self.merge} <= values
        has_functions = all(isinstance(function, str) for function in self.merge.values())
        return is_within and has_functions and self.sequence in {None, *values}


def define(  # noqa: PLR0913 - all by name
    schema: pa.Schema,
    keys: Sequence[str],
    *,
    bucket_by: Sequence[str] = (),
    buckets: int = 16,
    merge: str | Mapping[str, str] = LAST,
    sequence: str | None = None,
    code: Collection[str] | None = None,
) -> StoreDefinition:
    """Return the definition of a store from a writer's options. The columns of `schema` can be in any order.

    `merge` is the text of the option, or a mapping from columns to functions. Columns that are not in it use `last`.
    `code` contains the merge classes that `merge` may name. If it is None, `merge` may name any class, so `merge` must
    come from the caller and not from a record. Without value columns, the store contains only keys.

    Raises:
        ConfigError: an option is invalid; the error names it.
    """
    _check_types(schema)
    _check_keys(schema, keys)
    if not set(bucket_by) <= set(keys):
        raise ConfigError(
            f"bucketBy={columns_text(bucket_by)}: it can only name key columns, which are {','.join(keys)}"
        )
    check_buckets(buckets)
    fields = {field.name: field for field in schema}
    values = [name for name in schema.names if name not in keys]
    functions = parse_merge(merge, values) if isinstance(merge, str) else merge
    if code is None:
        code = code_of(functions)
    functions = check_functions(functions, values, code)
    stored = []
    for name in keys:
        stored.append(pa.field(name, fields[name].type, nullable=False))
    for name in values:
        kind = merged_type(functions.get(name, LAST), name, fields[name].type)
        stored.append(pa.field(name, kind))
    if sequence is not None:
        _check_sequence(sequence, values, fields, functions)
    return StoreDefinition(
        keys=tuple(keys),
        schema=pa.schema(stored),
        bucket_by=tuple(bucket_by) or tuple(keys),
        buckets=buckets,
        merge=functions,
        sequence=sequence,
        code=frozenset(code),
    )


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        if any(pa.types.is_time(leaf) for leaf in leaf_types(field.type)):
            raise ConfigError(f"column {field.name!r}: a store does not support TIME: use cast(column AS STRING)")
        if has_variant(field.type):
            raise ConfigError(f"column {field.name!r}: a store does not support VARIANT: use to_json(column)")


def check_buckets(buckets: int) -> None:
    """Raise a ConfigError for an invalid number of buckets."""
    if not 0 < buckets <= BUCKETS_MAX or buckets & (buckets - 1):
        raise ConfigError(f"buckets={buckets}: it must be a power of two, at most {BUCKETS_MAX}")


def require_same(recorded: StoreDefinition, requested: StoreDefinition) -> None:
    """Raise a ConfigError with both values for an option that differs from the store's; value columns may differ."""
    for option, old, new in _differences(recorded, requested):
        present = old
        if isinstance(old, list):
            present = columns_text(old)
        if option == _KEY_TYPES:
            advice = "Cast them"
        elif old is None:
            advice = "Omit it"
        else:
            advice = f"Give {present}"
        raise ConfigError(f"{option}: the store has {old}, and {new} is given. {advice}, or write to a new path")


def row_misfits(old: StoreDefinition, new: StoreDefinition) -> list[str]:
    """Return a clause for each reason why a store with a new definition cannot accept rows of an old one.

    A different number of buckets, additional value columns and wider types are compatible.
    """
    as_in_new = replace(old, bucket_by=new.bucket_by, buckets=new.buckets)
    clauses = []
    for option, before, now in _differences(as_in_new, new):
        clauses.append(f"{option} was {before} and is {now}")
    types = {field.name: field.type for field in new.value_fields}
    for field in old.value_fields:
        kind = types.get(field.name)
        if kind is None:
            clauses.append(f"{field.name} was removed")
        elif not (kind.equals(field.type) or is_wider(field.type, kind)):
            clauses.append(f"{field.name} was {field.type} and is {kind}")
    return clauses


class _Difference(NamedTuple):
    """An option with different values in two definitions."""

    option: str
    before: Any
    now: Any


def _differences(old: StoreDefinition, new: StoreDefinition) -> list[_Difference]:
    """Return each option that differs between two definitions, with both values; value columns may differ."""
    both = set(old.values) & set(new.values)
    pairs: dict[str, tuple[Any, Any]] = {
        "keyColumns": (list(old.keys), list(new.keys)),
        _KEY_TYPES: ([*map(str, old.key_types)], [*map(str, new.key_types)]),
        "bucketBy": (list(old.bucket_by), list(new.bucket_by)),
        "buckets": (old.buckets, new.buckets),
        "merge": (old.merge_text(both), new.merge_text(both)),
        "sequenceColumn": (old.sequence, new.sequence),
    }
    differences = []
    for option, (before, now) in pairs.items():
        if before != now:
            differences.append(_Difference(option, before, now))
    return differences


def join_definitions(definitions: Sequence[StoreDefinition]) -> StoreDefinition:
    """Return the first definition, with the additional columns and the wider types of the other definitions."""
    first = definitions[0]
    fields = {field.name: field for field in first.schema}
    merge: dict[str, str] = {}
    code = first.code
    for definition in definitions[1:]:
        merge |= definition.merge
        code |= definition.code
        for field in definition.schema:
            old_field = fields.get(field.name)
            if old_field is None or is_wider(old_field.type, field.type):
                fields[field.name] = field
    return replace(first, schema=pa.schema(list(fields.values())), merge=merge | {**first.merge}, code=code)


def _check_keys(schema: pa.Schema, keys: Sequence[str]) -> None:
    if not keys:
        raise ConfigError("keyColumns names no column: a store needs at least one")
    for name in keys:
        if schema.names.count(name) != 1 or list(keys).count(name) != 1:
            raise ConfigError(
                f"keyColumns={columns_text(keys)}: {name!r} must be one of the columns {schema.names}, and named once"
            )
        kind = schema.field(name).type
        if not is_key_type(kind):
            raise ConfigError(
                f"keyColumns={columns_text(keys)}: {name!r} has the type {kind}; a key must be a string, binary, "
                "integer, boolean, date, timestamp or decimal of at most 18 digits"
            )
    for name in schema.names:
        if not name or name in _RESERVED or schema.names.count(name) > 1:
            raise ConfigError(
                f"column {name!r}: column names must be unique, not empty, and other than {', '.join(_RESERVED)}: "
                "rename it"
            )


def _check_sequence(
    sequence: str, values: Sequence[str], fields: Mapping[str, pa.Field], functions: Mapping[str, str]
) -> None:
    if sequence not in values:
        raise ConfigError(f"sequenceColumn={sequence!r} is not one of the value columns {list(values)}")
    if not is_key_type(fields[sequence].type):
        raise ConfigError(f"sequenceColumn={sequence!r}: values of type {fields[sequence].type} cannot be ordered")
    if functions:
        text = functions_text(functions)
        raise ConfigError(
            f"sequenceColumn={sequence!r} with merge={text}: if an older row arrives late, it cannot be separated "
            "from rows that are already merged. Use merge=last, or no sequenceColumn"
        )
