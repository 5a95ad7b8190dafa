"""The adds of shares as columns, which are chosen without decoding adds and encoded once for a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData
from ftfile.log.format import layout
from ftfile.log.format.compacted import FIELDS, AddColumns, Rare, adds_of, code_fields
from ftfile.log.read.add_table import AddTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ftfile.log.format.model import Add
    from ftfile.read.selection import FilePlace


def columns_of_list(adds: Iterable[Add]) -> AddColumns:
    """Return adds as columns, without fields that tasks do not need."""
    columns = AddColumns()
    for add in adds:
        columns.append(add, 0)
    columns.fields["rare"] = [_keep_needed(rare) for rare in columns.fields["rare"]]
    return columns


def columns_of_snapshot(adds: Mapping[str, Add], places: Collection[FilePlace] | None = None) -> AddColumns:
    """Return the adds of a snapshot as columns, without fields that tasks do not need.

    Only the adds of compacted logs that have segments are decoded.

    Args:
        adds: the adds of the snapshot, by id.
        places: the places of the adds to return; None for all adds.

    Raises:
        CorruptData: a compacted log contains a part without a name.
    """
    if not isinstance(adds, AddTable):
        adds = AddTable(single_adds=dict(adds))
    columns = AddColumns()
    for ids, fields in adds.columns_by_id([*FIELDS]):
        block = AddColumns([*ids], fields=dict(zip(FIELDS, fields, strict=True)))
        _check_names(block)
        block.fields["rare"] = _rare_fields(adds, block)
        chosen = None
        if places is not None:
            chosen = [
                place in places for place in zip(block.fields["directory"], block.fields["encoding"], strict=True)
            ]
        columns.extend(block, chosen)
    return columns


def encode_columns(columns: AddColumns, start: int, end: int) -> dict[str, Any]:
    """Return the adds at some positions, for `decode_columns`."""
    fields = {name: values[start:end] for name, values in columns.fields.items()}
    return {"id": columns.ids[start:end]} | code_fields(AddColumns(fields=fields))


def decode_columns(encoded: dict[str, Any]) -> Iterator[Add]:
    """Yield the adds of `encode_columns`."""
    return adds_of(encoded["id"], encoded)


def _check_names(block: AddColumns) -> None:
    """Raise CorruptData for a part without a final name, which no task can read."""
    if None in block.fields["finalPath"]:
        for kind, path in zip(block.fields["kind"], block.fields["finalPath"], strict=True):
            if path is None and kind != "segment":
                raise CorruptData(layout.COMPACTED, "a finalPath for each part", "a part without finalPath")


def _keep_needed(rare: Rare | None) -> Rare | None:
    """Return the rare fields that tasks need."""
    if rare is None or rare.skip_rows == 0:
        return None
    return Rare(rare.skip_rows)


def _rare_fields(adds: Mapping[str, Add], block: AddColumns) -> list[Rare | None]:
    """Return the rare fields of each add of a block. Only segments have rare fields that tasks need."""
    rare_fields: list[Rare | None] = [None] * len(block.ids)
    if "segment" in block.fields["kind"]:
        for position, kind in enumerate(block.fields["kind"]):
            if kind == "segment":
                rare_fields[position] = _keep_needed(Rare(adds[block.ids[position]].skip_rows))
    return rare_fields
