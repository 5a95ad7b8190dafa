"""The tables that the log keeps for its users: bounded in age and number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.log import apply as fold
from ftfile.log.apply import TablesBuilder, state_after
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint
from ftfile.log.format.model import BatchWriteAuthor, Record
from ftfile.log.format.record import decode_record, encode_record
from ftfile.log.state import LogState, Tables

if TYPE_CHECKING:
    import pytest


def remember(found: Tables, changes: dict[str, Any], now_ms: int) -> Tables:
    builder = TablesBuilder(found)
    builder.apply(changes, now_ms)
    return builder.finish()


def test_entries_are_set_and_dropped() -> None:
    found: Tables = {}
    found = remember(found, {"a": {"set": {"x": 1, "y": [2]}}, "b": {"set": {"x": 3}}}, 10)
    found = remember(found, {"a": {"set": {"x": 4}, "drop": ["y", "z"]}, "b": {"drop": ["x"]}}, 20)
    assert found == {"a": {"x": [20, 4]}}


def test_old_entries_are_forgotten() -> None:
    found: Tables = {}
    for now_ms, key in enumerate("abca"):
        found = remember(found, {"t": {"set": {key: now_ms}, "ttlMs": 2}}, now_ms)
    assert found == {"t": {"b": [1, 1], "c": [2, 2], "a": [3, 3]}}
    found = remember(found, {"t": {"ttlMs": 0}}, 3)
    assert found == {"t": {"a": [3, 3]}}
    found = remember(found, {"t": {"ttlMs": 0}}, 4)
    assert found == {}


def test_there_are_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ENTRIES_MAX", 2)
    found: Tables = {}
    for now_ms, key in enumerate("abac"):
        found = remember(found, {"t": {"set": {key: None}}}, now_ms)
    assert list(found["t"]) == ["a", "c"]


def test_a_clock_that_goes_back_forgets_nothing_too_early() -> None:
    found: Tables = {}
    found = remember(found, {"t": {"set": {"a": 1}, "ttlMs": 5}}, 100)
    found = remember(found, {"t": {"set": {"b": 1}, "ttlMs": 5}}, 10)
    assert list(found["t"]) == ["a", "b"]


def test_it_goes_through_records_and_checkpoints_in_its_order() -> None:
    state = LogState()
    for version, changes in enumerate([{"t": {"set": {"b": 1, "a": 2}}}, {"t": {"set": {"b": 3}}}]):
        record = Record(version, f"n{version}", BatchWriteAuthor("j"), 5 + version, tables=changes)
        content = encode_record(record).content
        state = state_after(state, decode_record(content, "path", lambda _: b""))
    assert list(state.tables["t"].items()) == [("a", [5, 2]), ("b", [6, 3])]
    again = decode_checkpoint(encode_checkpoint(state), "path")
    assert again == state
    assert list(again.tables["t"]) == ["a", "b"]
