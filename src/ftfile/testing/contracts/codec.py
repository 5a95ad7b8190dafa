"""Every promise of a codec of an operator's store as tests: a codec inherits them; a subclass has a fixture `codec`."""

from __future__ import annotations

import itertools
import pickle
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.operator.codecs import Codec

__all__ = ("CodecContract",)


class CodecContract(ABC):
    """All tests of a codec. A subclass also says what is put into a store, and what reads return."""

    keeps_order = False  # keys compare as their bytes do

    @abstractmethod
    def pairs(self) -> Sequence[tuple[Any, Any]]:
        """Return keys and values as `put` takes them, three at least; no two of the keys are equal."""

    def returned(self, key: Any, value: Any) -> Any:  # noqa: ANN401, ARG002 - the user's
        """Return the event that reads give for a pair: the value, unless overridden."""
        return value

    @pytest.fixture
    def encoded(self, codec: Codec) -> list[tuple[bytes, bytes]]:
        """Return all pairs as bytes."""
        return [(codec.key_to_bytes(key), codec.value_to_bytes(value)) for key, value in self.pairs()]

    def test_it_makes_bytes(self, encoded: list[tuple[bytes, bytes]]) -> None:
        assert len(encoded) >= 3
        assert {type(data) for pair in encoded for data in pair} == {bytes}

    def test_pairs_come_back(self, codec: Codec, encoded: list[tuple[bytes, bytes]]) -> None:
        found = [codec.from_key_value(key, value) for key, value in encoded]
        assert found == [self.returned(key, value) for key, value in self.pairs()]

    def test_equal_keys_have_equal_bytes_and_others_have_others(
        self, codec: Codec, encoded: list[tuple[bytes, bytes]]
    ) -> None:
        keys = [key for key, _ in encoded]
        assert [codec.key_to_bytes(key) for key, _ in self.pairs()] == keys
        assert len(set(keys)) == len(keys)

    def test_another_process_makes_the_same(self, codec: Codec, encoded: list[tuple[bytes, bytes]]) -> None:
        copy: Codec = pickle.loads(pickle.dumps(codec))  # noqa: S301 - pickled here
        assert [copy.key_to_bytes(key) for key, _ in self.pairs()] == [key for key, _ in encoded]
        assert [copy.from_key_value(*pair) for pair in encoded] == [codec.from_key_value(*pair) for pair in encoded]

    def test_keys_are_in_the_order_of_their_bytes(self, codec: Codec) -> None:
        if not self.keeps_order:
            pytest.skip("the codec does not keep the order of keys")
        keys = sorted(key for key, _ in self.pairs())
        made = [codec.key_to_bytes(key) for key in keys]
        assert all(before < after for before, after in itertools.pairwise(made))
