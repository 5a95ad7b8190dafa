"""The hierarchy of errors: texts, pickling, and the errors that a retry can resolve."""

from __future__ import annotations

import pickle

import pytest

from ftfile.core import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.NotFound("stat", "a/b", "nothing there"),
        errors.CorruptData("a", "1 byte", "2 bytes", "restore"),
        errors.BatchGap("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: errors.FtfileError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_texts() -> None:
    error = errors.NotFound("stat", "a/b", "nothing there")
    assert str(error) == "a/b: stat failed: nothing there"
    error.url = "hdfs://namenode/out"
    assert str(error) == "hdfs://namenode/out/a/b: stat failed: nothing there"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(errors.NotFound("stat", "", "nothing there")) == "'': stat failed: nothing there"
    assert str(errors.NotFound("stat", "a\x1b[2Jb", "nothing there")) == "'a\\x1b[2Jb': stat failed: nothing there"
    assert str(errors.CorruptData("a", "1 byte", "2 bytes")) == "'a' is corrupt: expected 1 byte, found 2 bytes"


def test_only_what_may_pass_is_tried_again() -> None:
    again = {name for name in errors.__all__ if getattr(getattr(errors, name), "retry", None) is errors.Retry.AGAIN}
    after_check = {
        name for name in errors.__all__ if getattr(getattr(errors, name), "retry", None) is errors.Retry.AFTER_CHECK
    }
    assert again == {"Unavailable"}
    assert after_check == {"OutcomeUnknown", "CommitOutcomeUnknown"}
