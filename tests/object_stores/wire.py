"""The requests of the S3 driver, which are counted and can be answered differently from the storage."""

from __future__ import annotations

import threading
import urllib.parse
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from ftfile.testing.context import open_filesystem
from tests.object_stores.servers import client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.object_stores.servers import Storage

__all__ = ("FAULTS", "Fault", "Wire")

_ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"


@dataclass(frozen=True)
class Fault:
    """The fate of a request.

    Attributes:
        effect: the request reaches the storage.
        status: of the answer; 0 for no answer.
        code: in the answer.
        conditional: only requests with a condition meet the fault.
        changes: only requests that change objects meet the fault.
        copies: only copies by a single request meet the fault.
    """

    effect: bool
    status: int = 0
    code: str = ""
    conditional: bool = False
    changes: bool = False
    copies: bool = False

    def __str__(self) -> str:
        return f"{self.status} {self.code} {'after' if self.effect else 'before'}"


FAULTS = (
    Fault(effect=True),
    Fault(effect=False),
    # In a race for a name. Any change of an object may conflict with another change of it.
    Fault(effect=False, status=409, code="ConditionalRequestConflict", conditional=True),
    Fault(effect=False, status=409, code="OperationAborted", changes=True),
    # A network component sent the request twice. Without a condition there is no 412.
    Fault(effect=True, status=412, code="PreconditionFailed", conditional=True),
    Fault(effect=True, status=500, code="InternalError", changes=True),
    Fault(effect=False, status=500, code="InternalError"),
    Fault(effect=True, status=503, code="", changes=True),
    Fault(effect=False, status=503, code="SlowDown"),
    # The status of a long request is sent before its end.
    Fault(effect=True, status=200, code="InternalError", conditional=True, changes=True),
)


class Wire:
    """Intercepts requests between the driver and the storage within a `with` block.

    Args:
        storage: of the driver.
        fault: the fate of a request.
        at: number of requests that succeed before the fault.
        times: number of requests that meet the fault.
        settings: options of the sink whose requests it sees.
        ignores_conditions: the storage overwrites objects in spite of conditions.
        like_aws: copies keep their conditions, as on AWS and on neither of the storage systems here.

    Attributes:
        sent: kinds of requests sent, in their order.
        hit: the request that met the fault, the last one of several.
        hit_urls: of all requests that met it.
        listed: prefixes of list requests.
    """

    def __init__(
        self,
        storage: Storage,
        fault: Fault | None = None,
        at: int = 0,
        times: int = 1,
        *,
        like_aws: bool = False,
        ignores_conditions: bool = False,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.sent: list[str] = []
        self.hit: str | None = None
        self.hit_urls: list[str] = []
        self._fault = fault
        self._at = at
        self._times = times
        self._seen = 0
        self._lock = threading.Lock()
        more = {name.removeprefix("storage."): text for name, text in settings.items() if name.startswith("storage.")}
        fs: Any = open_filesystem(storage.url, settings=storage.settings | more)
        self._client = fs.inner._bucket.client  # noqa: SLF001
        self._endpoint = self._client._client._endpoint  # noqa: SLF001 - where requests leave
        self.like_aws = like_aws
        self.ignores_conditions = ignores_conditions
        self.listed: list[str] = []

    @contextmanager
    def __call__(self) -> Iterator[Wire]:
        session, proven = self._endpoint.http_session, self._client.proven
        self._endpoint.http_session = _Session(session, self)
        self._client.proven = (
            dict.fromkeys(proven, True) if self.like_aws else {} if self.ignores_conditions else proven
        )
        try:
            yield self
        finally:
            self._endpoint.http_session = session
            self._client.proven = proven

    def counts(self) -> Counter[str]:
        """Return the number of requests of each kind."""
        return Counter(self.sent)

    def takes(self, request: Any) -> Fault | None:
        """Record a request and return its fault, if it has one."""
        fault, kind = self._fault, kind_of(request)
        with self._lock:
            self.sent.append(kind)
            if kind == "list":
                query = urllib.parse.parse_qs(request.url.partition("?")[2])
                self.listed += query["prefix"]
            if fault is None:
                return None
            if fault.copies and kind != "copy":
                return None
            if (fault.conditional and "If-None-Match" not in request.headers) or (
                fault.changes and request.method in {"GET", "HEAD"}
            ):
                return None
            self._seen += 1
            if not self._at < self._seen <= self._at + self._times:
                return None
            self.hit = kind
            self.hit_urls.append(urllib.parse.unquote(request.url))
            return fault


def kind_of(request: Any) -> str:
    """Return the operation of a request."""
    query = request.url.partition("?")[2]
    if request.method == "GET" and "list-type" in query:
        return "list"
    if request.method == "PUT" and "x-amz-copy-source" in {name.lower() for name in request.headers}:
        return "copy part" if "partNumber" in query else "copy"
    if "partNumber" in query:
        return "part"
    if "uploads" in query:
        return "begin upload"
    if "uploadId" in query:
        return "complete" if request.method == "POST" else "abort upload"
    return {"GET": "read", "HEAD": "look", "PUT": "put", "DELETE": "delete"}[request.method]


class _Session:
    """Sends requests as botocore's session does."""

    def __init__(self, inner: Any, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    def send(self, request: Any) -> Any:
        fault = self._wire.takes(request)
        if self._wire.ignores_conditions and "If-None-Match" in request.headers:
            self._forget(request.url)
        if self._wire.like_aws and kind_of(request) == "copy" and self._is_there(request.url):
            fault = fault if fault is not None and not fault.effect else Fault(False, 412, "PreconditionFailed")
        if fault is None:
            return self._inner.send(request)
        if fault.effect:
            self._inner.send(request)
        if not fault.status:
            if fault.effect:
                raise ReadTimeoutError(endpoint_url=request.url)
            raise ConnectionClosedError(endpoint_url=request.url, request=request)
        body = _ERROR.format(code=fault.code).encode() if fault.code and request.method != "HEAD" else b""
        return AWSResponse(request.url, fault.status, {"content-length": str(len(body))}, _Body(body))

    def _forget(self, url: str) -> None:
        client(url[: url.index("/", 8)]).delete_object(**_object_of(url))

    def _is_there(self, url: str) -> bool:
        try:
            client(url[: url.index("/", 8)]).head_object(**_object_of(url))
        except ClientError:
            return False
        return True

    def close(self) -> None:
        self._inner.close()


def _object_of(url: str) -> dict[str, str]:
    _, _, _, bucket, key = urllib.parse.unquote(url.partition("?")[0]).split("/", 4)
    return {"Bucket": bucket, "Key": key}


class _Body:
    """The body of an answer in the form of urllib3."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        content, self._content = self._content, b""
        yield content

    def read(self, *_: Any, **__: Any) -> bytes:
        content, self._content = self._content, b""
        return content
