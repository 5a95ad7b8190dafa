"""Checks of schema changes between batches, where columns match by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import SchemaError
from ftfile.rows.spark_types import arrow_schema, is_wider, list_respelled, misfits, reads_back, type_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Literal


def check_schema_change(
    recorded: str,
    new: str,
    policy: Literal["fail", "widen", "any"],
    in_paths: Collection[str] = (),
    *,
    has_any: bool = True,
) -> None:
    """Raise a SchemaError for changes between two Spark schemas as JSON that the policy does not allow.

    Columns match by name. `in_paths` are the partition columns. With `has_any`, the error may propose
    `onSchemaChange=any`.
    """
    if recorded == new:
        return
    check_respelled(respelled_of(recorded, new))
    if policy == "any":
        check_misfits(misfits_of(recorded, new, in_paths))
        return
    before = {}
    for field in arrow_schema(recorded):
        before[field.name] = field.type
    after = {field.name: field.type for field in arrow_schema(new)}
    gone = [name for name in before if name not in after]
    wider = [f"{name} is new" for name in after if name not in before]
    changed: list[str] = []
    for name in before.keys() & after.keys():
        old_type, new_type = before[name], after[name]
        if not old_type.equals(new_type) or not reads_back(old_type, new_type):  # a struct may equal a VARIANT
            moves = name in in_paths and _moves_point(old_type, new_type)
            changes = changed
            if is_wider(old_type, new_type) and not moves:
                changes = wider
            changes.append(f"{name} was {type_text(old_type)} and is {type_text(new_type)}")
    needs_widen = policy == "fail" and bool(wider)
    if gone or changed or needs_widen:
        clauses = [*(f"{name} is missing" for name in gone), *changed, *(wider if needs_widen else ())]
        allowed = "columns may be added and numbers widened"
        if policy == "fail":
            allowed = "no change is allowed"
        has_any = has_any and not misfits_of(recorded, new, in_paths)
        raise SchemaError(
            f"the schema differs from the recorded schema, and with onSchemaChange={policy} {allowed}: "
            f"{'; '.join(sorted(clauses))}. {_advice(gone, changed, needs_widen=needs_widen, has_any=has_any)}"
        )


def misfits_of(recorded: str, new: str, in_paths: Collection[str] = ()) -> list[str]:
    """Return a clause for each common column whose old values cannot be read as the new type by all readers."""
    before, after = arrow_schema(recorded), arrow_schema(new)
    path_columns = []
    for name in in_paths:
        if name in before.names and name in after.names:
            path_columns.append(name)
    kinds = [(name, before.field(name).type, after.field(name).type) for name in path_columns]
    moved = (f"{name} was {old} and is {kind}" for name, old, kind in kinds if _moves_point(old, kind))
    return [*dict.fromkeys([*misfits(before, after), *moved])]


def _moves_point(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if Spark reads old values in paths with the new scale, which moves the decimal point."""
    scale = 0
    if pa.types.is_decimal(old):
        scale = old.scale
    return bool(pa.types.is_decimal(new) and new.scale != scale)


def check_misfits(clauses: Sequence[str], where: str = "") -> None:
    """Raise a SchemaError if `misfits_of` returned clauses. The text `where` describes the old values."""
    if clauses:
        raise SchemaError(
            "with onSchemaChange=any, columns may be added and removed, and types may change only to types in which "
            "every format can read the old values. Decimals in paths must keep their scale: "
            f"{'; '.join(clauses)}{where}. Cast to the old type, or rename the column; an overwrite or a new directory "
            "accepts any type"
        )


def respelled_of(recorded: str, new: str) -> list[str]:
    """Return a clause for each new column whose name differs from a recorded name only by case."""
    return [*list_respelled(arrow_schema(recorded), arrow_schema(new))]


def check_respelled(clauses: Sequence[str], where: str = "") -> None:
    """Raise a SchemaError if `respelled_of` returned clauses. The text `where` describes the recorded names."""
    if clauses:
        raise SchemaError(
            f"names of columns differ from the recorded names only by case: {'; '.join(clauses)}{where}. Spark and "
            "other readers treat both as one column: rename it to the recorded name"
        )


def _advice(gone: Sequence[str], changed: Sequence[str], *, needs_widen: bool, has_any: bool) -> str:
    if needs_widen and not gone and not changed:
        settings = ["widen"]
    else:
        settings = []
    settings += ["any"] if has_any else []
    if settings:
        ways = [f"set onSchemaChange={' or '.join(settings)}"]
    else:
        ways = []
    if gone and not changed:
        # With `widen`, removed columns also fail.
        ways.append(
            f"{'set onSchemaChange=widen and ' if needs_widen else ''}add {', '.join(sorted(gone))} with null values"
        )
    if changed:
        ways.append("cast to the recorded type")
    text = ", or ".join([*ways, "write to a new directory"])
    return f"{text[0].upper()}{text[1:]}"


def check_requested(stored: pa.Schema, requested: pa.Schema, *, narrower: bool = False) -> None:
    """Raise a SchemaError for requested columns whose types cannot represent the stored values.

    Columns and fields of structs match by name, without regard to case. A requested column that is not stored is not an
    error. With `narrower`, a type is accepted if it can represent a part of the values.
    """
    clauses = _misfits(pa.struct(list(stored)), pa.struct(list(requested)), "", narrower=narrower)
    if clauses:
        raise SchemaError(
            f".schema(…) does not match the stored columns: {'; '.join(clauses)}. Leave it out, or give the stored "
            "types and cast the columns after the read"
        )


def _misfits(stored: pa.DataType, requested: pa.DataType, name: str, *, narrower: bool) -> list[str]:
    if stored.equals(requested) or is_wider(stored, requested) or (narrower and is_wider(requested, stored)):
        return []
    if not (pa.types.is_struct(stored) and pa.types.is_struct(requested)):
        return [f"{name} is {stored}, but {requested} was requested"]
    stored_types = {field.name.lower(): field.type for field in stored}
    clauses = []
    for field in requested:
        if (kind := stored_types.get(field.name.lower())) is not None:
            inner = field.name
            if name:
                inner = f"{name}.{field.name}"
            clauses += _misfits(kind, field.type, inner, narrower=narrower)
    return clauses
