"""The driver for HDFS over HTTP, without a JVM or compiled code.

An upload whose connection breaks leaves a short file that looks complete, so a file only counts after the DataNode has
confirmed that it is closed. Checksums that the DataNode computes are compared with the checksums of the sent content.
`create` first creates an empty file exclusively; the content then replaces this file.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    Unsupported,
)
from ftfile.core.logs import get_logger
from ftfile.storage.api import FileInfo, FileSystem, InputFile, OutputStream, RangeFile
from ftfile.storage.hdfs.base import HadoopFileSystem
from ftfile.storage.hdfs.configuration import USER, current_user, is_kerberos, read_configuration
from ftfile.storage.hdfs.credentials.keytab import give_up
from ftfile.storage.hdfs.credentials.tokens import has_tokens, lack_of_tokens, web_token
from ftfile.storage.hdfs.settings import HadoopSettings
from ftfile.storage.hdfs.webhdfs_client import connect, web_errors
from ftfile.storage.hdfs.webhdfs_files import checksum_for, digest_of
from ftfile.storage.hdfs.webhdfs_nodes import find_nodes, web_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.core.context import Context
    from ftfile.storage.hdfs.credentials.token_file import DelegationToken
    from ftfile.storage.hdfs.webhdfs_client import WebClient
    from ftfile.storage.hdfs.webhdfs_files import HadoopChecksum, Upload
    from ftfile.storage.paths import Location


ABORT_WAIT_S = 2.0
CHUNK_BYTES = 256 << 10

Result = TypeVar("Result")

_log = get_logger(__name__)


class _BegunUpload(NamedTuple):
    """An upload of a file."""

    status: dict[str, Any]  # of the file
    upload: Upload
    target: str


class WebHdfsFileSystem(HadoopFileSystem):
    """A directory of HDFS, accessed through the web servers of NameNode and DataNodes.

    `scheme` is `webhdfs`, or `swebhdfs` with TLS; `authority` is the `host:port` of a NameNode's web server, or a name
    service.
    """

    driver = "webhdfs"
    stream_capabilities = frozenset({"abort"})
    stream_bytes = CHUNK_BYTES

    def __init__(self, scheme: str, authority: str, root: str, settings: HadoopSettings, context: Context) -> None:
        self._scheme, self._authority = scheme, authority
        self._service, self._nodes = find_nodes(scheme, authority, read_configuration(settings.handed))
        super().__init__(f"{' or '.join(self._nodes)}{root}", root, settings, context)
        self._reconnect()
        self._tells_checksums = True

    def __repr__(self) -> str:
        return f"WebHdfsFileSystem({[*self._nodes]!r}, {self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Each process has separate connections and credentials.
        return type(self), (self._scheme, self._authority, self.root, self._settings, self.context)

    def create(self, path: str) -> OutputStream:
        full = self._full_path_of("create", path)
        self.do("create", path, self._create_empty, path, full=full)
        return WebStream(path, full, self)

    def _create_empty(self, path: str, full: str) -> None:
        if self._client.nodes.first_word_s():
            # An abandoned upload can start after this file has been moved.
            self.create_exclusive(path, b"")
        else:
            self._upload_all(full, b"", overwrite=False)

    def open(self, path: str) -> InputFile:
        full = self._full_path_of("open", path)
        status = self.do("open", path, self._status, full)
        if status.is_directory:
            raise NotFound("open", path, "it is a directory, not a file")
        return RangeFile(path, status.size_bytes, functools.partial(self._read_range, path, full))

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        full = self._full_path_of("read", path)
        return self.do("read", path, self._client.content, full, offset=0, length=None, bytes_max=bytes_max)

    def _put(self, path: str, full: str, content: bytes) -> None:
        def write() -> None:
            first_word_s = self._client.nodes.first_word_s()
            if first_word_s:
                # An abandoned upload can start later: it must not replace the file of a later upload.
                self._client.remove(full)
            self._upload_all(full, content, overwrite=not first_word_s, first_word_s=first_word_s)

        # Another writer can create the file in between.
        with contextlib.suppress(AlreadyExists):
            self.do("put", path, write)

    def run(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run a call once; each of its requests has the timeout."""
        with web_errors(operation, path, self.where):
            return call()

    def _read_range(self, path: str, full: str, offset: int, length: int) -> bytes:
        return self.do("read_at", path, self._client.content, full, offset=offset, length=length)

    def file_number(self, full: str) -> int:
        """Return the id of a file, which a rename does not change."""
        return int(self._client.status(full)["fileId"])

    def begin(self, operation: str, path: str, full: str) -> _BegunUpload:
        """Start to send the content of an empty file; return the status of the file, the upload, and its target.

        A DataNode that cannot be reached has not changed the file, so the NameNode is asked for another one. An
        abandoned DataNode can still start, so each upload then has a separate temporary file.
        """
        status = self.do("stat", path, self._client.status, full)

        def upload() -> tuple[Upload, str]:
            first_word_s = self._client.nodes.first_word_s()
            target = full
            if first_word_s:
                target = self.temporary_name(full)
            return self.upload(target, overwrite=True, first_word_s=first_word_s), target

        sent, target = self.do(operation, path, upload)
        return _BegunUpload(status, sent, target)

    def replace(self, operation: str, path: str, temporary: str, full: str) -> None:
        """Move a complete file of this process to the name of an empty file of this process."""
        self.do(operation, path, self._remove, full)
        self.do(operation, path, self._move, temporary, full_target=full)

    def verify(self, operation: str, path: str, full: str, checksum: HadoopChecksum) -> None:
        """Raise `StorageError` if a closed file, which is not empty, has other content than was sent."""
        try:
            digest = digest_of(self.do("stat", path, self._client.checksum, full))
        except (Unsupported, PermissionDenied):
            digest = None
        if digest is None:
            if self._tells_checksums:
                _log.warning("%s returns no checksums: only the lengths of its files are verified", self.where)
            self._tells_checksums = False
        elif digest != checksum.digest():
            detail = (
                f"{self.where} received other bytes than were sent: a proxy, a network card or memory changes them on "
                "the way. hdfs:// protects transfers with checksums"
            )
            raise StorageError(operation, path, detail)

    def wait_until_replaced(self, full: str, file_number: int) -> None:
        """Wait at most `ABORT_WAIT_S` until the name belongs to another file, or to none."""
        deadline_s = self.context.clock.monotonic_s() + ABORT_WAIT_S
        with contextlib.suppress(StorageError):
            while self.run("stat", full, functools.partial(self.file_number, full)) == file_number:
                if self.context.clock.monotonic_s() > deadline_s:
                    break
                self.context.clock.sleep(0.005)

    def upload(self, full: str, *, overwrite: bool, first_word_s: float = 0.0) -> Upload:
        """Start to write a file, which exists and is empty, before the upload is finished; see `Upload`."""
        # SYNC_BLOCK: each block is on the device before the next one begins, and the last one before the response.
        flags = "CREATE,SYNC_BLOCK"
        if overwrite:
            flags = "CREATE,OVERWRITE,SYNC_BLOCK"
        parameters = {
            "overwrite": str(overwrite).lower(),
            "createflag": flags,
            "permission": f"{self._settings.file_mode:o}",
        }
        if self._settings.replication is not None:
            parameters["replication"] = str(self._settings.replication)
        if self._settings.block_size is not None:
            parameters["blocksize"] = str(self._settings.block_size)
        return self._client.upload(full, parameters, self._settings.timeout_s, first_word_s)

    def _reconnect(self) -> None:
        self._client = self._connect()

    def _connect(self) -> WebClient:
        kerberos = is_kerberos(read_configuration(self._settings.handed))
        token = self._token = self._find_token()
        if token is None and not kerberos and has_tokens():
            raise ConfigError(f"there is no token for {self.where}: {lack_of_tokens()}")
        text = None if token is None else token.text()
        user = None
        if token is None and not kerberos:
            user = self._settings.user or self._settings.handed_user or _process_user()
        nodes = web_nodes.of(tuple(self._nodes.items()))
        login = self._settings.login
        try:
            return connect(nodes, self._settings.timeout_s, user, text, kerberos=kerberos, login=login)
        except ConfigError:
            if login is None or not login.is_optional:
                raise
        # The package for Kerberos is missing, and tokens do not need it.
        give_up(login)
        self._settings = replace(self._settings, login=None)
        return self._connect()

    def _find_token(self) -> DelegationToken | None:
        if self._settings.login is not None:
            return None
        return web_token(self._service, self._nodes)

    def _connect_with(self, token: DelegationToken) -> None:
        self._client.use_token(token.text())

    def _status(self, full: str) -> FileInfo:
        return _info(full, self._client.status(full))

    def _children(self, full: str) -> Sequence[FileInfo]:
        return [_info(child["pathSuffix"], child) for child in self._client.children(full)]

    def _make(self, full: str, mode: int) -> bool:
        return self._client.make_directories(full, mode)

    def _mode(self, full: str) -> int:
        return int(self._client.status(full)["permission"], 8)

    def _move(self, full_source: str, full_target: str) -> None:
        if not self._client.move(full_source, full_target):
            self._explain(full_source, full_target)

    def _remove(self, full: str) -> bool:
        return self._client.remove(full)

    def _write_whole(self, full: str, content: bytes) -> None:
        self._upload_all(full, content, overwrite=True, first_word_s=self._client.nodes.first_word_s())

    def _compare(self, path: str, full: str, content: bytes) -> None:
        status = self.do("stat", path, self._client.status, full)
        self._check_length(path, int(status["length"]), len(content))
        checksum = checksum_for(status)
        if content and checksum is not None:
            checksum.update(content)
            self.verify("create_exclusive", path, full, checksum)

    def _explain(self, full_source: str, full_target: str) -> None:
        """Raise the error that a server means when it answers a rename with false."""
        self._status(full_source)
        self._status(full_target.rpartition("/")[0] or "/")
        if self._client.has(full_target):
            raise AlreadyExists(
                "rename", full_source, f"{full_target!r} already exists, and files are never overwritten"
            )
        raise OutcomeUnknown(
            "rename", full_source, f"{self.where} refuses the name {full_target!r}, and gives no reason"
        )

    def _upload_all(self, full: str, content: bytes, *, overwrite: bool, first_word_s: float = 0.0) -> None:
        upload = self.upload(full, overwrite=overwrite, first_word_s=first_word_s)
        try:
            upload.send(content)
            upload.finish()
        finally:
            upload.cut()


