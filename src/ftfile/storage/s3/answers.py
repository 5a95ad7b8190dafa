"""Answers of S3 storage that refuse a request, as errors of the interface."""

from __future__ import annotations

import functools

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


class UploadGone(StorageError):
    """The upload was completed or aborted; only drivers raise it."""


class TooLargeToCopy(StorageError):
    """The file cannot be copied by one request; only drivers raise it."""


_DENIED = "the storage denies access to these credentials: check which credentials are used, and the bucket's policy"
_DAMAGED = "the request was damaged in transit"
_OTHER_REGION = "the bucket is in another region: set storage.region, or AWS_REGION"
_UNKNOWN_USER = (
    "the storage does not accept these credentials, or they have expired: docs/object-stores.md describes where to set "
    "credentials"
)

# By the error codes of the storage, and by the HTTP status: an answer to HEAD, or of a proxy, has no code.
_ANSWERS = (
    (NotFound, "it does not exist", "NoSuchKey 404"),
    (NotFound, "the file is shorter than it was", "416"),
    (StorageError, "there is no such bucket: create it, or correct the path", "NoSuchBucket"),
    (UploadGone, "the upload was aborted or has expired", "NoSuchUpload"),
    (AlreadyExists, "it already exists, and files are never overwritten", "PreconditionFailed 412"),
    (Unavailable, "another request for the same name is under way", "ConditionalRequestConflict OperationAborted 409"),
    (PermissionDenied, _DENIED, "AccessDenied AllAccessDisabled AccountProblem 403"),
    (PermissionDenied, "the clock of this machine is wrong: correct it", "RequestTimeTooSkewed"),
    (
        OutOfSpace,
        "the storage is full or a quota is exceeded",
        "QuotaExceeded InsufficientStorage XMinioStorageFull 507",
    ),
    (Unavailable, "the storage asks to slow down", "SlowDown Throttling ThrottlingException RequestLimitExceeded 429"),
    (Unavailable, "the storage asks to slow down", "TooManyRequests"),
    (Unavailable, "the request did not arrive completely", "RequestTimeout IncompleteBody"),
    (Unavailable, _DAMAGED, "BadDigest XAmzContentSHA256Mismatch XAmzContentChecksumMismatch"),
    (Unsupported, "the path is too long for the storage; shorten it", "KeyTooLongError"),
    (Unsupported, "the storage cannot do this", "NotImplemented MethodNotAllowed 501"),
    (TooLargeToCopy, "it is larger than one request allows", "EntityTooLarge"),
    (Unavailable, "the bucket is new, and its name is not yet known everywhere", "TemporaryRedirect"),
    (StorageError, _OTHER_REGION, "PermanentRedirect AuthorizationHeaderMalformed 301"),
    (StorageError, _OTHER_REGION, "IllegalLocationConstraintException"),
)
UNKNOWN_USER = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})
# The error can be inside a 200 response.
_FAILURES = frozenset({"InternalError", "ServiceUnavailable"})
_CONFLICTING = 409
_SERVER_FAILED = 500


@functools.cache
def _meanings_by_code() -> dict[str, tuple[type[StorageError], str]]:
    meanings: dict[str, tuple[type[StorageError], str]] = {}
    for kind, advice, codes in _ANSWERS:
        meanings |= dict.fromkeys(codes.split(), (kind, advice))
    return meanings | dict.fromkeys(UNKNOWN_USER, (PermissionDenied, _UNKNOWN_USER))


def meaning_of_answer(*, code: str, status: int, message: str, reads: bool) -> tuple[type[StorageError], str]:
    """Return class and detail of the interface's error for a failed request; `code` can be the status."""
    named = bool(code) and not code.isdecimal()
    # A conflict with an unknown name can be permanent, so it is not retried.
    meanings = _meanings_by_code()
    if status != _CONFLICTING or not named:
        meaning = meanings.get(str(status))
    else:
        meaning = (StorageError, "")
    kind, advice = meanings.get(code) or meaning or (None, "")
    if code == "InvalidRequest" and "maximum allowable size" in message:
        kind, advice = TooLargeToCopy, "it is larger than one request allows"
    if kind is None and (status >= _SERVER_FAILED or code in _FAILURES):
        # Also a 503 without a code: a proxy may have forwarded the request.
        kind = Unavailable if reads else OutcomeUnknown
        advice = "the storage failed"
    text = f"{code or 'an answer'} ({status}): {message or 'no text'}"
    return kind or StorageError, f"{text}: {advice}" if advice else text
