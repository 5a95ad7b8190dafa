"""The flights of 2013 as Kafka records, and the thread that sends them to the producer at a rate."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.demos.files.check import connect
from tests.demos.files.data import load_flights

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ("Feed", "load_lines")

STEP_S = 0.05
# The rate while the stream starts, and of the last rows while kills are due: a kill waits for a batch, and a batch for
# rows.
TRICKLE_PER_S = 20
RESERVE = 0.1
# The remaining rows would last this long, so some remain even for a late kill.
LAST_S = 300.0


def load_lines(scratch: Path, rows: int) -> list[bytes]:
    """Return a line for each flight: the destination, a tab, and JSON with an increasing `id`."""
    connection = connect()
    load_flights(connection, scratch, rows)
    fields = "id := ordinal, time_hour := time_hour::VARCHAR, carrier := carrier, flight := flight, origin := origin"
    value = f"to_json(struct_pack({fields}, distance := distance))"
    found = connection.execute(f"SELECT concat(dest, chr(9), {value}, chr(10)) FROM flights ORDER BY ordinal")
    return [line.encode() for (line,) in found.fetchall()]


class Feed:
    """Feeds a producer from a separate thread, slowly until `hurry` is called.

    Args:
        producer: receives the lines.
        lines: of keys, tabs and values.
        seconds: in which all lines are sent at the full rate.
    """

    def __init__(self, producer: subprocess.Popen[bytes], lines: Sequence[bytes], seconds: float) -> None:
        self._lines = lines
        self._producer = producer
        self._per_s = len(self._lines) / seconds
        self._held_back = round(len(self._lines) * (1 - RESERVE))
        self._is_hurried = self._is_released = False
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """True once the producer has received all rows or has ended."""
        return not self._thread.is_alive()

    def hurry(self) -> None:
        """Send all rows except the last ones at the full rate."""
        self._is_hurried = True

    def release(self) -> None:
        """Send the rows that were held back."""
        self._is_released = True

    def _run(self) -> None:
        assert self._producer.stdin is not None
        due, then_s = 0.0, time.monotonic()
        try:
            while self.sent < len(self._lines):
                time.sleep(STEP_S)
                now_s = time.monotonic()
                is_slow = not self._is_hurried or (self.sent >= self._held_back and not self._is_released)
                left = len(self._lines) - due
                # After a long pause, the last rows are still not sent at the full rate.
                end = len(self._lines) if self._is_released or is_slow else self._held_back
                per_s = min(TRICKLE_PER_S, left / LAST_S) if is_slow else self._per_s
                due = min(due + (now_s - then_s) * per_s, end)
                then_s = now_s
                self._producer.stdin.write(b"".join(self._lines[self.sent : int(due)]))
                self._producer.stdin.flush()
                self.sent = int(due)
            self._producer.stdin.close()
        except BrokenPipeError:
            return  # the error of the producer contains the cause
