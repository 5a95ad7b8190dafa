"""The delegation tokens of this process, from its token file and from Spark's driver."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.core.units import time_text
from ftfile.storage.hdfs.token_file import read_tokens, token_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.storage.hdfs.configuration import NameService
    from ftfile.storage.hdfs.token_file import DelegationToken


FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
_NATIVE_KIND = "HDFS_DELEGATION_TOKEN"
_KINDS = (_NATIVE_KIND, "WEBHDFS delegation", "SWEBHDFS delegation")
_LOGICAL = ("ha-hdfs", "ha-webhdfs", "ha-swebhdfs")


class _ReceivedTokens:
    """The tokens that Spark's driver sent to this process.

    `hdfs-native` reads the token file that the environment names. So if a received token is newer than those of the
    token file, the environment names another file, which contains the newest tokens of both.
    """

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, str], DelegationToken] = {}
        # The file that the environment named before, and the file that it names now.
        self._replaced: str | None = None
        self._merged: str | None = None
        self._content = b""
        self.after_fork()
        os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        # Another thread of the parent process can have held the lock during the fork.
        self._lock = threading.Lock()

    def add(self, tokens: Iterable[DelegationToken]) -> None:
        """Add tokens; of two tokens for the same service, the one that was issued later is used."""
        with self._lock:
            for token in tokens:
                key = token.kind, token.service
                if key not in self._tokens or token.issued_ms > self._tokens[key].issued_ms:
                    self._tokens[key] = token

    def __contains__(self, token: DelegationToken) -> bool:
        return token in self._tokens.values()

    def path_without(self) -> str | None:
        """Return the path of the token file that this process would use without received tokens."""
        path = os.environ.get(FILE_VARIABLE)
        if path and path == self._merged:
            return self._replaced
        return path

    def merge(self) -> list[DelegationToken]:
        """Return the newest tokens, the last issued one first, and set the environment to a file that contains them.

        Idempotent. Raises `ConfigError` if the token file cannot be read.
        """
        with self._lock:
            path = self.path_without()
            tokens: dict[tuple[str, str], DelegationToken] = {}
            for token in self._own_tokens(path):
                tokens.setdefault((token.kind, token.service), token)
            newer = {}
            for key, token in self._tokens.items():
                if key not in tokens or token.issued_ms > tokens[key].issued_ms:
                    newer[key] = token
            merged = sorted((tokens | newer).values(), key=lambda token: -token.issued_ms)
            if newer:
                self._name_file_with(merged, path)
            elif path != os.environ.get(FILE_VARIABLE):
                _set_path(path)
            return merged

    def _own_tokens(self, path: str | None) -> list[DelegationToken]:
        if self._tokens and not os.path.exists(path or ""):
            return []
        return _tokens_of_file(path)

    def _name_file_with(self, tokens: Sequence[DelegationToken], path: str | None) -> None:
        content = token_file(tokens)
        if self._merged is None or content != self._content or not os.path.exists(self._merged):
            self._merged = _write_private(content)
            self._content = content
        self._replaced = path
        _set_path(self._merged)


def _set_path(path: str | None) -> None:
    if path is None:
        os.environ.pop(FILE_VARIABLE, None)
    else:
        os.environ[FILE_VARIABLE] = path


def _write_private(content: bytes) -> str:
    """Replace the file of received tokens of this process, which only its user can read; return its path."""
    # Executors run in directories that the cluster manager deletes.
    directory = os.getcwd()
    if not os.access(directory, os.W_OK):
        directory = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - the names are created exclusively
    path = os.path.join(directory, f".ftfile-tokens-{os.getpid()}")
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of an earlier process with this number
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    os.replace(temporary, path)  # noqa: TID251 - a file of this process only
    return path


_received = _ReceivedTokens()


def receive_tokens(tokens: Iterable[DelegationToken]) -> None:
    """Use tokens of Spark's driver for later connections, except for services that have newer tokens; idempotent.

    Raises `ConfigError` if the token file of this process cannot be read.
    """
    _received.add(tokens)
    _received.merge()


def origin_of(token: DelegationToken) -> str:
    """Return sentences for an error: where a token came from, when it was issued and ends, and how to replace it."""
    if token in _received:
        source = f"The token for {token.service} came from Spark's driver with the batch"
        remedy = "Each batch gets the driver's current token"
    else:
        path = os.path.abspath(_received.path_without() or "")
        source = f"The token for {token.service} is from the file {path!r}, which {FILE_VARIABLE} names"
        remedy = "A new token in this file is used by the next call"
    dates_ms = token.dates_ms()
    if dates_ms is None:
        return f"{source}. {remedy}"
    issued, end = map(time_text, dates_ms)
    return f"{source}. It was issued at {issued} UTC, and ends at {end} UTC or, if nobody renews it, earlier. {remedy}"


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
    tokens = _current_tokens()
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


def rpc_token(service: NameService, addresses: Mapping[str, str]) -> DelegationToken | None:
    """Return the token that `hdfs-native` uses for a service; None without a token file, since there may be a ticket.

    `addresses` are those of the RPC servers, by name.
    """
    if not os.path.exists(os.environ.get(FILE_VARIABLE, "")):
        return None
    return find_token(service.name, [*addresses.values()], native=not service.members)


def web_token(service: str, rpc_addresses: Mapping[str, str]) -> DelegationToken | None:
    """Return the token for the web servers of a service, or None.

    `rpc_addresses` are those of the NameNodes by the URL of the web server, and empty if unknown.
    """
    addresses = [url.partition("//")[2] for url in rpc_addresses]
    known_addresses = [*filter(None, rpc_addresses.values())]
    # Many tokens name the RPC server, and the address of a single NameNode's web server does not reveal it.
    return find_token(service, [*addresses, *known_addresses], near=not known_addresses)


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
    return bool(_current_tokens())


def lack_of_tokens() -> str:
    """Return why this process has no token for an HDFS that requires one."""
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return f"{FILE_VARIABLE} is not set"
    if not os.path.exists(path):
        state = "does not exist"
    else:
        services = sorted({repr(token.service) for token in _current_tokens()})
        state = f"has no valid token for it, only tokens for {', '.join(services) or 'no HDFS'}"
    return f"the file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, {state}"


def _current_tokens() -> list[DelegationToken]:
    return [token for token in _received.merge() if token.kind in _KINDS]


def _tokens_of_file(path: str | None) -> list[DelegationToken]:
    if not path:
        return []
    try:
        with open(path, "rb") as file:
            return read_tokens(file.read())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the token file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, cannot be read: {error}"
        ) from error


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
