"""An event counts as met only if it had an effect."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.testing.fs.disk import Replay
from tests.histories import events
from tests.histories.pairs import Met
from tests.histories.plan import draw_history
from tests.histories.playing import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from ftfile.core.context import IdSource
    from ftfile.testing.fs.disk import Disk, Loss


def is_counted(kind: str) -> bool:
    """Return True if a history on a disk whose events are all of this kind counts one of them."""
    drawn = (draw_history(seed, 12, events=1.0) for seed in range(100))
    history = next(each for each in drawn if each.storage == "disk")
    steps = []
    for step in history.steps:
        event = None if step.event is None else replace(step.event, kind=kind)
        steps.append(replace(step, event=event))
    met = Met()
    logging.disable(logging.CRITICAL)
    try:
        play(history.with_steps(tuple(steps)), met)
    finally:
        logging.disable(logging.NOTSET)
    return any(f"event {kind}" in pair for pair in met.pairs)


def lose_nothing(replayed: Replay, _: IdSource) -> Iterator[tuple[Disk, Loss]]:
    while True:
        yield next(replayed.outcomes())


def test_a_power_cut_counts_if_it_has_lost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_counted("power cut")
    monkeypatch.setattr(Replay, "sample", lose_nothing)
    assert not is_counted("power cut")


def test_a_second_thread_counts_if_it_has_done_something(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_counted("second thread")
    monkeypatch.setattr(events, "_do_something", lambda *_: False)
    assert not is_counted("second thread")
