"""Translation of an S3 store's answers, and of their absence."""

from __future__ import annotations

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

__all__ = ("READING", "UNKNOWN_USER", "TooLargeToCopy", "UploadGone", "remote_error")


class UploadGone(StorageError):
    """The upload was completed or aborted; for the driver alone."""


class TooLargeToCopy(StorageError):
    """The file cannot be copied by one request; for the driver alone."""


# A call of these that failed has changed nothing.
READING = frozenset({"open", "read", "read_at", "stat", "list"})

_UNKNOWN_USER = (
    "the store does not know these credentials, or not any more: docs/object-stores.md says where to give others"
)

# What answers mean, by the store's codes, and by the status of HTTP: answers to HEAD have no body, and those of a proxy
# have another one.
_ANSWERS: tuple[tuple[type[StorageError], str, tuple[str | int, ...]], ...] = (
    (NotFound, "nothing is there", ("NoSuchKey", 404)),
    (NotFound, "the file is shorter than it was", (416,)),
    (StorageError, "there is no such bucket: create it, or correct the path", ("NoSuchBucket",)),
    (UploadGone, "the upload was aborted, or its time is over", ("NoSuchUpload",)),
    (AlreadyExists, "something is there already; nothing is ever overwritten", ("PreconditionFailed", 412)),
    (
        Unavailable,
        "another request for the same name is under way",
        ("ConditionalRequestConflict", "OperationAborted", 409),
    ),
    (
        PermissionDenied,
        "the store refuses it to these credentials: see which they are, and what the bucket's policy allows",
        ("AccessDenied", "AllAccessDisabled", "AccountProblem", 403),
    ),
    (PermissionDenied, _UNKNOWN_USER, ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")),
    (PermissionDenied, "this machine's clock is wrong: set it", ("RequestTimeTooSkewed",)),
    (
        OutOfSpace,
        "the store is full, or a quota is used up",
        ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", 507),
    ),
    (
        Unavailable,
        "the store asks to slow down",
        ("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", 429),
    ),
    (Unavailable, "the request did not arrive whole", ("RequestTimeout", "IncompleteBody")),
    (
        Unavailable,
        "the request was damaged on its way",
        ("BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"),
    ),
    (Unsupported, "the path is too long for the store; shorten it", ("KeyTooLongError",)),
    (Unsupported, "the store cannot do this", ("NotImplemented", "MethodNotAllowed", 501)),
    (TooLargeToCopy, "it is larger than one request may be", ("EntityTooLarge",)),
    (Unavailable, "the bucket is new, and its name not known everywhere", ("TemporaryRedirect",)),
    (
        StorageError,
        "the bucket is in another region: set storage.region, or AWS_REGION",
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", 301),
    ),
)
_MEANINGS = {code: (kind, advice) for kind, advice, codes in _ANSWERS for code in codes}

# The user is not known, or not any more.
UNKNOWN_USER = frozenset(code for code, (_, advice) in _MEANINGS.items() if advice is _UNKNOWN_USER)

# The error may arrive inside a 200 response.
_FAILURES = frozenset({"InternalError", "ServiceUnavailable"})

_CONFLICTING = 409
_SERVER_FAILED = 500


def remote_error(operation: str, path: str, where: str, *, code: str, status: int, message: str) -> StorageError:
    """Return the port's error for an answer that is no success.

    Args:
        operation: the port's method.
        path: its argument.
        where: the root below which the path is.
        code: the store's name for the error; may be the status, or empty.
        status: of HTTP.
        message: the store's text.
    """
    named = bool(code) and not code.isdecimal()
    # What a store calls a conflict may last, and it is only known of some that they pass.
    known = _MEANINGS.get(status) if status != _CONFLICTING or not named else (StorageError, "")
    kind, advice = _MEANINGS.get(code) or known or (None, "")
    if code == "InvalidRequest" and "maximum allowable size" in message:
        kind, advice = TooLargeToCopy, "it is larger than one request may be"
    if kind is None and (status >= _SERVER_FAILED or code in _FAILURES):
        # Also 503 without a code: of a proxy, which may have handed the request on.
        kind = Unavailable if operation in READING else OutcomeUnknown
        advice = "the store failed"
    text = f"{code or 'an answer'} ({status}) below {where}: {message or 'no text'}"
    return (kind or StorageError)(operation, path, f"{text}: {advice}" if advice else text)
