"""Merge functions of a user's."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class Longest:
    """Keeps the longer string, the newer of two that are as long."""

    def combine(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        return pc.if_else(pc.greater(pc.utf8_length(older), pc.utf8_length(newer)), older, newer)


class Picky:
    """Takes no value that begins with an x."""

    def combine(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        if any(value.startswith("x") for value in older.to_pylist()):
            raise RuntimeError("an x")
        return newer


class Balance:
    """Adds numbers; null if they are even, so that nothing is kept."""

    def combine(self, older: pa.Array, newer: pa.Array) -> pa.Array:
        if older.null_count or newer.null_count:
            raise RuntimeError("a null")
        sums = pc.add(older, newer)
        return pc.if_else(pc.equal(sums, 0), None, sums)


class Never:
    """Takes nothing."""

    def combine(self, older: pa.Array, newer: pa.Array) -> pa.Array:  # noqa: ARG002
        raise RuntimeError("never")


class Short:
    """Returns one value for any number."""

    def combine(self, older: pa.Array, newer: pa.Array) -> pa.Array:  # noqa: ARG002
        return older[:1]


class NoMethod:
    """Has none."""


class Unmakeable:
    """Cannot be made without an argument."""

    def __init__(self, argument: int) -> None:
        pass
