"""The rules of HDFS that both drivers share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, ParamSpec, TypeVar

from ftfile.core.errors import (
    AlreadyExists,
    MissingParent,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from ftfile.core.logs import get_logger
from ftfile.core.per_process import PerProcess
from ftfile.core.retries import retry_until
from ftfile.storage.api import Capabilities, FileInfo, FileSystem
from ftfile.storage.hdfs.credentials.keytab import give_up
from ftfile.storage.hdfs.credentials.tokens import origin_of, refuse_token
from ftfile.storage.hdfs.java_errors import CredentialsRefused, NotEmpty
from ftfile.storage.hdfs.settings import FORBIDDEN, check_hdfs_name
from ftfile.storage.paths import join, room_below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.core.context import Context
    from ftfile.storage.hdfs.credentials.token_file import DelegationToken
    from ftfile.storage.hdfs.settings import FileSettings, HadoopSettings


# The NameNode counts characters; a path has at most as many characters as bytes.
_PATH_MAX = 8_000

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_log = get_logger(__name__)

# Roots where the settings for new files were tried.
_proven: PerProcess[set[tuple[str, FileSettings]]] = PerProcess(set)


class HadoopFileSystem(FileSystem):
    """A directory of HDFS; `where` names its root in messages. Names are durable at once.

    A call is repeated while the NameNode is not ready.
    """

    driver: ClassVar[str]
    stream_capabilities: ClassVar[frozenset[str]]
    stream_bytes: ClassVar[int]

    def __init__(self, where: str, root: str, settings: HadoopSettings, context: Context) -> None:
        self.where = where
        self.root = root
        self._settings = settings
        self.context = context
        self._token: DelegationToken | None = None  # of the connection
        self._prefix = "" if root == "/" else root
        self._capabilities = Capabilities(
            driver=self.driver,
            shared_between_processes=True,
            durability="hsync" if "hsync" in self.stream_capabilities else "close",
            directory_sync=False,
            atomic_rename=True,
            stream_capabilities=self.stream_capabilities,
            permissions=True,
            concurrency=16,
            forbidden=FORBIDDEN,
            retries_internally=True,
            stream_bytes=self.stream_bytes,
            path_bytes_max=room_below(self._prefix, _PATH_MAX),
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def prove(self, directory: str) -> None:
        """Create an empty file with the settings for new files, if any are set; once per process."""
        asked = self._settings.of_files
        if asked is None or (self.where, asked) in _proven.here:
            return
        self.make_directories(directory)
        path = join(directory, f".{self.context.ids.unique()}.tmp")
        full = self._full_path_of("create_exclusive", path)
        try:
            self._do_repeatable("create_exclusive", path, self._write_whole, full, b"")
            mode = self.do("stat", path, self._mode, full)
        finally:
            self.discard(full)
        if mode != self._settings.file_mode:
            _log.warning(
                "files below %s get the permission %o, not the requested filePermission %o: check the default ACLs of "
                "the directory (hdfs dfs -getfacl)",
                self.where,
                mode,
                self._settings.file_mode,
            )
        _proven.here.add((self.where, asked))

    def stat(self, path: str) -> FileInfo:
        full = self._full_path_of("stat", path)
        return self.do("stat", path, self._status, full)._replace(path=path)

    def list(self, path: str) -> list[FileInfo]:
        full = self._full_path_of("list", path)
        children = self.do("list", path, self._children, full)
        if len(children) == 1 and not children[0].path:
            raise NotADirectory("list", path, "it is a file, not a directory")
        return [child._replace(path=join(path, child.path)) for child in children]

    def make_directories(self, path: str) -> None:
        full = self._full_path_of("make_directories", path)
        try:
            is_made = self._do_repeatable(
                "make_directories", path, self._make, full, mode=self._settings.directory_mode
            )
        except AlreadyExists as error:
            raise NotADirectory("make_directories", path, error.detail) from error
        if not is_made:
            raise StorageError(
                "make_directories", path, f"{self.where} did not create the directory, and gave no reason"
            )

    def sync_directory(self, path: str) -> None:
        self._full_path_of("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        full_source, full_target = self._full_path_of("rename", source), self._full_path_of("rename", target)
        try:
            self.do("rename", source, self._move, full_source, full_target=full_target)
        except NotFound as error:
            # The answer of the server names neither source nor target. If the source is missing, this raises NotFound.
            self._status_for("rename", source, full_source)
            raise MissingParent("rename", source, error.detail) from error

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Write, sync, close and measure a temporary file, then rename it."""
        full = self._full_path_of("create_exclusive", path)
        tried: list[str] = []

        def write() -> None:
            # An abandoned call can take effect later, and would truncate the file of a later attempt.
            temporary = self.temporary_name(full)
            tried.append(temporary)
            self._run_repeatable("create_exclusive", path, partial(self._write_whole, temporary, content))

        try:
            self.retry_until_ready(write)
            temporary = tried[-1]
            self._compare(path, temporary, content)
            self.do("create_exclusive", path, self._move, temporary, full_target=full)
            tried.pop()
        except OutcomeUnknown:
            # The file can have its name already.
            tried.pop()
            raise
        finally:
            all(map(self.discard, tried))  # ends at the first failure, since the storage is down

    def put(self, path: str, content: bytes) -> None:
        full = self._full_path_of("put", path)
        try:
            self._put(path, full, content)
        except NotFound:
            # Another process is writing it, or the directory is missing and this raises NotFound.
            self._status_for("put", path, full)

    def delete(self, path: str) -> None:
        full = self._full_path_of("delete", path)
        # The server would also delete an empty directory.
        is_directory = self._status_for("delete", path, full).is_directory
        if is_directory or not self.do("delete", path, self._remove, full):
            raise NotFound("delete", path, "the file does not exist")

    def remove_directory(self, path: str) -> bool:
        full = self._full_path_of("remove_directory", path)
        try:
            directory = self._status_for("remove_directory", path, full).is_directory
        except NotFound:
            return True
        if not directory:
            raise NotADirectory("remove_directory", path, "a file already exists")
        try:
            self.do("remove_directory", path, self._remove, full)
        except NotEmpty:
            return False
        return True

    def temporary_name(self, full: str) -> str:
        """Return a unique path in the same directory."""
        return f"{full.rpartition('/')[0]}/.{self.context.ids.unique()}.tmp"

    def discard(self, full: str) -> bool:
        """Delete a file or an empty directory, and return True if it does not exist afterwards."""
        try:
            self.run("delete", full, partial(self._remove, full))
        except NotFound:
            return True
        except StorageError:
            return False
        return True

    def do(
        self,
        operation: str,
        path: str,
        call: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Run a call of the library with arguments, and repeat it while the storage is unavailable."""
        return self.retry_until_ready(partial(self.run, operation, path, partial(call, *arguments, **named)))

    def retry_until_ready(self, call: Callable[[], Result]) -> Result:
        """Repeat a call while the storage is unavailable, for `storage.patience` seconds.

        If HDFS refuses the credentials and this process has other ones now, the call is made once more with them.
        """
        repeated_call = partial(retry_until, call, self._settings.patience_s, self.context.clock)
        try:
            return repeated_call()
        except CredentialsRefused as error:
            if not self._use_other_credentials(error):
                raise self._explain_refusal(error) from error
        try:
            return repeated_call()
        except CredentialsRefused as error:
            raise self._explain_refusal(error) from error

    def _use_other_credentials(self, error: CredentialsRefused) -> bool:
        """Connect with the current token of this process. Return False if it is the same token as before, or none."""
        login = self._settings.login
        if login is not None and login.is_optional and error.reason:
            give_up(login)
            self._settings = replace(self._settings, login=None)
            self._reconnect()
            return True
        if self._token is not None:
            refuse_token(self._token)
        token = self._find_token()
        if token is None or token == self._token:
            return False
        self._token = token
        self._connect_with(token)
        _log.info("%s refused the credentials of this process, which has a new token now: trying it", self.where)
        return True

    def _explain_refusal(self, error: CredentialsRefused) -> PermissionDenied:
        """Return the error for users. It names the login that failed, or the source of the refused token."""
        detail = error.detail
        login = self._settings.login
        if login is not None and error.reason:
            detail = f"{login} failed: {error.reason}. Check the keytab (klist -kt) and that the KDC can be reached"
        if self._token is not None:
            detail = f"{detail}. {origin_of(self._token)}"
        return PermissionDenied(error.operation, error.path, detail)

    @abstractmethod
    def _reconnect(self) -> None:
        """Connect with changed settings, and find the token of this process again."""

    @abstractmethod
    def _find_token(self) -> DelegationToken | None:
        """Return the current token of this process for this HDFS; None if it has none."""

    @abstractmethod
    def _connect_with(self, token: DelegationToken) -> None:
        """Use a token for all later calls."""

    @abstractmethod
    def run(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run a call of the library once within its timeout, and translate its errors."""

    @abstractmethod
    def _status(self, full: str) -> FileInfo: ...

    @abstractmethod
    def _children(self, full: str) -> Sequence[FileInfo]:
        """Return the entries of a directory by name; for a file, its status with an empty name."""

    @abstractmethod
    def _make(self, full: str, mode: int) -> bool:
        """Create a directory and its parents, and return the answer of the server."""

    @abstractmethod
    def _mode(self, full: str) -> int: ...

    @abstractmethod
    def _move(self, full_source: str, full_target: str) -> None: ...

    @abstractmethod
    def _put(self, path: str, full: str, content: bytes) -> None: ...

    @abstractmethod
    def _remove(self, full: str) -> bool:
        """Delete a file or an empty directory; return True if it existed."""

    @abstractmethod
    def _write_whole(self, full: str, content: bytes) -> None:
        """Write a durable file, and replace an existing one."""

    def _do_repeatable(
        self,
        operation: str,
        path: str,
        call: Callable[Arguments, Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Do the same as `do` for a call that can be repeated after an unknown outcome."""
        return self.retry_until_ready(
            partial(self._run_repeatable, operation, path, partial(call, *arguments, **named))
        )

    def _run_repeatable(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run a call that can be repeated: an unknown outcome becomes `Unavailable`."""
        try:
            return self.run(operation, path, call)
        except OutcomeUnknown as error:
            raise Unavailable(operation, path, error.detail) from error

    def _status_for(self, operation: str, path: str, full: str) -> FileInfo:
        """Return the status for an operation that its errors name; they have changed nothing."""
        try:
            return self.do("stat", path, self._status, full)
        except StorageError as error:
            raise type(error)(operation, path, error.detail) from error

    def _compare(self, path: str, full: str, content: bytes) -> None:
        """Raise `StorageError` unless the file has this content, or its length."""
        self._check_length(path, self._status_for("create_exclusive", path, full).size_bytes, len(content))

    def _check_length(self, path: str, size_bytes: int, length: int) -> None:
        if size_bytes != length:
            raise StorageError("create_exclusive", path, f"{size_bytes} of {length} bytes reached {self.where}")

    def _full_path_of(self, operation: str, path: str) -> str:
        check_hdfs_name(operation, path)
        if path:
            return f"{self._prefix}/{path}"
        return self.root
