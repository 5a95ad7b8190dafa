"""The objects below a prefix of an S3 bucket: requests that are sent until their outcome is certain.

An object's metadata has the id of its file, and copies keep it. After a lost reply, or "exists" in answer to a second
try, the id shows whether the first try made the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.context import retry_until
from ftfile.core.errors import AlreadyExists, NotFound, OutcomeUnknown, StorageError, Unavailable, Unsupported
from ftfile.storage.calls import digest_of_variables
from ftfile.storage.paths import check_path, join
from ftfile.storage.s3.client import TooLargeToCopy, clients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.storage.s3.client import S3Client, S3Settings


ID = "ftfile-id"
KEY_BYTES_MAX = 1024
# The condition that nothing is there.
NEW = {"IfNoneMatch": "*"}
# Errors that hold for all earlier tries, too; any other, such as an expired token, is of one try.
_OF_ALL_TRIES = (AlreadyExists, NotFound, TooLargeToCopy)

Result = TypeVar("Result")


def byte_range(offset: int, length: int) -> str:
    """Return a range in the form of HTTP, which names the last byte."""
    return f"bytes={offset}-{offset + length - 1}"


class S3Bucket:
    """The part of a bucket below a prefix without slashes at its ends; `""` is the whole bucket."""

    def __init__(self, name: str, prefix: str, settings: S3Settings, context: Context) -> None:
        self.name = name
        self.prefix = prefix
        self.where = f"s3://{name}/{prefix}"
        self.settings = settings
        self.ids = context.ids
        self._clock = context.clock

    @property
    def client(self) -> S3Client:
        """Return this process's client; another one once a variable of the settings has another value."""
        return clients.of(self.settings, digest_of_variables(self.settings.variables))

    def key(self, operation: str, path: str) -> str:
        """Return the name of the object, or raise `Unsupported` for one that is not valid, or too long."""
        check_path(operation, path)
        key = join(self.prefix, path)
        if len(key) * 4 > KEY_BYTES_MAX and len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
            raise Unsupported(operation, path, f"with the prefix, it has more than {KEY_BYTES_MAX} bytes; shorten it")
        return key

    def send(self, operation: str, path: str, method: str, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """Send one request that concerns the bucket; see `S3Client.send`."""
        return self.client.send(operation, path, self.where, method, Bucket=self.name, **parameters)

    def _retry(self, call: Callable[[], Result]) -> Result:
        return retry_until(call, self.settings.patience_s, self._clock)

    def repeat(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Repeat a request that may be sent twice until it is answered, for `storage.patience` seconds."""
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
            last = "" if isinstance(error, Unavailable) else f"; a retry was refused: {error.detail}"
            raise OutcomeUnknown(operation, path, f"{doubt.detail}{last}") from error

    def resolve_outcome(
        self, operation: str, path: str, identity: Callable[[], str | None], call: Callable[[], object]
    ) -> None:
        """Repeat a request that makes a new object with an identity until it is certain who made the object."""

        def attempt() -> None:
            try:
                call()
            except AlreadyExists:
                # An earlier try may have made it, or a proxy sent one request twice.
                if not self._is_made(operation, path, identity):
                    raise

        self.repeat(operation, path, attempt)

    def _is_made(self, operation: str, path: str, identity: Callable[[], str | None]) -> bool:
        try:
            identity_there = identity()
            return identity_there is not None and self.identity(operation, path) == identity_there
        except StorageError as error:
            raise OutcomeUnknown(operation, path, error.detail) from error

    def put_new(self, operation: str, path: str, content: bytes | bytearray, identity: str | None) -> None:
        """Make a new object by one request; see `settle`."""
        key, metadata = self.key(operation, path), {ID: identity} if identity is not None else {}

        def send() -> None:
            self.send(operation, path, "put_object", Key=key, Body=content, Metadata=metadata, **NEW)

        self.resolve_outcome(operation, path, lambda: identity, send)

    def identity(self, operation: str, path: str) -> str | None:
        """Return the id of the object; None if there is no object, or one without an id."""
        try:
            object_id: str | None = self.head(operation, path)["Metadata"].get(ID)
        except NotFound:
            return None
        return object_id

    def discard(self, path: str, identity: str) -> bool:
        """Delete an object if it has this id; return False if that is unknown or failed."""
        try:
            if self.identity("delete", path) == identity:
                self.delete("delete", path)
        except StorageError:
            return False
        return True

    def head(self, operation: str, path: str) -> Mapping[str, Any]:
        """Return the headers of an object, or raise `NotFound`."""
        key = self.key(operation, path)
        return self._retry(lambda: self.send(operation, path, "head_object", Key=key or "/"))

    def read(
        self,
        operation: str,
        path: str,
        length: int | None = None,
        *,
        bytes_max: int | None = None,
        **parameters: object,
    ) -> tuple[bytes, Mapping[str, Any]]:
        """Return an object's bytes, exactly `length` if given, or `bytes_max` + 1 of a longer one, and its headers."""
        more = {"Bucket": self.name, "Key": self.key(operation, path) or "/", **parameters}

        def attempt() -> tuple[bytes, Mapping[str, Any]]:
            content, answer = self.client.fetch(operation, path, self.where, bytes_max, **more)
            if length is not None and len(content) != length:
                raise Unavailable(
                    operation, path, f"{len(content)} bytes were received instead of {length}, below {self.where}"
                )
            return content, answer

        return self._retry(attempt)

    def read_range(self, operation: str, path: str, offset: int, length: int) -> bytes:
        """Return the bytes of a range, all of which is in the file."""
        return self.read(operation, path, length, Range=byte_range(offset, length))[0]

    def has_children(self, operation: str, path: str) -> bool:
        """Return True if there is an object in a directory, or below."""
        page = next(self.pages(operation, path, Prefix=self.directory_key(operation, path), MaxKeys=1))
        return bool(page.get("KeyCount", len(page.get("Contents", ()))))

    def pages(self, operation: str, path: str, **parameters: object) -> Iterator[Mapping[str, Any]]:
        """Yield all pages of a listing."""
        while True:
            page = self._retry(lambda: self.send(operation, path, "list_objects_v2", **parameters))
            yield page
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]

    def origin(self, operation: str, path: str) -> dict[str, str]:
        """Return the `CopySource` of requests that copy an object."""
        return {"Bucket": self.name, "Key": self.key(operation, path)}

    def directory_key(self, operation: str, path: str) -> str:
        """Return the prefix of the keys in a directory."""
        key = self.key(operation, path)
        return f"{key}/" if key else ""

    def delete(self, operation: str, path: str) -> None:
        """Delete an object if there is one."""
        key = self.key(operation, path)
        self.repeat(operation, path, lambda: self.send(operation, path, "delete_object", Key=key))
