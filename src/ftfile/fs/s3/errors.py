"""What answers of an S3 store, and their absence, mean to callers of the port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("READING", "UNKNOWN_USER", "TooLargeToCopy", "UploadGone", "remote_error")


class UploadGone(StorageError):
    """The upload was completed or aborted; for the driver alone."""


class TooLargeToCopy(StorageError):
    """The file cannot be copied by one request; for the driver alone."""


# A call of these that failed has changed nothing.
READING = frozenset({"open", "read", "read_at", "stat", "list"})

_EXISTS = "something is there already; nothing is ever overwritten"
_REFUSED = "the store refuses it to these credentials: see which they are, and what the bucket's policy allows"
_UNKNOWN_USER = (
    "the store does not know these credentials, or not any more: docs/object-stores.md says where to give others"
)
_FULL = "the store is full, or a quota is used up"
_SLOW = "the store asks to slow down"
_CONFLICT = "another request for the same name is under way"
_ELSEWHERE = "the bucket is in another region: set storage.region, or AWS_REGION"

_MEANINGS: Mapping[str, tuple[type[StorageError], str]] = {
    "NoSuchKey": (NotFound, "nothing is there"),
    "NoSuchBucket": (StorageError, "there is no such bucket: create it, or correct the path"),
    "NoSuchUpload": (UploadGone, "the upload was aborted, or its time is over"),
    "PreconditionFailed": (AlreadyExists, _EXISTS),
    "ConditionalRequestConflict": (Unavailable, _CONFLICT),
    "OperationAborted": (Unavailable, _CONFLICT),
    "AccessDenied": (PermissionDenied, _REFUSED),
    "AllAccessDisabled": (PermissionDenied, _REFUSED),
    "AccountProblem": (PermissionDenied, _REFUSED),
    "InvalidAccessKeyId": (PermissionDenied, _UNKNOWN_USER),
    "SignatureDoesNotMatch": (PermissionDenied, _UNKNOWN_USER),
    "ExpiredToken": (PermissionDenied, _UNKNOWN_USER),
    "InvalidToken": (PermissionDenied, _UNKNOWN_USER),
    "RequestTimeTooSkewed": (PermissionDenied, "this machine's clock is wrong: set it"),
    "QuotaExceeded": (OutOfSpace, _FULL),
    "InsufficientStorage": (OutOfSpace, _FULL),
    "XMinioStorageFull": (OutOfSpace, _FULL),
    "SlowDown": (Unavailable, _SLOW),
    "Throttling": (Unavailable, _SLOW),
    "ThrottlingException": (Unavailable, _SLOW),
    "RequestLimitExceeded": (Unavailable, _SLOW),
    "TooManyRequests": (Unavailable, _SLOW),
    # The store had not received all of the request.
    "RequestTimeout": (Unavailable, "the request did not arrive whole"),
    "IncompleteBody": (Unavailable, "the request did not arrive whole"),
    "BadDigest": (Unavailable, "the request was damaged on its way"),
    "XAmzContentSHA256Mismatch": (Unavailable, "the request was damaged on its way"),
    "XAmzContentChecksumMismatch": (Unavailable, "the request was damaged on its way"),
    "KeyTooLongError": (Unsupported, "the path is too long for the store; shorten it"),
    "NotImplemented": (Unsupported, "the store cannot do this"),
    "MethodNotAllowed": (Unsupported, "the store cannot do this"),
    "EntityTooLarge": (TooLargeToCopy, "it is larger than one request may be"),
    "PermanentRedirect": (StorageError, _ELSEWHERE),
    "TemporaryRedirect": (Unavailable, "the bucket is new, and its name not known everywhere"),
    "AuthorizationHeaderMalformed": (StorageError, _ELSEWHERE),
    "IllegalLocationConstraintException": (StorageError, _ELSEWHERE),
}

# Who asks is not known, or not any more.
UNKNOWN_USER = frozenset(code for code, (_, advice) in _MEANINGS.items() if advice is _UNKNOWN_USER)

# Answers to HEAD have no body, and those of what stands between have another one.
_STATUSES: Mapping[int, tuple[type[StorageError], str]] = {
    301: (StorageError, _ELSEWHERE),
    403: (PermissionDenied, _REFUSED),
    404: (NotFound, "nothing is there"),
    409: (Unavailable, _CONFLICT),
    412: (AlreadyExists, _EXISTS),
    416: (NotFound, "the file is shorter than it was"),
    429: (Unavailable, _SLOW),
    501: (Unsupported, "the store cannot do this"),
    507: (OutOfSpace, _FULL),
}

# Of a long request the store says so when the status is sent.
_FAILURES = frozenset({"InternalError", "ServiceUnavailable"})

_CONFLICTING = 409
_SERVER_FAILED = 500


def remote_error(operation: str, path: str, where: str, *, code: str, status: int, message: str) -> StorageError:
    """Return what an answer that is no success means.

    Args:
        operation: the port's method.
        path: what it was asked to act on.
        where: the root below which the path is.
        code: the store's name for the error; may be the status, or empty.
        status: of HTTP.
        message: the store's text.
    """
    named = bool(code) and not code.isdecimal()
    # What a store calls a conflict may last, and it is only known of some that they pass.
    known = _STATUSES.get(status) if status != _CONFLICTING or not named else (StorageError, "")
    kind, advice = _MEANINGS.get(code) or known or (None, "")
    if code == "InvalidRequest" and "maximum allowable size" in message:
        kind, advice = TooLargeToCopy, "it is larger than one request may be"
    if kind is None and (status >= _SERVER_FAILED or code in _FAILURES):
        # Also 503 without a code: of a proxy, which may have handed the request on.
        kind = Unavailable if operation in READING else OutcomeUnknown
        advice = "the store failed"
    text = f"{code or 'an answer'} ({status}) below {where}: {message or 'no text'}"
    return (kind or StorageError)(operation, path, f"{text}: {advice}" if advice else text)
