"""Requests to an S3 store by `botocore`: each has a time limit, is sent once, and fails with an error of the port."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import (
    ConfigError,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.fs.calls.cancellable_connections import CancellableConnection, cancellable_pools
from ftfile.fs.calls.deadline import NoThreadError, limit_s, run_within
from ftfile.fs.calls.per_process import PerProcess
from ftfile.fs.calls.tls import speaks_tls, tls_fault
from ftfile.fs.s3.errors import READING, UNKNOWN_USER, remote_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.fs.s3.settings import S3Settings

__all__ = ("CONCURRENCY", "PARTS_AT_ONCE", "S3Client", "client_of")

CONCURRENCY = 32
# Parts of large files that are under way at once in a process, each with its copy in memory.
PARTS_AT_ONCE = 4
_CONNECT_TIMEOUT_S = 10.0
# The library's variable for certificates to trust.
BUNDLE = "AWS_CA_BUNDLE"
# How much is given to a socket at once: all of it must go within the time limit, while sending that of connecting.
_PIECE_BYTES = 128 << 10
_REFUSED = 300
# Copying and completing are work of the store itself: it may take this many times as long.
_STORE_WORKS, _WORK_FACTOR = frozenset({"copy_object", "upload_part_copy", "complete_multipart_upload"}), 10
# What a success says at least: the status of a copy or of a completion is sent before its outcome is known.
_PROOFS: Mapping[str, tuple[str, ...]] = {
    "put_object": ("ETag",),
    "copy_object": ("CopyObjectResult", "ETag"),
    "create_multipart_upload": ("UploadId",),
    "upload_part": ("ETag",),
    "upload_part_copy": ("CopyPartResult", "ETag"),
    "complete_multipart_upload": ("ETag",),
}
_NO_HEADER = (
    "the access key or the session token has a character that no request can hold; look for a line feed at its end"
)


def client_of(settings: S3Settings) -> S3Client:
    """Return this process's client; making one takes a quarter of a second, and may raise `ConfigError`."""
    return _clients.of(settings)


