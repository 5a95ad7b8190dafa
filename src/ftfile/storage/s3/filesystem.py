"""The driver of `s3://`: one conditional request creates a file completely, or not at all."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

from ftfile.core.answers import wait_for
from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    NotFound,
    OutcomeUnknown,
    StorageError,
    Unavailable,
    Unsupported,
)
from ftfile.storage.api import Capabilities, CopyingStream, FileInfo, FileSystem, OutputStream, RangeFile
from ftfile.storage.calls import NoThreadError, start
from ftfile.storage.paths import join, parent_of, room_below
from ftfile.storage.s3.answers import TooLargeToCopy, UploadGone
from ftfile.storage.s3.bucket import ID, KEY_BYTES_MAX, NEW, S3Bucket, byte_range, metadata_of
from ftfile.storage.s3.client import CONCURRENCY, PARTS_AT_ONCE
from ftfile.storage.s3.settings import PART_BYTES_MIN, S3Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ftfile.core.answers import Answer
    from ftfile.storage.api import InputFile, StoredFile
    from ftfile.storage.paths import Location


# The maximum size of a file that is copied through memory. Each publishing thread can hold one such file.
HELD_BYTES_MAX = 8 << 20
_STREAM_CAPABILITIES = frozenset({"abort", "copy"})


class S3FileSystem(FileSystem):
    """The objects of a bucket whose keys begin with a prefix."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket
        self._capabilities = Capabilities(
            driver="s3",
            shared_between_processes=True,
            durability="close",
            directory_sync=False,
            atomic_rename=False,
            stream_capabilities=_STREAM_CAPABILITIES,
            concurrency=CONCURRENCY,
            retries_internally=True,
            visible_at="at_close",
            implied_directories=True,
            stream_bytes=bucket.settings.part_bytes,
            path_bytes_max=room_below(bucket.prefix, KEY_BYTES_MAX),
            copy_bytes_min=PART_BYTES_MIN,
        )

    def __repr__(self) -> str:
        return f"S3FileSystem({self._bucket.where!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def prove(self, directory: str) -> None:
        """Raise `Unsupported` if the storage ignores conditions of uploads; probed once per process and bucket."""
        self._copies_on_condition(directory)

    def create(self, path: str) -> OutputStream:
        self._bucket.key("create", path)
        return _S3Stream(path, self._bucket)

    def open(self, path: str) -> InputFile:
        head = self._bucket.head("open", path)
        return RangeFile(path, int(head["ContentLength"]), functools.partial(self._bucket.read_range, "read_at", path))

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        return self._bucket.read("read", path, bytes_max=bytes_max)[0]

    def stat(self, path: str) -> FileInfo:
        if not path:
            return FileInfo("", 0, 0, is_directory=True)
        try:
            head = self._bucket.head("stat", path)
        except NotFound:
            if not self._bucket.has_children("stat", path):
                raise
            return FileInfo(path, 0, 0, is_directory=True)
        return FileInfo(path, int(head["ContentLength"]), _milliseconds(head), identity=head["Metadata"].get(ID))

    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory; files have no identity in listings."""
        prefix = self._bucket.directory_key("list", path)
        children: list[FileInfo] = []
        for page in self._bucket.pages("list", path, Prefix=prefix, Delimiter="/"):
            children += _children(path, prefix, page)
        if path and not children:
            raise NotFound("list", path, "it does not exist")
        return children

    def names_after(self, path: str, name: str) -> Sequence[str]:
        prefix = self._bucket.directory_key("list", path)
        pages = self._bucket.pages("list", path, Prefix=prefix, Delimiter="/", StartAfter=f"{prefix}{name}")
        names: list[str] = []
        for page in pages:
            names += [entry["Key"].removeprefix(prefix) for entry in page.get("Contents", ())]
        return names

    def make_directories(self, path: str) -> None:
        self._bucket.key("make_directories", path)

    def sync_directory(self, path: str) -> None:
        self._bucket.key("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        """Copy a file, then delete the source; a crash in between leaves both, with the same identity."""
        if source == target:
            self._bucket.head("rename", source)
            raise AlreadyExists("rename", target, "source and target are the same name")
        if self._copies_on_condition(parent_of(source)):
            self._copy(source, target)
        else:
            self._copy_by_hand(source, target)
        try:
            self._bucket.delete("rename", source)
        except Unavailable as error:
            raise OutcomeUnknown("rename", source, f"copied, but the old name still exists: {error.detail}") from error

    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        return self._bucket.put_new("create_exclusive", path, content, self._bucket.ids.unique())

    def put(self, path: str, content: bytes) -> None:
        key = self._bucket.key("put", path)
        metadata = {ID: self._bucket.ids.unique()}
        send = functools.partial(self._bucket.send, "put", path, "put_object", Key=key, Body=content, Metadata=metadata)
        self._bucket.repeat("put", path, send)

    def delete(self, path: str) -> None:
        self._bucket.head("delete", path)
        self._bucket.delete("delete", path)

    def remove_directory(self, path: str) -> bool:
        return not self._bucket.has_children("remove_directory", path)

    def _copy(self, source: str, target: str) -> None:
        """Copy by one request, or by several if the file is too large for one."""
        bucket = self._bucket
        key = bucket.key("rename", target)
        origin = bucket.origin("rename", source)

        def send() -> None:
            bucket.send("rename", source, "copy_object", Key=key, CopySource=origin, **NEW)

        identity_of_source = functools.partial(bucket.identity, "rename", source)
        try:
            bucket.resolve_outcome("rename", target, identity_of_source, send)
        except TooLargeToCopy:
            self._copy_in_parts(source, target, bucket.head("rename", source))

    def _copy_by_hand(self, source: str, target: str) -> None:
        """Copy a file by an upload, since the storage enforces conditions of uploads, but not of copies."""
        head = self._bucket.head("rename", source)
        if int(head["ContentLength"]) > min(self._bucket.settings.part_bytes, HELD_BYTES_MAX):
            self._copy_in_parts(source, target, head)
        else:
            content, answer = self._bucket.read("rename", source)
            self._bucket.put_new("rename", target, content, answer["Metadata"].get(ID))

    def _copy_in_parts(self, source: str, target: str, head: Mapping[str, Any]) -> None:
        """Copy by several requests within the storage."""
        upload = S3Upload(self._bucket, "rename", target, head["Metadata"].get(ID))
        try:
            upload.copy(source, 0, int(head["ContentLength"]))
            upload.complete()
        except BaseException:
            upload.abort()
            raise

    def _copies_on_condition(self, directory: str) -> bool:
        """Return True if the storage also enforces conditions of copies; first probed by two files in `directory`."""
        proven = self._bucket.client.proven
        if self._bucket.name not in proven:
            first = join(directory, f".{self._bucket.ids.unique()}.tmp")
            second = join(directory, f".{self._bucket.ids.unique()}.tmp")
            try:
                proven[self._bucket.name] = self._try_conditions(first, second)
            finally:
                for path in (first, second):
                    self._bucket.delete("create_exclusive", path)
        return proven[self._bucket.name]

    def _try_conditions(self, first: str, second: str) -> bool:
        """Create two files; return True if copying one to the other is refused, because the other file exists.

        Raises:
            Unsupported: the storage overwrites an existing file, although the condition forbids it.
        """
        for path in (first, second):
            self.create_exclusive(path, b"")
        with contextlib.suppress(AlreadyExists):
            self.create_exclusive(first, b"2")
            # This code only runs if the storage has overwritten the file.
            detail = (
                f"the storage of {self._bucket.where} ignores If-None-Match: * and overwrites existing files, so two "
                "writers could overwrite each other's commits: update the storage, or use another one"
            )
            raise Unsupported("create_exclusive", first, detail)
        try:
            self._copy(first, second)
        except AlreadyExists:
            return True
        except Unsupported:
            return False
        return False


def open_location(location: Location) -> FileSystem:
    """Open the directory of an `s3` URL, whose authority is the bucket.

    Raises:
        ConfigError: the URL names no bucket, a setting is invalid, or botocore is not installed.
    """
    if not location.authority or "@" in location.authority or ":" in location.authority:
        raise ConfigError(f"{location.url!r} names no bucket; write s3://bucket or s3://bucket/directory")
    bucket = S3Bucket(location.authority, location.path[1:], S3Settings.of(location), location.context)
    _ = bucket.client  # creating the client raises errors of its settings now, and not at the first request
    return S3FileSystem(bucket)


def _children(path: str, prefix: str, page: Mapping[str, Any]) -> Iterator[FileInfo]:
    """Yield the children of a directory in a page of its listing; `prefix` is the prefix of their keys."""
    for entry in page.get("CommonPrefixes", ()):
        # A key with two consecutive slashes belongs to no path.
        if entry["Prefix"] != f"{prefix}/":
            name = entry["Prefix"].removeprefix(prefix)[:-1]
            yield FileInfo(join(path, name), 0, 0, is_directory=True)
    for entry in page.get("Contents", ()):
        # An object with the name of the directory marks an empty directory.
        if entry["Key"] != prefix:
            name = entry["Key"].removeprefix(prefix)
            yield FileInfo(join(path, name), int(entry["Size"]), _milliseconds(entry))


def _milliseconds(answer: Mapping[str, Any]) -> int:
    # Fractions of a second are omitted, since some storage systems return them only in listings.
    return int(answer["LastModified"].timestamp()) * 1000


class _S3Stream(CopyingStream):
    """A stream that sends a small file by one request in `close`, and a large file in parts."""

    def __init__(self, path: str, bucket: S3Bucket) -> None:
        super().__init__(path, _STREAM_CAPABILITIES)
        self._bucket = bucket
        self._part_bytes = bucket.settings.part_bytes
        self._identity = bucket.ids.unique()
        self._buffer = bytearray()
        self._upload: S3Upload | None = None
        self._stored: StoredFile | None = None

    @property
    def stored(self) -> StoredFile | None:
        return self._stored

    def _write(self, data: memoryview) -> None:
        while len(self._buffer) + data.nbytes > self._part_bytes:
            room = self._part_bytes - len(self._buffer)
            self._buffer += data[:room]
            data = data[room:]
            self._send()
        self._buffer += data

    def _copy_from(self, path: str, offset: int, length: int) -> None:
        """Copy the range within the storage, as parts.

        Only the last part of a file can be shorter than `PART_BYTES_MIN`. So the first bytes of the range are read to
        fill a short buffer, and the whole range is read if its remainder is too short for a part.
        """
        read_bytes = 0
        if self._buffer:
            read_bytes = max(0, PART_BYTES_MIN - len(self._buffer))
        if length - read_bytes < PART_BYTES_MIN:
            read_bytes = length
        if read_bytes:
            self._write(memoryview(self._bucket.read_range("copy_from", path, offset, read_bytes)))
        if read_bytes < length:
            self._send()
            self._started_upload().copy(path, offset + read_bytes, length - read_bytes)

    def _close(self) -> None:
        if self._upload is None:
            self._stored = self._bucket.put_new("close", self.path, self._buffer, self._identity)
        else:
            self._send()
            self._upload.complete()
        self._buffer = bytearray()

    def _abort(self) -> bool:
        self._buffer = bytearray()
        if self._upload is not None:
            self._upload.abort()
        # A `close` with an unknown outcome may have created the object.
        return self._bucket.discard(self.path, self._identity)

    def _send(self) -> None:
        if self._buffer:
            part, self._buffer = self._buffer, bytearray()
            self._started_upload().send(part)

    def _started_upload(self) -> S3Upload:
        """Return the upload of the parts; the first call starts it."""
        if self._upload is None:
            self._upload = S3Upload(self._bucket, "write", self.path, self._identity)
        return self._upload


PARTS_MAX = 10_000
# The maximum number of bytes that one request copies. Storage allows ten times as many, but the request takes longer.
COPY_BYTES_MAX = 512 << 20


class S3Upload:
    """An upload whose parts the storage assembles into a file; errors contain `operation`."""

    def __init__(self, bucket: S3Bucket, operation: str, path: str, identity: str | None) -> None:
        self._bucket = bucket
        self._operation = operation
        self._path = path
        self._address = {"Key": bucket.key(operation, path)}  # parameters of every request
        self._identity = identity
        # If this request is repeated, the upload of the first attempt can remain without a known id.
        # docs/object-stores.md describes how storage systems remove such uploads.
        answer = self._repeat("create_multipart_upload", Metadata=metadata_of(identity))
        self._address["UploadId"] = answer["UploadId"]
        self._parts: list[Answer[str]] = []
        self._size_bytes = 0
        self._name_exists = False  # another process created the file

    def send(self, content: bytes | bytearray) -> None:
        """Send the next part in the background, as soon as fewer than `PARTS_AT_ONCE` are being sent.

        Raises:
            Unsupported: the file would have more than `PARTS_MAX` parts.
        """
        self._size_bytes += len(content)
        self._start(functools.partial(self._send_part, content))

    def _send_part(self, content: bytes | bytearray, number: int) -> str:
        tag: str = self._repeat("upload_part", PartNumber=number, Body=content)["ETag"]
        return tag

    def copy(self, source: str, offset: int, length: int) -> None:
        """Copy a range of another object within the storage, as the next parts; see `send`."""
        origin = self._bucket.origin(self._operation, source)
        self._size_bytes += length
        # Parts have nearly equal lengths, so that the last one is not too short.
        count = math.ceil(length / COPY_BYTES_MAX)
        bounds = [offset + length * place // count for place in range(count + 1)]
        for begin, end in itertools.pairwise(bounds):
            self._start(functools.partial(self._copy, source, origin, byte_range(begin, end - begin)))

    def _copy(self, source: str, origin: Mapping[str, str], source_range: str, number: int) -> str:
        try:
            answer = self._repeat(
                "upload_part_copy", PartNumber=number, CopySource=origin, CopySourceRange=source_range
            )
        except NotFound as error:
            raise NotFound(self._operation, source, error.detail) from error
        tag: str = answer["CopyPartResult"]["ETag"]
        return tag

    def complete(self) -> None:
        """Create the file from its parts, or raise `AlreadyExists`; after any error, callers must `abort`."""
        parts = []
        for number, part in enumerate(self._parts, 1):
            parts.append({"PartNumber": number, "ETag": part.result()})
        complete = functools.partial(self._complete, parts)
        try:
            self._bucket.resolve_outcome(self._operation, self._path, self._identity_sent, complete)
        finally:
            # The upload remains if another process created the file.
            if self._name_exists:
                self.abort()

    def _identity_sent(self) -> str | None:
        return self._identity

    def _complete(self, parts: list[dict[str, Any]]) -> None:
        try:
            self._send(
                "complete_multipart_upload", MultipartUpload={"Parts": parts}, MpuObjectSize=self._size_bytes, **NEW
            )
        except AlreadyExists:
            self._name_exists = True
            raise
        except UploadGone as error:
            # If the file has the identity of this upload, an earlier attempt completed it. Otherwise, it was aborted.
            if self._identity is None or self._bucket.identity(self._operation, self._path) != self._identity:
                raise StorageError(self._operation, self._path, error.detail) from error

    def abort(self) -> None:
        """Discard the parts; an error of the storage is ignored."""
        wait_for(self._parts)  # the storage would keep a part that arrives after this request
        with contextlib.suppress(StorageError):
            self._repeat("abort_multipart_upload")

    def _start(self, send: Callable[[int], str]) -> None:
        """Wait for a free slot, and call `send` in the background with the number of the next part."""
        number = len(self._parts) + 1
        if number > PARTS_MAX:
            detail = (
                f"a file has at most {PARTS_MAX} parts of storage.partSize: raise storage.partSize, or set "
                "maxBytesPerFile"
            )
            raise Unsupported(self._operation, self._path, detail)
        sending = self._bucket.client.sending
        while len(sending) >= PARTS_AT_ONCE:
            wait_for(tuple(sending), first=True)
        try:
            part = start(functools.partial(send, number), awaited=False)
        except NoThreadError as error:
            raise Unavailable(self._operation, self._path, str(error)) from error
        sending.add(part)
        part.when_set(sending.discard)
        self._parts.append(part)

    def _send(self, method: str, **parameters: object) -> Mapping[str, Any]:
        return self._bucket.send(self._operation, self._path, method, **self._address, **parameters)

    def _repeat(self, method: str, **parameters: object) -> Mapping[str, Any]:
        call = functools.partial(self._send, method, **parameters)
        return self._bucket.repeat(self._operation, self._path, call)
