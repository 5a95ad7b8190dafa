"""Requests to an S3 store by `botocore`, each with one timeout and one attempt."""

from __future__ import annotations

import contextlib
import functools
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
from ftfile.storage.calls import NoThreadError, limit_s, run_within
from ftfile.storage.connections import (
    CancellableConnection,
    cancellable_pools,
    send_in_pieces,
    speaks_tls,
    tls_fault,
)
from ftfile.storage.per_process import PerProcess
from ftfile.storage.s3.answers import UNKNOWN_USER, meaning_of_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.storage.s3.settings import S3Settings


CONCURRENCY = 32
# Parts of large files that a process sends at the same time; each has a copy in memory.
PARTS_AT_ONCE = 4
_CONNECT_TIMEOUT_S = 10.0
# The library's variable for trusted certificates.
BUNDLE = "AWS_CA_BUNDLE"
_REFUSED = 300
# Requests that change nothing, even if they fail.
_READS = frozenset({"get_object", "head_object", "list_objects_v2"})
# The store copies and completes on its own, so such requests have this multiple of the timeout.
_STORE_WORKS, _WORK_FACTOR = frozenset({"copy_object", "upload_part_copy", "complete_multipart_upload"}), 10
# Fields of each successful answer: the status of a copy or a completion is sent before its outcome is known.
_PROOFS: Mapping[str, tuple[str, ...]] = {
    "put_object": ("ETag",),
    "copy_object": ("CopyObjectResult", "ETag"),
    "create_multipart_upload": ("UploadId",),
    "upload_part": ("ETag",),
    "upload_part_copy": ("CopyPartResult", "ETag"),
    "complete_multipart_upload": ("ETag",),
}
_NO_HEADER = (
    "the access key or the session token has a character that no request can contain; check for a line feed at its end"
)


