"""The objects below a prefix of an S3 bucket: requests that are sent until their outcome is certain.

Who made an object is known by an id in its metadata, which copies keep: so a reply that was lost, or said "exists" of
an own earlier try, is settled by a look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.errors import AlreadyExists, NotFound, OutcomeUnknown, StorageError, Unavailable, Unsupported
from ftfile.core.retry import retry_until
from ftfile.fs.paths import join, require_valid
from ftfile.fs.s3.client import client_of
from ftfile.fs.s3.errors import TooLargeToCopy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.fs.s3.client import S3Client
    from ftfile.fs.s3.settings import S3Settings

__all__ = ("ID", "KEY_BYTES_MAX", "NEW", "S3Bucket", "byte_range")

ID = "ftfile-id"
KEY_BYTES_MAX = 1024
# The condition that nothing is there.
NEW = {"IfNoneMatch": "*"}
# Answers that settle the earlier tries as well; others, as of a token that expired, settle one alone.
_OF_ALL_TRIES = (AlreadyExists, NotFound, TooLargeToCopy)

Result = TypeVar("Result")


def byte_range(offset: int, length: int) -> str:
    """Return a range as HTTP has it: with its last byte."""
    return f"bytes={offset}-{offset + length - 1}"


class S3Bucket:
    """The part of a bucket below a prefix without slashes around it, or all of it; paths are relative to it."""

    def __init__(self, name: str, prefix: str, settings: S3Settings, context: Context) -> None:
        self.name = name
        self.prefix = prefix
        self.where = f"s3://{name}/{prefix}"
        self.settings = settings
        self.clock = context.clock
        self.ids = context.ids

    @property
    def client(self) -> S3Client:
        """Return this process's client."""
        return client_of(self.settings)

    def key(self, operation: str, path: str) -> str:
        """Return the name of the object, or raise `Unsupported` for one that is not valid, or too long."""
        require_valid(operation, path)
        key = join(self.prefix, path)
        if len(key) * 4 > KEY_BYTES_MAX and len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
            raise Unsupported(operation, path, f"with the prefix, it has more than {KEY_BYTES_MAX} bytes; shorten it")
        return key

    def send(self, operation: str, path: str, method: str, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """Send one request that concerns the bucket; see `S3Client.send`."""
        return self.client.send(operation, path, self.where, method, Bucket=self.name, **parameters)

    def retry_until_ready(self, call: Callable[[], Result]) -> Result:
        """Call again while the store is unavailable, for `storage.patience` seconds."""
        return retry_until(call, self.settings.patience_s, self.clock)

    def repeat(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Call what may be done twice, until there is an answer, for `storage.patience` seconds.

        Raises:
            OutcomeUnknown: of one try, there was no answer.
            StorageError: nothing happened.
        """
        doubt: OutcomeUnknown | None = None

        def attempt() -> Result:
            nonlocal doubt
            try:
                return call()
            except OutcomeUnknown as error:
                doubt = error
                raise Unavailable(operation, path, error.detail) from error

        try:
            return self.retry_until_ready(attempt)
        except _OF_ALL_TRIES:
            raise
        except StorageError as error:
            if doubt is None:
                raise
            last = "" if isinstance(error, Unavailable) else f"; another try was refused: {error.detail}"
            raise OutcomeUnknown(operation, path, f"{doubt.detail}{last}") from error

    def settle(self, operation: str, path: str, identity: Callable[[], str | None], call: Callable[[], object]) -> None:
        """Call what makes an object of an identity, if there is none, until it is certain who made it.

        Raises:
            AlreadyExists: another made it.
            OutcomeUnknown: it may be made yet.
            StorageError: it is not made.
        """

        def attempt() -> None:
            try:
                call()
            except AlreadyExists:
                # Perhaps by an earlier try of ours, or by one that something between us and the store sent again.
                if not self._is_made(operation, path, identity):
                    raise

        self.repeat(operation, path, attempt)

    def _is_made(self, operation: str, path: str, identity: Callable[[], str | None]) -> bool:
        try:
            made = identity()
            return made is not None and self.identity(operation, path) == made
        except StorageError as error:
            raise OutcomeUnknown(operation, path, error.detail) from error

    def put_new(self, operation: str, path: str, content: bytes | bytearray, identity: str | None) -> None:
        """Make an object by one request; see `settle`."""
        key, metadata = self.key(operation, path), {ID: identity} if identity is not None else {}
        self.settle(
            operation,
            path,
            lambda: identity,
            lambda: self.send(operation, path, "put_object", Key=key, Body=content, Metadata=metadata, **NEW),
        )

    def identity(self, operation: str, path: str) -> str | None:
        """Return the id of what is there; None for nothing, or for what others made."""
        try:
            found: str | None = self.head(operation, path)["Metadata"].get(ID)
        except NotFound:
            return None
        return found

    def discard(self, path: str, identity: str) -> bool:
        """Delete an object if it has this id, and return True if nothing is left of it."""
        try:
            if self.identity("delete", path) == identity:
                self.delete("delete", path)
        except StorageError:
            return False
        return True

    def head(self, operation: str, path: str) -> Mapping[str, Any]:
        """Return the headers of an object, or raise `NotFound`."""
        key = self.key(operation, path)
        return self.looking(operation, path, lambda: self.send("stat", path, "head_object", Key=key or "/"))

    def read(
        self, operation: str, path: str, length: int | None = None, **parameters: object
    ) -> tuple[bytes, Mapping[str, Any]]:
        """Return bytes, `length` if given, and what comes with them; ask again if they did not come whole."""
        key = self.key(operation, path)

        def attempt() -> tuple[bytes, Mapping[str, Any]]:
            content, answer = self.client.fetch(
                "read", path, self.where, Bucket=self.name, Key=key or "/", **parameters
            )
            if length is not None and len(content) != length:
                raise Unavailable("read", path, f"{len(content)} bytes came instead of {length} below {self.where}")
            return content, answer

        return self.looking(operation, path, attempt)

    def read_range(self, operation: str, path: str, offset: int, length: int) -> bytes:
        """Return the bytes of a range that is in the file."""
        return self.read(operation, path, length, Range=byte_range(offset, length))[0]

    def looking(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Call what changes nothing, for an operation that may be another."""
        try:
            return self.retry_until_ready(call)
        except StorageError as error:
            if error.operation == operation:
                raise
            raise type(error)(operation, path, error.detail) from error

    def has_children(self, operation: str, path: str) -> bool:
        """Return True if there is an object in a directory, or below."""
        prefix = self.directory_key(operation, path)
        page = self.looking(
            operation, path, lambda: self.send("list", path, "list_objects_v2", Prefix=prefix, MaxKeys=1)
        )
        return bool(page.get("KeyCount", len(page.get("Contents", ()))))

    def pages(self, operation: str, path: str, **parameters: object) -> Iterator[Mapping[str, Any]]:
        """Yield the answers to a listing, however many it takes."""
        while True:
            page = self.retry_until_ready(lambda: self.send(operation, path, "list_objects_v2", **parameters))
            yield page
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]

    def origin(self, operation: str, path: str) -> dict[str, str]:
        """Return how requests for copies name what is copied."""
        return {"Bucket": self.name, "Key": self.key(operation, path)}

    def directory_key(self, operation: str, path: str) -> str:
        """Return how the names of the objects in a directory begin."""
        key = self.key(operation, path)
        return f"{key}/" if key else ""

    def delete(self, operation: str, path: str) -> None:
        """Delete an object if there is one."""
        key = self.key(operation, path)
        self.repeat(operation, path, lambda: self.send(operation, path, "delete_object", Key=key))