class WebStream(OutputStream):
    """Keeps a chunk; `close` sends a file of one chunk by one request, which is repeated while HDFS is not ready."""

    def __init__(self, path: str, full: str, fs: WebHdfsFileSystem) -> None:
        super().__init__(path, fs.stream_capabilities)
        self._full = full
        self._fs = fs
        self._chunk = bytearray()
        self._upload: Upload | None = None
        self._target = full
        self._empty_file = 0
        self._checksum: HadoopChecksum | None = None

    def _write(self, data: memoryview) -> None:
        if len(self._chunk) + data.nbytes < CHUNK_BYTES:
            self._chunk += data
            return
        upload = self._start_upload("write")
        with web_errors("write", self.path, self._fs.where):
            self._send(upload, self._chunk)
            self._chunk.clear()
            self._send(upload, data)

    def _close(self) -> None:
        if self._upload is None and not self._chunk:
            return
        if self._upload is None:
            self._fs.retry_until_ready(self._finish_anew)
        else:
            self._finish()
        if self._target != self._full:
            self._fs.replace("close", self.path, self._target, self._full)
        if self._checksum is not None:
            self._fs.verify("close", self.path, self._full, self._checksum)

    def _finish_anew(self) -> None:
        """Send the whole content; the remains of an earlier attempt are replaced."""
        if self._upload is not None:
            self._upload.cut()
            if self._target != self._full:
                self._fs.discard(self._target)
            self._upload = None
        self._finish()

    def _finish(self) -> None:
        upload = self._start_upload("close")
        with web_errors("close", self.path, self._fs.where):
            self._send(upload, self._chunk)
            upload.finish()

    def _abort(self) -> bool:
        if self._upload is not None:
            # Deleting the temporary file ends its upload after the file has replaced the empty one.
            if self._target == self._full:
                self._fs.wait_until_replaced(self._full, self._empty_file)
            self._upload.cut()
            if self._target != self._full:
                self._fs.discard(self._target)
        return self._fs.discard(self._full)

    def _start_upload(self, operation: str) -> Upload:
        if self._upload is None:
            status, self._upload, self._target = self._fs.begin(operation, self.path, self._full)
            self._empty_file, self._checksum = int(status["fileId"]), checksum_for(status)
        return self._upload

    def _send(self, upload: Upload, data: bytearray | memoryview) -> None:
        upload.send(data)
        if self._checksum is not None:
            self._checksum.update(data)


def _process_user() -> str:
    """Return the user of this process; a ConfigError if its id has no name, as in some containers."""
    try:
        return current_user() or getpass.getuser()
    except (OSError, KeyError, ImportError) as error:
        raise ConfigError(
            f"the id of the user of this process, {os.geteuid()}, has no name: set the variable {USER} to the user of "
            "HDFS, or add an entry to /etc/passwd"
        ) from error


def open_location(location: Location) -> FileSystem:
    """Open the `webhdfs` or `swebhdfs` URL of a NameNode's web server or name service; raises `ConfigError`."""
    settings = HadoopSettings.of(location)
    return WebHdfsFileSystem(
        location.scheme, location.authority, root=location.path, settings=settings, context=location.context
    )


def _info(path: str, status: dict[str, Any]) -> FileInfo:
    directory = status["type"] == "DIRECTORY"
    return FileInfo(
        path=path,
        size_bytes=0 if directory else int(status["length"]),
        modified_ms=int(status["modificationTime"]),
        is_directory=directory,
        identity=str(status["fileId"]) if status.get("fileId") else None,
    )
