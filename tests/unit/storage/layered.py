"""The contract for what stands before a store that is raced for in the tests of its own."""

from __future__ import annotations

from ftfile.testing.contracts.filesystem import FileSystemContract

__all__ = ("LayeredContract",)


class LayeredContract(FileSystemContract):
    race_rounds = rename_rounds = 5
