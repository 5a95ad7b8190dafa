"""`make test` continues after failed targets, repeats their failed tests, reports them, and ends all its processes."""

from __future__ import annotations

import os
import resource
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.demos.files.process import list_processes
from tests.mutants.mutant import mutants
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite tests="{}" errors="0" failures="{}" skipped="0" time="1.5">
<testcase classname="tests.test_red" name="test_first"><failure/></testcase></testsuite></testsuites>"""
# Replaces `make`: each target writes its name to `made`, and to `child` the id of a process that does not end.
MAKE = """#!/usr/bin/env bash
echo "$*" >>made
for word; do
  case "$word" in
    unlinted | red) exit 2 ;;
    once) [ "${*: -1}" = AGAIN=yes ] || exit 2 ;;
    patient) echo "patient, line 1"; until [ -e there ]; do sleep 0.01; done; echo "patient, line 2" ;;
    quick) echo "quick"; touch there ;;
    spark | unit) echo "$TMPDIR" >files ;;&
    spark) [ -z "$TMPDIR" ] || touch "$TMPDIR/file" ;;
    stubborn) trap "" INT TERM HUP ;;&
    apart) setsid sh -c 'echo $$ >child.new; mv child.new child; exec sleep 1000' & exec sleep 1000 ;;
    endless | stubborn) sh -c 'echo $$ >child.new; mv child.new child; exec sleep 1000' ;;
  esac
done
"""


def command(checkout: Path, *lanes: str) -> list[str]:
    """Return the command of `make test` with these lanes, in a checkout without a Makefile."""
    shutil.copytree(ROOT / ".ci", checkout / ".ci", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    make = checkout / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    # Below nohup, SIGHUP is ignored.
    return ["env", "--default-signal=HUP", f"MAKE={make}", sys.executable, str(checkout / ".ci/stages.py"), *lanes]


def run(checkout: Path, *lanes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(checkout, *lanes), cwd=checkout, capture_output=True, text=True, check=False)


def report(checkout: Path, name: str, tests: int, failures: int = 0) -> None:
    (checkout / f".reports/{name}").mkdir(parents=True)
    (checkout / f".reports/{name}/{name}.xml").write_text(REPORT.format(tests, failures))


def made_by(checkout: Path) -> list[str]:
    return [line.split()[2] for line in (checkout / "made").read_text().splitlines()]


def test_all_that_passed_is_one_line(tmp_path: Path) -> None:
    report(tmp_path, "unit", 3)
    report(tmp_path, "crash", 4)
    done = run(tmp_path, "lint unit", "crash")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == " 7 passed in 3.00s ".center(80, "=")
    table = [line.split() for line in done.stdout.splitlines()[-5:-1]]
    assert table[0] == ["target", "minutes", "processor", "tests"]
    assert [[line[0], *line[3:]] for line in table[1:]] == [
        ["crash", "4", "passed"],
        ["lint", "no", "tests", "ran"],
        ["unit", "3", "passed"],
    ]


def test_targets_after_a_failed_one_are_made_and_the_end_names_it(tmp_path: Path) -> None:
    report(tmp_path, "red", 5, 2)
    report(tmp_path, "unit", 3)
    done = run(tmp_path, "lint red unit")
    assert done.returncode == 1
    assert made_by(tmp_path) == ["lint", "red", "unit", "red"]
    words = (tmp_path / "made").read_text().split()
    assert "REPORTS=.reports/unit" in words, "a path with blanks would be several words"
    assert done.stdout.splitlines()[-2:] == ["failed: red", " 2 failed, 6 passed in 3.00s ".center(80, "=")]


def test_what_passes_when_it_runs_again_has_passed_and_is_named(tmp_path: Path) -> None:
    report(tmp_path, "once", 5, 1)
    report(tmp_path, "unit", 3)
    done = run(tmp_path, "once unit")
    assert done.returncode == 0
    assert made_by(tmp_path) == ["once", "unit", "once"]
    assert "  passed when it ran again: tests.test_red::test_first" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == " 8 passed in 3.00s ".center(80, "=")


def test_a_target_without_tests_that_passes_when_it_runs_again_is_named(tmp_path: Path) -> None:
    report(tmp_path, "unit", 3)
    (tmp_path / ".reports/unit/half.xml").write_text("<testsuites><testsuite")  # of a killed process
    done = run(tmp_path, "once unit")
    assert done.returncode == 0
    assert "  passed when it ran again: the target" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == " 3 passed in 1.50s ".center(80, "=")


def processor_s() -> float:
    """Return the processor time of all processes that have ended and were children, or handed over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hand over orphans")
