"""The tokens of this process from all sources, in one file for the libraries that it uses."""

from __future__ import annotations

import itertools
import os
import threading
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.core.per_process import PerProcess
from ftfile.storage.hdfs.credentials.jvm_tokens import kept_file
from ftfile.storage.hdfs.credentials.process_file import ProcessFile
from ftfile.storage.hdfs.credentials.token_file import read_tokens, token_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.storage.hdfs.credentials.token_file import DelegationToken


FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"


class ProcessTokens:
    """The newest tokens of the token file, of the file that the driver's program keeps, and of Spark's driver.

    `hdfs-native` reads the token file that the environment names. So `merge` makes the environment name a file with the
    newest tokens: one of the two files, or else a third one.
    """

    def __init__(self) -> None:
        self._received: dict[tuple[str, str], DelegationToken] = {}
        self._refused: set[DelegationToken] = set()
        # The file that the environment named at first, and the file that it names instead.
        self._original: str | None = None
        self._named: str | None = None
        # The third file, which is only written if it is needed.
        self._own_file = PerProcess(ProcessFile, in_fork=_leave_to_parent)
        self._lock = PerProcess(threading.Lock)

    def receive(self, tokens: Iterable[DelegationToken]) -> None:
        """Add tokens that Spark's driver sent, unless the files of this process contain them."""
        with self._lock.here:
            for key, token in [*self._received.items()]:
                if token in self._refused:
                    del self._received[key]
            in_files = {*itertools.chain.from_iterable(self._read_files().values())}
            _add_newer(self._received, [token for token in tokens if token not in in_files])

    def refuse(self, token: DelegationToken) -> None:
        """Prefer other tokens for the same service, also older ones, because HDFS has refused this one."""
        with self._lock.here:
            self._refused.add(token)

    def origin(self, token: DelegationToken) -> str | None:
        """Return the path of the file with this token; None if Spark's driver sent it."""
        files = self._read_files()
        for path, tokens in files.items():
            if token in tokens:
                return path
        if token in self._received.values():
            return None
        # The file has been replaced since.
        return next(iter(files), "")

    def original(self) -> str | None:
        """Return the path of the token file that the environment named at first."""
        path = os.environ.get(FILE_VARIABLE)
        if path and path == self._named:
            return self._original
        return path

    def merge(self) -> list[DelegationToken]:
        """Return the newest tokens, the last issued one first, and set the environment to a file that contains them.

        Idempotent. Raises `ConfigError` if a token file cannot be read.
        """
        with self._lock.here:
            files = self._read_files()
            candidates = [*itertools.chain.from_iterable(files.values()), *self._received.values()]
            refused: dict[tuple[str, str], DelegationToken] = {}
            accepted: dict[tuple[str, str], DelegationToken] = {}
            for token in candidates:
                _add_newer(refused if token in self._refused else accepted, [token])
            newest = sorted((refused | accepted).values(), key=lambda token: -token.issued_ms)
            self._name(self._path_with(newest, files))
            return newest

    def has_sources(self) -> bool:
        """Return True if this process can have tokens; a token file that does not exist is not a source."""
        return bool(self._received) or any(map(os.path.exists, self._files()))

    def _files(self) -> list[str]:
        """Return the token files of this process. The first one can be missing if there are other sources."""
        original, jvm_file = self.original(), kept_file()
        if original and (os.path.exists(original) or not (self._received or jvm_file)):
            files = [original]
        else:
            files = []
        if jvm_file is not None:
            files.append(jvm_file)
        return files

    def _read_files(self) -> dict[str, list[DelegationToken]]:
        original = self.original()
        files = {}
        for path in self._files():
            try:
                with open(path, "rb") as file:
                    files[path] = read_tokens(file.read())
            except (OSError, ValueError) as error:
                if path != original and isinstance(error, FileNotFoundError):
                    continue  # the program has stopped keeping tokens
                raise ConfigError(
                    f"the token file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, cannot be read: {error}"
                ) from error
        return files

    def _path_with(
        self, tokens: Sequence[DelegationToken], files: Mapping[str, Sequence[DelegationToken]]
    ) -> str | None:
        """Return the path of a file with all of these tokens; None if there is no token and no file."""
        for path, tokens_of_file in files.items():
            if set(tokens) <= set(tokens_of_file):
                return path
        if not tokens:
            return None
        return self._own_file.here.write(token_file(tokens))

    def _name(self, path: str | None) -> None:
        """Let the environment name a file, or the original one."""
        original = self.original()
        if path is None or path == original:
            path, self._named = original, None
        else:
            self._original, self._named = original, path
        if path is None:
            os.environ.pop(FILE_VARIABLE, None)
        elif path != os.environ.get(FILE_VARIABLE):
            # Not more often than needed: threads of libraries may read the environment at the same time.
            os.environ[FILE_VARIABLE] = path


def _leave_to_parent(file: ProcessFile) -> ProcessFile:
    """Return the file of a forked process, given the copy of its parent's."""
    file.leave_to_parent()
    return file


def _add_newer(tokens: dict[tuple[str, str], DelegationToken], more_tokens: Iterable[DelegationToken]) -> None:
    """Add tokens; of two tokens for the same service, the one that was issued later remains."""
    for token in more_tokens:
        key = token.kind, token.service
        if key not in tokens or token.issued_ms > tokens[key].issued_ms:
            tokens[key] = token
