"""The programs of docs/python-writing.md write each row once, even if they are killed."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.guarded import free_ports
from tests.kit.programs import Program, program_text, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Kills the process before or after the first call of a step.
DYING = """\
import os, pathlib, signal
from ftfile.log.commit_log import CommitLog

def dying(original, before):
    def call(*args, **options):
        if before:
            os.kill(os.getpid(), signal.SIGKILL)
        original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    return call

{owner}.{step} = dying({owner}.{step}, {before})
"""
HOURS = ("2024-07-01T22", "2024-07-01T23", "2024-07-02T00", "2024-07-02T01")
# A run of each hour is killed at one of these steps.
STEPS = (
    ("CommitLog", "create", True),
    ("CommitLog", "create", False),
    ("pathlib.Path", "unlink", True),
    ("pathlib.Path", "unlink", False),
)


@pytest.mark.slow
class TestHours:
    @pytest.fixture(autouse=True)
    def _need_polars(self) -> None:
        pytest.importorskip("polars")

    @staticmethod
    def text(home: Path) -> str:
        settings = {'"/data/incoming"': f'"{home}/incoming"', '"/data/trips"': f'"{home}/trips"'}
        return program_text("Write a DataFrame of Polars each hour", settings)

    @staticmethod
    def bring(home: Path, hour: str, first: int = 0) -> None:
        """Write the file of an hour, whose ids begin with `first`."""
        (home / "incoming").mkdir(exist_ok=True)
        lines = [json.dumps({"id": first + n, "time": f"{hour}:{n:02}:00Z", "fare": n / 4}) for n in range(60)]
        (home / f"incoming/{hour}.ndjson").write_text("\n".join(lines))

    def run(self, home: Path, before: str = "") -> int:
        with Program(before + self.text(home), home) as program:
            return program.end()

    def read(self, home: Path, day: str) -> list[int]:
        names: dict[str, Any] = {"__name__": "page"}
        exec(self.text(home), names)
        read = f"read_day(datetime.fromisoformat('{day}').date())"
        found: list[int] = sorted(eval(read, names)["id"].to_list())
        return found

    def test_each_hour_is_written_once_if_a_run_is_killed_or_repeated(self, tmp_path: Path) -> None:
        for number, (hour, (owner, step, before)) in enumerate(zip(HOURS, STEPS, strict=True)):
            self.bring(tmp_path, hour, 60 * number)
            assert self.run(tmp_path, DYING.format(owner=owner, step=step, before=before)) == -signal.SIGKILL
            assert self.run(tmp_path) == 0
            self.bring(tmp_path, hour, 60 * number)
            assert self.run(tmp_path) == 0
            assert not [*(tmp_path / "incoming").iterdir()]
        assert self.read(tmp_path, "2024-07-01") == [*range(120)]
        assert self.read(tmp_path, "2024-07-02") == [*range(120, 240)]
        check_directory(open_filesystem(f"{tmp_path}/trips"), rows_of=lambda _: ())

    def test_an_hour_in_the_wrong_order_or_with_other_rows_fails_and_stays(self, tmp_path: Path) -> None:
        self.bring(tmp_path, HOURS[1])
        assert self.run(tmp_path) == 0
        for hour, first in ((HOURS[0], 60), (HOURS[1], 60)):
            self.bring(tmp_path, hour, first)
            with Program(self.text(tmp_path), tmp_path) as program:
                assert program.end() == 1
            assert "ReplayMismatch" in program.output()
            path = tmp_path / f"incoming/{hour}.ndjson"
            path.unlink()
            (tmp_path / "program.log").unlink()
        assert self.read(tmp_path, "2024-07-01") == [*range(60)]


class Sender(threading.Thread):
    """Sends events in sequence, each until it is acknowledged; `attempts` counts the requests of each id."""

    def __init__(self, name: str, url: str, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self.attempts: Counter[str] = Counter()
        self.acknowledged: set[str] = set()
        self._name, self._url, self._ended = name, url, ended

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            event_id = f"{self._name}-{number}"
            while event_id not in self.acknowledged:
                self.attempts[event_id] += 1
                if post(self._url, {"id": event_id, "n": number}) == 200:
                    self.acknowledged.add(event_id)
                else:
                    time.sleep(0.1)
            number += 1


def post(url: str, event: object) -> int:
    """Return the status of a request, or 0 without an answer."""
    request = urllib.request.Request(url, json.dumps(event).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def acknowledged_by(senders: list[Sender]) -> int:
    return sum(len(sender.acknowledged) for sender in senders)


def has_acknowledged(senders: list[Sender], events: int) -> bool:
    """Return True if more events than this are acknowledged."""
    return acknowledged_by(senders) > events


@pytest.mark.slow
class TestWebHooks:
    @pytest.fixture
    def receiver(self, tmp_path: Path) -> tuple[str, str]:
        """Return the text of the program, and its URL."""
        (port,) = free_ports(1)
        settings = {"8080": str(port), '"/data/hooks"': f'"{tmp_path}/hooks"'}
        return program_text("Receive web hooks", settings), f"http://127.0.0.1:{port}/"

    @staticmethod
    def ids(tmp_path: Path) -> Iterator[str]:
        """Yield the id of each event in the visible files."""
        for path in (tmp_path / "hooks").glob("*.json"):
            for line in path.read_text().splitlines():
                yield json.loads(line)["id"]

    def test_acknowledged_events_are_not_lost_if_the_receiver_is_killed(
        self, seed: int, tmp_path: Path, receiver: tuple[str, str]
    ) -> None:
        text, url = receiver
        ended, moments = threading.Event(), random.Random(seed)
        senders = [Sender(f"sender{number}", url, ended) for number in range(8)]
        for sender in senders:
            sender.start()
        for _ in range(3):
            enough = acknowledged_by(senders) + len(senders)
            with Program(text, tmp_path) as program:
                wait_until(partial(has_acknowledged, senders, enough), program)
                time.sleep(moments.uniform(0, 1.5))
                program.kill()
        with Program(text, tmp_path) as program:
            ended.set()
            wait_until(lambda: not any(sender.is_alive() for sender in senders), program)
            program.kill()
        ftfile.flush(f"{tmp_path}/hooks")
        found = Counter(self.ids(tmp_path))
        acknowledged = {event for sender in senders for event in sender.acknowledged}
        assert found.keys() == acknowledged
        sent = sum((sender.attempts for sender in senders), Counter())
        assert len(acknowledged) > 32
        assert all(found[event] <= sent[event] for event in found)
        assert {found[event] for event in found if sent[event] == 1} == {1}
        assert max(sent.values()) > 1, "some are repeated"
        check_directory(open_filesystem(f"{tmp_path}/hooks"))

    def test_bad_requests_are_refused_and_a_second_receiver_takes_over(
        self, tmp_path: Path, receiver: tuple[str, str]
    ) -> None:
        text, url = receiver
        with Program(text, tmp_path) as program:
            wait_until(lambda: post(url, {"id": "first"}) == 200, program)
            bad: list[object] = [[], {}, {"id": 7}, {"id": None}, {"id": "\ud800"}, "text"]
            for event in bad:
                assert post(url, event) == 400, event
            # Another process opens the directory, so the next commit of this one fails, and it ends without an answer.
            ftfile.writer(f"{tmp_path}/hooks", "hooks", file_format="json").close()
            assert post(url, {"id": "second"}) == 0
            assert program.end() == 1
            assert "Fenced" in program.output()
        ftfile.flush(f"{tmp_path}/hooks")
        assert [*self.ids(tmp_path)] == ["first"]

    def test_a_failed_commit_is_answered_with_503(self, tmp_path: Path, receiver: tuple[str, str]) -> None:
        text, url = receiver
        staged, away = tmp_path / "hooks/_ftfile/staged", tmp_path / "away"
        with Program(text, tmp_path) as program:
            wait_until(lambda: post(url, {"id": "first"}) == 200, program)
            staged.rename(away)
            staged.touch()  # a file, so no file can be created below this name
            assert post(url, {"id": "second"}) == 503
            staged.unlink()
            away.rename(staged)
            assert post(url, {"id": "second"}) == 200
            program.kill()
        ftfile.flush(f"{tmp_path}/hooks")
        assert sorted(self.ids(tmp_path)) == ["first", "second"]
