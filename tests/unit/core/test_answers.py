from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from ftfile.core.answers import Answer, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 20


def begun(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_result_and_an_error_are_those_of_the_call() -> None:
    result, error = Answer[int](), Answer[int]()
    result.set_result(1)
    error.set_error(OSError("full"))
    assert (result.result(), result.error(), result.is_set()) == (1, None, True)
    assert str(error.error()) == "full"
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            error.result()


def test_threads_that_wait_are_woken() -> None:
    answer, found = Answer[int](), list[int]()
    threads = [begun(lambda: found.append(answer.result())) for _ in range(3)]
    assert not wait_for([answer], 0.01)
    answer.set_result(7)
    for thread in threads:
        thread.join(LIMIT_S)
    assert found == [7] * 3


def test_the_first_of_several() -> None:
    answers = [Answer[int](), Answer[int]()]
    assert not wait_for(answers, 0.01, first=True)
    thread = begun(lambda: answers[1].set_result(1))
    assert wait_for(answers, LIMIT_S, first=True)
    assert not wait_for(answers, 0.01)
    answers[0].set_result(0)
    assert wait_for(answers, 0)
    assert wait_for([], first=True)
    thread.join(LIMIT_S)


def test_callbacks_are_called_once() -> None:
    answer, called = Answer[int](), list[str]()
    answer.when_set(lambda ended: called.append(f"before {ended.result()}"))
    assert called == []
    answer.set_result(1)
    answer.when_set(lambda ended: called.append(f"after {ended.result()}"))
    assert called == ["before 1", "after 1"]
