"""The encryption envelope: the data that it keeps secret, and the damage that it detects."""

from __future__ import annotations

import base64
import io
import itertools
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters import aes_gcm
from ftfile.filters.aes_gcm import CHUNK_BYTES, AesGcm, PieceCipher
from ftfile.filters.api import BadStream
from ftfile.filters.chain import Chain, FilteredFile, chain_from_options
from ftfile.filters.decoded import decrypted_file
from ftfile.filters.keys import Keys, forget_keys
from tests.kit.parameters import parametrize
from tests.unit.filters import independent_decoder
from tests.unit.formats.rows import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = bytes(range(32))
RING = f"one {base64.b64encode(KEY).decode()}\ntwo {base64.b64encode(KEY[::-1]).decode()}\n"
KNOWN: independent_decoder.Keys = {("one", b""): KEY, ("two", b""): KEY[::-1]}
KEYS = Keys("env:FTFILE_TEST_KEYS")
SMALL = 1024
VECTORS = Path(__file__).parent / "encryption_vectors.json"


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FTFILE_TEST_KEYS", RING)
    forget_keys()
    yield
    forget_keys()


def envelope(chunk_bytes: int = SMALL, key_id: str = "one") -> AesGcm:
    return AesGcm(key_id, KEYS, chunk_bytes)


def sealed(plain: bytes, identity: str = "a@0", chunk_bytes: int = SMALL, key_id: str = "one") -> bytes:
    stream = envelope(chunk_bytes, key_id).encoder(identity)
    return stream.feed(plain) + stream.finish()


def opened(data: bytes, identity: str = "a@0", step: int | None = None) -> bytes:
    stream = AesGcm(keys=KEYS).decoder(identity)
    step = step or len(data) + 1
    return b"".join(stream.feed(data[at : at + step]) for at in range(0, len(data), step)) + stream.finish()


def noise(length: int) -> bytes:
    return random.Random(length).randbytes(length)


LENGTHS = [0, 1, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL, 3 * SMALL + 5]


@pytest.mark.parametrize("length", LENGTHS)
def test_an_independent_decoder_reads_it(length: int) -> None:
    assert independent_decoder.decode(sealed(noise(length)), "a@0", KNOWN) == noise(length)


def test_the_independent_decoder_is_short_and_independent() -> None:
    lines = Path(independent_decoder.__file__).read_text().splitlines()
    assert len(lines) <= 60
    assert not any("import" in line and "ftfile" in line for line in lines)


def test_two_who_read_the_pieces_of_one_encoder_share_no_nonce() -> None:
    encoder = envelope().encoder("a@0")
    plain = bytes(4 * CHUNK_BYTES)
    first = encoder.pieces(plain)
    head = [next(first), next(first)]
    chunks = [*encoder.pieces(plain), *first, *head[1:]]
    assert len(chunks) == len(set(chunks)), "the same zeros under the same nonce are the same bytes"


@given(st.lists(st.binary(max_size=3 * SMALL), max_size=6), st.integers(1, 3000))
def test_any_pieces_come_back(pieces: list[bytes], step: int) -> None:
    stream = envelope().encoder("a@0")
    data = b"".join(map(stream.feed, pieces)) + stream.finish()
    plain = b"".join(pieces)
    assert len(data) == stream.size_of(len(plain))
    assert opened(data, step=step) == plain
    assert independent_decoder.decode(data, "a@0", KNOWN) == plain


@given(st.binary(max_size=300))
def test_whatever_is_read_is_an_error_that_is_meant(data: bytes) -> None:
    for start in (b"", b"FTE\x01\x0a\x03\x00\x00one"):
        with pytest.raises((BadStream, ConfigError)):
            opened(start + data)


@parametrize("length", [0, 5, SMALL, 2 * SMALL + 7], quick=1, packages=True)
def test_every_truncation_is_detected(length: int) -> None:
    data = sealed(noise(length))
    for end in range(len(data)):
        with pytest.raises(BadStream):
            opened(data[:end])
        if length:
            with pytest.raises((CorruptData, BadStream)):
                randomly_read(data[:end], length)


@parametrize("length", [0, 5, 2 * SMALL + 7], quick=1, packages=True)
def test_every_changed_bit_is_detected(length: int) -> None:
    data = sealed(noise(length))
    for place, bit in itertools.product(
        range(len(data)), (1, 128) if length > SMALL else (1, 2, 4, 8, 16, 32, 64, 128)
    ):
        changed = bytearray(data)
        changed[place] ^= bit
        with pytest.raises((BadStream, ConfigError)):
            opened(bytes(changed))


