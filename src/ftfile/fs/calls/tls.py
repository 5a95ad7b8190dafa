"""Faults of a connection that waiting cannot help, such as TLS on one side only."""

from __future__ import annotations

import socket
import ssl
import urllib.parse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROBE_TIMEOUT_S = 3.0
# OpenSSL's reasons for an answer that is no TLS, which differ by version and by the bytes of the answer.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors in its cause, context, arguments and attributes."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        kept = [each.__cause__, each.__context__, *each.args, *vars(each).values()]
        kept += [value for values in kept if isinstance(values, dict) for value in values.values()]
        waiting += [value for value in kept if isinstance(value, BaseException)]


def tls_fault(error: BaseException, bundle: str) -> str | None:
    """Return the fault of TLS behind an error and its remedy, or None; `bundle`: variable that names certificates."""
    for each in causes_of(error):
        # Libraries derive classes from these, without their attributes.
        said = getattr(each, "verify_message", None)
        if isinstance(each, ssl.SSLCertVerificationError) and said:
            return (
                f"the server's certificate is not trusted ({said}): let {bundle} name a file with the "
                "certificate of who issued it, on the driver and on every executor, or correct the endpoint's host"
            )
        if isinstance(each, ssl.SSLError) and getattr(each, "reason", None) in _NO_TLS:
            return "what answers speaks no TLS: the endpoint is an http:// one, or the port another one"
    return None


def speaks_tls(url: str) -> bool:
    """Return True if the server of an `http` URL completes a TLS handshake: it takes no plain HTTP."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent by it
    return url.startswith("http://") and _handshake_error(url, context) is None


def endpoint_fault(url: str, bundle: str) -> str | None:
    """Return the fault of an endpoint that never answered, with its remedy, or None; see `tls_fault`."""
    if speaks_tls(url):
        return "the server speaks TLS at this port: write https://"
    error = _handshake_error(url, ssl.create_default_context()) if url.startswith("https://") else None
    return None if error is None else tls_fault(error, bundle)


def _handshake_error(url: str, context: ssl.SSLContext) -> Exception | None:
    try:
        parsed = urllib.parse.urlsplit(url)
        address = (parsed.hostname or "", parsed.port or (443 if parsed.scheme == "https" else 80))
        with (
            socket.create_connection(address, _PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=parsed.hostname),
        ):
            return None
    except (OSError, ValueError) as error:
        return error
