"""The program without Spark that is killed: it counts words in windows, and keeps a checkpoint as an engine would.

It is started as a script with one argument, a JSON file: ``text``, ``store``, ``checkpoint``, ``windows``,
``checkpoint_every``. A window has an equal share of the files' lines. Its number is printed when the window begins.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ftfile import kv
from tests.demos.store.text import words_in

__all__ = ()


def main() -> None:
    """Count all windows after the last checkpoint."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    checkpoint = Path(job["checkpoint"])
    done = int(checkpoint.read_text(encoding="ascii")) if checkpoint.exists() else -1
    lines = [line for path in sorted(Path(job["text"]).iterdir()) for line in path.read_text("ascii").splitlines()]
    windows = job["windows"]
    with kv.KeyValueStore(
        job["store"],
        writer="words",
        keys={"word": "string"},
        values={"n": "long"},
        buckets=4,
        merge="sum",
        restore=done,
    ) as store:
        for window in range(done + 1, windows):
            store.begin_window(window)
            print(window, flush=True)
            for line in lines[len(lines) * window // windows : len(lines) * (window + 1) // windows]:
                for word in words_in(line):
                    store.merge(word, 1)
            store.end_window()
            if (window + 1) % job["checkpoint_every"] == 0 or window + 1 == windows:
                store.checkpointed(window)
                _keep(checkpoint, window)
                store.committed(window)


def _keep(checkpoint: Path, window: int) -> None:
    """Replace the checkpoint atomically."""
    new = checkpoint.with_suffix(".new")
    with new.open("w", encoding="ascii") as file:
        file.write(str(window))
        file.flush()
        os.fsync(file.fileno())
    new.replace(checkpoint)


if __name__ == "__main__":
    main()
