"""The process that looks up words while they are counted, until its standard input closes.

It is started as a script with one argument, a JSON file: ``store``, ``totals`` (the numbers of words that a version may
have), ``words``, ``seed``. Its last output is a line of JSON: the number of lookups, and the faults.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
from pathlib import Path
from typing import Any

from ftfile import kv
from ftfile.errors import FtfileError

__all__ = ()

PAUSE_S = 0.05
GETS = 50


def main() -> None:
    """Look up words until the standard input closes."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    look = _Look(job)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        look.once()
    look.once()
    print(json.dumps(look.found), flush=True)


class _Look:
    def __init__(self, job: dict[str, Any]) -> None:
        self._store, self._words = job["store"], job["words"]
        self._totals = set(job["totals"])
        self._drawn = random.Random(job["seed"])
        self._reader: kv.Reader | None = None
        self._last: dict[str, int] = {}
        self._version = -1
        self.found: dict[str, Any] = {"versions": 0, "gets": 0, "getSeconds": 0.0, "faults": []}

    def once(self) -> None:
        """Refresh, and compare a scan with lookups of the same version and with the counts of the last version."""
        if self._reader is None:
            try:
                self._reader = kv.open(self._store)
            except FtfileError:
                return  # no batch is committed yet
        self._reader.refresh()
        if self._reader.version == self._version:
            return
        self._version = self._reader.version
        self.found["versions"] += 1
        counts = {row["word"]: row["n"] for batch in self._reader.scan() for row in batch.to_pylist()}
        self._require(
            sum(counts.values()) in self._totals, f"{sum(counts.values())} words are not a sum of complete batches"
        )
        fallen = [word for word, count in self._last.items() if counts.get(word, 0) < count]
        self._require(not fallen, f"counts fell: {fallen[:5]}")
        for word in self._drawn.choices(self._words, k=GETS):
            began_s = time.perf_counter()
            count = self._reader.get(word)
            self.found["getSeconds"] += time.perf_counter() - began_s
            self.found["gets"] += 1
            self._require(count == counts.get(word), f"{word!r}: get has {count}, the scan {counts.get(word)}")
        self._last = counts

    def _require(self, is_right: bool, fault: str) -> None:
        if not is_right:
            self.found["faults"].append(f"version {self._version}: {fault}")


if __name__ == "__main__":
    main()
