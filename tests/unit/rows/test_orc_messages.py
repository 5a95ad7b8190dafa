"""Messages of ORC files that are damaged, or of other writers."""

from __future__ import annotations

import pytest

from ftfile.rows.orc_messages import bytes_field, decode_message, fields, number_field
from ftfile.source.decoding.orc_tails import OrcTail


def test_numbers_of_fixed_length_are_skipped() -> None:
    eight, four = bytes([7 << 3 | 1]) + b"\xff" * 8, bytes([8 << 3 | 5]) + b"\xff" * 4
    message = number_field(1, 300) + eight + bytes_field(2, b"text") + four + number_field(3, 1)
    assert [(number, value) for number, value, _ in fields(message)] == [
        (1, 300),
        (7, b"\xff" * 8),
        (2, b"text"),
        (8, b"\xff" * 4),
        (3, 1),
    ]
    assert b"".join(part for _, _, part in fields(message)) == message


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_other_kinds_of_fields_are_refused(kind: int) -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        list(fields(bytes([1 << 3 | kind, 0])))


@pytest.mark.parametrize("parts", [[], [5], [2, 1], [1 << 60]])
def test_a_footer_without_the_types_of_a_column_is_refused(parts: list[int]) -> None:
    struct = bytes_field(4, b"".join(number_field(2, part) for part in parts))
    for footer in (b"", struct + bytes_field(4, b"")):
        with pytest.raises(ValueError, match="without the columns of column 0"):
            OrcTail(b"", footer, 0).columns_of(0)


@pytest.mark.parametrize("codec", [1, 2, 5])
def test_a_damaged_chunk_is_refused(codec: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_message((8 << 1).to_bytes(3, "little") + b"\xffdamaged", codec)
