"""Kerberos and TLS for WebHDFS, without tickets and tokens in logs."""

from __future__ import annotations

import logging
import os
import re
import ssl
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

import requests

from ftfile.core.errors import ConfigError
from ftfile.core.logs import Redacting
from ftfile.core.per_process import PerProcess
from ftfile.storage.connections import speaks_tls, tls_fault

if TYPE_CHECKING:
    from ftfile.storage.hdfs.credentials.keytab import Login


# Messages about errors that are also raised.
_NOISE = re.compile(r"generate_request_header|ctx (?:init|step) failed|SpnegoError|handle_other\(\): Mutual")
_BUNDLE = "REQUESTS_CA_BUNDLE"


class NoTicketError(Exception):
    """There is no ticket for a request; no request was sent."""


class _Scrubbing(Redacting):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _NOISE.match(record.getMessage()) and super().filter(record)


# Loggers of libraries, whose messages contain requests and headers.
_scrubbing = _Scrubbing()
logging.getLogger("urllib3.connectionpool").addFilter(_scrubbing)
logging.getLogger("requests_kerberos.kerberos_").addFilter(_scrubbing)


def kerberos_auth(login: Login | None) -> requests.auth.AuthBase:
    """Return the authentication by a keytab, or by the ticket of this process.

    Raises `ConfigError` if its package is missing.
    """
    try:
        import requests_kerberos  # noqa: PLC0415 - needs another package
        import spnego  # noqa: PLC0415 - comes with it
        from krb5 import Krb5Error  # noqa: PLC0415 - comes with it
    except ImportError as error:
        raise ConfigError(
            f"HDFS requires Kerberos, and the Kerberos client cannot be loaded ({error}): pip install "
            "'ftfile[kerberos]'"
        ) from error

    class Auth(requests_kerberos.HTTPKerberosAuth):  # type: ignore[misc] # the package ships no types
        making = PerProcess(threading.Lock)

        def generate_request_header(self, response: requests.Response, *more: Any, **named: Any) -> str:  # noqa: ANN401
            try:
                # One thread at a time: a server rejects two authenticators of the same moment as a replay.
                with self.making.here:
                    return str(super().generate_request_header(response, *more, **named))
            except (requests_kerberos.exceptions.KerberosExchangeError, Krb5Error) as error:
                response.close()
                raise NoTicketError(str(error)) from None

    credential = None
    if login is not None:
        credential = spnego.KerberosKeytab(login.keytab, login.principal)
    auth: requests.auth.AuthBase = Auth(mutual_authentication=requests_kerberos.OPTIONAL, principal=credential)
    return auth


def tls_context() -> ssl.SSLContext:
    """Return the TLS context for DataNodes, with the certificates that `requests` trusts for NameNodes."""
    bundle = os.environ.get(_BUNDLE) or os.environ.get("CURL_CA_BUNDLE") or requests.utils.DEFAULT_CA_BUNDLE_PATH
    return ssl.create_default_context(
        cafile=None if os.path.isdir(bundle) else bundle, capath=bundle if os.path.isdir(bundle) else None
    )


def check_tls(url: str, error: BaseException) -> None:
    """Raise `ConfigError` if a request was not sent because only one side uses TLS; `url` is the URL of the server."""
    place = "://".join(urllib.parse.urlsplit(url)[:2])
    fault = tls_fault(error, _BUNDLE)
    # A server that does not answer is not tested.
    if fault is None and not isinstance(error, requests.Timeout | TimeoutError) and speaks_tls(place):
        fault = "the server speaks TLS at this port"
    if fault is not None:
        raise ConfigError(f"{place}: {fault}; webhdfs:// is for ports with plain HTTP, swebhdfs:// for ports with TLS")
