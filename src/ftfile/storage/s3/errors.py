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


class UploadGone(StorageError):
    """The upload was completed or aborted; for the driver alone."""


class TooLargeToCopy(StorageError):
    """The file cannot be copied by one request; for the driver alone."""


_DENIED = "the store refuses it to these credentials: see which they are, and what the bucket's policy allows"
_DAMAGED = "the request was damaged on its way"
_ELSEWHERE = "the bucket is in another region: set storage.region, or AWS_REGION"
_UNKNOWN_USER = (
    "the store does not know these credentials, or not any more: docs/object-stores.md says where to give others"
)

# By the store's codes, and by the status of HTTP: an answer to HEAD, or of a proxy, has no code.
_ANSWERS = (
    (NotFound, "nothing is there", "NoSuchKey 404"),
    (NotFound, "the file is shorter than it was", "416"),
    (StorageError, "there is no such bucket: create it, or correct the path", "NoSuchBucket"),
    (UploadGone, "the upload was aborted, or its time is over", "NoSuchUpload"),
    (AlreadyExists, "something is there already; nothing is ever overwritten", "PreconditionFailed 412"),
    (Unavailable, "another request for the same name is under way", "ConditionalRequestConflict OperationAborted 409"),
    (PermissionDenied, _DENIED, "AccessDenied AllAccessDisabled AccountProblem 403"),
    (PermissionDenied, _UNKNOWN_USER, "InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken"),
    (PermissionDenied, "this machine's clock is wrong: set it", "RequestTimeTooSkewed"),
    (OutOfSpace, "the store is full, or a quota is used up", "QuotaExceeded InsufficientStorage XMinioStorageFull 507"),
    (Unavailable, "the store asks to slow down", "SlowDown Throttling ThrottlingException RequestLimitExceeded 429"),
    (Unavailable, "the store asks to slow down", "TooManyRequests"),
    (Unavailable, "the request did not arrive whole", "RequestTimeout IncompleteBody"),
    (Unavailable, _DAMAGED, "BadDigest XAmzContentSHA256Mismatch XAmzContentChecksumMismatch"),
    (Unsupported, "the path is too long for the store; shorten it", "KeyTooLongError"),
    (Unsupported, "the store cannot do this", "NotImplemented MethodNotAllowed 501"),
    (TooLargeToCopy, "it is larger than one request may be", "EntityTooLarge"),
    (Unavailable, "the bucket is new, and its name not known everywhere", "TemporaryRedirect"),
    (StorageError, _ELSEWHERE, "PermanentRedirect AuthorizationHeaderMalformed 301"),
    (StorageError, _ELSEWHERE, "IllegalLocationConstraintException"),
)
_MEANINGS = {code: (kind, advice) for kind, advice, codes in _ANSWERS for code in codes.split()}
UNKNOWN_USER = frozenset(code for code, (_, advice) in _MEANINGS.items() if advice is _UNKNOWN_USER)
# The error may arrive inside a 200 response.
_FAILURES = frozenset({"InternalError", "ServiceUnavailable"})
_CONFLICTING = 409
_SERVER_FAILED = 500


def meaning_of_answer(
    where: str, *, code: str, status: int, message: str, reads: bool
) -> tuple[type[StorageError], str]:
    """Return class and detail of the port's error for an answer that is no success; `code` may be the status."""
    named = bool(code) and not code.isdecimal()
    # A conflict with an unknown name may last: it is not tried again.
    meaning = _MEANINGS.get(str(status)) if status != _CONFLICTING or not named else (StorageError, "")
    kind, advice = _MEANINGS.get(code) or meaning or (None, "")
    if code == "InvalidRequest" and "maximum allowable size" in message:
        kind, advice = TooLargeToCopy, "it is larger than one request may be"
    if kind is None and (status >= _SERVER_FAILED or code in _FAILURES):
        # Also 503 without a code: a proxy may have handed the request on.
        kind = Unavailable if reads else OutcomeUnknown
        advice = "the store failed"
    text = f"{code or 'an answer'} ({status}) below {where}: {message or 'no text'}"
    return kind or StorageError, f"{text}: {advice}" if advice else text
