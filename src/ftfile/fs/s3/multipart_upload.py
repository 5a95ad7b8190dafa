"""Multipart uploads: parts are sent or copied in parallel; nobody sees the file until the upload is completed."""

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

PARTS_MAX = 10_000
# Bytes copied by one request; ten times as many are possible, with as long a wait.
COPY_BYTES_MAX = 512 << 20


class S3Upload:
    """A file that is made of parts; `operation` is for errors."""

    def __init__(self, bucket: S3Bucket, operation: str, path: str, identity: str | None) -> None:
        self._bucket = bucket
        self._operation = operation
        self._path = path
        self._named = {"Key": bucket.key(operation, path)}
        self._identity = identity
        metadata = {ID: identity} if identity is not None else {}
        # A second try leaves an unknown upload; docs/object-stores.md says how stores remove those.
        self._named["UploadId"] = self._repeat("create_multipart_upload", Metadata=metadata)["UploadId"]
        self._parts: list[Future[str]] = []
        self._size_bytes = 0
        self._taken = False

    def send(self, content: bytes | bytearray) -> None:
        """Send the next part in the background, when a slot is free; raises `Unsupported` after `PARTS_MAX` parts."""
        self._size_bytes += len(content)
        self._start(lambda number: self._repeat("upload_part", PartNumber=number, Body=content)["ETag"])

    def copy(self, source: str, offset: int, length: int) -> None:
        """Copy a range of another object as the next parts; see `send`."""
        origin, count = self._bucket.origin(self._operation, source), -(-length // COPY_BYTES_MAX)
        self._size_bytes += length
        bounds = [offset + length * place // count for place in range(count + 1)]
        for first, end in itertools.pairwise(bounds):
            self._start(functools.partial(self._copy, source, origin, byte_range(first, end - first)))

    def _copy(self, source: str, origin: Mapping[str, str], copied: str, number: int) -> str:
        try:
            answer = self._repeat("upload_part_copy", PartNumber=number, CopySource=origin, CopySourceRange=copied)
        except NotFound as error:
            raise NotFound(self._operation, source, error.detail) from error
        tag: str = answer["CopyPartResult"]["ETag"]
        return tag

    def complete(self) -> None:
        """Make the file of its parts, or raise `AlreadyExists`; after an error, `abort` the rest."""
        parts = [{"PartNumber": number, "ETag": part.result()} for number, part in enumerate(self._parts, 1)]
        try:
            self._bucket.settle(self._operation, self._path, lambda: self._identity, lambda: self._complete(parts))
        finally:
            # If another publisher made the file, this upload is still there.
            if self._taken:
                self.abort()

    def _complete(self, parts: list[dict[str, Any]]) -> None:
        try:
            self._send(
                "complete_multipart_upload", MultipartUpload={"Parts": parts}, MpuObjectSize=self._size_bytes, **NEW
            )
        except AlreadyExists:
            self._taken = True
            raise
        except UploadGone as error:
            # An earlier try completed it, as the file's id shows, or it was aborted.
            if self._identity is None or self._bucket.identity(self._operation, self._path) != self._identity:
                raise StorageError(self._operation, self._path, error.detail) from error

    def abort(self) -> None:
        """Discard the parts, as far as the store can."""
        wait(self._parts)  # a part that arrives later would stay
        with contextlib.suppress(StorageError):
            self._repeat("abort_multipart_upload")

    def _start(self, send: Callable[[int], str]) -> None:
        number = len(self._parts) + 1
        if number > PARTS_MAX:
            detail = f"a file has at most {PARTS_MAX} parts of storage.partSize: raise that, or set maxBytesPerFile"
            raise Unsupported(self._operation, self._path, detail)
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

    def _send(self, method: str, **parameters: object) -> Mapping[str, Any]:
        return self._bucket.send(self._operation, self._path, method, **self._named, **parameters)

    def _repeat(self, method: str, **parameters: object) -> Mapping[str, Any]:
        return self._bucket.repeat(self._operation, self._path, lambda: self._send(method, **parameters))