def test_more_than_there_was_is_detected() -> None:
    for length in LENGTHS:
        data = sealed(noise(length))
        for more in (b"\0", data[-16:], data, noise(SMALL + 16)):
            with pytest.raises(BadStream):
                opened(data + more)


def chunks_of(data: bytes) -> tuple[bytes, list[bytes]]:
    start = aes_gcm.header_bytes(data)
    return data[:start], [data[at : at + SMALL + 16] for at in range(start, len(data), SMALL + 16)]


def test_chunks_that_changed_places_or_come_twice_are_detected() -> None:
    plain = bytes(SMALL) * 4  # with the same content
    header, chunks = chunks_of(sealed(plain))
    assert opened(header + b"".join(chunks)) == plain
    for other in itertools.product(range(4), repeat=4):
        if other != (0, 1, 2, 3):
            with pytest.raises(BadStream):
                opened(header + b"".join(chunks[number] for number in other))
    for count in (1, 2, 3, 5):
        with pytest.raises(BadStream):
            opened(header + b"".join((chunks * 2)[:count]))


def test_another_file_does_not_take_its_place() -> None:
    plain = noise(3 * SMALL)
    one, other = sealed(plain, "a@0"), sealed(plain, "b@0")
    for identity in ("b@0", "a@1", "", "a@00"):
        with pytest.raises(BadStream):
            opened(one, identity)
    (header, chunks), (others_header, others_chunks) = chunks_of(one), chunks_of(other)
    with pytest.raises(BadStream):
        opened(header + chunks[0] + others_chunks[1] + chunks[2])
    with pytest.raises(BadStream):
        opened(others_header + b"".join(chunks))
    again = chunks_of(sealed(plain, "a@0"))  # written again with the same identity, but with another key
    with pytest.raises(BadStream):
        opened(header + chunks[0] + again[1][1] + chunks[2])


def test_each_file_has_a_key_of_its_own() -> None:
    first, second = sealed(b"the same"), sealed(b"the same")
    size = aes_gcm.header_bytes(first)
    assert first[:11] == second[:11]  # the kind of the file, and the id of the key
    assert first[11:51] != second[11:51]
    assert first[size:] != second[size:]


def test_header_of_another_key_is_detected() -> None:
    data = sealed(noise(50))
    assert opened(sealed(noise(50), key_id="two")) == noise(50)
    with pytest.raises(BadStream, match="another key with this name"):
        opened(data.replace(b"one", b"two", 1))
    with pytest.raises(ConfigError, match="there is no key 'oNe'"):
        opened(data.replace(b"one", b"oNe", 1))


def test_a_key_of_the_same_name_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sealed(noise(50))
    monkeypatch.setenv("FTFILE_TEST_KEYS", f"one {base64.b64encode(bytes(32)).decode()}")
    forget_keys()
    with pytest.raises(BadStream, match="wrapped with the key 'one'"):
        opened(data)


def test_without_keys_it_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="keyProvider"):
        Chain.for_reading(["aes-gcm"]).decoder("a@0")


