"""The command ``python -m tests.hdfs.figures``: the time from a fault of the active NameNode to the next commit.

It prints, for each driver and kind of fault, the median and worst time, and the number of rows that were counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from ftfile.testing.micro_batch import MicroBatch
from tests.hdfs.ha_cluster import SERVICE, DeadHost, HaCluster, why_no_dead_host
from tests.hdfs.support import COLUMNS, TEXT, checked, rows
from tests.hdfs.test_ha import kill, mend, run_until_over, silence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ()

# In each round the fault happens this much later.
STEP_S = 0.05


def main() -> None:
    """Measure the times and print them."""
    parser = argparse.ArgumentParser(prog="python -m tests.hdfs.figures", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of each kind of fault, by each driver")
    parser.add_argument("--without", choices=("processes", "host"), help="leave out faults of processes, or of a host")
    options = parser.parse_args()
    if options.without != "processes":
        _measure_processes(options.rounds)
    if options.without != "host":
        _measure_host(options.rounds)


def _measure_processes(rounds: int) -> None:
    kinds = {
        "silent": (silence, rounds),
        "killed": (kill, rounds),
        "handed over": (HaCluster.hand_over, rounds),
    }
    with HaCluster() as ha:
        for scheme in ("hdfs", "webhdfs"):
            _measure(ha, scheme, kinds)


def _measure_host(rounds: int) -> None:
    if why_no_dead_host():
        print(f"dead host: {why_no_dead_host()}")
        return
    host = DeadHost()
    try:
        with HaCluster(host=host) as ha:

            def die(ha: HaCluster) -> None:
                host.cut()
                ha.activate("nn2")

            def revive(ha: HaCluster) -> None:
                host.mend()
                ha.kill("nn1")
                ha.start_namenode("nn1")
                ha.wait_until_ready()
                ha.hand_over()
                ha.wait_until_ready()

            for scheme in ("webhdfs", "hdfs"):
                _measure(ha, scheme, {"dead host": (die, rounds)}, revive)
    finally:
        host.remove()


def _measure(
    ha: HaCluster,
    scheme: str,
    kinds: Mapping[str, tuple[Callable[[HaCluster], object], int]],
    repair: Callable[[HaCluster], object] = mend,
) -> None:
    os.environ["HADOOP_CONF_DIR"] = str(ha.conf)
    url = f"{scheme}://{SERVICE}/figures-{scheme}-{len(kinds)}"
    query = MicroBatch(url, COLUMNS, TEXT, checkpoint=f"{url}-checkpoint")
    query.run(0, [rows("a0"), rows("b0")])
    batch = 0
    for name, (fault, rounds) in kinds.items():
        times_s, next_s = [], []
        for number in range(rounds):
            took_s, batch = _time_to_commit(query, batch + 1, partial(fault, ha), number * STEP_S)
            times_s.append(took_s)
            batch += 1
            began_s = time.monotonic()
            query.run(batch, [rows(f"a{batch}"), rows(f"b{batch}")])
            next_s.append(time.monotonic() - began_s)
            repair(ha)
        print(
            f"{scheme:8} {name:12} fault to commit: median {statistics.median(times_s):.1f} s, worst "
            f"{max(times_s):.1f} s; the next batch: median {statistics.median(next_s):.1f} s, worst "
            f"{max(next_s):.1f} s",
            flush=True,
        )
    checked(url, *(f"{letter}{number}" for letter in "ab" for number in range(batch + 1)))
    faults = sum(rounds for _, rounds in kinds.values())
    print(f"{scheme:8} {batch + 1} batches, {faults} faults, {2 * (batch + 1)} rows, each once", flush=True)


def _time_to_commit(query: MicroBatch, batch: int, fault: Callable[[], object], after_s: float) -> tuple[float, int]:
    """Run batches until one is committed by the other NameNode; return the time since the fault and the batch's number.

    The fault happens during the batches. The time ends with the first batch that is committed after the other NameNode
    is active.
    """
    with ThreadPoolExecutor(1) as pool:
        began_s: list[float] = []

        def happen() -> None:
            time.sleep(after_s)
            began_s.append(time.monotonic())
            fault()

        last = run_until_over(query, batch, pool.submit(happen))
        return time.monotonic() - began_s[0], last


if __name__ == "__main__":
    main()
