"""JSON text by Arrow's string kernels: for the batches with values that arro3, which is faster, gets wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.float_text import all_finite, float_text
from ftfile.arrays.nested import list_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("json_text", "object_text")

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def object_text(names: Iterable[str], columns: Iterable[pa.Array], *, ignore_nulls: bool) -> pa.StringArray:
    """Return one JSON object for each row; nulls are left out, or written as `null`."""
    members = []
    for name, column in zip(names, columns, strict=True):
        key = f",{json.dumps(name, ensure_ascii=False)}:"
        text = json_text(column, ignore_nulls=ignore_nulls)
        member = pc.binary_join_element_wise(key, text, "")
        members.append(pc.fill_null(member, "" if ignore_nulls else f"{key}null"))
    joined = pc.binary_join_element_wise(*members, "")
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")


def json_text(array: pa.Array, *, ignore_nulls: bool) -> pa.StringArray:
    """Return the JSON text of each value; null where the value is.

    Binary values, dates and timestamps must have become strings before.
    """
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        text = object_text(names, array.flatten(), ignore_nulls=ignore_nulls)
        return pc.if_else(array.is_valid(), text, None)
    if pa.types.is_list(kind):
        offsets, values = list_parts(array)
        return _joined(offsets, _or_null(values, ignore_nulls=ignore_nulls), "[]")
    if pa.types.is_map(kind):
        offsets, entries = list_parts(array)
        keys, items = entries.flatten()
        values = _or_null(items, ignore_nulls=ignore_nulls)
        return _joined(offsets, pc.binary_join_element_wise(_quoted(keys), values, ":"), "{}")
    if pa.types.is_string(kind):
        return _quoted(array)
    if pa.types.is_floating(kind):
        text = float_text(array)
        return text if all_finite(array) else pc.if_else(pc.is_finite(array), text, _in_quotes(text))
    return array.cast(pa.string())


def _or_null(values: pa.Array, *, ignore_nulls: bool) -> pa.StringArray:
    return pc.fill_null(json_text(values, ignore_nulls=ignore_nulls), "null")


def _joined(offsets: pa.Array, values: pa.StringArray, brackets: str) -> pa.StringArray:
    body = pc.binary_join(pa.ListArray.from_arrays(offsets, values), ",")
    return pc.binary_join_element_wise(brackets[0], body, brackets[1], "")


def _in_quotes(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', text, '"', "")


def _quoted(strings: pa.StringArray) -> pa.StringArray:
    quoted = _in_quotes(strings)
    special = pc.fill_null(pc.match_substring_regex(strings, _NEEDS_ESCAPE), fill_value=False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in strings.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))
