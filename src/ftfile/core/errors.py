"""All errors that ftfile raises, as one tree.

Each class states if a retry can help (`retry`), so that retrying code reads the answer
and nothing else; drivers translate the errors of their SDK at the edge::

    FtfileError
    ├─ ConfigError · SchemaError · EncodingError · UserCodeError · CorruptData · StillOpen · RolledBack
    │  └─ UnencodableRows (an EncodingError)
    ├─ StorageError
    │  ├─ NotFound · AlreadyExists · PermissionDenied · OutOfSpace · NotADirectory
    │  ├─ Unsupported · StreamClosed · Unavailable · OutcomeUnknown
    │  └─ MissingParent (a NotFound) · WrongConnection (a ConfigError, too)
    ├─ SourceError
    │  └─ HistoryGone · AnotherLog · ChangedRows · StateLost · FileChanged
    └─ CommitError
       ├─ InvalidMessages · ReplayMismatch · UnknownQuery · BatchGap · StaleFiles
       ├─ NameCollision · MissingPart · NotPublished · CommitOutcomeUnknown
       └─ Fenced · WindowOrder
"""

from __future__ import annotations

import enum
from typing import ClassVar

from ftfile.core.logs import redacted

__all__ = (
    "AlreadyExists",
    "AnotherLog",
    "BatchGap",
    "ChangedRows",
    "CommitError",
    "CommitOutcomeUnknown",
    "ConfigError",
    "CorruptData",
    "DanglingLink",
    "EncodingError",
    "Fenced",
    "FileChanged",
    "FtfileError",
    "HistoryGone",
    "InvalidMessages",
    "MissingParent",
    "MissingPart",
    "NameCollision",
    "NotADirectory",
    "NotAFile",
    "NotFound",
    "NotPublished",
    "OutOfSpace",
    "OutcomeUnknown",
    "PermissionDenied",
    "ReplayMismatch",
    "Retry",
    "RolledBack",
    "SchemaError",
    "SourceError",
    "StaleFiles",
    "StateLost",
    "StillOpen",
    "StorageError",
    "StreamClosed",
    "Unavailable",
    "UnencodableRows",
    "UnknownQuery",
    "Unsupported",
    "UserCodeError",
    "WindowOrder",
    "WrongConnection",
)


class Retry(enum.Enum):
    """The use of trying the same call again."""

    NEVER = "never"
    AGAIN = "again"
    LOOK = "look"


class FtfileError(Exception):
    """The base of every error that ftfile raises on purpose."""

    retry: ClassVar[Retry] = Retry.NEVER

    def __str__(self) -> str:
        return redacted(super().__str__())

    def __repr__(self) -> str:
        return redacted(super().__repr__())


class ConfigError(FtfileError):
    """An option is unknown, malformed, contradicts another, or asks for what is not there."""


class SchemaError(FtfileError):
    """A column cannot be stored: its type, its name, or a change since the last record."""


class EncodingError(FtfileError):
    """A value cannot be encoded in the chosen format."""


class UnencodableRows(EncodingError):
    """Some of the rows given cannot be encoded, and none of them was taken: those that can be may be given again."""


class UserCodeError(FtfileError):
    """A class or function that an option names failed, or returned something else than was asked of it."""


class StorageError(FtfileError):
    """A file-system operation, such as `rename`, failed on a path; the detail is the state found, and what to do."""

    def __init__(self, operation: str, path: str, detail: str) -> None:
        super().__init__(operation, path, detail)
        self.operation = operation
        self.path = path

    @property
    def detail(self) -> str:
        """The detail without credentials, which are looked for here: most of these errors are never shown."""
        return redacted(self.args[2])

    def __str__(self) -> str:
        return f"{self.operation} {self.path!r}: {self.detail}"


class NotFound(StorageError):
    """Nothing is at the path."""


class MissingParent(NotFound):
    """The directory for a new name is missing; nothing was changed."""


