"""Requests to S3 storage by `botocore`, each with one timeout and one attempt."""

from __future__ import annotations

import contextlib
import functools
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
from ftfile.core.per_process import OnePerKey
from ftfile.storage.calls import NoThreadError, limit_s, run_within
from ftfile.storage.connections import (
    CancellableConnection,
    cancellable_pools,
    send_in_pieces,
    speaks_tls,
    tls_fault,
)
from ftfile.storage.s3.answers import UNKNOWN_USER, meaning_of_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.core.answers import Answer
    from ftfile.storage.s3.settings import S3Settings


CONCURRENCY = 32
# The number of parts of large files that a process sends at the same time; each part is held in memory.
PARTS_AT_ONCE = 4
_CONNECT_TIMEOUT_S = 10.0
# The library's variable for trusted certificates.
BUNDLE = "AWS_CA_BUNDLE"
_REFUSED = 300
# Requests that change nothing, even if they fail.
_READS = frozenset({"get_object", "head_object", "list_objects_v2"})
# Requests that the storage answers after it has copied data by itself, and the multiple of the timeout for them.
_STORAGE_WORKS = frozenset({"copy_object", "upload_part_copy", "complete_multipart_upload"})
_WORK_FACTOR = 10
# The path of a field that each successful answer contains. The status is not sufficient: for a copy or a completion, a
# storage system sends it before the outcome is known.
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
    """A client of a storage system, which all threads of a process share."""

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
        self.sending: set[Answer[str]] = set()  # parts, of all uploads
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
        # Other versions of the library may lack these attributes. A call that times out then keeps its thread.
        with contextlib.suppress(AttributeError):
            http = self._client._endpoint.http_session  # noqa: SLF001 - there is no other way to its connections
            http._pool_classes_by_scheme = cancellable_pools(http._pool_classes_by_scheme)  # noqa: SLF001
            http._manager.pool_classes_by_scheme = http._pool_classes_by_scheme  # noqa: SLF001

    def fetch(
        self, operation: str, path: str, where: str, bytes_max: int | None = None, **parameters: object
    ) -> tuple[bytes, Mapping[str, Any]]:
        """Return all bytes of an object, or of a range, and the answer; a truncated answer raises `Unavailable`.

        If an object is longer than `bytes_max`, only its first `bytes_max` + 1 bytes are returned.
        """
        connection = CancellableConnection(self._timeout_s)
        answer = self.send(operation, path, where, "get_object", connection=connection, **parameters)
        read_bytes = answer.get("ContentLength", 0)
        amount = None
        if bytes_max is not None and read_bytes > bytes_max:
            amount = read_bytes = bytes_max + 1
        timeout_s = limit_s(self._timeout_s, read_bytes)
        try:
            # No `with` block: it bypasses the checks of botocore 1.44, and waits for a read that hangs.
            content: bytes = run_within(timeout_s, functools.partial(answer["Body"].read, amount), cut=connection.cut)
        except (self._errors.BotoCoreError, OSError) as error:
            raise self._translate_error(operation, path, where, error, reads=True) from error
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
        connection: CancellableConnection | None = None,
        **parameters: Any,  # noqa: ANN401 - parameters of the library
    ) -> Mapping[str, Any]:
        """Send one request by a method of the library's client; errors name the operation, path and root."""
        if connection is None:
            silence_s = self._timeout_s
            if method in _STORAGE_WORKS:
                silence_s *= _WORK_FACTOR
            connection = CancellableConnection(silence_s)
        call: Callable[[], Mapping[str, Any]] = functools.partial(getattr(self._client, method), **parameters)
        timeout_s = limit_s(connection.silence_s, len(parameters.get("Body", b"")))
        try:
            answer = run_within(timeout_s, functools.partial(connection.carry, call), _close, connection.cut)
            self._check_proof(method, answer)
        except (self._errors.ClientError, self._errors.BotoCoreError, TimeoutError, NoThreadError) as error:
            if self._is_refused_header(error):
                # The error of the library contains the header.
                raise PermissionDenied(operation, path, f"{_NO_HEADER} (for {where})") from None
            raise self._translate_error(operation, path, where, error, reads=method in _READS) from error
        self._has_answered = True
        return answer

    def _check_proof(self, method: str, answer: Mapping[str, Any]) -> None:
        """Raise `IncompleteReadError` for a successful answer without its required fields."""
        value: Any = answer
        for name in _PROOFS.get(method, ()):
            value = value.get(name)
            if not value:
                raise self._errors.IncompleteReadError(actual_bytes=0, expected_bytes=f"an answer with {name}")

    def _check_whole(self, operation_model: Any, response_dict: Mapping[str, Any], **_: object) -> None:  # noqa: ANN401
        """Raise `IncompleteReadError` for a truncated answer; the library checks bodies that are read later."""
        verb = operation_model.http["method"]
        headers = response_dict["headers"]
        body = response_dict["body"]
        body_bytes = None
        if isinstance(body, bytes) and verb != "HEAD":
            body_bytes = len(body)
        declared_bytes = headers.get("content-length")
        if declared_bytes is not None:
            is_whole = body_bytes in {None, int(declared_bytes)}
        else:
            # A successful answer to GET or HEAD declares its length. Without a length, its headers were truncated.
            needs_length = verb in {"GET", "HEAD"} and response_dict["status_code"] < _REFUSED
            is_whole = not needs_length or bool(body_bytes) or "transfer-encoding" in headers
        if not is_whole:
            if not isinstance(body, bytes):
                body.close()
            raise self._errors.IncompleteReadError(
                actual_bytes=body_bytes or 0, expected_bytes=declared_bytes or "more"
            )

    def _is_refused_header(self, error: Exception) -> bool:
        """Return True if no request was sent, because a header cannot contain the credentials."""
        cause = None
        if isinstance(error, self._errors.HTTPClientError):
            cause = error.kwargs.get("error")
        return isinstance(cause, UnicodeEncodeError) or (
            isinstance(cause, ValueError) and str(cause).startswith("Invalid header value")
        )

    def _translate_error(self, operation: str, path: str, where: str, error: Exception, *, reads: bool) -> StorageError:
        """Return the error of the interface for an error of the library.

        Args:
            operation: the operation on the file system.
            path: the path of the operation.
            where: the root of the file system.
            error: the error of the library.
            reads: True if the request changes nothing, so that its outcome is never unknown.
        """
        errors = self._errors
        if (fault := self._fault_of_connection(error)) is not None:
            return WrongConnection(operation, path, f"{where} at {self._client.meta.endpoint_url}: {fault}")
        if isinstance(error, errors.ClientError):
            error_json = error.response["Error"]
            status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            code = str(error_json.get("Code", ""))
            message = str(error_json.get("Message", ""))
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
        """Return the reason why requests do not reach the storage, and its remedy; None for other errors."""
        if isinstance(error, self._errors.SSLError):
            cause = error.kwargs.get("error")
            if any(isinstance(argument, FileNotFoundError) for argument in getattr(cause, "args", ())):
                return f"{BUNDLE}, or ca_bundle of the profile, names a file that does not exist"
            return tls_fault(error, BUNDLE)
        # A TLS server resets a connection without TLS, or replies with status 400 and without an error code of S3.
        is_reset = isinstance(error, self._errors.ConnectionClosedError | self._errors.HTTPClientError)
        answer = getattr(error, "response", None) or {}
        code = str(answer.get("Error", {}).get("Code", ""))
        can_lack_tls = is_reset or code == "400"
        if can_lack_tls and not self._has_answered and speaks_tls(self._client.meta.endpoint_url):
            return "the server speaks TLS at this port: write https:// in storage.endpoint"
        return None


# The clients of this process by their settings, since creating a client takes a quarter of a second.
clients = OnePerKey(S3Client)


@functools.lru_cache(maxsize=4)
def _descriptions(folders: str | None) -> Any:  # noqa: ANN401 - the library ships no types
    """Return the loader of the library's service descriptions, which take most of the time of creating a client."""
    from botocore.loaders import create_loader

    return create_loader(folders)


def _close(answer: Mapping[str, Any]) -> None:
    if "Body" in answer:
        answer["Body"].close()


def _drop_expect(params: Mapping[str, Any], **_: object) -> None:
    # With this header, the library waits for the reply "100 Continue": for one second if the reply does not arrive, and
    # without limit if it is truncated: boto/boto3#743, boto/botocore#3755.
    params["headers"].pop("Expect", None)
