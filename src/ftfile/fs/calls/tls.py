"""Faults of a configured connection that no request gets through, so that waiting cannot help."""

from __future__ import annotations

import socket
import ssl
import urllib.parse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("endpoint_fault", "speaks_tls", "tls_fault")

_PROBE_TIMEOUT_S = 3.0

# What OpenSSL calls an answer that is no TLS, which depends on its version and on the bytes that came.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})


def tls_fault(error: BaseException, bundle: str) -> str | None:
    """Return why a connection was given up before a request was sent, and what to do; None if that is not known.

    `bundle` names the variable that tells the library which certificates to trust.
    """
    for each in _causes(error):
        # Classes of libraries that derive from these have none of their attributes.
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
    """Return True if the server of an `http` URL completes a TLS handshake, so that it takes no plain HTTP."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent by it
    return url.startswith("http://") and _handshake_error(url, context) is None


def endpoint_fault(url: str, bundle: str) -> str | None:
    """Return why no request reaches an endpoint that never answered, and what to do, or None; see `tls_fault`."""
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


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that libraries wrap into it: as its cause, context, an argument, or an attribute."""
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
