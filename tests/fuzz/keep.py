"""Keeps the results of targets in git: `python -m tests.fuzz.keep FOLDER TARGET...`, after `tests.fuzz.one`.

Inputs that found a defect are shortened while they cause the same error at the same place. Of the corpus, the shortest
inputs are kept, as many accepted as refused ones.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.corpora import INPUTS_BYTES_MAX, KEPT, keep
from tests.fuzz.target import accepts
from tests.fuzz.targets import target_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fuzz.target import Target

_SHORTEN_S = 30


def failure_of(target: Target, data: bytes) -> str | None:
    """Return the type and the place of the error that an input causes; None for an accepted or refused input."""
    try:
        accepts(target, data)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "/ftfile/" in frame.filename] or frames
        return f"{type(error).__name__} at {own[-1].filename}:{own[-1].lineno}"
    return None


def shortened(target: Target, data: bytes) -> bytes:
    """Return a shorter input that causes the same error at the same place."""
    failure, end_s = failure_of(target, data), time.monotonic() + _SHORTEN_S
    step = len(data) // 2
    while failure is not None and step:
        start = 0
        while start < len(data):
            shorter = data[:start] + data[start + step :]
            if time.monotonic() > end_s:
                return data
            if failure_of(target, shorter) == failure:
                data = shorter
            else:
                start += step
        step //= 2
    return data


def _chosen(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    groups: dict[bool, list[bytes]] = {True: [], False: []}
    for data in inputs:
        if failure_of(target, data) is None:
            groups[accepts(target, data)].append(data)
    chosen = []
    for group in groups.values():
        size = 0
        for data in sorted(group, key=lambda data: (len(data), data)):
            size += len(data)
            if size > INPUTS_BYTES_MAX // 2:
                break
            chosen.append(data)
    return chosen


def keep_results(name: str, folder: Path) -> None:
    """Keep the results of a target."""
    target = target_named(name)
    keep(name, _chosen(target, (path.read_bytes() for path in (folder / "corpus").iterdir())))
    for path in sorted((folder / "found").iterdir()):
        data = path.read_bytes()
        if path.name.startswith("crash-"):
            data = shortened(target, data)
        (KEPT / name / f"found-{hashlib.sha1(data).hexdigest()[:16]}").write_bytes(data)


def main(folder: str, *names: str) -> None:
    """Keep the results of targets."""
    logging.disable()
    warnings.simplefilter("ignore")
    for name in names:
        keep_results(name, Path(folder) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
