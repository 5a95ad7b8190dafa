"""Iceberg's columns with stable ids, by which readers find the columns of older files through their names."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ftfile.formats.avro_container import decimal_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


_TYPES = {"byte": "int", "short": "int", "integer": "int", "timestamp": "timestamptz", "timestamp_ntz": "timestamp"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_AVRO = {
    "string": "string",
    "date": {"type": "int", "logicalType": "date"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
}

Path = tuple[str, ...]


class FieldIds:
    """The ids of all current and former columns and nested fields of a table and its files, one for each name."""

    def __init__(self, name_mapping: str) -> None:
        """Read the assigned ids of a table from the text of `name_mapping`."""
        self._ids: dict[Path, int] = {}
        self._learn(json.loads(name_mapping), ())
        self.last = max(self._ids.values(), default=0)  # the greatest assigned id

    def of(self, name: str) -> int:
        """Return the id of a column."""
        return self._ids[name,]

    def renew(self, names: Iterable[str]) -> None:
        """Assign new ids to columns, as if the columns were new."""
        for name in names:
            self.last += 1
            self._ids[name,] = self.last

    def schema(self, spark: str) -> list[dict[str, Any]]:
        """Return the fields of Iceberg's schema for Spark's, as JSON; new names get the next ids."""
        return self._fields(json.loads(spark)["fields"], ())

    def name_mapping(self) -> str:
        """Return the text with which readers find the columns of files without ids."""
        mapped: dict[Path, dict[str, Any]] = {(): {}}
        for path, number in self._ids.items():  # nested fields come after their column
            mapped[path] = {"field-id": number, "names": [path[-1]]}
            mapped[path[:-1]].setdefault("fields", []).append(mapped[path])
        return json.dumps(mapped[()].get("fields", []), separators=(",", ":"))

    def _id(self, path: Path) -> int:
        if path not in self._ids:
            self.last += 1
            self._ids[path] = self.last
        return self._ids[path]

    def _fields(self, fields: list[dict[str, Any]], above: Path) -> list[dict[str, Any]]:
        # All fields of a level get their ids before the fields nested in them.
        ids = [self._id((*above, field["name"])) for field in fields]
        schema: list[dict[str, Any]] = []
        for number, field in zip(ids, fields, strict=True):
            name = field["name"]
            kind = self._type(field["type"], (*above, name))
            schema.append({"id": number, "name": name, "required": False, "type": kind})
        return schema

    def _type(self, spark: Any, path: Path) -> Any:  # noqa: ANN401 - JSON
        if isinstance(spark, str):
            match = _DECIMAL.fullmatch(spark)
            if match:
                return f"decimal({match[1]}, {match[2]})"
            return _TYPES.get(spark, spark)
        if spark["type"] == "struct":
            return {"type": "struct", "fields": self._fields(spark["fields"], path)}
        if spark["type"] == "array":
            element = (*path, "element")
            number = self._id(element)
            inner = self._type(spark["elementType"], element)
            return {"type": "list", "element-id": number, "element-required": False, "element": inner}
        key, value = (*path, "key"), (*path, "value")
        numbers = {"key-id": self._id(key), "value-id": self._id(value)}
        inner = {"key": self._type(spark["keyType"], key), "value": self._type(spark["valueType"], value)}
        return {"type": "map", **numbers, **inner, "value-required": False}

    def _learn(self, mapped: list[dict[str, Any]], above: Path) -> None:
        for field in mapped:
            path = (*above, *field["names"])
            self._ids[path] = field["field-id"]
            self._learn(field.get("fields", []), path)


def promotes(before: Any, now: Any) -> bool:  # noqa: ANN401 - JSON
    """Return True if readers accept values of one Iceberg type, in manifests, as values of another type."""
    old, new = _DECIMAL.fullmatch(str(before)), _DECIMAL.fullmatch(str(now))
    is_larger = bool(old and new and old[2] == new[2] and int(old[1]) <= int(new[1]))
    # Not float to double: the text of a partition is read as another double than the value of the float.
    return before == now or is_larger or (before, now) == ("int", "long")


def avro_type(kind: str, number: int) -> Any:  # noqa: ANN401 - JSON
    """Return the Avro type of a partition value with this Iceberg type and id."""
    match = _DECIMAL.fullmatch(kind)
    if match is None:
        return _AVRO.get(kind, kind)
    return {
        "type": "fixed",
        "name": f"decimal_{number}",
        "size": decimal_bytes(int(match[1])),
        "logicalType": "decimal",
        "precision": int(match[1]),
        "scale": int(match[2]),
    }


def raw_value(value: pa.Scalar, kind: str) -> Any:  # noqa: ANN401
    """Return a partition value of an Iceberg type, as in `Content`."""
    if not value.is_valid:
        return None
    if match := _DECIMAL.fullmatch(kind):
        unscaled = int(format(value.as_py(), "f").replace(".", ""))  # arithmetic would round to 28 digits
        return unscaled.to_bytes(decimal_bytes(int(match[1])), "big", signed=True)
    if kind in ("date", "timestamp", "timestamptz"):
        return value.value
    return value.as_py()
