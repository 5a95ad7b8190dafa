"""Kills applications: in the middle of a script, only the driver, or only the Python workers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.demos.files.process import SparkApp, list_processes, own_environment, session_members
from tests.spark import deadly_files, killed_job
from tests.spark.deadly_files import Death
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]


def run_until_killed(
    home: Path, paths: Mapping[str, Any], when: str, options: Mapping[str, str], environment: Mapping[str, str]
) -> str:
    """Run a script in an application that is killed at its second record, and return all its log lines.

    Args:
        home: for its files; does not exist yet.
        paths: of the test.
        when: `before` or `after` that record.
        options: of the query.
        environment: replaces the credentials in our environment.
    """
    for name in ("events", "packages", "scratch"):
        (home / name).mkdir(parents=True)
    deadly_files.install(home / "packages")
    where = {name: str(paths[name]) for name in ("checkpoint", "script")} | {"out": f"deadly+{paths['out']}"}
    job = {"paths": where, "batches": 3, "options": dict(options), "home": str(home)}
    (home / "job.json").write_text(json.dumps(job))
    theirs = ("AWS_", "AZURE_")
    inherited = {name: text for name, text in own_environment(home).items() if not name.startswith(theirs)}
    found = [str(home / "packages"), str(ROOT / "src"), str(ROOT), inherited["PYTHONPATH"]]
    Death(when, whole=True).order(home / "death")
    more = {"PYTHONPATH": os.pathsep.join(found), deadly_files.ORDER: str(home / "death")}
    app = SparkApp(Path(killed_job.__file__), home / "job.json", home / "log", {**inherited, **more, **environment})
    try:
        wait_until(lambda: app.exit_code is not None, "the death of the application")
        assert app.exit_code == -signal.SIGKILL, app.last_words()
    finally:
        app.kill()
    return (home / "log").read_text(errors="replace") + "".join(
        events.read_text(errors="replace") for events in (home / "events").rglob("*") if events.is_file()
    )


def kill_driver(app: SparkApp) -> None:
    """SIGKILL only the driver: the script, its JVM, and the process that forks its Python workers."""
    _kill(_driver_of(app))


def kill_workers(app: SparkApp) -> None:
    """SIGKILL only the Python processes of the driver's JVM: daemon, workers and planners."""
    _kill({*session_members(app.session)} - _driver_of(app))


def _driver_of(app: SparkApp) -> set[int]:
    """Return the script's process and its direct children."""
    return {app.session, *(each.number for each in list_processes() if each.parent == app.session)}


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
