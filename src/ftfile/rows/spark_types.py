"""Conversion of Spark's schema JSON (`StructType.json()`) to Arrow and back, without pyspark, and type widening.

Spark 4.0 to 4.3 spell the types below in the same way; `time(p)`, `geometry(...)` and `geography(...)` are new in 4.1.
A collation is `string` with `__COLLATIONS` in the metadata of the field, and `string collate X` without a field.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import CorruptData, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_NULLABLE_KEYS = frozenset({"nullable", "containsNull", "valueContainsNull"})
COLLATIONS_KEY = "__COLLATIONS"
_DEFAULT_COLLATION = "utf8_binary"

_ATOMIC: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": pa.time64("us"),
    "decimal": pa.decimal128(10, 0),
    # As Spark sends it to Python, but nullable; the metadata of the second field distinguishes it from other structs.
    "variant": pa.struct([("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]),
}
_SPARK_NAMES = {arrow: name for name, arrow in _ATOMIC.items() if name not in {"decimal", "variant"}}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_PRECISION_MAX = 38
_SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
# Names of types in SQL, also of other programs, by their name in schema JSON.
JSON_NAMES = {
    **{sql: name for name, sql in _SQL_NAMES.items()},
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_SCHEMAS_KEPT = 64
_LOG = "_ftfile/log"
_CHARACTERS = re.compile(r"(var)?char\(\s*\d+\s*\)")
# The levels of lists, structs and maps in a column. Parquet files with lists of 50 levels can be written, and no reader
# accepts them; in JSON the limit of the readers is 62 levels.
DEPTH_MAX = 32
_COLLATED = re.compile(r"string\s+collate\s+(\S+)", re.IGNORECASE)

# Remedies for types that no file format can return unchanged; the first match is used.
_ADVICE = (
    (re.compile(r"time(\(|$)"), "only TIME(6) is supported: cast(column AS TIME(6))"),
    (re.compile(r"interval"), "store it as a string, or as a number of months or microseconds"),
    (re.compile(r"geo(metry|graphy)"), "store it as WKB: st_asbinary(column)"),
    (re.compile(r"(void|null)$"), "give it a type: cast(column AS STRING)"),
)


class _Problems(list[str]):
    """Collects all columns that cannot be stored for one error."""

    def add(self, path: str, what: str, advice: str) -> None:
        self.append(f"column `{path}`: {what}; {advice}" if path else f"{what}; {advice}")

    def add_same_names(self, prefix: str, fields: list[dict[str, Any]]) -> None:
        """Add names that are equal or differ only in case, which Spark's readers call ambiguous."""
        for name, count in Counter(field["name"].lower() for field in fields).items():
            if count > 1:
                self.add(f"{prefix}{name}", f"{count} columns have this name (case aside)", "give them different names")

    def add_collation(self, path: str, collation: str) -> None:
        if collation.lower() != _DEFAULT_COLLATION:
            advice = "no file format stores collations: cast(column AS STRING COLLATE UTF8_BINARY)"
            self.add(path, f"a string with collation {collation} cannot be stored", advice)


def check_depth(schema: Iterable[pa.Field]) -> None:
    """Raise a SchemaError for a column with more than `DEPTH_MAX` levels, which readers do not accept."""
    for field in schema:
        level = [field.type]
        for _ in range(DEPTH_MAX):
            level = [inner for kind in level for inner in _inner_types(kind)]
        if level:
            raise SchemaError(
                f"column `{field.name}` has more than {DEPTH_MAX} levels of lists, structs and maps: store the inner "
                "levels as text, such as JSON"
            )


