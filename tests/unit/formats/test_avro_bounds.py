"""The memory of a row of an Avro file is bounded by its schema, or the schema is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ftfile.formats.avro_bounds import cost_of


def record(name: str, *types: Any) -> dict[str, Any]:
    """Return a record with fields of these types."""
    fields = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


@pytest.mark.parametrize(
    "kind",
    ["r", ["null", "r"], {"type": "array", "items": "r"}, {"type": "map", "values": "r"}, record("s", "r")],
    ids=str,
)
def test_a_type_that_contains_itself_has_no_bound(kind: Any) -> None:
    with pytest.raises(ValueError, match="'r', which contains itself"):
        cost_of(record("r", kind))


def test_a_type_is_used_again() -> None:
    inner = record("s", "long")
    once, twice = cost_of(record("r", inner)), cost_of(record("r", inner, "s"))
    assert twice.encoded_bytes == 2 * once.encoded_bytes
    assert twice.fixed_bytes > once.fixed_bytes


def test_values_that_take_no_bytes_have_no_bound_in_an_array() -> None:
    with pytest.raises(ValueError, match="values that take no bytes"):
        cost_of(record("r", {"type": "array", "items": "null"}))
