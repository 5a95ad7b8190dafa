"""Delegation tokens, as YARN and Spark hand them to executors: a file that HADOOP_TOKEN_FILE_LOCATION names."""

from __future__ import annotations

import base64
import io
import os
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("FILE_VARIABLE", "find_token", "lack_of_tokens")

FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"

_MAGIC = b"HDTS"
_WRITABLE = 0
_KINDS = ("WEBHDFS delegation", "HDFS_DELEGATION_TOKEN")
# Smaller numbers are one byte; below, a byte tells the sign and how many follow.
_ONE_BYTE_MIN, _POSITIVE_MIN = -112, -120


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    """One token; its bytes are a secret."""

    content: bytes
    kind: str
    service: str

    def text(self) -> str:
        """Return it as it stands in URLs."""
        return base64.urlsafe_b64encode(self.content).rstrip(b"=").decode()


def find_token(urls: Sequence[str]) -> str | None:
    """Return this process's token for HDFS, or None when it has none.

    Args:
        urls: of the NameNodes; among several tokens, the one of their host counts.

    Raises:
        ConfigError: the file cannot be read, or is of a form that is not known here.
    """
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            tokens = [token for token in _read_tokens(file.read()) if token.kind in _KINDS]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the token file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, cannot be read: {error}"
        ) from error
    hosts = {urllib.parse.urlsplit(url).hostname or "" for url in urls}
    own = [token for token in tokens if token.service.rpartition(":")[0] in hosts]
    return (own or tokens)[0].text() if tokens else None


def lack_of_tokens() -> str:
    """Return why this process has no token for an HDFS that has just asked for one."""
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return f"{FILE_VARIABLE} is not set"
    found = "has none for it" if os.path.exists(path) else "is not there"
    return f"the file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, {found}"


def _read_tokens(data: bytes) -> list[_Token]:
    """Take Hadoop's `Credentials` apart: a count, then name and token of each.

    Raises:
        ValueError: it is none, or of another form.
    """
    if data[:4] != _MAGIC or len(data) <= len(_MAGIC):
        raise ValueError("it is no token file of Hadoop")
    if data[4] != _WRITABLE:
        raise ValueError("it is in Hadoop's protobuf form; have it written in the Java form (hdfs dtutil -format java)")
    stream = io.BytesIO(data[5:])
    tokens = []
    for _ in range(_read_number(stream)):
        _read_bytes(stream)  # the alias
        start = stream.tell()
        _read_bytes(stream)  # who
        _read_bytes(stream)  # the password
        kind, service = _read_bytes(stream).decode(), _read_bytes(stream).decode()
        tokens.append(_Token(stream.getvalue()[start : stream.tell()], kind, service))
    return tokens


def _read_bytes(stream: io.BytesIO) -> bytes:
    return _read(stream, _read_number(stream))


def _read(stream: io.BytesIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise ValueError("it is cut short")
    return data


def _read_number(stream: io.BytesIO) -> int:
    first = int.from_bytes(_read(stream, 1), "big", signed=True)
    if first >= _ONE_BYTE_MIN:
        return first
    if first < _POSITIVE_MIN:
        raise ValueError("a length is negative")
    return int.from_bytes(_read(stream, _ONE_BYTE_MIN - first), "big")
