"""Runs of unsigned integers in ORC: the examples of its specification, and damaged bytes."""

from __future__ import annotations

from random import Random

import pytest

from ftfile.rows.orc_runs import read_rle_v1, read_rle_v2

PATCHED = [2030, 2000, 2020, 1_000_000, *range(2040, 2191, 10)]
SECOND = {
    "0a2710": [10_000] * 5,
    "5e035ca1ab1edeadbeef": [23_713, 43_806, 57_005, 48_879],
    "7e00ffffffffffffffff": [2**64 - 1],
    "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8": PATCHED,
    "c609020222424246": [2, 3, 5, 7, 11, 13, 17, 19, 23, 29],
    "c6091d0322424246": [29, 27, 25, 23, 19, 17, 13, 11, 7, 1],
    "c0040a03": [10, 8, 6, 4, 2],
    "0a2710c0040a03": [*[10_000] * 5, 10, 8, 6, 4, 2],
}
FIRST = {
    "610007": [7] * 100,
    "61ff64": [*range(100, 0, -1)],
    "fb020306070b": [2, 3, 6, 7, 11],
}


@pytest.mark.parametrize("encoded", SECOND)
def test_runs_of_version_2(encoded: str) -> None:
    numbers = SECOND[encoded]
    assert read_rle_v2(bytes.fromhex(encoded), len(numbers)).tolist() == numbers


@pytest.mark.parametrize("encoded", FIRST)
def test_runs_of_version_1(encoded: str) -> None:
    numbers = FIRST[encoded]
    assert read_rle_v1(bytes.fromhex(encoded), len(numbers)).tolist() == numbers


def test_no_more_numbers_are_read_than_asked_for() -> None:
    assert read_rle_v1(bytes.fromhex("610007"), 2).tolist() == [7, 7]
    assert read_rle_v2(b"", 0).tolist() == []


@pytest.mark.parametrize("encoded", SECOND)
def test_runs_of_version_2_that_end_too_early(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"bytes in place of|without an end"):
            read_rle_v2(data[:end], len(SECOND[encoded]))


@pytest.mark.parametrize("encoded", FIRST)
def test_runs_of_version_1_that_end_too_early(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"bytes in place of|without an end"):
            read_rle_v1(data[:end], len(FIRST[encoded]))


def test_a_patch_behind_the_numbers_is_damage() -> None:
    data = bytes.fromhex(next(encoded for encoded in SECOND if encoded.startswith("8e")))
    with pytest.raises(ValueError, match="a patch of number 3 in a run of 2"):
        read_rle_v2(data[:1] + b"\x01" + data[2:8] + bytes.fromhex("fce8"), 2)


def test_any_bytes_are_numbers_or_damage(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        data = random.randbytes(random.randint(1, 40))
        for read_numbers in (read_rle_v1, read_rle_v2):
            try:
                assert len(read_numbers(data, 20)) == 20
            except ValueError:
                continue
