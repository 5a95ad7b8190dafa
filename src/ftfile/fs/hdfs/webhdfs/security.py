"""What WebHDFS needs for Kerberos and TLS; neither a ticket nor a token comes into a log."""

from __future__ import annotations

import logging
import os
import re
import ssl
from typing import TYPE_CHECKING, Any

import requests

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("NoTicketError", "kerberos_auth", "require_tls", "scrub", "tls_context")

_SECRET = re.compile(r"(delegation=|Negotiate )[^&\s'\"]+")
# Libraries that log requests and headers.
_LOGGERS = ("urllib3.connectionpool", "requests_kerberos.kerberos_", "hdfs.client")
# What they say of an error that is raised, too.
_NOISE = re.compile(r"generate_request_header|ctx (?:init|step) failed|SpnegoError|handle_other\(\): Mutual|b'<html>")
# How a server of TLS begins its answer to one who speaks plain HTTP, as it is shown.
_ALERT = r"\x15\x03"


class NoTicketError(Exception):
    """No ticket could be had for a request; nothing was sent."""


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
    """Return what answers for this process by its ticket.

    Raises:
        ConfigError: what it needs is not installed.
    """
    try:
        import requests_kerberos  # noqa: PLC0415 - needs another package
        from hdfs.ext.kerberos import _HdfsHTTPKerberosAuth
    except ImportError as error:
        raise ConfigError(
            f"HDFS asks for Kerberos, and its client cannot be loaded ({error}): pip install 'ftfile[kerberos]'"
        ) from error

    class Auth(_HdfsHTTPKerberosAuth):  # type: ignore[misc] # the package ships no types
        def generate_request_header(self, response: requests.Response, *more: Any, **named: Any) -> str:  # noqa: ANN401
            try:
                return str(super().generate_request_header(response, *more, **named))
            except requests_kerberos.exceptions.KerberosExchangeError as error:
                response.close()
                raise NoTicketError(str(error)) from None

    auth: requests.auth.AuthBase = Auth(max_concurrency=1, mutual_authentication=requests_kerberos.OPTIONAL)
    return auth


def tls_context() -> ssl.SSLContext:
    """Return how the certificates of DataNodes are checked: as `requests` checks those of NameNodes."""
    bundle = (
        os.environ.get("REQUESTS_CA_BUNDLE")
        or os.environ.get("CURL_CA_BUNDLE")
        or requests.utils.DEFAULT_CA_BUNDLE_PATH
    )
    return ssl.create_default_context(
        cafile=None if os.path.isdir(bundle) else bundle, capath=bundle if os.path.isdir(bundle) else None
    )


def require_tls(place: str, error: BaseException) -> None:
    """Return unless an error says that TLS cannot come about.

    Raises:
        ConfigError: it does; nothing was sent.
    """
    text = " ".join(map(str, _causes(error)))
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        raise ConfigError(
            f"the certificate of {place} is not believed: let REQUESTS_CA_BUNDLE name a file with that of its "
            f"authority, on executors too (spark.executorEnv.REQUESTS_CA_BUNDLE): {scrub(str(error))}"
        ) from None
    if "BadStatusLine" in text and _ALERT in text:
        raise ConfigError(f"{place} speaks TLS: write swebhdfs:// in the place of webhdfs://") from None
    if any(isinstance(each, ssl.SSLError | requests.exceptions.SSLError) for each in _causes(error)):
        raise ConfigError(
            f"{place} speaks no TLS that is understood here; perhaps it speaks plain HTTP, which is webhdfs://: "
            f"{scrub(str(error))}"
        ) from None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