class S3Client:
    """One client for all threads of a process.

    Attributes:
        slots: one is held for each part of a large file that is under way.
        proven: buckets that keep conditions, and True for those that keep conditions of copies, too.
    """

    def __init__(self, settings: S3Settings) -> None:
        try:
            import botocore.config
            import botocore.exceptions
            import botocore.session
        except ImportError as error:
            raise ConfigError(f"s3:// needs a package that is not there ({error}): pip install 'ftfile[s3]'") from error
        self._errors = botocore.exceptions
        self._settings = settings
        self._timeout_s = settings.timeout_s
        self.slots = threading.BoundedSemaphore(PARTS_AT_ONCE)
        self.proven: dict[str, bool] = {}
        self._has_answered = False
        config = botocore.config.Config(
            # Who cannot connect is to say so before the time of the request is over.
            connect_timeout=min(_CONNECT_TIMEOUT_S, settings.timeout_s / 2),
            read_timeout=settings.timeout_s,
            # Retries are the driver's business: it must know the outcome of each try.
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=CONCURRENCY + PARTS_AT_ONCE,
            tcp_keepalive=True,
            s3={"addressing_style": settings.addressing},
            user_agent_extra="ftfile",
        )
        keys = settings.keys()
        try:
            session = botocore.session.Session(profile=settings.profile)
            self._client = session.create_client(
                "s3", region_name=settings.region, endpoint_url=settings.endpoint, config=config, **keys
            )
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise ConfigError(f"s3:// cannot be opened: {error}") from error
        # The library waits a second for leave to send where none is given, and for ever where it is cut short.
        self._client.meta.events.register_last("before-call.s3", _ask_no_leave)
        self._client.meta.events.register("before-send.s3", _send_in_pieces)
        self._client.meta.events.register("before-parse.s3", self._require_whole)
        # A library that has them elsewhere leaves threads to calls that take too long; all else is as it is.
        with contextlib.suppress(AttributeError):
            http = self._client._endpoint.http_session  # noqa: SLF001 - there is no other way to its connections
            http._pool_classes_by_scheme = cancellable_pools(http._pool_classes_by_scheme)  # noqa: SLF001
            http._manager.pool_classes_by_scheme = http._pool_classes_by_scheme  # noqa: SLF001

    def fetch(self, operation: str, path: str, where: str, **parameters: object) -> tuple[bytes, Mapping[str, Any]]:
        """Get an object, or a range of it, and return all its bytes and the answer; see `send`.

        Raises:
            Unavailable: they did not come whole.
        """
        line = CancellableConnection(self._timeout_s)
        answer = self.send(operation, path, where, "get_object", line=line, **parameters)
        timeout_s = limit_s(self._timeout_s, answer.get("ContentLength", 0))
        try:
            # Not in a `with` block: it goes round the library's own checks, and waits for what is being read.
            content: bytes = run_within(timeout_s, answer["Body"].read, cut=line.cut)
        except (self._errors.BotoCoreError, OSError) as error:
            raise self._translated(operation, path, where, error) from error
        return content, answer

    def send(
        self,
        operation: str,
        path: str,
        where: str,
        method: str,
        *,
        line: CancellableConnection | None = None,
        **parameters: Any,  # noqa: ANN401 - as the library takes them
    ) -> Mapping[str, Any]:
        """Send one request by a method of the library's client and return the answer.

        `operation`, one of the port's, `path` and `where`, the root below which it is, are for errors.

        Raises:
            StorageError: see `remote_error`.
        """
        line = line or CancellableConnection(self._timeout_s * (_WORK_FACTOR if method in _STORE_WORKS else 1))

        def call() -> Mapping[str, Any]:
            with line:
                answer: Mapping[str, Any] = getattr(self._client, method)(**parameters)
            return answer

        try:
            answer = run_within(limit_s(line.silence_s, len(parameters.get("Body", b""))), call, _close, line.cut)
            self._require_proof(method, answer)
        except (self._errors.ClientError, self._errors.BotoCoreError, TimeoutError, NoThreadError) as error:
            if self._is_refused_header(error):
                # What the library says shows the header, and so would all that comes from it.
                raise PermissionDenied(operation, path, f"{_NO_HEADER} (for {where})") from None
            raise self._translated(operation, path, where, error) from error
        self._has_answered = True
        return answer

    def _require_proof(self, method: str, answer: Mapping[str, Any]) -> None:
        """Raise `IncompleteReadError` for an answer that does not say what a success says."""
        said: Any = answer
        for name in _PROOFS.get(method, ()):
            said = said.get(name)
            if not said:
                raise self._errors.IncompleteReadError(actual_bytes=0, expected_bytes=f"an answer with {name}")

    def _require_whole(self, operation_model: Any, response_dict: Mapping[str, Any], **_: object) -> None:  # noqa: ANN401
        """Raise `IncompleteReadError` for an answer that was cut short: the library takes what came.

        What is read of a body later is compared by the library.
        """
        verb, headers, body = operation_model.http["method"], response_dict["headers"], response_dict["body"]
        came = len(body) if isinstance(body, bytes) and verb != "HEAD" else None
        promised = headers.get("content-length")
        if promised is not None:
            is_whole = came in {None, int(promised)}
        else:
            # Who looks is told something; headers without it were cut, and so may the status be all that came.
            is_whole = verb not in {"GET", "HEAD"} or response_dict["status_code"] >= _REFUSED
            is_whole = is_whole or bool(came) or "transfer-encoding" in headers
        if not is_whole:
            if not isinstance(body, bytes):
                body.close()
            raise self._errors.IncompleteReadError(actual_bytes=came or 0, expected_bytes=promised or "more")

    def _is_refused_header(self, error: Exception) -> bool:
        """Return True if nothing was sent because credentials cannot stand in a header."""
        cause = error.kwargs.get("error") if isinstance(error, self._errors.HTTPClientError) else None
        # `http.client` says so of what it was given; what it cannot encode is no header either.
        return isinstance(cause, UnicodeEncodeError) or (
            isinstance(cause, ValueError) and str(cause).startswith("Invalid header value")
        )

    def _translated(self, operation: str, path: str, where: str, error: Exception) -> StorageError:
        known = self._errors
        if (fault := self._fault_of_connection(error)) is not None:
            return WrongConnection(operation, path, f"{where} at {self._client.meta.endpoint_url}: {fault}")
        if isinstance(error, known.ClientError):
            told, status = error.response["Error"], error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            text = {"code": str(told.get("Code", "")), "message": str(told.get("Message", ""))}
            if text["code"] in UNKNOWN_USER:
                # The library reads files of credentials once: who asks again may find others there.
                _clients.forget(self._settings)
            return remote_error(operation, path, where, status=status, **text)
        if isinstance(
            error, known.NoCredentialsError | known.PartialCredentialsError | known.CredentialRetrievalError
        ) or type(error).__name__ in {"TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"}:
            detail = f"there are no credentials for {where} ({error}): docs/object-stores.md says where to give them"
            return PermissionDenied(operation, path, detail)
        if isinstance(error, known.ParamValidationError | known.InvalidRegionError | known.NoRegionError):
            return Unsupported(operation, path, f"the library cannot ask {where} for this: {error}")
        never_sent = isinstance(
            error,
            known.EndpointConnectionError | known.ConnectTimeoutError | known.ProxyConnectionError | NoThreadError,
        )
        if operation in READING or never_sent:
            return Unavailable(operation, path, f"{where} does not answer: {error}")
        return OutcomeUnknown(operation, path, f"the reply of {where} was lost: {error}")

    def _fault_of_connection(self, error: Exception) -> str | None:
        """Return why no request gets through, and what to do; None if that is not what is wrong."""
        if isinstance(error, self._errors.SSLError):
            cause = error.kwargs.get("error")
            if any(isinstance(each, FileNotFoundError) for each in getattr(cause, "args", ())):
                return f"{BUNDLE}, or ca_bundle of the profile, names a file that is not there"
            return tls_fault(error, BUNDLE)
        # A server of TLS resets plain HTTP, or answers it with a 400 that is no answer of S3.
        answer = getattr(error, "response", {})
        is_odd = isinstance(error, self._errors.ConnectionClosedError | self._errors.HTTPClientError) or (
            str(answer.get("Error", {}).get("Code", "")) == "400"
        )
        if is_odd and not self._has_answered and speaks_tls(self._client.meta.endpoint_url):
            return "the server speaks TLS at this port: write https:// in storage.endpoint"
        return None


_clients = PerProcess(S3Client)


def _close(answer: Mapping[str, Any]) -> None:
    if "Body" in answer:
        answer["Body"].close()


def _ask_no_leave(params: Mapping[str, Any], **_: object) -> None:
    params["headers"].pop("Expect", None)


def _send_in_pieces(request: Any, **_: object) -> None:  # noqa: ANN401 - the library ships no types
    if isinstance(request.body, bytes | bytearray) and len(request.body) > _PIECE_BYTES:
        request.body = _Pieces(request.body)


class _Pieces:
    """The body of a request as what it is sent in."""

    def __init__(self, content: bytes | bytearray) -> None:
        self._content = memoryview(content)

    def __iter__(self) -> Iterator[memoryview]:
        return (self._content[start : start + _PIECE_BYTES] for start in range(0, len(self._content), _PIECE_BYTES))

    def seek(self, _: int) -> None:
        """Do nothing: sending again, as to another region, begins anew."""
