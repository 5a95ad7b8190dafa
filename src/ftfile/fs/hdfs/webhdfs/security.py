"""Kerberos and TLS for WebHDFS; neither a ticket nor a token comes into a log."""

from __future__ import annotations

import logging
import os
import re
import ssl
import threading
import urllib.parse
from typing import Any

import requests

from ftfile.core.errors import ConfigError
from ftfile.fs.calls.tls import speaks_tls, tls_fault

_SECRET = re.compile(r"(delegation=|Negotiate )[^&\s'\"]+")
# Loggers of libraries, whose messages show requests and headers.
_LOGGERS = ("urllib3.connectionpool", "requests_kerberos.kerberos_")
# Messages about errors that are also raised.
_NOISE = re.compile(r"generate_request_header|ctx (?:init|step) failed|SpnegoError|handle_other\(\): Mutual")
_BUNDLE = "REQUESTS_CA_BUNDLE"


class NoTicketError(Exception):
    """There is no ticket for a request; nothing was sent."""


def scrub(text: str) -> str:
    """Return a text without tokens and tickets."""
    return _SECRET.sub(r"\1…", text)


class _Scrubbing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if _NOISE.match(message):
            return False
        if _SECRET.search(message):
            record.msg, record.args = scrub(message), ()
        return True


for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_Scrubbing())


def kerberos_auth() -> requests.auth.AuthBase:
    """Return the authentication by this process's ticket, or raise `ConfigError` without its package."""
    try:
        import requests_kerberos  # noqa: PLC0415 - needs another package
    except ImportError as error:
        raise ConfigError(
            f"HDFS asks for Kerberos, and its client cannot be loaded ({error}): pip install 'ftfile[kerberos]'"
        ) from error

    class Auth(requests_kerberos.HTTPKerberosAuth):  # type: ignore[misc] # the package ships no types
        making = threading.Lock()

        def generate_request_header(self, response: requests.Response, *more: Any, **named: Any) -> str:  # noqa: ANN401
            try:
                # One thread at a time: a server takes two authenticators of one moment for a replay.
                with self.making:
                    return str(super().generate_request_header(response, *more, **named))
            except requests_kerberos.exceptions.KerberosExchangeError as error:
                response.close()
                raise NoTicketError(str(error)) from None

    auth: requests.auth.AuthBase = Auth(mutual_authentication=requests_kerberos.OPTIONAL)
    return auth


def tls_context() -> ssl.SSLContext:
    """Return the TLS context for DataNodes, with the certificates that `requests` trusts for NameNodes."""
    bundle = os.environ.get(_BUNDLE) or os.environ.get("CURL_CA_BUNDLE") or requests.utils.DEFAULT_CA_BUNDLE_PATH
    return ssl.create_default_context(
        cafile=None if os.path.isdir(bundle) else bundle, capath=bundle if os.path.isdir(bundle) else None
    )


def require_tls(url: str, error: BaseException) -> None:
    """Raise `ConfigError` if a request failed, unsent, since only one side speaks TLS; `url` is the server's."""
    place = "://".join(urllib.parse.urlsplit(url)[:2])
    fault = tls_fault(error, _BUNDLE)
    # A silent server is not asked.
    if fault is None and not isinstance(error, requests.Timeout | TimeoutError) and speaks_tls(place):
        fault = "the server speaks TLS at this port"
    if fault is not None:
        raise ConfigError(f"{place}: {fault}; webhdfs:// is for ports of plain HTTP, swebhdfs:// for those of TLS")
