"""Tasks get the adds of a snapshot as columns, without fields that they do not need."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ftfile.core.errors import CorruptData
from ftfile.core.tasks import OPEN_COST_BYTES
from ftfile.formats.api import Span
from ftfile.log.format.compacted import AddColumns, Document
from ftfile.log.format.model import Add, Origin, SourceRange
from ftfile.log.read.add_table import AddBlock, AddTable
from ftfile.read.shared_columns import columns_of_list, columns_of_snapshot, decode_columns, encode_columns
from ftfile.read.shares import Share, pack, pack_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PART = Add(
    id="0123456789abcdef",
    kind="part",
    path="staged/0123456789abcdef",
    final_path="p=1/part-0123456789ab.parquet",
    length=700,
    logical_length=900,
    checksum="crc32:1",
    rows=3,
    directory_key="p=1",
    encoding="e1",
    origin=Origin("query", 1, 2),
    filters=("zstd",),
    ranges=(SourceRange("s1", "rows", 0, 3),),
    statistics={"id": (1, 3, 0)},
)
SEGMENT = Add(
    id="fedcba9876543210",
    kind="segment",
    path="spool/a",
    final_path=None,
    length=70,
    logical_length=90,
    checksum="crc32:2",
    rows=2,
    directory_key="p=2",
    encoding="e2",
    origin=Origin("query", 3, 3),
    offset=9,
    skip_rows=4,
    rolling_stats={"ms": 7},
)
ADDS = (
    PART,
    structs.replace(PART, id="aaaaaaaaaaaaaaaaaaaa", path="staged/b", final_path="p=1/kept.parquet", length=8),
    SEGMENT,
    structs.replace(PART, id="bbbbbbbbbbbbbbbb", final_path="part-bbbbbbbbbbbb", directory_key="", filters=()),
    structs.replace(SEGMENT, id="cccccccccccccccc", skip_rows=0, offset=80),
)
DEFINITIONS: dict[str, Any] = {key: {"format": {"name": "json"}, "number": key} for key in ("e1", "e2", "e3")}


def needed(adds: Sequence[Add]) -> list[Add]:
    """Return adds without the fields that tasks do not need."""
    return [structs.replace(add, ranges=(), rolling_stats={}, statistics={}) for add in adds]


def snapshot(compacted: Sequence[Add], recorded: Sequence[Add], *, is_table: bool = True) -> Mapping[str, Add]:
    """Return adds of a compacted log, each third of them in a separate document, and of records."""
    if not is_table:
        return {add.id: add for add in (*compacted, *recorded)}
    blocks = []
    for start in range(3):
        columns = AddColumns()
        for add in compacted[start::3]:
            columns.append(add, 0)
        if columns.ids:
            blocks.append(AddBlock(Document.of(columns), columns.ids))
    return AddTable(blocks, {add.id: add for add in recorded})


def by_id(adds: Sequence[Add]) -> dict[str, Add]:
    return {add.id: add for add in adds}


@pytest.mark.parametrize("is_table", [True, False], ids=["table", "dictionary"])
@pytest.mark.parametrize("compacted", range(len(ADDS) + 1))
def test_all_adds(compacted: int, is_table: bool) -> None:
    adds = snapshot(ADDS[:compacted], ADDS[compacted:], is_table=is_table)
    columns = columns_of_snapshot(adds)
    encoded = encode_columns(columns, 0, len(ADDS))
    assert [*decode_columns(encoded)] == needed([*adds.values()])


@pytest.mark.parametrize("compacted", [0, 2, len(ADDS)])
def test_adds_of_places(compacted: int) -> None:
    adds = snapshot(ADDS[:compacted], ADDS[compacted:])
    columns = columns_of_snapshot(adds, {("p=1", "e1"), ("p=2", "e1")})
    assert by_id([*decode_columns(encode_columns(columns, 0, 2))]) == by_id(needed(ADDS[:2]))
    assert len(columns.ids) == 2
    assert columns_of_snapshot(adds, ()).ids == []


@pytest.mark.parametrize("start", range(len(ADDS)))
def test_some_adds(start: int) -> None:
    columns = columns_of_list(ADDS)
    for end in range(start + 1, len(ADDS) + 1):
        assert [*decode_columns(encode_columns(columns, start, end))] == needed(ADDS[start:end])


def test_shares_are_decoded_as_they_were_packed() -> None:
    shares = pack_columns(columns_of_snapshot(snapshot(ADDS[:3], ADDS[3:])), DEFINITIONS, task_bytes=1)
    assert shares == pack(snapshot(ADDS[:3], ADDS[3:]).values(), DEFINITIONS, task_bytes=1)
    adds = []
    for share in pickle.loads(pickle.dumps(shares)):
        ranges, encodings = share.decode()
        adds += [each.add for each in ranges]
        assert [each.span for each in ranges] == [None] * len(ranges)
        assert encodings == {each.add.encoding: DEFINITIONS[each.add.encoding] for each in ranges}
    assert by_id(adds) == by_id(needed(ADDS))
    assert len(shares) > 1
    assert pack([], DEFINITIONS) == []
    assert Share().decode() == ((), {})


def test_spans_are_of_their_adds() -> None:
    """Shares contain small adds and spans of large adds, in the order of the adds."""
    unit = OPEN_COST_BYTES
    adds = []
    for number, length in enumerate((unit, 3 * unit, unit // 8, 9 * unit, unit // 8, unit // 8, 5 * unit)):
        adds.append(structs.replace(PART, id=f"{number:016}", length=length, filters=()))
    definitions = {"e1": {"format": {"name": "parquet"}}}
    shares = [share.ranges for share in pack(adds, definitions, task_bytes=2 * unit)]
    expected = []
    for add in needed(adds):
        count = -(-add.length // (2 * unit))
        expected += [(add, Span(number, count) if count > 1 else None) for number in range(count)]
    assert [(each.add, each.span) for ranges in shares for each in ranges] == expected
    assert max(map(len, shares)) > 1


def test_equal_values_are_sent_once() -> None:
    adds = [structs.replace(PART, id=f"{number:016}") for number in range(1_000)]
    (share,) = pack(adds, DEFINITIONS, task_bytes=1 << 40)
    assert len(share.content) < 20 * len(adds)


def test_a_part_without_a_name_is_damage() -> None:
    adds = snapshot([structs.replace(PART, final_path=None), SEGMENT], [])
    with pytest.raises(CorruptData, match="a part without finalPath"):
        columns_of_snapshot(adds)
    assert len(columns_of_snapshot(snapshot([SEGMENT], [])).ids) == 1
