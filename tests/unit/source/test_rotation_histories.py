"""Random histories of rotated logs: each line is read once, independent of the times of the scans."""

from __future__ import annotations

import gzip
import random
from collections import Counter

import pytest

from tests.unit.source.tailing import Tailing


class History:
    """Logs with rotated files: a random writer appends and rotates, and a scanner lists the files."""

    def __init__(self, seed: int, identity: str) -> None:
        self.draw = random.Random(f"{seed} {identity}")
        self.is_native = identity == "native"
        options = {"fileIdentity": identity, "recursiveFileLookup": "true", "failOnDataLoss": "true"}
        if self.draw.random() < 0.5:
            options["maxFilesPerTrigger"] = str(self.draw.randrange(1, 4))
        if self.draw.random() < 0.5:
            options["maxBytesPerTrigger"] = str(self.draw.choice([100, 700, 3000]))
        self.tailing = Tailing(**options)
        self.written: list[str] = []
        self.logs = ["a.log", "b/c.log"]
        self.rotated: dict[str, list[str]] = {log: [] for log in self.logs}
        self.half: dict[str, str] = dict.fromkeys(self.logs, "")
        self.banner = "#" * self.draw.choice([0, 200, 900])

    def line(self) -> str:
        line = f"{len(self.written):06} {self.draw.random()} {'x' * self.draw.choice([0, 5, 300])}\n"
        self.written.append(line)
        return line

    def append(self, log: str) -> None:
        text = "".join(self.line() for _ in range(self.draw.choice([1, 3, 20])))
        text, half = self.half[log] + text, ""
        if self.draw.random() < 0.3:
            text, half = text[:-7], text[-7:]
        self.half[log] = half
        self.tailing.append(log, text)

    def end_line(self, log: str) -> None:
        if self.half[log]:
            self.tailing.append(log, self.half[log])
            self.half[log] = ""

    def look(self) -> None:
        if self.draw.random() < 0.5:
            if self.draw.random() < 0.3:
                self.tailing.restart()
            self.tailing.scan(seconds=self.draw.choice([1, 2, 12]))

    def rotate(self, log: str) -> None:
        if not self.tailing.storage.exists(f"in/{log}"):
            return
        self.end_line(log)
        how = "rename" if self.is_native else self.draw.choice(["rename", "copy", "compress", "compress a copy"])
        files = self.rotated[log]
        for number in range(len(files), 0, -1):
            name = files[number - 1]
            files[number - 1] = f"{log}.{number + 1}{'.gz' if name.endswith('.gz') else ''}"
            self.tailing.rename(name, files[number - 1])
        self.look()
        first = f"{log}.1"
        if how in {"rename", "compress"}:
            self.tailing.rename(log, first)
        else:
            self.tailing.copy(log, first)
            self.look()
            self.tailing.write(log, "")
        self.look()
        if how.startswith("compress"):
            self.compress(first)
            first += ".gz"
        files.insert(0, first)

    def compress(self, name: str) -> None:
        packed = gzip.compress(self.tailing.storage.read(f"in/{name}"), mtime=0)
        self.tailing.write(f"{name}.gz", packed[: len(packed) // 2])
        self.tailing.scan(seconds=1)
        self.tailing.write(f"{name}.gz", packed)
        self.look()
        self.tailing.delete(name)

    def run(self, steps: int) -> None:
        for log in self.logs:
            if self.banner:
                line = f"{self.banner} {log}\n"
                self.written.append(line)
                self.tailing.append(log, line)
        for _ in range(steps):
            log = self.draw.choice(self.logs)
            self.draw.choice([self.append, self.append, self.append, self.rotate])(log)
            self.look()
        for log in self.logs:
            self.end_line(log)
        self.tailing.settle()

    def lines(self) -> list[str]:
        plain = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for _, data in self.tailing.reads)
        return b"".join(plain).decode().splitlines(keepends=True)


@pytest.mark.slow
@pytest.mark.parametrize("identity", ["native", "content"])
@pytest.mark.parametrize("seed", range(40))
def test_every_line_is_read_once(seed: int, identity: str) -> None:
    history = History(seed, identity)
    history.run(30)
    read = Counter(history.lines())
    written = Counter(history.written)
    assert read - written == Counter(), f"twice, seed {seed}"
    assert written - read == Counter(), f"lost, seed {seed}"
    assert len(history.tailing.known) < 500
