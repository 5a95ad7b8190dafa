"""Errors of the file system interface for exceptions of Hadoop's servers."""

from __future__ import annotations

import functools

from ftfile.core.errors import (
    AlreadyExists,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.storage.api import READING
from ftfile.storage.hdfs.credentials.tokens import lack_of_tokens


class NotEmpty(StorageError):
    """A directory is not empty; only drivers raise it."""


class CredentialsRefused(PermissionDenied):
    """HDFS does not accept the token or the ticket of this process, and has executed nothing; only drivers raise it.

    `reason` is the message of the Kerberos library; empty if the server refused a token.
    """

    def __init__(self, operation: str, path: str, detail: str, *, reason: str = "") -> None:
        super().__init__(operation, path, detail)
        self.reason = reason


_IN_THE_WAY = "a file is where a directory is needed; move it"
_NO_PERMISSION = "HDFS denies this to the user; grant the permission, or run as a user who has it"
_UNACCEPTED_IDENTITY = "HDFS does not accept the identity of this process; get a ticket or a token"
_BAD_NAME = "HDFS does not accept this name; choose another name"
_DATANODES = "check that they run and have space (hdfs dfsadmin -report)"
_UNREPORTED = (
    "no DataNode has reported the last block in time; the write can be retried, or set a longer wait for HDFS clients "
    "(dfs.client.block.write.locateFollowingBlock.retries, with WebHDFS on the DataNodes)"
)
_FULL = (
    "the directory has as many files as HDFS allows (dfs.namenode.fs-limits.max-directory-items): use more directories"
)
_NO_QUOTA = "a quota is exceeded; free space or raise the quota (hdfs dfsadmin -setSpaceQuota, -setQuota)"
_NOT_NOW = "the NameNode does not accept changes yet; retry later"
_RPC_PORT = (
    "this is the port for hdfs://, and webhdfs:// needs the port of the NameNode's web server; write "
    "webhdfs://host:9870 (dfs.namenode.http-address)"
)
_SAFE_MODE = f"{_NOT_NOW}: it is in safe mode (hdfs dfsadmin -safemode get)"

_CLASSES = (
    (NotFound, "it does not exist", "FileNotFoundException"),
    (NotFound, "it is a directory, not a file", "PathIsNotFileException"),
    (NotFound, "the file was deleted or taken over by another writer while it was written", "LeaseExpiredException"),
    (AlreadyExists, "it already exists, and files are never overwritten", "FileAlreadyExistsException"),
    (AlreadyExists, "another client is writing it, and files are never overwritten", "AlreadyBeingCreatedException"),
    (AlreadyExists, "it exists and its writer has died; files are never overwritten", "RecoveryInProgressException"),
    (NotADirectory, _IN_THE_WAY, "ParentNotDirectoryException PathIsNotDirectoryException"),
    (NotEmpty, "the directory is not empty", "PathIsNotEmptyDirectoryException"),
    (PermissionDenied, _NO_PERMISSION, "AccessControlException AuthorizationException"),
    (CredentialsRefused, _UNACCEPTED_IDENTITY, "AuthenticationException SecurityException"),
    (CredentialsRefused, "HDFS does not accept the delegation token or the ticket; get a new one", "SaslException"),
    (CredentialsRefused, "the delegation token is invalid or has expired; get a new one", "InvalidToken"),
    (OutOfSpace, _NO_QUOTA, "DSQuotaExceededException NSQuotaExceededException QuotaByStorageTypeExceededException"),
    (OutOfSpace, _FULL, "MaxDirectoryItemsExceededException"),
    (Unavailable, _SAFE_MODE, "SafeModeException"),
    (Unavailable, _NOT_NOW, "RetriableException"),
    (Unavailable, "the NameNode is in standby, and no active one was found", "StandbyException"),
    (Unsupported, "a name is too long for HDFS; shorten it", "PathComponentTooLongException"),
    (Unsupported, _BAD_NAME, "InvalidPathException HadoopIllegalArgumentException"),
    (Unsupported, "HDFS refuses a parameter", "IllegalArgumentException"),
    (Unsupported, "HDFS cannot do this", "UnsupportedOperationException"),
)

# A part of the answer of an RPC port to a GET request.
IPC_PORT = "Hadoop IPC port"

# Errors by a part of the message, for exceptions whose class is not in `_CLASSES`, such as IOException.
_TEXTS: list[tuple[str, type[StorageError], str]] = [
    (IPC_PORT, WrongConnection, _RPC_PORT),
    ("must both be directories", AlreadyExists, "a directory of this name already exists, and nothing is overwritten"),
    ("could only be written to", Unavailable, f"no DataNode accepted the block: {_DATANODES}"),
    ("not have enough number of replicas", Unavailable, _UNREPORTED),
    ("Failed to find datanode", Unavailable, f"no DataNode accepts data: {_DATANODES}"),
    ("Authentication failure", CredentialsRefused, _UNACCEPTED_IDENTITY),
    ("block size", Unsupported, "set another storage.blockSize, or omit it for the default of HDFS"),
    ("replication", Unsupported, "set another storage.replication, or omit it for the default of HDFS"),
]


@functools.cache
def _meanings_by_class() -> dict[str, tuple[type[StorageError], str]]:
    meanings: dict[str, tuple[type[StorageError], str]] = {}
    for kind, advice, names in _CLASSES:
        meanings |= dict.fromkeys(names.split(), (kind, advice))
    return meanings


def error_of_expired(operation: str, path: str, where: str, reason: str) -> CredentialsRefused:
    """Return the error for an expired Kerberos ticket; `reason` is the message of the library."""
    detail = (
        f"the Kerberos ticket of this process has expired, and {where} requires one: renew it (kinit -R) or get a new "
        f"one: {reason}"
    )
    return CredentialsRefused(operation, path, detail, reason=reason)


def no_ticket(operation: str, path: str, where: str, reason: str) -> CredentialsRefused:
    """Return the error for a process without ticket and token; `reason` is the message of the library."""
    detail = (
        f"{where} requires Kerberos, and this process has neither a ticket nor a token: {lack_of_tokens()}. The "
        f"driver needs a ticket (kinit), a keytab (storage.keytab) or a token, and executors need tokens: {reason}"
    )
    return CredentialsRefused(operation, path, detail, reason=reason)


def remote_error(operation: str, path: str, java_class: str, message: str) -> StorageError:
    """Return the error of the interface for an exception of a server, without the stack trace in its message."""
    name = java_class.rpartition(".")[2].rpartition("$")[2]
    reason = message.partition("\n")[0].partition("\\n")[0].strip()
    kind, advice = _meanings_by_class().get(name) or _meaning_of_text(operation, reason)
    return kind(operation, path, f"{name}: {reason}: {advice}")


def _meaning_of_text(operation: str, reason: str) -> tuple[type[StorageError], str]:
    for part, kind, advice in _TEXTS:
        if part in reason:
            return kind, advice
    if operation in READING:
        return Unavailable, "see the NameNode's log"
    return OutcomeUnknown, "see the NameNode's log"
