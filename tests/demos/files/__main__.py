"""The command ``python -m tests.demos.files``."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from tests.demos.files.command import run_command
from tests.demos.files.on_hdfs import run_on_hdfs
from tests.demos.files.report import TITLES, print_summary
from tests.demos.files.run import Settings, SinkRun, prepare, run_sink

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.demos.files.report import Console

__all__ = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code: 0 exact, 1 not exact, 2 could not run."""
    options = _parse(arguments)
    return run_command("demo", partial(_demonstrate, _settings(options)), keep=options.keep)


def _demonstrate(settings: Settings, root: Path, console: Console) -> bool:
    started_s = time.monotonic()
    workspace = prepare(settings, root)
    console.line(
        f"Spark {version('pyspark')}: {workspace.rows:,} flights, about {workspace.batches} micro-batches, "
        f"kills drawn from seed {settings.seed}"
    )
    runs: list[SinkRun] = []
    for sink in settings.sinks:
        console.line(f"{TITLES[sink]}: streaming into {' and '.join(settings.formats)}")
        if settings.on_hdfs:
            runs.append(run_on_hdfs(settings, workspace, console))
        else:
            runs.append(run_sink(settings, workspace, sink, console))
    print_summary(console, workspace, runs)
    console.line(f"\n{time.monotonic() - started_s:.0f} s in all")
    return all(run.exact for run in runs if run.sink == "ftfile")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.demos.files", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws the kills; same seed, same plan")
    parser.add_argument("--rows", type=int, help="stream only the first ROWS flights (default: all 336,776)")
    parser.add_argument("--quick", action="store_true", help="ftfile only, fewer rows, two or three kills")
    parser.add_argument("--sink", choices=("both", "ftfile", "spark"), help="default: both, or ftfile if --quick")
    parser.add_argument("--fs", choices=("local", "hdfs"), default="local", help="where to (default: local)")
    parser.add_argument("--keep", action="store_true", help="keep the files, and print where they are")
    options = parser.parse_args(arguments)
    if options.fs == "hdfs" and options.sink in {"both", "spark"}:
        parser.error("on HDFS only ftfile runs: omit --sink")
    return options


def _settings(options: argparse.Namespace) -> Settings:
    if options.fs == "hdfs":
        files, rows = (32, options.rows or 30_000) if options.quick else (100, options.rows)
        return Settings(
            options.seed, rows, files, 4, ("json", "parquet"), ("ftfile",), on_hdfs=True, quick=options.quick
        )
    sink = options.sink or ("ftfile" if options.quick else "both")
    sinks = ("ftfile", "spark") if sink == "both" else (sink,)
    if options.quick:
        return Settings(options.seed, options.rows or 60_000, 32, 2, ("parquet",), sinks)
    return Settings(options.seed, options.rows, 100, 2, ("json", "parquet"), sinks)


if __name__ == "__main__":
    sys.exit(main())