class S3Client:
    """One client for all threads of a process."""

    def __init__(self, settings: S3Settings) -> None:
        try:
            import botocore.config
            import botocore.exceptions
            import botocore.session
        except ImportError as error:
            raise ConfigError(
                f"s3:// needs a package that is not installed ({error}): pip install 'ftfile[s3]'"
            ) from error
        self._errors = botocore.exceptions
        self._settings = settings
        self._timeout_s = settings.timeout_s
        self.slots = threading.BoundedSemaphore(PARTS_AT_ONCE)  # one slot for each part that is being sent
        # Buckets that enforce conditions; True if they also enforce conditions of copies.
        self.proven: dict[str, bool] = {}
        self._has_answered = False
        config = botocore.config.Config(
            # A failed connection is reported before the timeout of the request.
            connect_timeout=min(_CONNECT_TIMEOUT_S, settings.timeout_s / 2),
            read_timeout=settings.timeout_s,
            # The driver retries, since it must know the outcome of each attempt.
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=CONCURRENCY + PARTS_AT_ONCE,
            tcp_keepalive=True,
            s3={"addressing_style": settings.addressing},
            user_agent_extra="ftfile",
        )
        keys = settings.keys()
        try:
            session = botocore.session.Session(profile=settings.profile)
            session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
            self._client = session.create_client(
                "s3", region_name=settings.region, endpoint_url=settings.endpoint, config=config, **keys
            )
        except (botocore.exceptions.BotoCoreError, ValueError) as error:
            raise ConfigError(f"s3:// cannot be opened: {error}") from error
        events = self._client.meta.events
        events.register_last("before-call.s3", _drop_expect)
        events.register("before-send.s3", send_in_pieces)
        events.register("before-parse.s3", self._check_whole)
        # Without these attributes of the library, a call that takes too long keeps its thread; everything else works.
        with contextlib.suppress(AttributeError):
            http = self._client._endpoint.http_session  # noqa: SLF001 - there is no other way to its connections
            http._pool_classes_by_scheme = cancellable_pools(http._pool_classes_by_scheme)  # noqa: SLF001
            http._manager.pool_classes_by_scheme = http._pool_classes_by_scheme  # noqa: SLF001

    def fetch(
        self, operation: str, path: str, where: str, bytes_max: int | None = None, **parameters: object
    ) -> tuple[bytes, Mapping[str, Any]]:
        """Return all bytes of an object, or of a range, and the answer; a short answer is `Unavailable`.

        Of an object longer than `bytes_max`, the first `bytes_max` + 1 bytes are returned.
        """
        line = CancellableConnection(self._timeout_s)
        answer = self.send(operation, path, where, "get_object", line=line, **parameters)
        size_bytes = answer.get("ContentLength", 0)
        amount = None
        if bytes_max is not None and size_bytes > bytes_max:
            amount = bytes_max + 1
        timeout_s = limit_s(self._timeout_s, size_bytes if amount is None else amount)
        try:
            # No `with` block: it bypasses the checks of the library, and waits for a read that hangs.
            content: bytes = run_within(timeout_s, functools.partial(answer["Body"].read, amount), cut=line.cut)
        except (self._errors.BotoCoreError, OSError) as error:
            raise self._translated(operation, path, where, error, reads=True) from error
        if amount is not None:
            answer["Body"].close()  # the rest of the content is not read
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
        """Send one request by a method of the library's client; errors name the operation, path and root."""
        line = line or CancellableConnection(self._timeout_s * (_WORK_FACTOR if method in _STORE_WORKS else 1))
        call: Callable[[], Mapping[str, Any]] = functools.partial(getattr(self._client, method), **parameters)
        timeout_s = limit_s(line.silence_s, len(parameters.get("Body", b"")))
        try:
            answer = run_within(timeout_s, functools.partial(line.carry, call), _close, line.cut)
            self._check_proof(method, answer)
        except (self._errors.ClientError, self._errors.BotoCoreError, TimeoutError, NoThreadError) as error:
            if self._is_refused_header(error):
                # The error of the library contains the header.
                raise PermissionDenied(operation, path, f"{_NO_HEADER} (for {where})") from None
            raise self._translated(operation, path, where, error, reads=method in _READS) from error
        self._has_answered = True
        return answer

    def _check_proof(self, method: str, answer: Mapping[str, Any]) -> None:
        """Raise `IncompleteReadError` for a successful answer without its required fields."""
        said: Any = answer
        for name in _PROOFS.get(method, ()):
            said = said.get(name)
            if not said:
                raise self._errors.IncompleteReadError(actual_bytes=0, expected_bytes=f"an answer with {name}")

    def _check_whole(self, operation_model: Any, response_dict: Mapping[str, Any], **_: object) -> None:  # noqa: ANN401
        """Raise `IncompleteReadError` for a truncated answer; the library checks bodies that are read later."""
        verb, headers, body = operation_model.http["method"], response_dict["headers"], response_dict["body"]
        came = None
        if isinstance(body, bytes) and verb != "HEAD":
            came = len(body)
        promised = headers.get("content-length")
        if promised is not None:
            is_whole = came in {None, int(promised)}
        else:
            # Answers to GET and HEAD have a length; headers without it were truncated.
            is_whole = verb not in {"GET", "HEAD"} or response_dict["status_code"] >= _REFUSED
            is_whole = is_whole or bool(came) or "transfer-encoding" in headers
        if not is_whole:
            if not isinstance(body, bytes):
                body.close()
            raise self._errors.IncompleteReadError(actual_bytes=came or 0, expected_bytes=promised or "more")

    def _is_refused_header(self, error: Exception) -> bool:
        """Return True if no request was sent, because the credentials are not valid text for a header."""
        cause = None
        if isinstance(error, self._errors.HTTPClientError):
            cause = error.kwargs.get("error")
        return isinstance(cause, UnicodeEncodeError) or (
            isinstance(cause, ValueError) and str(cause).startswith("Invalid header value")
        )

    def _translated(self, operation: str, path: str, where: str, error: Exception, *, reads: bool) -> StorageError:
        errors = self._errors
        if (fault := self._fault_of_connection(error)) is not None:
            return WrongConnection(operation, path, f"{where} at {self._client.meta.endpoint_url}: {fault}")
        if isinstance(error, errors.ClientError):
            error_json, status = error.response["Error"], error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            code, message = str(error_json.get("Code", "")), str(error_json.get("Message", ""))
            if code in UNKNOWN_USER:
                # The library reads credential files once, so a new client can find other credentials.
                clients.forget(self._settings)
            kind, detail = meaning_of_answer(code=code, status=status, message=message, reads=reads)
            return kind(operation, path, detail)
        if isinstance(
            error, errors.NoCredentialsError | errors.PartialCredentialsError | errors.CredentialRetrievalError
        ) or type(error).__name__ in {"TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"}:
            detail = (
                f"there are no credentials for {where} ({error}): docs/object-stores.md describes where to set them"
            )
            return PermissionDenied(operation, path, detail)
        if isinstance(error, errors.ParamValidationError | errors.InvalidRegionError | errors.NoRegionError):
            return Unsupported(operation, path, f"the library cannot send this request to {where}: {error}")
        never_sent = isinstance(
            error,
            errors.EndpointConnectionError | errors.ConnectTimeoutError | errors.ProxyConnectionError | NoThreadError,
        )
        if reads or never_sent:
            return Unavailable(operation, path, f"{where} does not respond: {error}")
        return OutcomeUnknown(operation, path, f"the reply of {where} was lost: {error}")

    def _fault_of_connection(self, error: Exception) -> str | None:
        """Return why requests do not reach the store, and the remedy; None for other errors."""
        if isinstance(error, self._errors.SSLError):
            cause = error.kwargs.get("error")
            if any(isinstance(argument, FileNotFoundError) for argument in getattr(cause, "args", ())):
                return f"{BUNDLE}, or ca_bundle of the profile, names a file that does not exist"
            return tls_fault(error, BUNDLE)
        # A TLS server resets plain HTTP connections, or answers with a 400 that is not an answer of S3.
        answer = getattr(error, "response", {})
        is_odd = isinstance(error, self._errors.ConnectionClosedError | self._errors.HTTPClientError) or (
            str(answer.get("Error", {}).get("Code", "")) == "400"
        )
        if is_odd and not self._has_answered and speaks_tls(self._client.meta.endpoint_url):
            return "the server speaks TLS at this port: write https:// in storage.endpoint"
        return None


# Creating a client takes a quarter of a second, and can raise `ConfigError`.
clients = PerProcess(S3Client)


@functools.lru_cache(maxsize=4)
def _descriptions(folders: str | None) -> Any:  # noqa: ANN401 - the library ships no types
    """Return the library's descriptions of services, read once: they are most of the cost of a client."""
    from botocore.loaders import create_loader

    return create_loader(folders)


def _close(answer: Mapping[str, Any]) -> None:
    if "Body" in answer:
        answer["Body"].close()


def _drop_expect(params: Mapping[str, Any], **_: object) -> None:
    # The library waits a second for "100 Continue" that never arrives, and for ever for a truncated one.
    params["headers"].pop("Expect", None)
