"""Translation of Hadoop's exceptions, which both HDFS drivers know by name."""

from __future__ import annotations

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
from ftfile.storage.hdfs.tokens import lack_of_tokens


class NotEmpty(StorageError):
    """A directory has something in it; for the drivers alone."""


_IN_THE_WAY = "a file is where a directory is needed; move it"
_NO_PERMISSION = "HDFS refuses it to this user; grant the permission, or run as a user who has it"
_NOT_BELIEVED = "HDFS does not believe who this is; get a ticket or a token"
_BAD_NAME = "HDFS does not take this name; choose another"
_DATANODES = "look whether they run and have space (hdfs dfsadmin -report)"
_UNREPORTED = (
    "no DataNode has reported the last block in time; it may be written again, or let HDFS's clients wait longer "
    "(dfs.client.block.write.locateFollowingBlock.retries, with WebHDFS on the DataNodes)"
)
_FULL = "the directory has as many files as HDFS allows (dfs.namenode.fs-limits.max-directory-items): use more of them"
_NO_QUOTA = "a quota is used up; free space or raise it (hdfs dfsadmin -setSpaceQuota, -setQuota)"
_NOT_NOW = "the NameNode takes no changes yet; it may be tried again"
_RPC_PORT = (
    "this is the port for hdfs://, and webhdfs:// needs that of the NameNode's web server; write webhdfs://host:9870 "
    "(dfs.namenode.http-address)"
)
_SAFE_MODE = f"{_NOT_NOW}: it is in safe mode (hdfs dfsadmin -safemode get)"

_CLASSES = (
    (NotFound, "nothing is there", "FileNotFoundException"),
    (NotFound, "a directory is there, and a file was asked for", "PathIsNotFileException"),
    (NotFound, "the file was deleted or taken over while it was being written", "LeaseExpiredException"),
    (AlreadyExists, "something is there already; nothing is ever overwritten", "FileAlreadyExistsException"),
    (AlreadyExists, "somebody is writing it; nothing is ever overwritten", "AlreadyBeingCreatedException"),
    (AlreadyExists, "a file whose writer died is there; nothing is ever overwritten", "RecoveryInProgressException"),
    (NotADirectory, _IN_THE_WAY, "ParentNotDirectoryException PathIsNotDirectoryException"),
    (NotEmpty, "the directory is not empty", "PathIsNotEmptyDirectoryException"),
    (PermissionDenied, _NO_PERMISSION, "AccessControlException AuthorizationException"),
    (PermissionDenied, _NOT_BELIEVED, "AuthenticationException SecurityException"),
    (PermissionDenied, "HDFS does not take the delegation token, or the ticket; get a new one", "SaslException"),
    (PermissionDenied, "the delegation token is not valid, or not any more; get a new one", "InvalidToken"),
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
_MEANINGS: dict[str, tuple[type[StorageError], str]] = {
    name: (kind, advice) for kind, advice, names in _CLASSES for name in names.split()
}

# In the answer of a port for Hadoop's own protocol to a GET.
IPC_PORT = "Hadoop IPC port"

# By parts of the texts of plain IOExceptions.
_TEXTS: list[tuple[str, type[StorageError], str]] = [
    (IPC_PORT, WrongConnection, _RPC_PORT),
    ("must both be directories", AlreadyExists, "a directory is there already; nothing is ever overwritten"),
    ("could only be written to", Unavailable, f"no DataNode took the block: {_DATANODES}"),
    ("not have enough number of replicas", Unavailable, _UNREPORTED),
    ("Failed to find datanode", Unavailable, f"no DataNode takes data: {_DATANODES}"),
    ("Authentication failure", PermissionDenied, _NOT_BELIEVED),
    ("block size", Unsupported, "set another blockSize, or none for that of HDFS"),
    ("replication", Unsupported, "set another replication, or none for that of HDFS"),
]


def expired(where: str, text: str) -> str:
    """Return the error text for a Kerberos ticket that has expired; `text`: of the library."""
    return f"the ticket of this process has expired, and {where} asks for one: renew it (kinit -R) or get one: {text}"


def no_ticket(where: str, text: str) -> str:
    """Return the error text for a process without ticket and token; `text`: of the library."""
    return (
        f"{where} asks for Kerberos, and this process has neither a ticket nor a token: {lack_of_tokens()}. The driver "
        f"needs one of them (kinit); executors need tokens: {text}"
    )


def remote_error(operation: str, path: str, where: str, java_class: str, message: str) -> StorageError:
    """Return the port's error for an exception of a server; a stack trace in the message is left out."""
    name = java_class.rpartition(".")[2].rpartition("$")[2]
    reason = message.partition("\n")[0].partition("\\n")[0].strip()
    kind, advice = _MEANINGS.get(name, (None, ""))
    if kind is None:
        matches = ((error, text) for part, error, text in _TEXTS if part in reason)
        kind, advice = next(
            matches, (Unavailable if operation in READING else OutcomeUnknown, "see the NameNode's log")
        )
    return kind(operation, path, f"{name} below {where}: {reason}: {advice}")