def test_the_time_of_orphans_counts(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.7: pass"
    orphan = ["sh", "-c", f"{shlex.quote(sys.executable)} -c '{busy}' & exit 3"]
    before_s = processor_s()
    done = subprocess.run([sys.executable, str(ROOT / ".ci/descendants.py"), *orphan], cwd=tmp_path, check=False)
    assert done.returncode == 3
    assert processor_s() - before_s > 0.7


# The first and the second test of each pytest run in one target.
FIRST_RUN = {
    "green": ("pass", "pass"),
    "red": ("pass", 'assert again, \'errors="0" failures="0"\''),
    "killed": ("again or os._exit(9)", "pass"),
    "crashed": ("again or exec('import atexit; atexit.register(os._exit, 9)')", "pass"),  # after the report
    "interrupted": ("pass", "again or exec('raise KeyboardInterrupt')"),
}


def suites_of(checkout: Path, table: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the command that runs the suites of this table."""
    driver = checkout / "suites.py"
    driver.write_text(
        f"import runpy, sys\nsuites = runpy.run_path({str(ROOT / '.ci/suites.py')!r})\n"
        f"suites['SUITES'].update({table})\nsys.exit(suites['main'](sys.argv[1:]))\n"
    )
    return [sys.executable, str(driver)]


def test_failed_tests_run_again_and_all_of_a_run_that_did_not_end(tmp_path: Path) -> None:
    hooks = (ROOT / "conftest.py").read_text()
    hook = hooks[hooks.index("def pytest_sessionfinish") :]
    (tmp_path / "conftest.py").write_text(f"import pytest\nfrom pathlib import Path\n{hook[: hook.index('@pytest')]}")
    for name, (first, second) in FIRST_RUN.items():
        noted = f"os.write(os.open('ran', os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'{name} {{}}\\n')"
        (tmp_path / f"test_{name}.py").write_text(
            f"import os\nagain = os.path.exists('again')\n"
            f"def test_first(): {noted.format('first')}; {first}\n"
            f"def test_second(): {noted.format('second')}; {second}\n"
        )
    (tmp_path / "test_unread.py").write_text("import os\nassert os.path.exists('again')\ndef test_any(): pass\n")
    suites = {name: (f"test_{name}.py",) for name in FIRST_RUN} | {"collected": ("test_unread.py test_killed.py",)}
    rule = "".join(f"\t{shlex.join(suites_of(tmp_path, suites))} $(options) {name}\n" for name in suites)
    make = ["make", "-f", str(ROOT / "Makefile"), "-k", "-i", f"--eval=probe:\n{rule}", "probe", "PROFILE=default"]
    make.append("SEED=")
    subprocess.run([*make, "REPORTS=.reports/probe"], cwd=tmp_path, check=False)
    (tmp_path / "again").touch()
    (tmp_path / "ran").unlink()
    make.remove("-i")
    done = subprocess.run([*make, "REPORTS=.reports/probe/again", "AGAIN=yes"], cwd=tmp_path, check=False)
    whole = ["killed first", "killed second"]
    others = [f"{name} {test}" for name in ("crashed", "interrupted") for test in ("first", "second")]
    assert (tmp_path / "ran").read_text().splitlines() == ["red second", *whole, *others, *whole]
    assert done.returncode == 0


def test_two_parts_run_at_once_and_each_counts(tmp_path: Path) -> None:
    for name, other in (("first", "second"), ("second", "first")):
        (tmp_path / f"test_{name}.py").write_text(
            f"import os, time\nopen('{name}', 'w').close()\n"
            f"while not os.path.exists('{other}'): time.sleep(0.01)\n"
            f"def test_it(): assert os.environ['RED'] != '{name}'\n"
        )
    for red in ("none", "first", "second"):
        table = {"both": (f"RED={red} test_first.py", f"RED={red} test_second.py")}
        command = [*suites_of(tmp_path, table), "both"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == (red != "none")
        assert done.stdout.index("\ntest_first.py") < done.stdout.index("\ntest_second.py")
        reports = {path.name for path in (tmp_path / ".reports").iterdir()}
        assert reports == {"both.xml", "both-half.xml", "cache"}


def paths_of_suites() -> set[str]:
    """Return all paths in the arguments of suites, also of tests that a suite leaves out."""
    parts = [part for parts in runpy.run_path(str(ROOT / ".ci/suites.py"))["SUITES"].values() for part in parts]
    return {word.split("=")[-1] for part in parts for word in part.split() if "tests/" in word}


def test_paths_of_suites_are_there() -> None:
    paths = paths_of_suites()
    assert len(paths) > 50
    assert not [path for path in paths if not [*ROOT.glob(f"{path}*")]]


def test_every_module_of_tests_is_in_a_suite() -> None:
    paths = paths_of_suites()
    modules = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert not [module for module in modules if not {str(module), *map(str, module.parents)} & paths]


@pytest.mark.parametrize("tests", [0, 3])
def test_what_fails_without_a_report_counts(tmp_path: Path, tests: int) -> None:
    if tests:
        report(tmp_path, "unit", tests)
    done = run(tmp_path, "unlinted unit")
    assert done.returncode == 1
    passed = f", {tests} passed in 1.50s" if tests else " in 0.00s"
    assert done.stdout.splitlines()[-1] == f" 1 failed{passed} ".center(80, "=")


def test_lanes_run_at_once_and_what_a_target_prints_stays_together(tmp_path: Path) -> None:
    printed = [line for line in run(tmp_path, "patient", "quick").stdout.splitlines() if line[:2] not in {"--", "=="}]
    assert printed[:3] in (
        ["quick", "patient, line 1", "patient, line 2"],
        ["patient, line 1", "patient, line 2", "quick"],
    )


def test_a_lane_that_has_made_its_targets_takes_the_last_of_another(tmp_path: Path) -> None:
    # The first target waits for the last target of its lane.
    run(tmp_path, "patient unit quick", "lint")
    made = (tmp_path / "made").read_text().splitlines()
    assert sorted(line.split()[2] for line in made) == ["lint", "patient", "quick", "unit"]


@pytest.mark.parametrize(
    ("target", "signals"),
    [
        ("endless", [signal.SIGINT]),
        ("endless", [signal.SIGTERM]),
        ("apart", [signal.SIGTERM]),
        ("stubborn", [signal.SIGHUP, signal.SIGHUP]),
    ],
)
def test_interrupted_it_ends_all_processes(tmp_path: Path, target: str, signals: list[signal.Signals]) -> None:
    """At the second signal, processes that ignore the first one end, too."""
    with subprocess.Popen(command(tmp_path, target, "lint"), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as stages:
        wait_until((tmp_path / "child").exists, "the process that does not end")
        for number in signals:
            time.sleep(0.1)  # two signals at the same time would be merged
            stages.send_signal(number)
        printed, _ = stages.communicate()
    assert stages.returncode == 128 + signals[0]
    assert f"failed: {target}" in printed
    assert not runs_child(tmp_path)


def runs_child(checkout: Path) -> bool:
    child = int((checkout / "child").read_text())
    return any(each.number == child and each.state != "Z" for each in list_processes())


def test_if_nobody_reads_its_output_it_ends_all_processes(tmp_path: Path) -> None:
    stages = subprocess.Popen(command(tmp_path, "endless", "patient"), cwd=tmp_path, stdout=subprocess.PIPE)
    wait_until((tmp_path / "child").exists, "the process that does not end")
    assert stages.stdout is not None
    stages.stdout.close()
    (tmp_path / "there").touch()
    assert stages.wait() != 0
    assert not runs_child(tmp_path)


def temporary_files(checkout: Path, target: str, **variables: str) -> str:
    """Return the directory of a target's temporary files, where the target leaves a file; empty for the default."""
    environment = {name: text for name, text in os.environ.items() if name != "TMPDIR"} | variables
    subprocess.run(command(checkout, target), cwd=checkout, env=environment, check=True, capture_output=True)
    return (checkout / "files").read_text().strip()


MEMORY = Path("/dev/shm")
NO_PROGRAMS = getattr(os, "ST_NOEXEC", 0)
STAGES = runpy.run_path(str(ROOT / ".ci/stages.py"))


@pytest.mark.skipif(not STAGES["has_room"](), reason="temporary files have no room in memory")
def test_targets_with_servers_have_their_files_in_memory_while_they_run(tmp_path: Path) -> None:
    assert temporary_files(tmp_path, "unit") == ""
    found = Path(temporary_files(tmp_path, "spark"))
    assert (found.name, found.parents[1]) == ("spark", MEMORY)
    assert not found.parent.exists()
    found.mkdir(parents=True)
    (found / "of a run that was killed").touch()
    assert Path(temporary_files(tmp_path, "spark")) == found
    assert not found.parent.exists()


@pytest.mark.parametrize(
    ("free", "flags", "has_room"), [(8 << 30, 0, True), (64 << 20, 0, False), (8 << 30, NO_PROGRAMS, not NO_PROGRAMS)]
)
def test_memory_of_containers_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, free: int, flags: int, has_room: bool
) -> None:
    found = SimpleNamespace(f_bavail=free >> 12, f_frsize=1 << 12, f_flag=flags)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert STAGES["has_room"]() is has_room


def test_what_a_first_run_has_left_stops_no_second_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A separate process may have written files while the directory was deleted."""
    stages = STAGES["Stage"].__init__.__globals__
    for name, path in {"ROOT": tmp_path, "MEMORY": tmp_path / "MEMORY", "REPORTS": tmp_path / "REPORTS"}.items():
        monkeypatch.setitem(stages, name, path)
    monkeypatch.setitem(stages, "has_room", lambda: True)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: None)
    for again in (False, True):
        STAGES["Stage"]("spark", again=again)
    assert (tmp_path / "MEMORY" / "spark").is_dir()


def test_temporary_files_are_where_the_user_wants_them(tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    assert temporary_files(tmp_path, "spark", TMPDIR=str(wanted)) == str(wanted)
    assert len([*wanted.iterdir()]) == 1


def test_every_module_of_crashes_is_marked_slow() -> None:
    """`make crash` selects tests by the marker, so it would skip a module without it."""
    modules = list((ROOT / "tests/crash").glob("test_*.py"))
    assert len(modules) > 3
    assert not [module.name for module in modules if "\npytestmark = pytest.mark.slow\n" not in module.read_text()]


def test_what_a_link_leads_to_is_not_cleared_for_an_environment(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    (tmp_path / "environment").symlink_to(other)
    (tmp_path / "pyproject.toml").touch()
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = ["bash", ".ci/venv", "environment", version, "--help"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [*other.iterdir()] == [other / "file"]
    assert (done.returncode, done.stderr[:21]) == (1, "environment is a link")


def cases_of(*options: str) -> set[str]:
    """Return the cases of two modules that pytest would run."""
    modules = ["tests/unit/filters/test_codecs.py", "tests/hostile/test_mutations.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options, *modules]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line for line in lines if "::" in line}


def counted(cases: set[str]) -> Counter[str]:
    """Return the number of cases of each test."""
    return Counter(case.partition("[")[0] for case in cases)


def test_slow_unit_tests_run_a_share_of_their_cases_and_those_that_mistakes_name() -> None:
    share, seed = 0.25, "--seed=2"  # this seed draws no case that a mutant names
    every, drawn = cases_of("-m", "slow"), cases_of("-m", "slow", seed, f"--cases={share}")
    assert max(counted(every).values()) >= 12
    of_units = {test: max(1, round(share * count)) for test, count in counted(every).items() if "/unit/" in test}
    named = every & {test for mutant in mutants() for test in mutant.tests if "[" in test}
    assert 1 <= len(named) <= 3
    assert named <= drawn
    assert counted(drawn - named) == {**counted(every), **of_units}
    assert cases_of("-m", "not slow", f"--cases={share}") == cases_of("-m", "not slow")
