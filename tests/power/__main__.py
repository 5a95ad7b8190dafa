"""Power cuts on real file systems: `python -m tests.power [--states=N] [--again=N] [--jobs=N] [--planted=MISTAKE]`.

Each seed is a workload on a file system, whose recorded writes are cut at many moments. Finished seeds are kept in
`.power/done`, and the next run continues after them; it replays seeds with wrong states again. With `--planted`, a
mistake is planted in the workloads, nothing is kept, and the run ends at the first wrong state, which must be found.
`--seed=N` replays one seed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.power.disks import FILE_SYSTEMS, missing, present
from tests.power.mistakes import MISTAKES

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".power"
# Of each seed.
STATES, AGAIN = 40, 10
MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30


def folder_of(seed: int) -> Path:
    """Return the folder of a seed's images: in memory, if there is room."""
    has_room = "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    place = MEMORY if has_room else Path(os.environ.get("TMPDIR", "/var/tmp"))
    return place / f"ftfile-power-{os.getuid()}-{zlib.crc32(str(ROOT).encode()):x}" / str(seed)


def file_system_of(seed: int) -> str:
    """Return ext4 for most seeds, and each other file system of this machine for a fifth of them."""
    others = [name for name in present() if name != "ext4"]
    number = seed % 5 - (5 - len(others))
    return others[number] if number >= 0 else "ext4"


def play(words: argparse.Namespace) -> dict[str, Any]:
    """Replay one seed in this process, and return its result."""
    from tests.power.replay import case_of, replay

    seed, mistake = words.seed, words.planted
    workload = words.workload
    if mistake:
        choices = MISTAKES[mistake].workloads
        workload = choices[seed % len(choices)]
    case = case_of(seed, words.file_system or file_system_of(seed), workload, mistake)
    began_s = time.monotonic()
    result = replay(case, Path(words.folder) if words.folder else folder_of(seed), words.states, words.again)
    return {
        "seed": seed,
        "case": str(case),
        "workload": case.workload,
        "file_system": case.file_system,
        "states": result.states,
        "wrong": result.wrong,
        "unmountable": result.unmountable,
        "first": result.first_wrong,
        "compared": result.compared,
        "modes": result.modes,
        "seconds": round(result.seconds, 1),
        "all_seconds": round(time.monotonic() - began_s, 1),
    }


class Run:
    """Seeds in processes, a few at the same time, until there are enough states."""

    def __init__(self, words: argparse.Namespace) -> None:
        self.words = words
        self.lock = threading.Lock()
        self.done: list[dict[str, Any]] = []
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.is_stopped = False
        self.next_seed = 0
        self.path = KEPT / "done"
        if not words.planted and self.path.exists():
            results = [json.loads(line) for line in self.path.read_text().splitlines()]
            self.done = [each for each in results if not each["wrong"]]
        self.known = {each["seed"] for each in self.done}

    def states(self) -> int:
        """Return the number of finished states."""
        return sum(each["states"] for each in self.done)

    def take(self) -> int | None:
        """Return the next seed; None if there are enough states, or a planted mistake was found."""
        with self.lock:
            found = self.words.planted and any(each["wrong"] for each in self.done)
            running = len(self.processes) * (STATES + AGAIN)
            if self.is_stopped or found or self.states() + running >= self.words.states:
                return None
            while self.next_seed in self.known:
                self.next_seed += 1
            self.known.add(self.next_seed)
            return self.next_seed

    def work(self) -> None:
        """Replay seeds one after the other."""
        while (seed := self.take()) is not None:
            command = [sys.executable, "-m", "tests.power", f"--seed={seed}", f"--states={STATES}", f"--again={AGAIN}"]
            if self.words.planted:
                command += [f"--planted={self.words.planted}", "--again=0"]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
                self.processes.add(process)
                printed = process.communicate()[0]
                self.processes.discard(process)
            if process.returncode not in {0, 1} or not printed:
                self.is_stopped = True
                raise RuntimeError(f"seed {seed} was not replayed, see above: exit code {process.returncode}")
            self.keep(json.loads(printed.splitlines()[-1]))

    def keep(self, result: dict[str, Any]) -> None:
        """Store and print the result of a seed."""
        with self.lock:
            self.done.append(result)
            wrong = f"{len(result['wrong'])} wrong" if result["wrong"] else "right"
            print(f"{result['case']}: {result['states']} states, {wrong}, {result['all_seconds']:.0f} s", flush=True)
            if self.words.planted:
                return
            for failure in result["wrong"]:
                print(failure, flush=True)
            KEPT.mkdir(exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(result) + "\n")

    def stop(self) -> None:
        """End all processes, which unmount their disks."""
        self.is_stopped = True
        for process in [*self.processes]:
            process.terminate()

    def all(self) -> int:
        """Replay the seeds, print a table, and return 0 if each state is right, or if a planted mistake was found."""
        jobs = 1 if self.words.planted else self.words.jobs
        try:
            with ThreadPoolExecutor(jobs) as pool:
                try:
                    for job in [pool.submit(self.work) for _ in range(jobs)]:
                        job.result()
                except BaseException:
                    self.stop()
                    raise
        except KeyboardInterrupt:
            print("interrupted: the next run continues")
            return 130
        counts: Counter[tuple[str, str]] = Counter()
        for each in self.done:
            counts[each["file_system"], each["workload"]] += each["states"]
        for (file_system, workload), states in sorted(counts.items()):
            print(f"  {file_system:6} {workload:14} {states:6} states")
        wrong = sum(len(each["wrong"]) for each in self.done)
        unmountable, seconds = (sum(each[name] for each in self.done) for name in ("unmountable", "seconds"))
        print(f"{self.states()} states, {wrong} wrong, {unmountable} not mountable, {seconds:.0f} s")
        if not self.words.planted:
            return int(wrong > 0)
        if not wrong:
            print(f"{self.words.planted} was not found")
            return 1
        tried = sum(each["states"] for each in self.done[:-1]) + self.done[-1]["first"]
        print(f"{self.words.planted} was found after {tried} states: {self.done[-1]['wrong'][0].splitlines()[0][:300]}")
        return 0


def main(arguments: list[str]) -> int:
    """Replay one seed, or many."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--again", type=int, default=AGAIN)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", choices=["", *MISTAKES], default="")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--workload", default="")
    parser.add_argument("--file-system", choices=["", *FILE_SYSTEMS], default="")
    parser.add_argument("--folder", default="")
    words = parser.parse_args(arguments)
    if lacking := missing():
        print(f"no power cuts: this machine has no {lacking}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if words.seed is not None:
        result = play(words)
        print(json.dumps(result))
        return int(bool(result["wrong"]))
    if absent := [name for name in FILE_SYSTEMS if name not in present()]:
        print(f"skipped, because mkfs is missing: {', '.join(absent)}")
    return Run(words).all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
