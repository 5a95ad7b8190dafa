"""The errors that ftfile raises.

Each class states in `retry` if a retry can help, and retrying code reads only this. Storage drivers translate the
errors of their libraries into these classes::

    FtfileError
    ├─ ConfigError · SchemaError · EncodingError · UserCodeError · CorruptData · StillOpen · RolledBack
    │  └─ UnencodableRows (an EncodingError) · KeysRequired, ArgumentError (a ConfigError)
    ├─ StorageError
    │  ├─ NotFound · AlreadyExists · PermissionDenied · OutOfSpace · NotADirectory
    │  ├─ Unsupported · StreamClosed · Unavailable · OutcomeUnknown
    │  └─ MissingParent (a NotFound) · WrongConnection (a ConfigError, too)
    ├─ SourceError
    │  └─ HistoryGone · AnotherLog · ChangedRows · StateLost · FileChanged
    └─ CommitError
       ├─ InvalidMessages · ReplayMismatch · UnknownQuery · BatchGap · StaleFiles
       ├─ NameCollision · MissingPart · NotPublished · CommitOutcomeUnknown
       └─ Fenced · WindowOrder · CallOrder
"""

from __future__ import annotations

import enum
from typing import ClassVar

from ftfile.core.logs import redact
from ftfile.core.remedies import PATH, Advice, Remedy, in_commands, join_texts

