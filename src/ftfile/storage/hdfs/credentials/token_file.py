"""Hadoop's files of delegation tokens, and the tokens that they contain."""

from __future__ import annotations

import base64
import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_MAGIC = b"HDTS"
# The first byte of `AbstractDelegationTokenIdentifier`.
_IDENTIFIER_VERSION = b"\0"
# The only kind of field in the protobuf form.
_LENGTH_DELIMITED = 2
_VARINT_BITS_MAX = 70  # in ten bytes
# Hadoop's `VInt`: these numbers are one byte. In other numbers, the first byte has the sign and the number of bytes.
_ONE_BYTE_MIN = -112
_ONE_BYTE_MAX = 127
_POSITIVE_MIN = -120


@dataclass(frozen=True, slots=True, repr=False)
class DelegationToken:
    """One delegation token; its bytes are secret."""

    content: bytes
    kind: str
    service: str

    def text(self) -> str:
        """Return the text of the token for URLs."""
        return base64.urlsafe_b64encode(self.content).rstrip(b"=").decode()

    def dates_ms(self) -> tuple[int, int] | None:
        """Return when the token was issued and when it ends at the latest, since 1970 UTC; None for unknown forms.

        HDFS ends a token earlier if nobody renews it. The token does not contain this time.
        """
        try:
            identifier = io.BytesIO(_read_bytes(io.BytesIO(self.content)))
            if _read(identifier, 1) != _IDENTIFIER_VERSION:
                return None
            for _ in ("owner", "renewer", "real user"):
                _read_bytes(identifier)
            return _read_number(identifier), _read_number(identifier)
        except ValueError:
            return None

    @property
    def issued_ms(self) -> int:
        """When the token was issued, since 1970 UTC; 0 for unknown forms."""
        dates_ms = self.dates_ms()
        if dates_ms is None:
            return 0
        return dates_ms[0]


def token_file(tokens: Iterable[DelegationToken]) -> bytes:
    """Return the content of a file of tokens, in the form that Spark and YARN write."""
    aliases = {f"{token.kind} {token.service}".encode(): token for token in tokens}
    parts = [_MAGIC, b"\0", _number(len(aliases))]
    for alias, token in aliases.items():
        parts += [_number(len(alias)), alias, token.content]
    # No secret keys follow.
    return b"".join([*parts, _number(0)])


def read_tokens(data: bytes) -> list[DelegationToken]:
    """Return the tokens of Hadoop's `Credentials`, in either form; raises `ValueError`."""
    form = _FORMS.get(data[4:5])
    if data[:4] != _MAGIC or form is None:
        raise ValueError("it is not a token file of Hadoop")
    return form(data[5:])


def _tokens_of_java(data: bytes) -> list[DelegationToken]:
    """Return the tokens in the form that Spark and YARN write: a count, then name and token of each."""
    stream = io.BytesIO(data)
    tokens = []
    for _ in range(_read_number(stream)):
        _read_bytes(stream)  # the alias
        start = stream.tell()
        _read_bytes(stream)  # identifier
        _read_bytes(stream)  # password
        kind, service = _read_bytes(stream).decode(), _read_bytes(stream).decode()
        tokens.append(DelegationToken(stream.getvalue()[start : stream.tell()], kind, service))
    return tokens


def _tokens_of_protobuf(data: bytes) -> list[DelegationToken]:
    """Return the tokens in the form that `hadoop dtutil` writes: one message after its length."""
    stream = io.BytesIO(data)
    tokens: list[DelegationToken] = []
    # CredentialsProto.tokens, CredentialsKVProto.token, and the four fields of TokenProto.
    for named_tokens in _fields(_read(stream, _read_varint(stream))).get(1, ()):
        tokens += map(_token_of_protobuf, _fields(named_tokens).get(2, ()))
    return tokens


def _token_of_protobuf(message: bytes) -> DelegationToken:
    fields = _fields(message)
    parts = [fields.get(number, [b""])[-1] for number in (1, 2, 3, 4)]
    content = b"".join(_number(len(part)) + part for part in parts)
    return DelegationToken(content, kind=parts[2].decode(), service=parts[3].decode())


_FORMS = {b"\0": _tokens_of_java, b"\1": _tokens_of_protobuf}


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Return the fields of a protobuf message of strings, bytes and messages, by number."""
    stream, fields = io.BytesIO(message), dict[int, list[bytes]]()
    while stream.tell() < len(message):
        key = _read_varint(stream)
        if key & 7 != _LENGTH_DELIMITED:
            raise ValueError("it has unknown fields")
        fields.setdefault(key >> 3, []).append(_read(stream, _read_varint(stream)))
    return fields


def _read_varint(stream: io.BytesIO) -> int:
    value = shift = 0
    while (byte := _read(stream, 1)[0]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift >= _VARINT_BITS_MAX:
            raise ValueError("it has a number without an end")
    return value | byte << shift


def _read_bytes(stream: io.BytesIO) -> bytes:
    return _read(stream, _read_number(stream))


def _read(stream: io.BytesIO, length: int) -> bytes:
    data = stream.read(min(length, sys.maxsize))  # a longer read is an OverflowError
    if len(data) != length:
        raise ValueError("it is truncated")
    return data


def _read_number(stream: io.BytesIO) -> int:
    first = int.from_bytes(_read(stream, 1), "big", signed=True)
    if first >= _ONE_BYTE_MIN:
        return first
    if first < _POSITIVE_MIN:
        raise ValueError("a length is negative")
    return int.from_bytes(_read(stream, _ONE_BYTE_MIN - first), "big")


def _number(value: int) -> bytes:
    """Return the bytes that `_read_number` reads."""
    if value <= _ONE_BYTE_MAX:
        return bytes([value])
    size = (value.bit_length() + 7) // 8
    return bytes([(_ONE_BYTE_MIN - size) & 0xFF]) + value.to_bytes(size, "big")
