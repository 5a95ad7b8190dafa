"""Delegation tokens of this process, in a file of Hadoop's clients."""

from __future__ import annotations

import base64
import io
import itertools
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.core.units import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence


FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
_MAGIC = b"HDTS"
# The first byte of `AbstractDelegationTokenIdentifier`.
_IDENTIFIER_VERSION = b"\0"
_NATIVE_KIND = "HDFS_DELEGATION_TOKEN"
_KINDS = (_NATIVE_KIND, "WEBHDFS delegation", "SWEBHDFS delegation")
_LOGICAL = ("ha-hdfs", "ha-webhdfs", "ha-swebhdfs")
# The only kind of field in the protobuf form.
_LENGTH_DELIMITED = 2
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

    def origin(self) -> str:
        """Return a sentence that says where the token came from, and when it was issued and ends."""
        path = os.path.abspath(os.environ.get(FILE_VARIABLE, ""))
        source = f"The token for {self.service} is from the file {path!r}, which {FILE_VARIABLE} names"
        dates_ms = self.dates_ms()
        if dates_ms is None:
            return source
        issued, end = map(time_text, dates_ms)
        return f"{source}. It was issued at {issued} UTC, and ends at {end} UTC or, if nobody renews it, earlier"


def find_token(
    name: str, addresses: Sequence[str], *, native: bool = False, near: bool = False
) -> DelegationToken | None:
    """Return the token of this process for a name service, or for `host:port`, whose servers have these addresses.

    Returns None if there is no such token, and raises `ConfigError` for a malformed token file.

    Args:
        name: the name service, or `host:port`.
        addresses: of the servers.
        native: the token is for the RPC protocol of a single NameNode.
        near: a token for another port of the same host is accepted if there is only one.
    """
    if native and not os.path.exists(os.environ.get(FILE_VARIABLE, "")):
        return None  # there may be a ticket
    tokens = _own_tokens()
    services = {*addresses}
    if native:
        tokens = [token for token in tokens if token.kind == _NATIVE_KIND]
    else:
        services.update(f"{kind}:{name}" for kind in _LOGICAL)
    for token in tokens:
        if token.service in services:
            return token
    if tokens:
        return _token_of_place(tokens, addresses, near=near)
    return None


def _token_of_place(
    tokens: Sequence[DelegationToken], addresses: Sequence[str], *, near: bool
) -> DelegationToken | None:
    """Return the token for an IP address and port of `addresses`; if `near`, also for another port, if it is unique."""
    places = set(itertools.chain.from_iterable(map(_places, addresses)))
    hosts = {host for host, _ in places}
    of_other_ports: list[DelegationToken] = []
    for token in tokens:
        token_places = _places(token.service)
        if places & token_places:
            return token
        if any(host in hosts for host, _ in token_places):
            of_other_ports.append(token)
    if near and len({token.service for token in of_other_ports}) == 1:
        return of_other_ports[0]
    return None


def has_tokens() -> bool:
    """Return True if this process has tokens for any HDFS; raises like `find_token`."""
    return bool(_own_tokens())


def lack_of_tokens() -> str:
    """Return why this process has no token for an HDFS that requires one."""
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return f"{FILE_VARIABLE} is not set"
    if not os.path.exists(path):
        state = "does not exist"
    else:
        services = sorted({repr(token.service) for token in _own_tokens()})
        state = f"has no valid token for it, only tokens for {', '.join(services) or 'no HDFS'}"
    return f"the file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, {state}"


def _own_tokens() -> list[DelegationToken]:
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return []
    try:
        with open(path, "rb") as file:
            tokens = _read_tokens(file.read())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the token file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, cannot be read: {error}"
        ) from error
    return [token for token in tokens if token.kind in _KINDS]


def _places(address: str) -> set[tuple[str, str]]:
    """Return the IP addresses of `host:port` with the port; none for other texts, such as a name service."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or host in _LOGICAL:
        return set()
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, OverflowError):
        return {(host, port)}
    return {(str(place[4][0]), port) for place in addresses}


def _read_tokens(data: bytes) -> list[DelegationToken]:
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
    return value | byte << shift


def _read_bytes(stream: io.BytesIO) -> bytes:
    return _read(stream, _read_number(stream))


def _read(stream: io.BytesIO, length: int) -> bytes:
    data = stream.read(length)
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
