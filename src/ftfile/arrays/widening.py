"""Types that take the values of other types, and those in which every file format reads them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}

# The digits that hold any integer of a type; Avro stores those up to 32 bits as one type.
_DIGITS = {pa.int8(): 10, pa.int16(): 10, pa.int32(): 10, pa.int64(): 19}
# The digits of decimals of which a type holds all.
_DECIMALS = {pa.int8(): 2, pa.int16(): 4, pa.int32(): 9, pa.int64(): 18, pa.float32(): 6, pa.float64(): 15}


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if a type has all values of another one, which it is not."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole_digits = new.precision - new.scale >= old.precision - old.scale
        return bool(whole_digits and new.scale >= old.scale)
    return new in _WIDER.get(old, ())


def reads_back(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if files of every format with values of the old type are read as the new one, and lose none.

    Fields of structs are found by name; one that is missing on a side is null, or left out.
    """
    if not pa.types.is_nested(old):
        return old.equals(new) or is_wider(old, new) or _has_digits(old, new)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return not [*misfits(old, new), *respelled(old, new)]
    if pa.types.is_list(old) and pa.types.is_list(new):
        return reads_back(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        keys = not pa.types.is_nested(old.key_type) and reads_back(old.key_type, new.key_type)
        return (keys or old.key_type.equals(new.key_type)) and reads_back(old.item_type, new.item_type)
    return False


def _has_digits(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if one type is a decimal, the other one of numbers, and the new one has the digits of the old one."""
    if pa.types.is_decimal(new):
        return old in _DIGITS and bool(new.precision - new.scale >= _DIGITS[old])
    if pa.types.is_decimal(old):
        whole = old.scale == 0 or pa.types.is_floating(new)
        return whole and bool(old.precision <= _DECIMALS.get(new, 0))
    return False


def has_nearest(old: pa.DataType, new: pa.DataType) -> bool:
    """Return True if fractions in decimal digits become floating-point numbers, the nearest ones; also within types."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        known = {field.name: field.type for field in new}
        return any(has_nearest(field.type, known[field.name]) for field in old if field.name in known)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return has_nearest(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return has_nearest(old.key_type, new.key_type) or has_nearest(old.item_type, new.item_type)
    return bool(pa.types.is_decimal(old) and old.scale and pa.types.is_floating(new))


def misfits(old: Iterable[pa.Field], new: Iterable[pa.Field], *, narrower: bool = False) -> Iterator[str]:
    """Yield a clause for each field of both, or within one, that is not read back; see `reads_back`.

    With `narrower`, a smaller type of numbers fits, too: reading fails at a value that it does not have.
    """
    known = {field.name: field.type for field in old}
    for field in new:
        before = known.get(field.name)
        if before is None or reads_back(before, field.type) or (narrower and _is_smaller(before, field.type)):
            continue
        yield f"{field.name} was {before} and is {field.type}"


def _is_smaller(old: pa.DataType, new: pa.DataType) -> bool:
    # Some formats cut the fractions off.
    return is_wider(new, old) and not (pa.types.is_floating(old) and pa.types.is_integer(new))


def respelled(old: Iterable[pa.Field], new: Iterable[pa.Field]) -> Iterator[str]:
    """Yield a clause for each new field whose name differs from an old one's by case alone, also within structs."""
    known = {field.name.lower(): field for field in old}
    for field in new:
        before = known.get(field.name.lower())
        if before is None:
            continue
        if before.name != field.name:
            yield f"{field.name} is recorded as {before.name}"
        elif pa.types.is_struct(before.type) and pa.types.is_struct(field.type):
            yield from (f"in {field.name}, {clause}" for clause in respelled(before.type, field.type))
