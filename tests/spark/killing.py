"""Killing applications: in the middle of a script, the driver alone, the Python workers alone."""

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
    """Run a script in an application that dies at its second record, and return all that it logged.

    Args:
        home: for what it keeps; not there yet.
        paths: of the test.
        when: `before` or `after` that record.
        options: of the query.
        environment: in the place of the credentials in ours.
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
    """SIGKILL the driver, which is the script, its JVM and what forks its Pythons, and nothing else."""
    _kill(_driver_of(app))


def kill_workers(app: SparkApp) -> None:
    """SIGKILL the Python processes that the driver's JVM has asked for: daemon, workers, planners, and nothing else."""
    _kill({*session_members(app.session)} - _driver_of(app))


def _driver_of(app: SparkApp) -> set[int]:
    """Return the script, and what it has started itself."""
    return {app.session, *(each.number for each in list_processes() if each.parent == app.session)}


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
