"""Many adds as columns: one list for each field, which is quick to read and small. Pure, bytes in and values out.

A document is two zlib streams of JSON. The first has what decides whether an add is live: ids, and the versions that
added and removed it. The second has all else, in columns of the names that `add_to_json` gives them::

    ["all", value]              every add has this one
    ["of", values, indexes]     few values, many adds
    ["each", values]            a value to each add

and under `more` the fields that few adds have, by the add's position. In paths, a NUL stands for the add's id.
"""

from __future__ import annotations

import itertools
import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.commit.format.model import Add, Origin
from ftfile.commit.format.record import add_from_json, add_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = (
    "Columns",
    "adds_from_json",
    "adds_to_json",
    "decode_adds",
    "decode_columns",
    "decode_ids",
    "encode_columns",
    "pack_json",
    "unpack_json",
)

# In the order of the constructor of `Add`, after its id.
FIELDS = (
    *("kind", "path", "finalPath", "length", "logicalLength", "checksum", "rows", "bucket", "encoding", "origin"),
    *("offset", "filters"),
)
# Parts are named after their ids: staged ones wholly, final ones after so many characters. No path has a NUL.
NAMED = {"path": 32, "finalPath": 12}
ID = "\0"
# Level 6 takes twice the time and saves a tenth.
COMPRESSION_LEVEL = 1


@dataclass(slots=True)
class Columns:
    """Adds; lists of one length.

    Attributes:
        added: the version of the record that brought each.
        removed: the version of the record that ended each; empty when they are live.
        fields: by name; what few adds have is a dictionary, or None, under `more`.
    """

    ids: list[str] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    fields: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in (*FIELDS, "more")})

    def append(self, add: Add, added: int, removed: int | None = None) -> None:
        """Take in one add. Where its rows come from in segments is left to its record: nobody reads by it."""
        text = add_to_json(add)
        text.pop("ranges", None)
        add_id = text.pop("id")
        self.ids.append(add_id)
        self.added.append(added)
        if removed is not None:
            self.removed.append(removed)
        text |= {"origin": tuple(text["origin"]), "offset": add.offset, "filters": add.filters}
        for name, length in NAMED.items():
            text[name] = text[name] and text[name].replace(add_id[:length], ID)
        for name in FIELDS:
            self.fields[name].append(text.pop(name))
        self.fields["more"].append(text or None)

    def extend(self, other: Columns, chosen: Sequence[bool] | None = None) -> None:
        """Take in those adds of another that are chosen, by default all."""
        pairs: list[tuple[list[Any], list[Any]]]
        pairs = [(self.ids, other.ids), (self.added, other.added), (self.removed, other.removed)]
        pairs += [(self.fields[name], values) for name, values in other.fields.items()]
        for own, values in pairs:
            own.extend(values if chosen is None else itertools.compress(values, chosen))

    def part(self, start: int, end: int | None = None) -> Columns:
        """Return the adds at some positions."""
        fields = {name: values[start:end] for name, values in self.fields.items()}
        return Columns(self.ids[start:end], self.added[start:end], self.removed[start:end], fields)


def encode_columns(columns: Columns) -> tuple[bytes, bytes]:
    """Return the two streams of a document; there must be at least one add."""
    deltas = [after - before for before, after in itertools.pairwise((0, *columns.added))]
    ids = {"id": columns.ids, "added": deltas, "removed": columns.removed}
    return pack_json(ids), pack_json(_rest_to_json(columns))


def decode_ids(content: bytes) -> Columns:
    """Return ids and versions from the first stream; the fields stay empty."""
    text = unpack_json(content)
    return Columns(text["id"], list(itertools.accumulate(text["added"])), text["removed"])


def decode_columns(ids: bytes, rest: bytes) -> Columns:
    """Return everything."""
    columns = decode_ids(ids)
    columns.fields = _fields(unpack_json(rest), len(columns.ids), tuple)
    return columns


def decode_adds(ids: Sequence[str], rest: bytes) -> Iterator[Add]:
    """Yield the adds of the second stream."""
    return _adds(ids, unpack_json(rest))


def adds_to_json(adds: Iterable[Add]) -> dict[str, Any]:
    """Return adds without versions, in columns, as plain JSON."""
    columns = Columns()
    for add in adds:
        columns.append(add, 0)
    return {"id": columns.ids, **_rest_to_json(columns)}


def adds_from_json(text: dict[str, Any]) -> Iterator[Add]:
    """Yield the adds that `adds_to_json` wrote."""
    return _adds(text["id"], text)


def _rest_to_json(columns: Columns) -> dict[str, Any]:
    rest: dict[str, Any] = {name: _code(columns.fields[name]) for name in FIELDS}
    rest["more"] = {str(at): more for at, more in enumerate(columns.fields["more"]) if more is not None}
    return rest


def _adds(ids: Sequence[str], rest: dict[str, Any]) -> Iterator[Add]:
    fields = _fields(rest, len(ids), lambda origin: Origin(*origin))
    for name, length in NAMED.items():
        pairs = zip(fields[name], ids, strict=True)
        fields[name] = [path and path.replace(ID, add_id[:length]) for path, add_id in pairs]
    adds = map(Add, ids, *(fields[name] for name in FIELDS))
    if not any(fields["more"]):
        yield from adds
        return
    for add, more in zip(adds, fields["more"], strict=True):
        yield add if more is None else add_from_json(add_to_json(add) | more)


def pack_json(value: object) -> bytes:
    """Return the value as compressed JSON."""
    return zlib.compress(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), COMPRESSION_LEVEL)


def unpack_json(content: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value that `pack_json` wrote.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return json.loads(zlib.decompress(content))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _code(values: Sequence[Any]) -> list[Any]:
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if len(numbers) == 1:
        return ["all", values[0]]
    if len(numbers) <= len(values) // 2:
        return ["of", list(numbers), [numbers[value] for value in values]]
    return ["each", values]


def _fields(text: dict[str, Any], count: int, as_origin: Callable[[Any], Any]) -> dict[str, list[Any]]:
    converts = {"origin": as_origin, "filters": tuple}
    fields = {name: _decode(text[name], count, converts.get(name)) for name in FIELDS}
    fields["more"] = [None] * count
    for at, more in text["more"].items():
        fields["more"][int(at)] = more
    return fields


def _decode(coded: list[Any], count: int, convert: Callable[[Any], Any] | None) -> list[Any]:
    if coded[0] == "all":
        return [convert(coded[1]) if convert else coded[1]] * count
    values = [convert(value) for value in coded[1]] if convert else coded[1]
    return list(map(values.__getitem__, coded[2])) if coded[0] == "of" else values
