from __future__ import annotations

import itertools
import os
import threading

import pytest

from ftfile.storage.per_process import PerProcess, digest_of_variables


@pytest.mark.slow
def test_made_once_by_all_threads_and_once_more_in_a_fork() -> None:
    made: list[str] = []

    def make(key: str) -> object:
        made.append(key)
        return object()

    things = PerProcess(make)
    threads = [threading.Thread(target=things.of, args=("a",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    assert things.of("a") is things.of("a") is not things.of("b")
    ours = things.of("a")
    # Forked while another thread holds the lock: the child must not wait for it.
    with things._lock:  # noqa: SLF001
        child = os.fork()
        if child == 0:
            os._exit(0 if things.of("a") is not ours else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_cannot_be_made_is_not_kept() -> None:
    errors = [ValueError("not yet")]

    def make(key: str) -> str:
        if errors:
            raise errors.pop()
        return key

    things = PerProcess(make)
    with pytest.raises(ValueError, match="not yet"):
        things.of("a")
    assert things.of("a") == "a"


def test_made_anew_where_secrets_are_known_to_be_others() -> None:
    numbers = itertools.count()
    things: PerProcess[str, int] = PerProcess(lambda _: next(numbers))
    assert [things.of("a", digest) for digest in ("1", "1", "2", None, "2", "1")] == [0, 0, 1, 1, 1, 2]


def test_a_digest_tells_values_apart_and_not_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("FTFILE_FIRST", "FTFILE_SECOND")
    found = set()
    for values in (("s3cret", "b"), ("s3cre", "tb"), ("s3cret", "b\udcff"), ("s3cret", "b")):
        for name, value in zip(names, values, strict=True):
            monkeypatch.setenv(name, value)
        digest = digest_of_variables(names)
        assert digest is not None
        assert "s3cret" not in digest
        found.add(digest)
    assert len(found) == 3
    monkeypatch.delenv("FTFILE_SECOND")
    assert digest_of_variables(names) is None
    assert digest_of_variables(()) is not None