def _inner_types(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of the next level. The entries of a map are not a level."""
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(number).type for number in range(kind.num_fields)]


@lru_cache(_SCHEMAS_KEPT)
def arrow_schema(schema_json: str) -> pa.Schema:
    """Return the Arrow schema of a Spark `StructType.json()`, cached; `SchemaError` names all unsupported columns."""
    problems = _Problems()
    try:
        fields = json.loads(schema_json)["fields"]
        if not fields:
            problems.add("", "the schema has no columns", "select at least one column")
        problems.add_same_names("", fields)
        arrow = pa.schema([_field(field, "", problems) for field in fields])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SchemaError(f"not the JSON text of a Spark StructType: {str(schema_json)[:200]!r}") from error
    if problems:
        raise SchemaError("the schema cannot be stored:\n  " + "\n  ".join(problems))
    check_depth(arrow)
    return arrow


def recorded_schema(schema_json: str) -> pa.Schema:
    """Return the Arrow schema of a text from the log of a directory, cached.

    Raises:
        CorruptData: it is not a schema, or has a type that ftfile does not store.
    """
    try:
        return arrow_schema(schema_json)
    except SchemaError as error:
        advice = "Restore the log from a copy of the directory: ftfile writes no such schema"
        raise CorruptData(_LOG, "a schema of types that ftfile stores", str(error), advice) from error


def _field(field: dict[str, Any], prefix: str, problems: _Problems) -> pa.Field:
    name, path = field["name"], prefix + field["name"]
    metadata = field.get("metadata") or {}
    for where, collation in metadata.get(COLLATIONS_KEY, {}).items():
        # The path in the metadata starts at this field; the value is `provider.collation`.
        problems.add_collation(prefix + where, collation.rpartition(".")[2])
    return pa.field(name, _type(field["type"], path, problems), bool(field.get("nullable", True)))


def _type(spark: str | dict[str, Any], path: str, problems: _Problems) -> pa.DataType:
    if isinstance(spark, dict):
        return _parse_nested(spark, path, problems)
    if atomic := _ATOMIC.get(spark):
        return atomic
    if match := _DECIMAL.fullmatch(spark):
        precision, scale = int(match[1]), int(match[2])
        if 0 < precision <= _PRECISION_MAX and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
        problems.add(path, f"type {spark} is out of bounds", "cast it to DECIMAL(p, s) with 0 <= s <= p <= 38")
    elif match := _COLLATED.fullmatch(spark):
        problems.add_collation(path, match[1])
    elif not _CHARACTERS.fullmatch(spark):
        problems.add(path, f"type {spark} cannot be stored", _advice(spark))
    return pa.string()


def _advice(spark: str) -> str:
    for kind, text in _ADVICE:
        if kind.match(spark):
            return text
    return "cast it to a supported type"


def _parse_nested(spark: dict[str, Any], path: str, problems: _Problems) -> pa.DataType:
    kind = spark.get("type")
    if kind == "array":
        element = _type(spark["elementType"], f"{path}.element", problems)
        return pa.list_(pa.field("element", element, bool(spark.get("containsNull", True))))
    if kind == "map":
        key = _type(spark["keyType"], f"{path}.key", problems)
        value = _type(spark["valueType"], f"{path}.value", problems)
        nullable = bool(spark.get("valueContainsNull", True))
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable))
    if kind == "struct":
        fields = spark["fields"]
        if not fields:
            problems.add(path, "a struct without fields cannot be stored", "drop the column")
        problems.add_same_names(f"{path}.", fields)
        return pa.struct([_field(field, f"{path}.", problems) for field in fields])
    if kind == "udt":
        name = spark.get("pyClass") or spark.get("class") or "?"
        problems.add(path, f"user-defined type {name} cannot be stored", "select its fields instead")
    else:
        problems.add(path, f"type {kind} cannot be stored", "cast it to a supported type")
    return pa.string()


def is_variant(arrow: pa.DataType) -> bool:
    """Return True for the type of VARIANT, which Arrow compares equal to a struct, ignoring metadata."""
    return bool(arrow.equals(_ATOMIC["variant"], check_metadata=True))


def type_text(arrow: pa.DataType) -> str:
    """Return a type for errors, in which a VARIANT is not shown as a struct."""
    if is_variant(arrow):
        return "variant"
    return str(arrow)


def has_variant(arrow: pa.DataType) -> bool:
    """Return True for VARIANT, and for a type that contains it."""
    if is_variant(arrow):
        return True
    if not pa.types.is_nested(arrow):
        return False
    fields = map(arrow.field, range(arrow.num_fields))
    return any(has_variant(field.type) for field in fields)


def as_nullable(schema_json: str) -> str:
    """Return the schema with all fields nullable at every depth, like Spark's file sink."""
    # The next batch can contain nulls even if this one does not.
    return json.dumps(_as_nullable(json.loads(schema_json)), separators=(",", ":"), sort_keys=True)


def _as_nullable(spark: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(spark, list):
        return [_as_nullable(item) for item in spark]
    if not isinstance(spark, dict):
        return spark
    nullable = dict(spark)
    for key, value in spark.items():
        if key in _NULLABLE_KEYS:
            nullable[key] = True
        elif key != "metadata":
            nullable[key] = _as_nullable(value)
    return nullable


def sql_types(schema_json: str) -> dict[str, str]:
    """Return the types of the columns of a Spark `StructType.json()` in SQL."""
    return {field["name"]: sql_type(field["type"]) for field in json.loads(schema_json)["fields"]}


def quoted_name(name: str) -> str:
    """Return the quoted name of a column or field in SQL."""
    return f"`{name.replace('`', '``')}`"


def sql_type(spark: Any) -> str:  # noqa: ANN401 - JSON
    """Return a type of Spark's JSON in the SQL of Spark and Hive: `array<bigint>`."""
    if isinstance(spark, str):
        return _SQL_NAMES.get(spark, spark)
    if spark["type"] == "array":
        return f"array<{sql_type(spark['elementType'])}>"
    if spark["type"] == "map":
        return f"map<{sql_type(spark['keyType'])},{sql_type(spark['valueType'])}>"
    return f"struct<{','.join(map(_sql_field, spark['fields']))}>"


def _sql_field(field: dict[str, Any]) -> str:
    return f"{quoted_name(field['name'])}:{sql_type(field['type'])}"


def spark_schema_json(schema: pa.Schema) -> str:
    """Return the inverse of `arrow_schema`; `SchemaError` for types that Spark does not send."""
    return json.dumps(_spark_struct(schema), separators=(",", ":"), sort_keys=True)


def _spark_struct(fields: Iterable[pa.Field], parent: str = "") -> dict[str, Any]:
    return {"type": "struct", "fields": [_spark_field(field, parent) for field in fields]}


def _spark_field(field: pa.Field, parent: str) -> dict[str, Any]:
    kind = _spark_type(field.type, f"{parent}{field.name}")
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}


def _spark_type(arrow: pa.DataType, path: str) -> str | dict[str, Any]:
    if name := _SPARK_NAMES.get(arrow):
        return name
    if is_variant(arrow):
        return "variant"
    if isinstance(arrow, pa.Decimal128Type):
        return f"decimal({arrow.precision},{arrow.scale})"
    if isinstance(arrow, pa.StructType):
        return _spark_struct(arrow, f"{path}.")
    if isinstance(arrow, pa.ListType):
        element = _spark_type(arrow.value_type, f"{path}.element")
        return {"type": "array", "elementType": element, "containsNull": arrow.value_field.nullable}
    if isinstance(arrow, pa.MapType):
        key = _spark_type(arrow.key_type, f"{path}.key")
        value = _spark_type(arrow.item_type, f"{path}.value")
        nullable = arrow.item_field.nullable
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nullable}
    raise SchemaError(
        f"column `{path}`: the type {arrow} cannot be stored: cast it, for example to int64, to string, or to a list"
    )


