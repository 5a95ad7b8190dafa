"""Run benchmarks by name, print their tables, and keep the figures as JSON if asked to."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import shutil
import tempfile
from pathlib import Path

from benchmarks.machine import machine_facts
from benchmarks.progress import show_progress
from benchmarks.report import Cell, Table, render_facts, render_table, table_as_json
from benchmarks.settings import Settings
from benchmarks.sinks import SINKS
from benchmarks.spark_session import one_process_for_all

# The module of each; only what is asked for is imported, with the libraries that it compares.
BENCHMARKS = {
    "imports": "imports",
    "modules": "modules",
    "rows": "row_work",
    "commit": "commit",
    "committer": "committer",
    "assembly": "assembly",
    "growth": "growth",
    "kvamplification": "kv_amplification",
    "verifying": "verifying",
    "command": "command",
    "reading": "reading",
    "pywrite": "python_writes",
    "directories": "directories",
    "rolling": "rolling",
    "compaction": "compaction",
    "export": "exports",
    "compression": "compression",
    "files": "files",
    "known": "known_files",
    "kvruns": "kv_runs",
    "kvstore": "kv_store",
    "kvshapes": "kv_shapes",
    "kvstream": "kv_stream",
    "load": "load",
    "local": "local_files",
    "objectstores": "object_stores",
    "plans": "plans",
    "first": "first",
    "follow": "follow",
    "tiny": "tiny",
    "tail": "tail",
    "bulk": "bulk",
    "hdfs": "hdfs",
}


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line names."""
    options = _parse(arguments)
    show_progress()
    facts = machine_facts()
    _print(render_facts(facts))
    tables: dict[str, list[Table]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="ftfile-bench-", dir=options.directory) as scratch,
        one_process_for_all() if options.smoke else contextlib.nullcontext(),
    ):
        for name in options.names or BENCHMARKS:
            directory = Path(scratch, name)
            directory.mkdir()
            tables[name] = importlib.import_module(f"benchmarks.{BENCHMARKS[name]}").run(
                Settings(
                    directory,
                    smoke=options.smoke,
                    sinks=tuple(options.sinks),
                    rows=options.rows,
                    batches=options.batches,
                    files=options.files,
                    gigabytes=options.gigabytes,
                )
            )
            shutil.rmtree(directory)
            for table in tables[name]:
                _print(render_table(table))
    if options.json is not None:
        options.json.write_text(_as_json(facts, tables), encoding="utf-8")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; all if none is given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write machine and figures to FILE")
    parser.add_argument("--directory", type=Path, help="where to write; the disk that is measured")
    parser.add_argument(
        "--sinks",
        nargs="+",
        default=[],
        choices=[sink.label for sink in SINKS],
        metavar="SINK",
        help="labels of the sinks to run; the null sink always runs",
    )
    parser.add_argument(
        "--rows", type=int, help="of kvstore: 1,000,000 by default; of load: 20,000,000; of pywrite: 4,000,000"
    )
    parser.add_argument("--batches", type=int, help="of each query of kvstream: 100 by default; of command: 100,000")
    parser.add_argument(
        "--files",
        type=int,
        help="of plans and of export: 100,000 by default; of compaction: 400; of committer: the most",
    )
    parser.add_argument("--gigabytes", type=float, help="in memory, of the largest write of pywrite: 10 by default")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    return options


def _print(text: str) -> None:
    print(text, end="\n\n", flush=True)


def _as_json(facts: dict[str, Cell], tables: dict[str, list[Table]]) -> str:
    results = {name: [table_as_json(table) for table in made] for name, made in tables.items()}
    return json.dumps({"machine": facts, "results": results}, indent=2) + "\n"


if __name__ == "__main__":
    main()
