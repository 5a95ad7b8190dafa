"""Random contents of a page. Writing a log of this size would take too long."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ftfile.operate.findings import check, find
from ftfile.operate.open_files import OpenFile
from ftfile.operate.status import DirectoryStatus, QueryStatus
from ftfile.tools.report.history import COLUMNS, Commits, DirectorySums, LiveFiles
from ftfile.tools.report.report import PageContents

__all__ = ("commits_of", "contents_of")

MADE_MS = 1_795_000_000_000
LONG = "/data/" + "a_directory_with_a_long_name_" * 4 + "out"


def commits_of(versions: int, seed: int = 1) -> Commits:
    draw = np.random.default_rng(seed)
    columns = np.zeros(versions, COLUMNS)
    columns["version"] = np.arange(versions)
    columns["time_ms"] = MADE_MS - 10_000 * np.arange(versions, 0, -1)
    day = 1 + 0.5 * np.sin(np.arange(versions) / 1375)
    columns["rows"] = day * draw.lognormal(9, 0.4, versions)
    columns["size_bytes"] = columns["rows"] * 37
    columns["files"] = draw.poisson(4, versions)
    columns["write"] = day * draw.lognormal(0, 0.3, versions)
    columns["sync"] = columns["write"] / 5
    columns["prepare"] = draw.lognormal(-4, 0.3, versions)
    columns["write"][versions // 3 : versions // 3 + versions // 50] *= 3
    for name, every in {"recoveries": 9_000, "replays": 9_000, "task_retries": 1_300}.items():
        columns[name] = draw.random(versions) < 1 / every
    columns["create"] = draw.lognormal(-5, 0.3, versions)
    columns["publish"] = draw.lognormal(-3, 0.5, versions)
    operations = +Counter(stream=versions - versions // 100, compact=versions // 100)
    reasons = +Counter(size=versions, age=versions // 7, large=versions // 90)
    return Commits(columns=columns, operations=operations, reasons=reasons)


def contents_of(versions: int, *, is_store: bool = False) -> PageContents:
    commits = commits_of(versions)
    draw = np.random.default_rng(2)
    sizes = draw.lognormal(17, 1.2, 20_000).astype(np.int64)
    directories = {
        f"day=2026-{month:02}-{day:02}": DirectorySums(30 + day, 1_000_000 * day, day * month << 24)
        for month in range(1, 13)
        for day in range(1, 29)
    }
    directories["word=<script>alert(1)</script>"] = DirectorySums(1, 1, 1 << 50)
    query = "00000000-0000-0000-0000-000000000001"
    opened = tuple(_open(query, name) for name in [*directories][:60])
    status = DirectoryStatus(
        path=LONG,
        kind="store" if is_store else "files",
        made_ms=MADE_MS,
        version=versions - 1,
        time_ms=MADE_MS - 10_000,
        oldest_version=0,
        oldest_readable=0,
        horizon_ms=0,
        queries=(QueryStatus(query_id=query, last_batch=versions - 1, version=versions - 1, time_ms=MADE_MS - 10_000),),
        open=() if is_store else opened,
        due=0,
        held=0,
        unpublished=(),
    )
    findings = (
        find("missing-part", f"{LONG}/part-00001.parquet", "a file", "nothing", remedy="ftfile.repair(path)"),
        find("small-files", "", "files of 16 MiB or more", "the mean is 2 MiB"),
        find("removed-files", "", "a & b", "<script>alert(2)</script>"),
    )
    machine = (check("python", "3.10", "3.11", is_passed=True), find("java", "", "a JDK", "there is no java"))
    return PageContents(
        path=LONG,
        made_ms=MADE_MS,
        is_store=is_store,
        is_verified=True,
        commits=commits,
        files=LiveFiles(sizes, 10_000_000, directories),
        status=status,
        machine=machine,
        jobs=(),
        findings=findings,
    )


def _open(query: str, name: str) -> OpenFile:
    times = (MADE_MS - 9_000_000, MADE_MS - 9_000)
    return OpenFile(
        query, name, 3, 70_000, 9 << 20, *times, "", MADE_MS + 90_000, "until 2026-11-18 UTC by rolloverInterval", 0
    )
