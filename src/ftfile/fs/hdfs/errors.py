"""Translation of Hadoop's exceptions, which both HDFS drivers know by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
)
from ftfile.fs.hdfs.tokens import lack_of_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("READING", "NotEmpty", "expired", "no_ticket", "remote_error")


class NotEmpty(StorageError):
    """A directory has something in it; for the drivers alone."""


# A call of these that failed has changed nothing.
READING = frozenset({"open", "read", "read_at", "stat", "list"})

_NO_PERMISSION = "HDFS refuses it to this user; grant the permission, or run as a user who has it"
_NO_QUOTA = "a quota is used up; free space or raise it (hdfs dfsadmin -setSpaceQuota, -setQuota)"
_NOT_NOW = "the NameNode takes no changes yet; it may be tried again"
_BAD_NAME = "HDFS does not take this name; choose another"

_MEANINGS: Mapping[str, tuple[type[StorageError], str]] = {
    "FileNotFoundException": (NotFound, "nothing is there"),
    "PathIsNotFileException": (NotFound, "a directory is there, and a file was asked for"),
    "FileAlreadyExistsException": (AlreadyExists, "something is there already; nothing is ever overwritten"),
    "AlreadyBeingCreatedException": (AlreadyExists, "somebody is writing it; nothing is ever overwritten"),
    "RecoveryInProgressException": (AlreadyExists, "a file whose writer died is there; nothing is ever overwritten"),
    "LeaseExpiredException": (NotFound, "the file was deleted or taken over while it was being written"),
    "ParentNotDirectoryException": (NotADirectory, "a file is where a directory is needed; move it"),
    "PathIsNotDirectoryException": (NotADirectory, "a file is where a directory is needed; move it"),
    "PathIsNotEmptyDirectoryException": (NotEmpty, "the directory is not empty"),
    "AccessControlException": (PermissionDenied, _NO_PERMISSION),
    "AuthorizationException": (PermissionDenied, _NO_PERMISSION),
    "AuthenticationException": (PermissionDenied, "HDFS does not believe who this is; get a ticket or a token"),
    "SecurityException": (PermissionDenied, "HDFS does not believe who this is; get a ticket or a token"),
    "SaslException": (PermissionDenied, "HDFS does not take the delegation token, or the ticket; get a new one"),
    "InvalidToken": (PermissionDenied, "the delegation token is not valid, or not any more; get a new one"),
    "DSQuotaExceededException": (OutOfSpace, _NO_QUOTA),
    "NSQuotaExceededException": (OutOfSpace, _NO_QUOTA),
    "QuotaByStorageTypeExceededException": (OutOfSpace, _NO_QUOTA),
    "MaxDirectoryItemsExceededException": (
        OutOfSpace,
        "the directory has as many files as HDFS allows (dfs.namenode.fs-limits.max-directory-items); use buckets",
    ),
    "SafeModeException": (Unavailable, f"{_NOT_NOW}: it is in safe mode (hdfs dfsadmin -safemode get)"),
    "RetriableException": (Unavailable, _NOT_NOW),
    "StandbyException": (Unavailable, "the NameNode is in standby, and no active one was found"),
    "PathComponentTooLongException": (Unsupported, "a name is too long for HDFS; shorten it"),
    "InvalidPathException": (Unsupported, _BAD_NAME),
    "HadoopIllegalArgumentException": (Unsupported, _BAD_NAME),
    "IllegalArgumentException": (Unsupported, "HDFS refuses a parameter"),
    "UnsupportedOperationException": (Unsupported, "HDFS cannot do this"),
}

# Some of what is plain IOException, by what it says.
_TEXTS: tuple[tuple[str, type[StorageError], str], ...] = (
    ("must both be directories", AlreadyExists, "a directory is there already; nothing is ever overwritten"),
    (
        "could only be written to",
        Unavailable,
        "no DataNode took the block: look whether they run and have space (hdfs dfsadmin -report)",
    ),
    (
        "Failed to find datanode",
        Unavailable,
        "no DataNode takes data: look whether they run and have space (hdfs dfsadmin -report)",
    ),
    ("Authentication failure", PermissionDenied, "HDFS does not believe who this is; get a ticket or a token"),
    ("block size", Unsupported, "set another blockSize, or none for that of HDFS"),
    ("replication", Unsupported, "set another replication, or none for that of HDFS"),
)


def expired(where: str, text: str) -> str:
    """Return the error text for a Kerberos ticket that has ended; `text`: of the library."""
    return f"the ticket of this process has expired, and {where} asks for one: renew it (kinit -R) or get one: {text}"


def no_ticket(where: str, text: str) -> str:
    """Return the error text for a process without ticket and token; `text`: of the library."""
    return (
        f"{where} asks for Kerberos, and this process has neither a ticket nor a token: {lack_of_tokens()}. The driver "
        f"needs one of them (kinit); executors need tokens: {text}"
    )


def remote_error(operation: str, path: str, where: str, java_class: str, message: str) -> StorageError:
    """Return the port's error for an exception of a server.

    Args:
        operation: the port's method.
        path: what it was asked to act on.
        where: the root below which the path is.
        java_class: name of the exception, with or without its package.
        message: its text; a stack trace behind it is left out.
    """
    name = java_class.rpartition(".")[2].rpartition("$")[2]
    reason = message.partition("\n")[0].partition("\\n")[0].strip()
    kind, advice = _MEANINGS.get(name, (None, ""))
    if kind is None:
        found = ((error, text) for part, error, text in _TEXTS if part in reason)
        kind, advice = next(found, (Unavailable if operation in READING else OutcomeUnknown, "see the NameNode's log"))
    return kind(operation, path, f"{name} below {where}: {reason}: {advice}")