class TestVectors:
    @pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda vector: vector["what"])
    def test_files(self, vector: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        data, plain = bytes.fromhex(vector["file"]), bytes.fromhex(vector["plain"])
        key = bytes.fromhex(vector["key"])
        assert independent_decoder.decode(data, vector["identity"], {(vector["keyId"], b""): key}) == plain
        monkeypatch.setenv("FTFILE_TEST_KEYS", f"{vector['keyId']} {base64.b64encode(key).decode()}")
        forget_keys()
        assert opened(data, vector["identity"]) == plain
        random_bytes = iter([bytes.fromhex(vector["dataKey"]), bytes.fromhex(vector["noncePrefix"])])
        monkeypatch.setattr(aes_gcm, "random_bytes", lambda _: next(random_bytes))
        stream = AesGcm(vector["keyId"], KEYS, vector["chunkBytes"]).encoder(vector["identity"])
        assert stream.feed(plain) + stream.finish() == data


def randomly_read(data: bytes, length: int, identity: str = "a@0") -> bytes:
    file = io.BytesIO(data)
    file.name = "part"
    return decrypted_file(file, KEYS, identity, length).read()


class TestRandomAccess:
    @given(
        st.integers(0, 4 * SMALL), st.lists(st.tuples(st.integers(0, 5 * SMALL), st.integers(0, 3 * SMALL)), max_size=5)
    )
    def test_any_range(self, length: int, ranges: list[tuple[int, int]]) -> None:
        plain, file = noise(length), io.BytesIO(sealed(noise(length)))
        file.name = "part"
        with decrypted_file(file, KEYS, "a@0", length) as found:
            assert found.name == "part"
            for offset, size in ranges:
                assert found.seek(offset) == offset
                assert found.read(size) == plain[offset : offset + size]
            assert found.seek(0, io.SEEK_END) == length
            assert found.tell() == length
        assert file.closed

    def test_only_what_is_asked_for_is_decrypted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[int] = []
        decrypt = aes_gcm.OpenedEnvelope.decrypt

        def noted(self: aes_gcm.OpenedEnvelope, chunk: bytes, number: int, *, is_last: bool) -> bytes:
            asked.append(number)
            return decrypt(self, chunk, number, is_last=is_last)

        monkeypatch.setattr(aes_gcm.OpenedEnvelope, "decrypt", noted)
        file = io.BytesIO(sealed(noise(100 * SMALL)))
        with decrypted_file(file, KEYS, "a@0", 100 * SMALL) as found:
            found.seek(40 * SMALL + 1)
            found.read(SMALL)
        assert asked == [99, 40, 41]

    @pytest.mark.slow
    @pytest.mark.packages
    def test_every_changed_bit_is_detected(self) -> None:
        length = 2 * SMALL + 7
        data = sealed(noise(length))
        for place in range(len(data)):
            changed = bytearray(data)
            changed[place] ^= 4
            with pytest.raises((CorruptData, ConfigError)):
                randomly_read(bytes(changed), length)

    @pytest.mark.parametrize("length", [0, 5, SMALL, 2 * SMALL])
    def test_more_than_there_was_is_noticed(self, length: int) -> None:
        for more in (b"\0", bytes(SMALL + 16)):
            with pytest.raises(CorruptData):
                randomly_read(sealed(noise(length)) + more, length)

    def test_chunks_that_are_missing_at_the_end_are_noticed_before_anything_is_read(self) -> None:
        header, chunks = chunks_of(sealed(noise(4 * SMALL)))
        for length in (4 * SMALL, 3 * SMALL):
            file = io.BytesIO(header + b"".join(chunks[:3]))
            file.name = "part"
            with pytest.raises(CorruptData):
                decrypted_file(file, KEYS, "a@0", length)


class TestPieces:
    def test_come_back(self) -> None:
        cipher = PieceCipher()
        first = cipher.encrypt(b"some", 0)
        second = cipher.encrypt(b"more", len(first))
        assert (cipher.decrypt(first, 0), cipher.decrypt(second, len(first))) == (b"some", b"more")

    def test_changes_are_detected(self) -> None:
        cipher = PieceCipher()
        first = cipher.encrypt(b"some", 0)
        second = cipher.encrypt(b"more", len(first))
        for place in range(len(second)):
            with pytest.raises(BadStream):
                cipher.decrypt(second[:place] + bytes([second[place] ^ 1]) + second[place + 1 :], len(first))
        with pytest.raises(BadStream):
            cipher.decrypt(first, len(first))
        with pytest.raises(BadStream):
            PieceCipher().decrypt(first, 0)

    def test_no_nonce_is_used_twice(self) -> None:
        cipher = PieceCipher()
        cipher.encrypt(b"some", 0)
        with pytest.raises(AssertionError):
            cipher.encrypt(b"more", 0)


class TestChains:
    def test_encryption_comes_last(self) -> None:
        assert chain_from_options("gzip", None, (), envelope()).names == ("gzip", "aes-gcm")
        with pytest.raises(ConfigError, match="set encryption=aes-gcm"):
            chain_from_options("gzip", None, ("aes-gcm",))

    @pytest.mark.parametrize("length", [0, 10, SMALL, 10 * SMALL + 1])
    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_how_long_a_file_would_be_is_known(self, codec: str, length: int) -> None:
        target = Target()
        file = FilteredFile(target, chain_from_options(codec, None, (), envelope()), "a@0")
        file.write(noise(length))
        file.flush()
        expected = file.size_bytes
        room = file.framed_room(expected + 5000)
        assert file.size_bytes_with(room) <= expected + 5000 < file.size_bytes_with(room) + 20 + 5000 // SMALL * 16
        file.finish()
        assert len(target.data) == expected == file.size_bytes

    def test_memory_does_not_grow(self) -> None:
        encoder, decoder = AesGcm("one", KEYS).encoder("a@0"), AesGcm(keys=KEYS).decoder("a@0")
        for _ in range(50):
            decoder.feed(encoder.feed(bytes(CHUNK_BYTES // 3)))
            for stream in (encoder, decoder):
                held = sum(len(value) for value in vars(stream).values() if isinstance(value, bytes | bytearray))
                assert held < 2 * CHUNK_BYTES
