"""The delegation tokens of this process for a service of HDFS."""

from __future__ import annotations

import itertools
import os
import socket
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.logs import get_logger
from ftfile.core.per_process import PerProcess
from ftfile.core.units import time_text
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE, ProcessTokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.storage.hdfs.configuration import NameService
    from ftfile.storage.hdfs.credentials.token_file import DelegationToken


_NATIVE_KIND = "HDFS_DELEGATION_TOKEN"
_KINDS = (_NATIVE_KIND, "WEBHDFS delegation", "SWEBHDFS delegation")
_REMEDY = (
    "A new token in the token file is used by the next call. If Spark has a keytab (spark-submit --principal "
    "--keytab), ftfile.spark.attach(spark) in the driver's program provides the tokens that Spark replaces"
)
_LOGICAL = ("ha-hdfs", "ha-webhdfs", "ha-swebhdfs")


_log = get_logger(__name__)
_process = ProcessTokens()
_warned: PerProcess[set[DelegationToken]] = PerProcess(set)


def receive_tokens(tokens: Iterable[DelegationToken]) -> None:
    """Use tokens of Spark's driver for later connections, except for services that have newer tokens; idempotent.

    Raises `ConfigError` if the token file of this process cannot be read.
    """
    _process.receive(tokens)
    _process.merge()


def refuse_token(token: DelegationToken) -> None:
    """Prefer other tokens for the same service, because HDFS has refused this one."""
    _process.refuse(token)


def origin_of(token: DelegationToken) -> str:
    """Return sentences for an error: where a token came from, when it was issued and ends, and how to replace it."""
    path = _process.origin(token)
    if path is None:
        source = f"The token for {token.service} came from Spark's driver with the batch"
    elif path in {"", _process.original()}:
        source = (
            f"The token for {token.service} is from the file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names"
        )
    else:
        source = f"The token for {token.service} is from the driver's JVM, by ftfile.spark.attach"
    dates_ms = token.dates_ms()
    if dates_ms is not None:
        issued, end = map(time_text, dates_ms)
        source += f". It was issued at {issued} UTC, and ends at {end} UTC or, if nobody renews it, earlier"
    return f"{source}. {_REMEDY}"


def warn_before_end(token: DelegationToken) -> None:
    """Log a warning, once for a token, if less than a quarter of its lifetime is left."""
    dates_ms = token.dates_ms()
    if dates_ms is None or token in _warned.here:
        return
    issued_ms, end_ms = dates_ms
    if SYSTEM.clock.now_ms() > end_ms - (end_ms - issued_ms) // 4:
        _warned.here.add(token)
        _log.warning("no batch can use HDFS after the end of its token. %s", origin_of(token))


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
    if not has_token_sources():
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


def has_token_sources() -> bool:
    """Return True if this process can have tokens: it has received some, or has a token file."""
    return _process.has_sources()


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
    return [token for token in _process.merge() if token.kind in _KINDS]


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
