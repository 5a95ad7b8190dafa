"""The command ``python -m tests.demos.yarn``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

from tests.cluster.yarn import Yarn
from tests.demos.files.command import run_command
from tests.demos.files.hdfs_path import HdfsPath
from tests.demos.files.kill import Moment, Victim
from tests.demos.files.on_hdfs import plan_blows
from tests.demos.files.process import own_environment
from tests.demos.files.sinks import Stream, is_log_complete
from tests.demos.store.check import check_words
from tests.demos.store.text import Text, write_text
from tests.demos.yarn.application import YarnJob
from tests.demos.yarn.job import FILES_PER_BATCH
from tests.demos.yarn.lines import check_lines, count_lines
from tests.hdfs.minicluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.demos.files.report import Console

__all__ = ()

VICTIMS = (Victim.EXECUTOR, Victim.MASTER, Victim.RESOURCE_MANAGER, Victim.NODE_MANAGER)
QUICK_VICTIMS = 2


class Settings(NamedTuple):
    """The text, and the kills."""

    seed: int
    batches: int
    times: int
    victims: Sequence[Victim]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code: 0 exact, 1 not exact, 2 could not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.demos.yarn", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws the kills; same seed, same plan")
    parser.add_argument("--quick", action="store_true", help="less text, two kills")
    parser.add_argument("--keep", action="store_true", help="keep the text, and print where it is")
    options = parser.parse_args(arguments)
    if options.quick:
        settings = Settings(options.seed, batches=20, times=1, victims=_draw(options.seed))
    else:
        settings = Settings(options.seed, batches=40, times=3, victims=VICTIMS)
    return run_command("demo-yarn", partial(_demonstrate, settings), keep=options.keep)


def _draw(seed: int) -> Sequence[Victim]:
    return random.Random(seed).sample(VICTIMS, QUICK_VICTIMS)


def _demonstrate(settings: Settings, root: Path, console: Console) -> bool:
    started_s = time.monotonic()
    text = write_text(root / "text", settings.batches * FILES_PER_BATCH, settings.times)
    environment = own_environment(root)
    for name in ("input", "scratch"):
        (root / name).mkdir()
    console.progress("HDFS starts")
    with MiniCluster() as hdfs:
        console.progress("YARN starts")
        with Yarn(hdfs) as yarn:
            console.line(
                f"Spark {version('pyspark')} on YARN in cluster mode: {text.totals[-1]:,} words in {len(text.files)} "
                f"files, {settings.batches} batches; kills drawn from seed {settings.seed}"
            )
            console.line(f"  ResourceManager {yarn.pages}, two NodeManagers; NameNode {hdfs.pages}")
            home = HdfsPath(hdfs.pages, hdfs.url, "/demo")
            streams = [Stream(name, "ftfile", home / name, home / "checkpoints" / name) for name in ("lines", "words")]
            for stream in streams:
                console.line(f"  {stream.name} into {stream.output}")
            job = YarnJob(
                yarn,
                root / "input",
                text.files,
                streams,
                console=console,
                environment=environment,
                seed=settings.seed,
            )
            blows = [(victim, Moment.WRITING) for victim in settings.victims]
            kills = plan_blows(settings.seed, [stream.name for stream in streams], settings.batches, blows)
            hits = job.run(kills, started_s)
            console.line(f"{len(hits)} kills; {job.masters()} application masters")
            is_exact = _judge(text, streams, console)
    console.line(f"{time.monotonic() - started_s:.0f} s in all")
    return is_exact


def _judge(text: Text, streams: Sequence[Stream], console: Console) -> bool:
    """Compare the visible files and the store with the text; return True if each line and word is there once."""
    directory, store = (stream.output for stream in streams)
    assert isinstance(directory, HdfsPath)
    console.progress("comparing the files and the store with the text")
    is_exact = check_lines(console, count_lines(text.files), count_lines(directory.visible_files()))
    is_exact &= check_words(console, "the store", store, text.counts)
    for stream in streams:
        if not is_log_complete(stream):
            is_exact = False
            console.line(console.paint(f"the log of {stream.name} does not have each batch once", good=False))
    return is_exact


if __name__ == "__main__":
    sys.exit(main())
