"""The logs that a process keeps open, asked for by many threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.writing.options import LOGS_KEPT, CommonSettings, forget_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THREADS, CALLS = 4, 1_000
SETTINGS = CommonSettings.from_options(parse_options({}, SinkOptions), None, (), stream=False)
DIRECTORIES = 2 * LOGS_KEPT + 1


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_threads_write_to_more_directories_than_are_kept(tmp_path: Path) -> None:
    def ask(thread: int) -> None:
        for call in range(CALLS):
            SETTINGS.log_at(f"file://{tmp_path}/{(7 * call + thread) % DIRECTORIES}", SYSTEM)
            if call % 100 == thread:
                forget_logs()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(ask, range(THREADS)))


@pytest.mark.usefixtures("hasty")
def test_all_who_write_to_a_directory_have_one_log(tmp_path: Path) -> None:
    forget_logs()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: SETTINGS.log_at(f"file://{tmp_path}", SYSTEM), range(64)))
    assert len(set(map(id, found))) == 1
