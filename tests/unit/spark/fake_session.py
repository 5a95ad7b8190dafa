"""A session without a JVM that runs maintenance tasks one after the other. Some tasks die."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Session:
    """The part of a session that maintenance uses. A task that dies is run again."""

    deaths: list[int] = field(default_factory=list)  # numbers of tasks in all rounds; these tasks die after their work
    fails_in: int | None = None  # the number of a round
    rounds: list[int] = field(default_factory=list)  # the number of tasks in each round
    shipped: list[bytes] = field(default_factory=list)  # the data shipped to the tasks of each round
    results: list[bytes] = field(default_factory=list)  # the results of all tasks
    after_tasks: Callable[[], object] = lambda: None

    def range(self, start: int, end: int, step: int, partitions: int) -> Session:
        assert (start, end, step) == (0, partitions, 1)
        if self.fails_in == len(self.rounds):
            raise RuntimeError("a task failed as often as it may")
        self.rounds.append(partitions)
        return self

    def mapInArrow(self, function: Any, schema: str) -> Session:  # noqa: N802
        assert schema == "number long, result binary"
        self.shipped.append(cloudpickle.dumps(function))  # type: ignore[no-untyped-call] # it has no types
        return self

    def collect(self) -> list[tuple[int, bytearray]]:
        found = []
        for number in reversed(range(self.rounds[-1])):
            if sum(self.rounds[:-1]) + number in self.deaths:
                self._run(number)
            found += self._run(number)
        self.after_tasks()
        self.results += [bytes(result) for _, result in found]
        return found

    def _run(self, number: int) -> list[tuple[int, bytearray]]:
        function = pickle.loads(self.shipped[-1])
        batches = function(iter([pa.RecordBatch.from_pydict({"id": [number]})]))
        return [
            (row["number"], bytearray(row["result"]))
            for batch in batches
            for row in pa.Table.from_batches([batch]).to_pylist()
        ]