__all__ = (
    "AlreadyExists",
    "AnotherLog",
    "ArgumentError",
    "BatchGap",
    "CallOrder",
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
    "KeysRequired",
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
    """When a call may be repeated: never, at once, or only after the outcome of its first attempt was checked."""

    NEVER = "never"
    AGAIN = "again"
    AFTER_CHECK = "after check"


class FtfileError(Exception):
    """The base class of the errors of ftfile."""

    retry: ClassVar[Retry] = Retry.NEVER

    @property
    def text(self) -> str:
        """The text without credentials; an `Advice` if it contains remedies."""
        first = None
        if len(self.args) == 1:
            first = self.args[0]
        if isinstance(first, Advice):
            return _without_secrets(first)
        return redact(super().__str__())

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The calls of ftfile that the text recommends."""
        return Advice(self.text).remedies

    def in_commands(self, path: str = PATH) -> str:
        """Return the text with commands for a path in place of calls of Python."""
        return in_commands(self.text, path)

    def __str__(self) -> str:
        return str(self.text)

    def __repr__(self) -> str:
        return redact(super().__repr__())


def _without_secrets(text: str) -> str:
    """Return a text without credentials; an `Advice` keeps its remedies."""
    if isinstance(text, Advice):
        parts = list(text.parts)
        for place, part in enumerate(parts):
            if isinstance(part, str):
                parts[place] = redact(part)
        return Advice(*parts)
    return redact(text)


class ConfigError(FtfileError):
    """An option or argument is unknown, malformed, contradicts another one, or names a missing object."""


class KeysRequired(ConfigError):
    """The directory is encrypted, and no keys were given."""


class ArgumentError(ConfigError, TypeError):
    """An argument of a function has a wrong type."""


class SchemaError(FtfileError):
    """A column cannot be stored, because of its type, its name, or a change since the last commit."""


class EncodingError(FtfileError):
    """A value cannot be encoded in the chosen format."""


class UnencodableRows(EncodingError):
    """Some rows of a batch cannot be encoded. No row was written, so the other rows can be written again."""


class UserCodeError(FtfileError):
    """A class or function of the user, named by an option, failed or returned an invalid value."""


class StorageError(FtfileError):
    """A file-system operation failed, such as `rename`; the detail has the cause and the remedy.

    The path is relative to `url`, the root of the file system; it is empty until the error leaves the file system.
    """

    url = ""

    def __init__(self, operation: str, path: str, detail: str) -> None:
        super().__init__(operation, path, detail)
        self.operation = operation
        self.path = path

    @property
    def detail(self) -> str:
        """The detail without credentials; they are removed here, since most errors are never shown."""
        return _without_secrets(self.args[2])

    @property
    def text(self) -> str:
        """The URL, the operation and the detail."""
        place = "/".join(filter(None, (redact(self.url).rstrip("/"), self.path)))
        if not place.isprintable() or not place.strip():
            place = repr(place)
        return Advice(f"{place}: {self.operation} failed: ", self.detail)


class NotFound(StorageError):
    """Nothing is at the path."""


class MissingParent(NotFound):
    """The directory for a new name is missing; nothing was changed."""


class DanglingLink(NotFound):
    """The path is a symbolic link without a target: no file can be read or created there."""


class NotAFile(NotFound):
    """The path is a symbolic link, pipe, socket or device instead of a file; it is not opened."""


class AlreadyExists(StorageError):
    """The path exists. Files are never overwritten."""


class PermissionDenied(StorageError):
    """The storage does not permit the operation to this user."""


class OutOfSpace(StorageError):
    """The storage is full, or a quota is exceeded."""


class NotADirectory(StorageError):
    """The path, or one of its parents, is a file instead of a directory."""


class Unsupported(StorageError):
    """The storage or the stream cannot give a required guarantee, which is never weakened silently."""


class StreamClosed(StorageError):
    """The stream was closed or aborted, or lost its guarantees because a sync failed."""


class Unavailable(StorageError):
    """The storage did not respond, or responded with a server error. The call had no effect and can be retried.

    Attributes:
        waited_s: the seconds that the call waited for the storage; 0 if unknown.
    """

    retry = Retry.AGAIN
    waited_s = 0.0


class OutcomeUnknown(StorageError):
    """The response of the storage was lost, so it is unknown if the operation took effect."""

    retry = Retry.AFTER_CHECK


class WrongConnection(ConfigError, StorageError):
    """The connection is configured wrongly, so no request was sent and waiting does not help."""


class CorruptData(FtfileError):
    """The content of a file is not what the log or the format requires: the expected, the actual, and the remedy."""

    def __init__(self, path: str, expected: str, actual: str, hint: str = "") -> None:
        super().__init__(path, expected, actual, hint)
        self.path = path
        self.expected = expected
        self.found = actual
        self.hint = hint

    @property
    def text(self) -> str:
        """The path, the expected and the actual content, and the remedy."""
        text = f"{self.path!r} is corrupt: {redact(f'expected {self.expected}, found {self.found}')}"
        if self.hint:
            return Advice(text, ". ", self.hint)
        return text


class StillOpen(FtfileError):
    """Some open files could not be finished, each for the given reason; all other files are finished."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    @property
    def text(self) -> str:
        """The number of reasons, and each reason."""
        reasons = _without_secrets(join_texts("; ", self.reasons))
        return Advice(f"records stay open for {len(self.reasons)} reasons: ", reasons)


class RolledBack(FtfileError):
    """The newest version of a directory is older than a version that its reader or writer has seen."""


class SourceError(FtfileError):
    """A stream cannot continue from its position."""


class HistoryGone(SourceError):
    """Vacuum has deleted the versions or files to read or restore.

    Attributes:
        fact: the deleted version or file.
        advice: the remedy.
    """

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(fact, advice)
        self.fact = fact
        self.advice = advice

    @property
    def text(self) -> str:
        """The deleted version or file, and the remedy."""
        return _without_secrets(Advice(self.fact, ". ", self.advice) if self.advice else self.fact)


class AnotherLog(SourceError):
    """The position belongs to another log: the directory was recreated, or restored from an older copy."""


class ChangedRows(SourceError):
    """A version replaces or removes rows, which a stream of new rows cannot express."""


class StateLost(SourceError):
    """The log of plans that a position names was deleted, was replaced, or ends before the position."""


class FileChanged(SourceError):
    """A file was changed or deleted after a batch that reads it was planned, and no other name has its content."""


class CommitError(FtfileError):
    """A batch cannot be committed."""


class InvalidMessages(CommitError):
    """The messages of the tasks are not one complete batch of one query."""


class ReplayMismatch(CommitError):
    """The batch was committed before with other rows, so the query has another history."""


class UnknownQuery(CommitError):
    """The log has other queries, but no batch of this one."""


class BatchGap(CommitError):
    """The batch does not follow the last committed batch of its query."""


class StaleFiles(CommitError):
    """Staged files are older than the vacuum horizon, so a vacuum can delete them at any time."""


class NameCollision(CommitError):
    """Two files have the same final name; both are unchanged."""


class MissingPart(CommitError):
    """A committed file is missing in the stage, at its final name, and among the retired files."""


class NotPublished(CommitError):
    """The batch is committed and must not be written again. A later commit publishes its files."""


class CommitOutcomeUnknown(CommitError):
    """It is unknown if the record was created; no file was deleted."""

    retry = Retry.AFTER_CHECK


class Fenced(CommitError):
    """A newer process has opened the store or directory as the same writer, so this process can no longer write."""


class CallOrder(CommitError):
    """A call of a writer is out of order: it is closed, another call runs, or a failed call must be settled first."""


class WindowOrder(CommitError):
    """A window of a writer is out of order, or was committed before."""
