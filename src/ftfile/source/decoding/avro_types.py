"""The types of an Avro file with resolved names, and a schema that reads the same bytes as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
# The logical types that Avro readers apply to a type. A type with another logical type is read without it.
_LOGICAL = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    },
}
_DECIMAL_DIGITS_MAX = 38
_ITEMS = {"array": "items", "map": "values"}


@dataclass(eq=False)
class AvroType:
    """A type of a writer's schema.

    Attributes:
        kind: the name of the type without a logical type, such as `long`, `record` or `union`.
        logical: a logical type that is valid for `kind`, or empty.
        size: of a `fixed`, in bytes.
        precision: of a decimal; with it, its `scale`.
        symbols: of an `enum`.
        names: of the fields of a `record`.
        parts: the types of the fields, of the items, of the values, or of the branches.
    """

    kind: str
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    parts: list[AvroType] = field(default_factory=list)

    @property
    def members(self) -> list[AvroType]:
        """Return the branches of a union that hold values."""
        return [part for part in self.parts if part.kind != "null"]

    def __str__(self) -> str:
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "union":
            return f"[{', '.join(part.kind for part in self.parts)}]"
        if self.logical:
            return f"{self.kind} ({self.logical})"
        return self.kind


def avro_type(schema: Any) -> AvroType:  # noqa: ANN401 - JSON
    """Return the type of a schema that `cost_of` has accepted; `ValueError`, `KeyError` or `TypeError` if it is wrong.

    A type that is used by its name is the same object everywhere.
    """
    return _parse_schema(schema, "", {})


def _parse_schema(schema: Any, namespace: str, named: dict[str, AvroType]) -> AvroType:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        branches = []
        for branch in schema:
            branches.append(_parse_schema(branch, namespace, named))
        return AvroType("union", parts=branches)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return AvroType(schema)
        return _find_known(schema, namespace, named)
    kind = schema["type"]
    items = None
    if isinstance(kind, str):
        items = _ITEMS.get(kind)
    if items is not None:
        return AvroType(kind, parts=[_parse_schema(schema[items], namespace, named)])
    if kind in ("record", "error", "enum", "fixed"):  # not a set: a schema cannot be hashed
        return _parse_named(schema, namespace, named)
    parsed = _parse_schema(kind, namespace, named)
    if isinstance(kind, str) and kind in _PRIMITIVE:
        _set_logical(parsed, schema)
    return parsed


def _find_known(name: str, namespace: str, named: Mapping[str, AvroType]) -> AvroType:
    full = _full_name(name, namespace)
    return named[full if full in named else name]


def _parse_named(schema: Mapping[str, Any], namespace: str, named: dict[str, AvroType]) -> AvroType:
    name = _full_name(schema["name"], schema.get("namespace") or namespace)
    if schema["type"] == "enum":
        parsed = AvroType("enum", symbols=tuple(map(str, schema["symbols"])))
    elif schema["type"] == "fixed":
        parsed = AvroType("fixed", size=max(0, int(schema["size"])))
        _set_logical(parsed, schema)
    else:
        fields, inner = schema["fields"], name.rpartition(".")[0]
        parsed = AvroType("record", names=tuple(str(item["name"]) for item in fields))
        for item in fields:
            parsed.parts.append(_parse_schema(item["type"], inner, named))
    named[name] = parsed
    return parsed


def _set_logical(parsed: AvroType, schema: Mapping[str, Any]) -> None:
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return
    if logical in _LOGICAL.get(parsed.kind, ()):
        parsed.logical = logical
    if logical == "decimal" and parsed.kind in {"bytes", "fixed"}:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return
        if 0 < precision <= _DECIMAL_DIGITS_MAX and 0 <= scale <= precision:
            parsed.logical, parsed.precision, parsed.scale = "decimal", precision, scale


def _full_name(name: str, namespace: str) -> str:
    if namespace and "." not in name:
        return f"{namespace}.{name}"
    return name


def plain_schema(avro: AvroType) -> Any:  # noqa: ANN401 - JSON
    """Return a schema with which fastavro reads the same bytes as numbers, bytes, lists and dictionaries.

    Strings become bytes, and symbols of an enum become their numbers. Maps become arrays of records with `key` and
    `value`. The fields of records are named `f0`, `f1` and so on. The branches of a union of several types become
    records with one field, named `m0`, `m1` and so on, which shows readers the branch. Avro stores a record of one
    field like the field.
    """
    return _PlainType().schema(avro)


class _PlainType:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._records = 0

    def schema(self, avro: AvroType) -> Any:  # noqa: ANN401 - JSON
        if avro.kind == "record":
            return self._name_type(avro)
        if avro.kind == "fixed":
            return self._name_type(avro)
        if avro.kind == "array":
            return {"type": "array", "items": self.schema(avro.parts[0])}
        if avro.kind == "map":
            entry = [{"name": "key", "type": "bytes"}, {"name": "value", "type": self.schema(avro.parts[0])}]
            return {"type": "array", "items": {"type": "record", "name": self._new_name(), "fields": entry}}
        if avro.kind == "union":
            return self._union(avro)
        return {"enum": "int", "string": "bytes"}.get(avro.kind, avro.kind)

    def _name_type(self, avro: AvroType) -> Any:  # noqa: ANN401 - JSON
        known = self._names.get(id(avro))
        if known is not None:
            return known
        name = self._names[id(avro)] = self._new_name()
        if avro.kind == "fixed":
            return {"type": "fixed", "name": name, "size": avro.size}
        fields = []
        for place, part in enumerate(avro.parts):
            fields.append({"name": f"f{place}", "type": self.schema(part)})
        return {"type": "record", "name": name, "fields": fields}

    def _union(self, avro: AvroType) -> Any:  # noqa: ANN401 - JSON
        is_optional = len(avro.members) <= 1
        branches: list[Any] = []
        number = 0
        for part in avro.parts:
            if part.kind == "null" or is_optional:
                branches.append(self.schema(part))
                continue
            member = {"name": f"m{number}", "type": self.schema(part)}
            branches.append({"type": "record", "name": self._new_name(), "fields": [member]})
            number += 1
        return branches

    def _new_name(self) -> str:
        self._records += 1
        return f"r{self._records}"


def show_value(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    """Return a value that was read with `plain_schema` as JSON for error texts.

    Values are shown as stored: times are numbers, and decimals and other bytes are hexadecimal.
    """
    if value is None:
        return None
    read = _SHOWN.get(avro.kind)
    if read is not None:
        return read(value, avro)
    if isinstance(value, bytes):
        return value.hex()
    return value


def _show_record(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    record = {}
    for place, name in enumerate(avro.names):
        record[name] = show_value(value[f"f{place}"], avro.parts[place])
    return record


def _show_array(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    return [show_value(item, avro.parts[0]) for item in value]


def _show_map(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    items = {}
    for entry in value:
        items[_text(entry["key"])] = show_value(entry["value"], avro.parts[0])
    return items


def _show_union(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    members = avro.members
    if len(members) == 1:
        return show_value(value, members[0])
    [(name, inner)] = value.items()
    return show_value(inner, members[int(name[1:])])


def _show_text(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    del avro
    return _text(value)


def _show_symbol(value: Any, avro: AvroType) -> Any:  # noqa: ANN401 - as many types as Avro has
    if 0 <= value < len(avro.symbols):
        return avro.symbols[value]
    return value


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


_SHOWN = {
    "record": _show_record,
    "array": _show_array,
    "map": _show_map,
    "union": _show_union,
    "string": _show_text,
    "enum": _show_symbol,
}