_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}

# The digits for any integer of a type; Avro stores integers of up to 32 bits as one type.
_DIGITS = {pa.int8(): 10, pa.int16(): 10, pa.int32(): 10, pa.int64(): 19}
# The number of decimal digits that a type stores exactly.
_DECIMALS = {pa.int8(): 2, pa.int16(): 4, pa.int32(): 9, pa.int64(): 18, pa.float32(): 6, pa.float64(): 15}


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if a type is wider than another one: it has all of its values."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole_digits = new.precision - new.scale >= old.precision - old.scale
        return bool(whole_digits and new.scale >= old.scale)
    return new in _WIDER.get(old, ())


def reads_back(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if files of every format with the old type can be read as the new one without loss.

    Struct fields are found by name; a missing one is null, or left out.
    """
    if is_variant(old) or is_variant(new):
        return is_variant(old) and is_variant(new)
    if not pa.types.is_nested(old):
        return old.equals(new) or is_wider(old, new) or _has_digits(old, new)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return not [*misfits(old, new), *list_respelled(old, new)]
    if pa.types.is_list(old) and pa.types.is_list(new):
        return reads_back(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        keys = not pa.types.is_nested(old.key_type) and reads_back(old.key_type, new.key_type)
        return (keys or old.key_type.equals(new.key_type)) and reads_back(old.item_type, new.item_type)
    return False


def _has_digits(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if one type is a decimal, the other one numeric, and the new type has all digits of the old one."""
    if pa.types.is_decimal(new):
        return old in _DIGITS and bool(new.precision - new.scale >= _DIGITS[old])
    if pa.types.is_decimal(old):
        whole = old.scale == 0 or pa.types.is_floating(new)
        return whole and bool(old.precision <= _DECIMALS.get(new, 0))
    return False


def has_nearest(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if decimal fractions become the nearest floating-point numbers; also in nested types."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        new_types = {field.name: field.type for field in new}
        common = [field for field in old if field.name in new_types]
        return any(has_nearest(field.type, new_types[field.name]) for field in common)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return has_nearest(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return has_nearest(old.key_type, new.key_type) or has_nearest(old.item_type, new.item_type)
    return bool(pa.types.is_decimal(old) and old.scale and pa.types.is_floating(new))


def misfits(old: Iterable[pa.Field], new: Iterable[pa.Field], *, narrower: bool = False) -> Iterator[str]:
    """Yield a clause for each common field that cannot be read back, also for nested ones; see `reads_back`.

    With `narrower`, a smaller numeric type is accepted, too: reading fails at a value out of its range.
    """
    old_types = {field.name: field.type for field in old}
    for field in new:
        before = old_types.get(field.name)
        if before is None or reads_back(before, field.type) or (narrower and _is_smaller(before, field.type)):
            continue
        yield f"{field.name} was {type_text(before)} and is {type_text(field.type)}"


def _is_smaller(old: pa.DataType, new: pa.DataType) -> bool:
    # Some formats truncate the fractions.
    return is_wider(new, old) and not (pa.types.is_floating(old) and pa.types.is_integer(new))


def list_respelled(old: Iterable[pa.Field], new: Iterable[pa.Field]) -> Iterator[str]:
    """Yield a clause for each new field whose name differs from an old one only in case, also in structs."""
    old_fields = {field.name.lower(): field for field in old}
    for field in new:
        before = old_fields.get(field.name.lower())
        if before is None:
            continue
        if before.name != field.name:
            yield f"{field.name} is recorded as {before.name}"
        elif pa.types.is_struct(before.type) and pa.types.is_struct(field.type):
            for clause in list_respelled(before.type, field.type):
                yield f"in {field.name}, {clause}"
