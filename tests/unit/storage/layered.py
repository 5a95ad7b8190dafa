"""The contract for layers above a storage system, with few race rounds, as the storage itself has race tests."""

from __future__ import annotations

from ftfile.testing.contracts.filesystem import FileSystemContract

__all__ = ("LayeredContract",)


class LayeredContract(FileSystemContract):
    race_rounds = rename_rounds = 5
