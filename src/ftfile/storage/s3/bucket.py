"""The objects below a prefix of an S3 bucket: requests are repeated until their outcome is certain.

The metadata of an object contains the id of its file, and copies keep it. After a lost response, or "exists" for a
second attempt, the id shows if the first attempt created the object.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.errors import AlreadyExists, NotFound, OutcomeUnknown, StorageError, Unavailable, Unsupported
from ftfile.core.retries import retry_until
from ftfile.storage.api import StoredFile
from ftfile.storage.paths import check_path, join
from ftfile.storage.s3.answers import TooLargeToCopy
from ftfile.storage.s3.client import clients
from ftfile.storage.secret_variables import digest_of_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.storage.s3.client import S3Client
    from ftfile.storage.s3.settings import S3Settings


ID = "ftfile-id"
KEY_BYTES_MAX = 1024
# The condition that the object does not exist.
NEW = {"IfNoneMatch": "*"}
# Errors that also hold for all earlier attempts; any other error, such as an expired token, is about one attempt.
_OF_ALL_TRIES = (AlreadyExists, NotFound, TooLargeToCopy)

Result = TypeVar("Result")


def byte_range(offset: int, length: int) -> str:
    """Return a range in the form of HTTP, which names the last byte."""
    return f"bytes={offset}-{offset + length - 1}"


def answered_ms_of(answer: Mapping[str, Any]) -> int | None:
    """Return the time of the storage in an answer, in whole seconds; None if it has none."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return int(parsedate_to_datetime(text).timestamp()) * 1000
    except ValueError:
        return None


def metadata_of(identity: str | None) -> dict[str, str]:
    """Return the metadata of the object of a file with an id."""
    if identity is None:
        return {}
    return {ID: identity}


