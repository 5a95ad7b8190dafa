"""The contract for layers above a store, with few race rounds, as the store itself has race tests."""

from __future__ import annotations

from ftfile.testing.contracts.filesystem import FileSystemContract

__all__ = ("LayeredContract",)


class LayeredContract(FileSystemContract):
    race_rounds = rename_rounds = 5
