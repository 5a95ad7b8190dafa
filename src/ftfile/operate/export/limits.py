"""The columns and files that tables of other formats cannot contain."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from operator import eq
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.rows.spark_types import sql_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


_COMMON = r"string|byte|short|integer|long|float|double|boolean|binary|date|timestamp|decimal\(\d+,\s*-?\d+\)"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_CONTROL = (re.compile(r"[\x00-\x1f\x7f]"), "a tab, a line break or another control character")
# Some readers of Iceberg parse a path as a URL, where `#` or `?` ends the path.
_CONTROL_OR_URL = (re.compile(r"[\x00-\x1f\x7f#?]"), "`#`, `?`, or a control character such as a tab or a line break")
_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT"}
_WIDER = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"),
    ("integer", "long"), ("float", "double"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    """The limits of a format."""

    name: str  # of the format
    directory: str  # of its metadata
    types: re.Pattern[str]  # supported type names, in Spark's JSON
    # characters that column names cannot contain, and their description
    refused_in_names: tuple[re.Pattern[str], str] | None
    refused_in_paths: tuple[re.Pattern[str], str]  # the same for paths
    reads_as: Callable[[Any, Any], bool]  # returns True if files with a column of one type can be read as another type
    # the reader that reads times in names of directories as UTC, instead of the values in the metadata
    reads_names: str | None = None

    def refuse_columns(self, schema: str) -> None:
        """Raise a ConfigError for columns that the format cannot have, given in Spark's JSON."""
        for field in json.loads(schema)["fields"]:
            name = field["name"]
            for path in _names(field):
                if self.refused_in_names is not None and self.refused_in_names[0].search(path[-1]):
                    raise ConfigError(
                        f"column {'.'.join(path)!r}: {self.name} accepts {self.refused_in_names[1]} in a name: rename "
                        "it"
                    )
            if (kind := self._unknown_type(field["type"])) is not None:
                raise ConfigError(
                    f"column {name!r} is of type {kind}, which {self.name} does not have: cast it before it is written"
                )

    def refuse_encoding(self, encoding: Mapping[str, Any], schema: str, *, has_filters: bool) -> None:
        """Raise a ConfigError for files, described as in the log, that a table with these columns cannot contain."""
        form = encoding["format"]
        if form["name"] != "parquet":
            raise ConfigError(f"files are {form['name']}, but an export to {self.name} needs Parquet")
        if has_filters or form.get("encryptionKeyId") is not None:
            raise ConfigError(f"files are encrypted or filtered, which {self.name}'s readers cannot undo")
        if encoding.get("fileName"):
            raise ConfigError(
                f"column {encoding['fileName']['column']!r} is only in the names of files, where {self.name}'s readers "
                "do not read it: write it into a partition column"
            )
        now = _types_of(json.loads(schema))
        for field in json.loads(encoding["schema"])["fields"]:
            name, kind = field["name"], field["type"]
            if name in now and not self.reads_as(kind, now[name]):
                raise ConfigError(
                    f"column {name!r} is {sql_type(now[name])}, but older files contain {sql_type(kind)}, which a "
                    f"table of {self.name} cannot describe: an overwrite with all rows rewrites these files"
                )

    def misread_times(self, encoding: Mapping[str, Any], schema: str) -> str | None:
        """Return a warning if a reader reads instants of partitions as other instants; None if all read them."""
        zone = encoding["timeZone"]
        if self.reads_names is None or zone in _UTC:
            return None
        types = _types_of(json.loads(schema))
        for name in encoding["partitionBy"]:
            if types.get(name) == "timestamp":
                return (
                    f"partition column {name!r}: {self.reads_names} reads the local times in the names of directories, "
                    f"which are in {zone}, as times in UTC. Use another reader, or overwrite all rows with timeZone=UTC"
                )
        return None

    def refuse_paths(self, paths: Iterable[str | None]) -> None:
        """Raise a ConfigError for a file with a path that the format's readers cannot open."""
        pattern, characters = self.refused_in_paths
        for path in paths:
            if path is not None and pattern.search(path):
                raise ConfigError(
                    f"the path of file {path!r} contains {characters}, which {self.name}'s readers cannot open: an "
                    "overwrite with all rows writes them to other files"
                )

    def refuse_location(self, url: str) -> None:
        """Raise a ConfigError for a directory in which the format's readers cannot open any file."""
        pattern, characters = self.refused_in_paths
        if pattern.search(url):
            raise ConfigError(f"the directory {url!r} contains {characters}, which {self.name}'s readers cannot open")

    def _unknown_type(self, kind: Any) -> str | None:  # noqa: ANN401 - JSON
        """Return the name of an unsupported type within a type, in Spark's JSON; None if all are supported."""
        if isinstance(kind, str):
            if self.types.fullmatch(kind):
                return None
            return kind
        for inner in [*_element_types(kind).values(), *_types_of(kind).values()]:
            name = self._unknown_type(inner)
            if name is not None:
                return name
        return None


def _element_types(kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of the elements of an array, or of the keys and values of a map."""
    return {key: kind[key] for key in ("elementType", "keyType", "valueType") if key in kind}


def _types_of(kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of the fields of a struct by name; empty for other types."""
    return {field["name"]: field["type"] for field in kind.get("fields", ())}


def _names(field: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the path of a column, and the paths of the fields nested in its type."""
    yield (field["name"],)
    kinds = [field["type"]]
    for kind in kinds:
        if not isinstance(kind, str):
            kinds += _element_types(kind).values()
            for inner in kind.get("fields", ()):
                for path in _names(inner):
                    yield (field["name"], *path)


def _promotes(before: Any, now: Any) -> bool:  # noqa: ANN401 - JSON
    """Return True if Iceberg reads one type as another: wider types, and structs with a common field."""
    if before == now:
        return True
    if isinstance(before, str) and isinstance(now, str):
        old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
        is_larger = bool(old and new and old[2] == new[2] and int(old[1]) <= int(new[1]))
        return (before, now) in _WIDER or is_larger
    if isinstance(before, str) or isinstance(now, str) or before["type"] != now["type"]:
        return False
    old_types = _element_types(before) | _types_of(before)
    new_types = _element_types(now) | _types_of(now)
    common = old_types.keys() & new_types.keys()
    # Without a common field, some readers cannot distinguish a null struct from a struct of nulls.
    for name in common:
        if not _promotes(old_types[name], new_types[name]):
            return False
    return bool(common)


LIMITS = {
    # Delta supports other names only with column mapping, which needs a field id in each file.
    "delta": TableLimits(
        name="Delta",
        directory="_delta_log",
        types=re.compile(f"{_COMMON}|timestamp_ntz"),
        refused_in_names=(re.compile(r"[ ,;{}()\n\t=]"), "no blank and none of ,;{}()="),
        refused_in_paths=_CONTROL,
        reads_as=eq,
        reads_names="Polars' scan_delta",
    ),
    "iceberg": TableLimits(
        name="Iceberg",
        directory="_iceberg",
        types=re.compile(f"{_COMMON}|timestamp_ntz"),
        refused_in_names=None,
        refused_in_paths=_CONTROL_OR_URL,
        reads_as=_promotes,
    ),
}