class DanglingLink(NotFound):
    """A symbolic link that leads nowhere is at the path: nothing can be read there, and nothing be made."""


class NotAFile(NotFound):
    """A symbolic link, pipe, socket or device is where a file should be: it is not opened, and no file is there."""


class AlreadyExists(StorageError):
    """Something is at the path already, and nothing is ever overwritten."""


class PermissionDenied(StorageError):
    """The store refuses this user the operation."""


class OutOfSpace(StorageError):
    """The store is full, or a quota is used up."""


class NotADirectory(StorageError):
    """A directory is needed and the path, or one of its parents, is a file."""


class Unsupported(StorageError):
    """The store or the stream cannot give the guarantee asked for; it is never weakened silently."""


class StreamClosed(StorageError):
    """The stream was closed, aborted, or lost its guarantees by a failed sync."""


class Unavailable(StorageError):
    """The store did not answer as it should; nothing happened and the call may be repeated.

    Attributes:
        waited_s: how long was waited for the store; 0 if that is not known.
    """

    retry = Retry.AGAIN
    waited_s = 0.0


class OutcomeUnknown(StorageError):
    """The store's reply was lost: the operation may or may not have taken effect."""

    retry = Retry.LOOK


class WrongConnection(ConfigError, StorageError):
    """No request reaches the store as the connection is configured, so none was sent, and waiting does not help."""


class CorruptData(FtfileError):
    """Bytes on storage are not those recorded: what the log or the format expects, what is there, and what to do."""

    def __init__(self, path: str, expected: str, actual: str, hint: str = "") -> None:
        super().__init__(path, expected, actual, hint)
        self.path = path
        self.expected = expected
        self.found = actual
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.path!r} is corrupt: {redacted(f'expected {self.expected}, found {self.found}')}"
        return f"{text}. {self.hint}" if self.hint else text


class StillOpen(FtfileError):
    """Records stay in open files, for several reasons; all other files are finished."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return f"records stay open for {len(self.reasons)} reasons: {redacted('; '.join(self.reasons))}"


class RolledBack(FtfileError):
    """The newest version of a directory is older than one that its reader or writer knows it to have had."""


class SourceError(FtfileError):
    """A stream cannot go on from its position."""


class HistoryGone(SourceError):
    """Vacuum has deleted versions, or files, that are to be read or restored."""


class AnotherLog(SourceError):
    """The position is one of another log: the directory was created anew, or restored from an older copy."""


class ChangedRows(SourceError):
    """A version replaces or removes rows, which a stream of new rows cannot tell."""


class StateLost(SourceError):
    """The log of plans that a position names is gone, is another one, or does not reach so far."""


class FileChanged(SourceError):
    """A file has other content than when a batch was planned that reads it, or is gone, and is nowhere else."""


class CommitError(FtfileError):
    """A batch cannot be committed."""


class InvalidMessages(CommitError):
    """The tasks' messages do not make one complete batch of one query."""


class ReplayMismatch(CommitError):
    """The batch is in the log with other content: another history of this query."""


class UnknownQuery(CommitError):
    """The log has other queries and has never seen this one."""


class BatchGap(CommitError):
    """The batch does not follow the last one recorded for its query."""


class StaleFiles(CommitError):
    """Staged files are not younger than the vacuum horizon: they may be deleted at any moment."""


class NameCollision(CommitError):
    """Two different files claim the same final name; neither is touched."""


class MissingPart(CommitError):
    """A committed part is neither staged, nor at its final name, nor retired."""


class NotPublished(CommitError):
    """The batch is committed and must not be written again; a later commit finishes publishing it."""


class CommitOutcomeUnknown(CommitError):
    """It is unknown if the record was created; nothing was deleted."""

    retry = Retry.LOOK


class Fenced(CommitError):
    """A newer process has opened the store as this writer: this one writes no more."""


class WindowOrder(CommitError):
    """Windows of a writer come in another order than their numbers, or one comes again that is recorded."""
