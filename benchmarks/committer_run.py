"""One large commit in this process, as `committer` asks for it: the messages of many tasks, the committer of the sink.

The messages and the files are copies of those of one task.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import resource
import shutil
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.storage.registry import is_local
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.writing.messages import StagedPart, TaskCommit

COLUMNS = {"n": "long", "day": "string"}
OPTIONS = {"fileFormat": "json", "partitionBy": "day"}
ROW = {"n": 1, "day": "2026-01-01"}
DAYS = 28
# Of one file: file systems allow no more than 65,000.
LINKS = 50_000
CREATING_THREADS = 16


def main(asked: str) -> None:
    """Commit the files that a JSON object describes, and write figures as JSON to the file that it names."""
    work = json.loads(asked)
    tasks, files = work["tasks"], work["files"]
    query = MicroBatch(work["url"], COLUMNS, OPTIONS, checkpoint=work["checkpoint"])
    query.run(0, [[ROW]])
    query.write_offsets(1)
    [message] = query.run_tasks(1, [[ROW]])
    pickled = [pickle.dumps(one) for one in _messages(message, tasks, files, staged=work["staged"])]
    _create(work["url"], message.parts[0].path, pickled)
    before_mb = _most_mb()
    messages: list[TaskCommit | None] = [pickle.loads(one) for one in pickled]
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    query.commit(1, messages)
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    most_mb = _most_mb()
    del messages
    query.restart()
    began_s = time.perf_counter()
    query.plan()
    plan_s = time.perf_counter() - began_s
    record_bytes = max(info.size_bytes for info in open_filesystem(work["url"]).list("_ftfile/log"))
    figures = {
        "message_bytes": max(map(len, pickled)),
        "messages_mb": sum(map(len, pickled)) / 1e6,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "more_mb": most_mb - before_mb,
        "record_mb": record_bytes / 1e6,
        "plan_ms": plan_s * 1000,
    }
    Path(work["figures"]).write_text(json.dumps(figures))


def _messages(message: TaskCommit, tasks: int, files: int, *, staged: bool) -> Iterator[TaskCommit]:
    """Yield the message of each task; the files are spread evenly over the tasks."""
    part, number = message.parts[0], 0
    for task in range(tasks):
        parts = []
        for _ in range(files // tasks + (task < files % tasks)):
            parts.append(_copy(part, number, staged=staged))
            number += 1
        identity = dataclasses.replace(message.identity, partition=task)
        yield dataclasses.replace(message, identity=identity, parts=tuple(parts))


def _copy(part: StagedPart, number: int, *, staged: bool) -> StagedPart:
    """Return a part with another id, below the staging directory, or under its final name."""
    unique, directory = uuid.UUID(int=(1 << 100) + number).hex, f"day=2026-01-{number % DAYS + 1:02d}"
    if staged:
        path = f"{part.path.rpartition('/')[0]}/{unique}.json"
    else:
        path = f"{directory}/part-0000000001-{unique}.json"
    return dataclasses.replace(part, id=unique, path=path, directory_key=directory)


def _create(url: str, template: str, pickled: list[bytes]) -> None:
    """Create the files of the messages, with the content of one of them."""
    fs = open_filesystem(url)
    paths = [part.path for one in pickled for part in pickle.loads(one).parts]
    for directory in {path.rpartition("/")[0] for path in paths}:
        fs.make_directories(directory)
    if is_local(url):
        for number, path in enumerate(paths):
            if number % LINKS == 0:
                source = f"{url}/{path}"
                shutil.copy(f"{url}/{template}", source)
            else:
                os.link(source, f"{url}/{path}")
        return
    content = fs.read(template)

    def create(path: str) -> None:
        fs.create_exclusive(path, content)

    with ThreadPoolExecutor(CREATING_THREADS) as pool:
        list(pool.map(create, paths))


def _most_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1])