class S3Bucket:
    """The part of a bucket below a prefix, which has no slashes at its ends; `""` is the whole bucket."""

    def __init__(self, name: str, prefix: str, settings: S3Settings, context: Context) -> None:
        self.name = name
        self.prefix = prefix
        self.where = f"s3://{name}/{prefix}"
        self.settings = settings
        self.ids = context.ids
        self._clock = context.clock

    @property
    def client(self) -> S3Client:
        """Return the client of this process; a new one after a variable of the settings has changed."""
        return clients.of(self.settings, digest_of_variables(self.settings.variables))

    def key(self, operation: str, path: str) -> str:
        """Return the key of an object, or raise `Unsupported` for an invalid or too long path."""
        check_path(operation, path)
        key = join(self.prefix, path)
        if len(key) * 4 > KEY_BYTES_MAX and len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
            raise Unsupported(operation, path, f"with the prefix, it has more than {KEY_BYTES_MAX} bytes; shorten it")
        return key

    def send(self, operation: str, path: str, method: str, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """Send one request about the bucket; see `S3Client.send`."""
        return self.client.send(operation, path, self.where, method, Bucket=self.name, **parameters)

    def _retry(self, call: Callable[[], Result]) -> Result:
        return retry_until(call, self.settings.patience_s, self._clock)

    def repeat(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Repeat an idempotent request until it is answered, for `storage.patience` seconds."""
        doubt: OutcomeUnknown | None = None

        def attempt() -> Result:
            nonlocal doubt
            try:
                return call()
            except OutcomeUnknown as error:
                doubt = error
                raise Unavailable(operation, path, error.detail) from error

        try:
            return self._retry(attempt)
        except _OF_ALL_TRIES:
            raise
        except StorageError as error:
            if doubt is None:
                raise
            if isinstance(error, Unavailable):
                last = ""
            else:
                last = f"; a retry was refused: {error.detail}"
            raise OutcomeUnknown(operation, path, f"{doubt.detail}{last}") from error

    def resolve_outcome(
        self, operation: str, path: str, identity: Callable[[], str | None], call: Callable[[], Result]
    ) -> Result | None:
        """Repeat a request that creates an object with an id until it is certain who created the object.

        Returns:
            The result of the attempt that created the object; None if its response was lost.
        """

        def attempt() -> Result | None:
            try:
                return call()
            except AlreadyExists:
                # An earlier attempt may have created it, or a proxy sent one request twice.
                if not self._is_made(operation, path, identity):
                    raise
                return None

        return self.repeat(operation, path, attempt)

    def _is_made(self, operation: str, path: str, identity: Callable[[], str | None]) -> bool:
        try:
            identity_there = identity()
            return identity_there is not None and self.identity(operation, path) == identity_there
        except StorageError as error:
            raise OutcomeUnknown(operation, path, error.detail) from error

    def put_new(self, operation: str, path: str, content: bytes | bytearray, identity: str | None) -> StoredFile | None:
        """Create an object by one request; see `resolve_outcome`. None also if the response has no time."""
        key, metadata = self.key(operation, path), metadata_of(identity)

        def send() -> StoredFile | None:
            began_s = self._clock.monotonic_s()
            answer = self.send(operation, path, "put_object", Key=key, Body=content, Metadata=metadata, **NEW)
            answered_ms = answered_ms_of(answer)
            if answered_ms is None:
                return None
            # The storage sets the time of an object at some moment of the request, in whole seconds.
            took_ms = int((self._clock.monotonic_s() - began_s) * 1000)
            return StoredFile(len(content), answered_ms - took_ms - 1000, answered_ms + 1000)

        def identity_sent() -> str | None:
            return identity

        return self.resolve_outcome(operation, path, identity_sent, send)

    def identity(self, operation: str, path: str) -> str | None:
        """Return the id of the object; None if the object does not exist, or has no id."""
        try:
            object_id: str | None = self.head(operation, path)["Metadata"].get(ID)
        except NotFound:
            return None
        return object_id

    def discard(self, path: str, identity: str) -> bool:
        """Delete an object if it has this id; return False if this is unknown or failed."""
        try:
            if self.identity("delete", path) == identity:
                self.delete("delete", path)
        except StorageError:
            return False
        return True

    def head(self, operation: str, path: str) -> Mapping[str, Any]:
        """Return the headers of an object, or raise `NotFound`."""
        key = self.key(operation, path)
        return self._retry(partial(self.send, operation, path, "head_object", Key=key or "/"))

    def read(
        self,
        operation: str,
        path: str,
        length: int | None = None,
        *,
        bytes_max: int | None = None,
        **parameters: object,
    ) -> tuple[bytes, Mapping[str, Any]]:
        """Return an object's bytes and headers: `length` bytes, or all; of a longer object, `bytes_max` + 1 bytes."""
        more = {"Bucket": self.name, "Key": self.key(operation, path) or "/", **parameters}

        def attempt() -> tuple[bytes, Mapping[str, Any]]:
            content, answer = self.client.fetch(operation, path, self.where, bytes_max, **more)
            if length is not None and len(content) != length:
                raise Unavailable(operation, path, f"{len(content)} bytes were received instead of {length}")
            return content, answer

        return self._retry(attempt)

    def read_range(self, operation: str, path: str, offset: int, length: int) -> bytes:
        """Return the bytes of a range, which must be within the file."""
        return self.read(operation, path, length, Range=byte_range(offset, length))[0]

    def has_children(self, operation: str, path: str) -> bool:
        """Return True if an object exists in a directory, or below."""
        page = next(self.pages(operation, path, Prefix=self.directory_key(operation, path), MaxKeys=1))
        return bool(page.get("KeyCount", len(page.get("Contents", ()))))

    def pages(self, operation: str, path: str, **parameters: object) -> Iterator[Mapping[str, Any]]:
        """Yield all pages of a listing."""
        while True:
            page = self._retry(partial(self.send, operation, path, "list_objects_v2", **parameters))
            yield page
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]

    def origin(self, operation: str, path: str) -> dict[str, str]:
        """Return the `CopySource` for requests that copy an object."""
        return {"Bucket": self.name, "Key": self.key(operation, path)}

    def directory_key(self, operation: str, path: str) -> str:
        """Return the prefix of the keys in a directory."""
        key = self.key(operation, path)
        if key:
            return f"{key}/"
        return ""

    def delete(self, operation: str, path: str) -> None:
        """Delete an object if it exists."""
        key = self.key(operation, path)
        self.repeat(operation, path, partial(self.send, operation, path, "delete_object", Key=key))
