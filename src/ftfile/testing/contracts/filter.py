"""The contracts of a byte filter, of a codec of an operator's store, and of a key provider, as tests.

A subclass defines a fixture that returns the tested object: `codec` or `byte_filter`. For key providers, the fixture
is `make_provider`. It returns a function that returns a new provider at each call. All these providers have the same
keys, at least two.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import pickle
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError
from ftfile.filters.api import BadStream, SizedStream
from ftfile.filters.keys import KEY_BYTES, WRAPPED_BYTES_MAX, IssuedKey, check_key_id, is_key_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ftfile.filters.api import Filter, Stream
    from ftfile.filters.keys import KeyProvider
    from ftfile.kv.operator.codecs import Codec


__all__ = ("CodecContract", "FilterContract", "KeyProviderContract")


class CodecContract(ABC):
    """All tests of a codec. A subclass also defines `pairs`, and `returned` if reads do not return the value."""

    keeps_order = False  # True if keys compare in the same order as their bytes

    @abstractmethod
    def pairs(self) -> Sequence[tuple[Any, Any]]:
        """Return at least three keys and values, as `put` accepts them; all keys are different."""

    def returned(self, key: Any, value: Any) -> Any:  # noqa: ANN401, ARG002 - the user's
        """Return the event that reads return for a pair; by default the value."""
        return value

    @pytest.fixture
    def encoded(self, codec: Codec) -> list[tuple[bytes, bytes]]:
        """Return all pairs as bytes."""
        encoded = []
        for key, value in self.pairs():
            encoded.append((codec.key_to_bytes(key), codec.value_to_bytes(value)))
        return encoded

    def test_it_makes_bytes(self, encoded: list[tuple[bytes, bytes]]) -> None:
        assert len(encoded) >= 3
        for key, value in encoded:
            assert type(key) is type(value) is bytes

    def test_pairs_come_back(self, codec: Codec, encoded: list[tuple[bytes, bytes]]) -> None:
        for (key, value), key_value in zip(self.pairs(), encoded, strict=True):
            assert codec.from_key_value(*key_value) == self.returned(key, value)

    def test_equal_keys_have_equal_bytes_and_others_have_others(
        self, codec: Codec, encoded: list[tuple[bytes, bytes]]
    ) -> None:
        keys = set()
        for (key, _), (key_bytes, _) in zip(self.pairs(), encoded, strict=True):
            assert codec.key_to_bytes(key) == key_bytes
            keys.add(key_bytes)
        assert len(keys) == len(encoded)

    def test_another_process_makes_the_same(self, codec: Codec, encoded: list[tuple[bytes, bytes]]) -> None:
        copy: Codec = pickle.loads(pickle.dumps(codec))  # noqa: S301 - pickled here
        for (key, _), key_value in zip(self.pairs(), encoded, strict=True):
            assert copy.key_to_bytes(key) == key_value[0]
            assert copy.from_key_value(*key_value) == codec.from_key_value(*key_value)

    def test_keys_are_in_the_order_of_their_bytes(self, codec: Codec) -> None:
        if not self.keeps_order:
            pytest.skip("the codec does not keep the order of keys")
        keys = sorted(key for key, _ in self.pairs())
        for before, after in itertools.pairwise(keys):
            assert codec.key_to_bytes(before) < codec.key_to_bytes(after)


_TEXT = b"".join(b"%d,the quick brown fox,%d\n" % (n, n * n % 997) for n in range(200))
# No codec can compress these random bytes, so a filter keeps the bytes that it has not returned in memory.
_NOISE = hashlib.shake_128().digest(3 << 19)
_PIECE_BYTES = 64 << 10
_DATA = (b"", b"x", _TEXT, bytes(70_000), _NOISE[:300_000])


class FilterContract:
    """All tests of a filter."""

    notices_truncation = True  # True if a decoder detects a stream without its end
    encodes_nothing = True  # True if an encoder without input returns a stream that can be decoded
    notices_damage = False  # True if a decoder detects every flipped bit
    binds_identity = False  # True if decoding a stream requires the identity of its encoder
    held_bytes_max = 1 << 20  # maximum number of input bytes that a stream keeps in memory

    def test_filters_are_values(self, byte_filter: Filter) -> None:
        copy = pickle.loads(pickle.dumps(byte_filter))  # noqa: S301 - pickled here
        assert copy == byte_filter
        assert hash(copy) == hash(byte_filter)
        with pytest.raises((AttributeError, TypeError)):
            byte_filter.name = "other"  # type: ignore[misc]
        assert self._decoded(copy, self._encoded(byte_filter, _TEXT)) == _TEXT

    def test_names(self, byte_filter: Filter) -> None:
        assert byte_filter.name
        assert byte_filter.name == type(byte_filter).name
        assert not byte_filter.extension or byte_filter.extension.startswith(".")
        assert not set(byte_filter.name + byte_filter.extension) & {"/", " ", ",", "\0"}
        assert byte_filter.frame_bytes > 0

    def test_the_definition_is_json_that_makes_the_same_filter(self, byte_filter: Filter) -> None:
        definition = byte_filter.definition()
        assert json.loads(json.dumps(definition)) == definition
        again = self._with_keys_of(byte_filter, type(byte_filter).from_definition(definition))
        assert again.definition() == definition
        assert self._decoded(byte_filter, self._encoded(again, _TEXT)) == _TEXT

    def test_an_empty_definition_is_enough_to_decode(self, byte_filter: Filter) -> None:
        reader = self._with_keys_of(byte_filter, type(byte_filter).from_definition({}))
        assert self._decoded(reader, self._encoded(byte_filter, _TEXT)) == _TEXT

    @pytest.mark.parametrize("number", range(len(_DATA)))
    def test_bytes_come_back(self, byte_filter: Filter, number: int) -> None:
        data = _DATA[number]
        if not data and not self.encodes_nothing:
            pytest.skip("the filter has no empty stream")
        for size_bytes in (None, len(data)):
            stream = byte_filter.encoder(self._identity(byte_filter), size_bytes)
            encoded = _fed(stream, _cut(data, 10_000))
            assert self._decoded(byte_filter, encoded) == data
            assert _fed(self._decoder(byte_filter), _cut(encoded, 7_001)) == data
        assert _fed(self._decoder(byte_filter), _cut(encoded[:500], 1), encoded[500:]) == data

    def test_any_buffer_may_be_fed_and_reused(self, byte_filter: Filter) -> None:
        stream = byte_filter.encoder(self._identity(byte_filter))
        buffer = bytearray(b"first ")
        encoded = stream.feed(buffer)
        buffer[:] = b"second"
        encoded += stream.feed(memoryview(buffer))
        buffer[:] = b"xxxxxx"
        encoded += stream.feed(b"") + stream.finish()
        assert isinstance(encoded, bytes)
        decoder, decoded = self._decoder(byte_filter), b""
        for piece in _cut(encoded, 5):
            reused = bytearray(piece)
            decoded += decoder.feed(reused)
            reused[:] = bytes(len(piece))
        assert decoded + decoder.finish() == b"first second"

    def test_streams_at_a_time_do_not_mix(self, byte_filter: Filter) -> None:
        texts = [_TEXT, _TEXT[::-1]]
        streams = [byte_filter.encoder(self._identity(byte_filter)) for _ in texts]
        encoded = [b"", b""]
        for at in range(0, len(_TEXT), 100):
            for number, stream in enumerate(streams):
                encoded[number] += stream.feed(texts[number][at : at + 100])
        for number, stream in enumerate(streams):
            encoded[number] += stream.finish()
        decoders = [self._decoder(byte_filter) for _ in texts]
        decoded = [b"", b""]
        for at in range(0, max(map(len, encoded)), 50):
            for number, decoder in enumerate(decoders):
                decoded[number] += decoder.feed(encoded[number][at : at + 50])
        for part, decoder, text in zip(decoded, decoders, texts, strict=True):
            assert part + decoder.finish() == text

    def test_memory_does_not_grow_with_the_data(self, byte_filter: Filter) -> None:
        encoder = byte_filter.encoder(self._identity(byte_filter))
        encoded = bytearray()
        fed = 0
        for piece in _cut(_NOISE, _PIECE_BYTES):
            encoded += encoder.feed(piece)
            fed += len(piece)
            assert fed - len(encoded) <= self.held_bytes_max, "the encoder keeps too many bytes in memory"
        encoded += encoder.finish()
        decoder = self._decoder(byte_filter)
        decoded_bytes = 0
        fed = 0
        for piece in _cut(bytes(encoded), _PIECE_BYTES):
            decoded_bytes += len(decoder.feed(piece))
            fed += len(piece)
            assert fed - decoded_bytes <= self.held_bytes_max, "the decoder keeps too many bytes in memory"
        assert decoded_bytes + len(decoder.finish()) == len(_NOISE)

    def test_a_missing_end_is_a_bad_stream(self, byte_filter: Filter) -> None:
        if not self.notices_truncation:
            pytest.skip("the filter does not mark the end of a stream")
        encoded = self._encoded(byte_filter, _TEXT)
        step = max(1, len(encoded) // 100)
        for end in {*range(0, len(encoded), step), len(encoded) - 1}:
            with pytest.raises(BadStream):
                self._decoded(byte_filter, encoded[:end])

    def test_damage_is_a_bad_stream_or_other_bytes_never_another_error(self, byte_filter: Filter) -> None:
        encoded = self._encoded(byte_filter, _TEXT)
        step = max(1, len(encoded) // 200)
        for position in range(0, len(encoded), step):
            damaged = bytearray(encoded)
            damaged[position] ^= 1 << position % 8
            try:
                decoded = self._decoded(byte_filter, bytes(damaged))
            except BadStream:
                continue
            assert decoded == _TEXT or not self.notices_damage
        for garbage in (b"\0", b"garbage", _NOISE[:5_000], encoded[:20] + _NOISE[:100]):
            try:
                assert self._decoded(byte_filter, garbage) != _TEXT
            except BadStream:
                continue

    def test_outputs_that_join_decode_one_after_the_other(self, byte_filter: Filter) -> None:
        if not byte_filter.joins:
            pytest.skip("the filter does not join")
        frames: list[bytes] = []
        twice: list[bytes] = []
        plain: dict[bytes, bytes] = {}
        for data in _DATA:
            stream = byte_filter.encoder("", len(data))
            frame = stream.feed(data) + stream.finish()
            frames.append(frame)
            twice += [frame, frame]
            plain[frame] = data
        for order in (frames, frames[::-1], twice):
            decoder = byte_filter.decoder("")
            decoded = _fed(decoder, _cut(b"".join(order), _PIECE_BYTES))
            assert decoded == b"".join(plain[frame] for frame in order)

    def test_a_stream_that_is_bound_is_decoded_in_its_place_alone(self, byte_filter: Filter) -> None:
        if not self.binds_identity:
            pytest.skip("the filter does not bind streams to an identity")
        assert not byte_filter.joins, "a filter that joins cannot bind: its frames are moved to other files"
        stream = byte_filter.encoder("a@0")
        encoded = stream.feed(_TEXT) + stream.finish()
        for identity in ("a@1", "b@0", ""):
            with pytest.raises(BadStream):
                _fed(byte_filter.decoder(identity), [encoded])
        assert _fed(byte_filter.decoder("a@0"), [encoded]) == _TEXT

    def test_a_size_that_is_told_is_that_of_the_output(self, byte_filter: Filter) -> None:
        for data in _DATA:
            stream = byte_filter.encoder(self._identity(byte_filter))
            if not isinstance(stream, SizedStream):
                pytest.skip("the length of the output depends on the content")
            size_bytes = stream.size_of(len(data))
            encoded = b"".join(stream.pieces(data)) + stream.finish()
            assert size_bytes == len(encoded)
            assert self._decoded(byte_filter, encoded) == data

    def test_without_keys_it_is_still_a_filter(self, byte_filter: Filter) -> None:
        assert type(byte_filter.with_keys(None)) is type(byte_filter)
        assert byte_filter.with_keys(None).definition() == byte_filter.definition()

    def _with_keys_of(self, byte_filter: Filter, other: Filter) -> Filter:
        return other.with_keys(getattr(byte_filter, "keys", None))

    def _identity(self, byte_filter: Filter) -> str:
        if byte_filter.joins:
            return ""
        return "a@0"

    def _decoder(self, byte_filter: Filter) -> Stream:
        return byte_filter.decoder(self._identity(byte_filter))

    def _encoded(self, byte_filter: Filter, data: bytes) -> bytes:
        stream = byte_filter.encoder(self._identity(byte_filter))
        return stream.feed(data) + stream.finish()

    def _decoded(self, byte_filter: Filter, data: bytes) -> bytes:
        return _fed(self._decoder(byte_filter), [data])


def _cut(data: bytes, size_bytes: int) -> list[bytes]:
    return [data[at : at + size_bytes] for at in range(0, len(data), size_bytes)]


def _fed(stream: Stream, pieces: Iterable[bytes], *more: bytes) -> bytes:
    """Return the whole output of a stream for all pieces."""
    return b"".join([*map(stream.feed, pieces), *map(stream.feed, more), stream.finish()])


class KeyProviderContract:
    """All tests of a key provider."""

    unknown_id = "no-such-key"  # an id without a key

    def test_ids_are_known(self, make_provider: Callable[[], KeyProvider]) -> None:
        key_ids = make_provider().known_ids()
        assert isinstance(key_ids, tuple)
        assert len(key_ids) == len(set(key_ids)) >= 2, "the tests need two keys"
        for key_id in key_ids:
            assert is_key_id(key_id)
            check_key_id(key_id)
        assert make_provider().known_ids() == key_ids

    def test_keys_are_keys(self, make_provider: Callable[[], KeyProvider]) -> None:
        for issued in _issued(make_provider()).values():
            assert isinstance(issued, IssuedKey)
            assert type(issued.key) is type(issued.wrapped) is bytes
            assert len(issued.key) == KEY_BYTES
            assert len(issued.wrapped) <= WRAPPED_BYTES_MAX
            assert len(set(issued.key)) > 1, "a key is random"

    def test_each_id_has_a_key_of_its_own(self, make_provider: Callable[[], KeyProvider]) -> None:
        issued = _issued(make_provider())
        keys = {data_key.key for data_key in issued.values()}
        assert len(keys) == len(issued)

    def test_a_key_is_found_here_and_by_another_provider(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        first, second = _issued(provider), _issued(provider)
        for finder in (provider, make_provider()):
            for issued in (first, second, first):
                for key_id, data_key in issued.items():
                    assert finder.find_key(key_id, data_key.wrapped) == data_key.key

    def test_wrapped_keys_do_not_show_the_key(self, make_provider: Callable[[], KeyProvider]) -> None:
        for issued in _issued(make_provider()).values():
            assert not _shows_key(issued.wrapped, issued.key)

    def test_a_key_is_not_shown(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        issued = _issued(provider)
        shown = f"{provider!r} {provider!s} {issued!r}".encode()
        assert not _shows_keys(shown, issued)

    def test_an_unknown_id_is_refused(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        issued = _issued(provider)
        wrapped = next(iter(issued.values())).wrapped
        with pytest.raises(ConfigError, match=self.unknown_id) as caught:
            provider.new_key(self.unknown_id)
        assert not _shows_keys(str(caught.value).encode(), issued)
        with pytest.raises(ConfigError, match=self.unknown_id) as caught:
            provider.find_key(self.unknown_id, wrapped)
        assert not _shows_keys(str(caught.value).encode(), issued)

    def test_what_was_never_issued_is_refused(self, make_provider: Callable[[], KeyProvider]) -> None:
        """Check that forged wrapped keys are rejected, because data whose key is found is accepted as authentic."""
        provider = make_provider()
        for key_id, issued in _issued(provider).items():
            for forged in (b"garbage", issued.wrapped + b"\0", issued.wrapped[:-1] or b"\0", bytes(100)):
                with pytest.raises(ConfigError):
                    provider.find_key(key_id, forged)

    def test_what_was_issued_under_another_id_is_another_key(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        issued = _issued(provider)
        for key_id, other_id in zip(issued, list(issued)[1:], strict=False):
            try:
                key = provider.find_key(other_id, issued[key_id].wrapped)
            except ConfigError:
                continue
            assert key != issued[key_id].key

    def test_many_threads_ask_at_once(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        key_ids = provider.known_ids()

        def ask(number: int) -> bool:
            key_id = key_ids[number % len(key_ids)]
            issued = provider.new_key(key_id)
            return provider.find_key(key_id, issued.wrapped) == issued.key

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(32)))


def _issued(provider: KeyProvider) -> dict[str, IssuedKey]:
    return {key_id: provider.new_key(key_id) for key_id in provider.known_ids()}


def _shows_keys(text: bytes, issued: dict[str, IssuedKey]) -> bool:
    return any(_shows_key(text, data_key.key) for data_key in issued.values())


def _shows_key(text: bytes, key: bytes) -> bool:
    """Return True if a text contains a key in any form."""
    return any(form in text for form in _forms(key))


def _forms(key: bytes) -> tuple[bytes, ...]:
    """Return the forms of a key that a text can contain: its bytes, hexadecimal, base64 and as Python shows it."""
    return key, key.hex().encode(), base64.b64encode(key).rstrip(b"="), repr(key)[2:-1].encode()
