"""Multipart uploads: parts are sent or copied in parallel, and nothing is seen until the upload is completed."""

from __future__ import annotations

import contextlib
import functools
import itertools
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import AlreadyExists, NotFound, StorageError, Unavailable, Unsupported
from ftfile.fs.calls.deadline import NoThreadError, start
from ftfile.fs.s3.bucket import ID, NEW, byte_range
from ftfile.fs.s3.errors import UploadGone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from ftfile.fs.s3.bucket import S3Bucket

__all__ = ("PARTS_MAX", "S3Upload")

PARTS_MAX = 10_000
# One request could copy ten times as much, and would be waited for accordingly.
COPY_BYTES_MAX = 512 << 20


class S3Upload:
    """A file that is being made of parts; `operation` is the port's, for errors, `identity` the file's, if any."""

    def __init__(self, bucket: S3Bucket, operation: str, path: str, identity: str | None) -> None:
        self._bucket = bucket
        self._operation = operation
        self._path = path
        self._key = bucket.key(operation, path)
        self._identity = identity
        metadata = {ID: identity} if identity is not None else {}
        # A second try leaves an upload that nobody knows; see docs/object-stores.md for how stores clear them away.
        self._id: str = self._repeat("create_multipart_upload", Metadata=metadata)["UploadId"]
        self._parts: list[Future[str]] = []
        self._size_bytes = 0
        self._taken = False

    def send(self, content: bytes | bytearray) -> None:
        """Send the next part beside others; waits for a slot, and raises `Unsupported` if a file has too many parts."""
        self._size_bytes += len(content)
        self._start(lambda number: self._part(number, "upload_part", Body=content)["ETag"])

    def copy(self, source: str, offset: int, length: int) -> None:
        """Copy the next parts from another object in as few requests as possible; see `send`."""
        origin, count = self._bucket.origin(self._operation, source), -(-length // COPY_BYTES_MAX)
        self._size_bytes += length
        bounds = [offset + length * place // count for place in range(count + 1)]
        for first, end in itertools.pairwise(bounds):
            self._start(functools.partial(self._copy, source, origin, byte_range(first, end - first)))

    def _copy(self, source: str, origin: Mapping[str, str], copied: str, number: int) -> str:
        try:
            answer = self._part(number, "upload_part_copy", CopySource=origin, CopySourceRange=copied)
        except NotFound as error:
            raise NotFound(self._operation, source, error.detail) from error
        tag: str = answer["CopyPartResult"]["ETag"]
        return tag

    def complete(self) -> None:
        """Make the file of its parts, or raise `AlreadyExists`; after any error, `abort` what is left."""
        parts = [{"PartNumber": number, "ETag": part.result()} for number, part in enumerate(self._parts, 1)]
        try:
            self._bucket.settle(self._operation, self._path, lambda: self._identity, lambda: self._complete(parts))
        finally:
            # By another publisher of the same file, too: then this upload is not needed, and is still there.
            if self._taken:
                self.abort()

    def _complete(self, parts: list[dict[str, Any]]) -> None:
        try:
            self._bucket.send(
                self._operation,
                self._path,
                "complete_multipart_upload",
                Key=self._key,
                UploadId=self._id,
                MultipartUpload={"Parts": parts},
                MpuObjectSize=self._size_bytes,
                **NEW,
            )
        except AlreadyExists:
            self._taken = True
            raise
        except UploadGone as error:
            # By an own earlier try, which is found out like any other that exists; or it was aborted.
            if self._identity is None or self._bucket.identity(self._operation, self._path) != self._identity:
                raise StorageError(self._operation, self._path, error.detail) from error

    def abort(self) -> None:
        """Give up the parts, as far as that can be done."""
        # A part that arrives later would stay.
        wait(self._parts)
        with contextlib.suppress(StorageError):
            self._repeat("abort_multipart_upload", UploadId=self._id)

    def _start(self, send: Callable[[int], str]) -> None:
        number = len(self._parts) + 1
        if number > PARTS_MAX:
            raise Unsupported(
                self._operation,
                self._path,
                f"a file has at most {PARTS_MAX} parts of storage.partSize: raise that, or set maxBytesPerFile",
            )
        slots = self._bucket.client.slots
        slots.acquire()
        try:
            part = start(functools.partial(send, number), awaited=False)
        except NoThreadError as error:
            slots.release()
            raise Unavailable(self._operation, self._path, str(error)) from error
        except BaseException:
            slots.release()
            raise
        part.add_done_callback(lambda _: slots.release())
        self._parts.append(part)

    def _part(self, number: int, method: str, **parameters: object) -> Mapping[str, Any]:
        return self._repeat(method, UploadId=self._id, PartNumber=number, **parameters)

    def _repeat(self, method: str, **parameters: object) -> Mapping[str, Any]:
        bucket, operation, path = self._bucket, self._operation, self._path
        return bucket.repeat(operation, path, lambda: bucket.send(operation, path, method, Key=self._key, **parameters))
