"""Run suites of tests: `suites.py [--again] [--reports=FOLDER] [--profile=NAME] [--seed=NUMBER] SUITE...`.

SUITES is the table of the suites: environment variables and arguments of pytest. The two parts of a suite run at the
same time, with the Python of this process; the output of the second part follows the output of the first. Each part
writes a JUnit report. With --again, the failed tests of the reports in the folder above run once more: a part without a
failure is skipped, and a part without a report runs as a whole. A suite that fails ends the program.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = "PYTHONDONTWRITEBYTECODE"
ROOM = 2 << 30  # bytes; a run leaves a tenth of them, and pytest keeps the last runs
MAKES_SLOW = re.compile(r"mark\.slow|tests\.kit\.parameters")
NO_FAILURE = b'errors="0" failures="0"'


def unit(names: str, option: str = "") -> str:
    """Return the paths of unit tests, each after this option of pytest."""
    return " ".join(f"{option}tests/unit/{name}" for name in names.split())


def modules(folder: str, names: str, option: str = "") -> str:
    """Return the paths of modules of tests in a folder, each after this option of pytest."""
    return " ".join(f"{option}tests/{folder}/test_{name}.py" for name in names.split())


def slow_modules() -> str:
    """Return the modules of unit and hostile tests with slow tests, so that pytest does not collect all others."""
    paths = [path for folder in ("unit", "hostile") for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    return " ".join(sorted(str(path.relative_to(ROOT)) for path in paths if MAKES_SLOW.search(path.read_text())))


def in_memory(folder: str = "/dev/shm") -> str:
    """Return the variable with which tests write to memory instead of a disk, if there is enough memory."""
    has_room = "TMPDIR" not in os.environ and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM
    return f"TMPDIR={folder}" if has_room else ""


MEMORY = in_memory()
QUICK = "-m 'not slow'"
# Fewer examples of each property, for tests that are repeated in other environments.
FEW = "--hypothesis-profile=few"
# `make long` runs all cases.
CASES = "--cases=0.2"

# The first half of the unit tests, by time.
HALF = "operate read tools/migrate writing kv/upkeep"
OLD_HALF = "filters formats rows writing"

# The tests that read the log. `make long` also runs slow tests and tests of the contents of parts. A log of plans has
# neither hints nor compacted logs. Tests of a store's runs, and of plans in memory, read no log.
LOG_TESTS = f"""
    {unit("log operate read tools/migrate writing kv/test_feed.py kv/operator kv/upkeep")}
    {unit("kv/test_batches.py kv/test_encrypted_store.py kv/test_exactly_once.py kv/test_extremes.py")}
    {unit("kv/test_limits.py kv/test_merged_values.py kv/test_reading.py kv/test_reading_beside_writers.py")}
    {unit("kv/test_side_by_side.py kv/test_store_histories.py kv/test_verify.py kv/test_widened_stores.py")}
    {unit("log/format source", "--ignore=")}
"""

# The unit tests whose results depend most on Python and on packages.
OF_PACKAGES = "formats rows filters"
# tests/unit/spark needs pyspark.
PORTABLE = f"{MEMORY} {FEW} -m 'packages or not slow' --ignore=tests/unit/spark"

# The readers of Delta and Iceberg are for older Sparks.
SMOKE = modules("spark", "smoke export_statistics")
# `make spark` runs them in the newest Spark, and `make long` in each Spark. `make smoke-spark` runs them in the oldest
# Spark, which requests the offsets of a source in another order.
EVERY_SPARK = modules("spark", "smoke follow_scenarios files_scenarios files_source hostile")
LONG_SPARK = modules(
    "spark", "pairs benchmarks_smoke chain demo_short demo_kv demo_logs demo_yarn on_s3 on_azure skipped_files"
)

# The cross-section of `make test`.
CRASH_CORE = "crash_enumeration fault_sweep interleaving planning any_schedule overtaken_commits vacuum_races"
SPARK_CORE = "stream batch follow files_source rolling replacing kv_stores formats_interop values_as_spark encryption"
HDFS_CORE = "contract sink drivers deaths"
S3_CORE = "contract sink driver faults"

DRAWN_HOSTILE = "tests/hostile/test_mutations.py tests/hostile/test_extreme_numbers.py"

QUICK_TESTS = (
    f"{MEMORY} {QUICK} {unit(HALF)}",
    f"{MEMORY} {QUICK} tests/unit tests/hostile tests/fuzz tests/soak {unit(HALF, '--ignore=')}",
)
# The other core of coverage does not support contexts.
CONTEXTS = "COVERAGE_CORE=ctrace PYTHONPATH=.ci -p contexts --tb=no"

SUITES: dict[str, tuple[str, ...]] = {
    "unit": QUICK_TESTS,
    "contexts": tuple(f"{CONTEXTS} {part}" for part in QUICK_TESTS),
    "crash-core": (f"{MEMORY} -n 2 -m slow {modules('crash', CRASH_CORE)}",),
    "crash-rest": (
        f"{MEMORY} {CASES} -n 2 -m slow tests/crash {modules('crash', CRASH_CORE, '--ignore=')} {slow_modules()}",
    ),
    "histories-core": (
        f"{MEMORY} FTFILE_HISTORIES=10 FTFILE_PLAN_HISTORIES=25 FTFILE_SOURCE_HISTORIES=25 -n 2 tests/histories",
    ),
    "histories": (
        f"{MEMORY} FTFILE_HISTORIES=40 FTFILE_PLAN_HISTORIES=100 FTFILE_SOURCE_HISTORIES=100 -n 2 tests/histories",
    ),
    "without": (f"{MEMORY} {FEW} --without=either -m 'not slow and not contents' {LOG_TESTS}",),
    "trials": (f"{MEMORY} -n 2 tests/mutants",),
    "architecture": ("tests/architecture",),
    "hdfs-core": (f"-n 2 --dist loadscope {modules('hdfs', HDFS_CORE)}",),
    "servers-rest": (
        "-n 3 --dist loadscope --no-loadscope-reorder tests/cluster tests/hdfs tests/kafka "
        + modules("hdfs", HDFS_CORE, "--ignore="),
    ),
    "hdfs": ("-n 4 --dist loadscope tests/hdfs",),
    "cluster": ("tests/cluster tests/kafka",),
    "s3-core": (f"-n 2 --dist loadscope {modules('object_stores', S3_CORE)}",),
    "object-store-rest": (
        f"-n 2 --dist loadscope tests/object_stores {modules('object_stores', S3_CORE, '--ignore=')}",
    ),
    "spark-core": (f"-n 2 --dist loadfile {modules('spark', SPARK_CORE)}",),
    "spark-rest": (
        f"-n 2 --dist loadfile tests/spark {modules('spark', f'smoke export_statistics {SPARK_CORE}', '--ignore=')}",
    ),
    "power": ("-n 2 tests/power",),
    "kills": ("FTFILE_KILLS=24 -o faulthandler_timeout=9000 tests/spark/test_kills.py",),
    # Of `make long`.
    "batches": ("FTFILE_BATCHES=100000 tests/unit/log/test_flat.py",),
    "thorough-unit": ("FTFILE_THOROUGH=1 FTFILE_CONDITIONS=10000 --hypothesis-profile=thorough -n 2 tests/unit",),
    "thorough-crash": ("FTFILE_THOROUGH=1 -n 2 tests/crash",),
    "thorough-histories": (
        "FTFILE_THOROUGH=1 FTFILE_HISTORIES=5000 FTFILE_SOURCE_HISTORIES=50000 -n 2 tests/histories",
    ),
    "thorough-hostile": (f"{MEMORY} FTFILE_THOROUGH=1 FTFILE_MUTATIONS=20000 -n 2 {DRAWN_HOSTILE}",),
    "without-hints": (f"--without=hints -n 2 {LOG_TESTS} tests/crash",),
    "without-ranges": (f"--without=ranges -n 2 {LOG_TESTS} tests/crash",),
    "thorough-hdfs": (
        "FTFILE_THOROUGH=1 -n 2 --dist loadfile tests/hdfs tests/spark/test_on_hdfs.py",
        "FTFILE_THOROUGH=1 tests/kafka/test_python_consumer.py "
        + modules("cluster", "secured_yarn yarn wheel compaction"),
    ),
    "thorough-object-stores": ("FTFILE_THOROUGH=1 -n 2 --dist loadscope tests/object_stores",),
    "thorough-spark": (f"FTFILE_THOROUGH=1 {LONG_SPARK} {modules('spark', 'skipped_files')}",),
}
for version in ("40", "41", "42"):  # of Spark
    SUITES[f"smoke-{version}"] = (EVERY_SPARK if version == "40" else SMOKE,)
    SUITES[f"fully-{version}"] = (f"{EVERY_SPARK} {modules('spark', 'launcher')}",)
for version in ("3.10", "3.12", "3.13"):  # of Python
    all_tests = (f"{PORTABLE} {unit(OLD_HALF)}", f"{PORTABLE} tests/unit {unit(OLD_HALF, '--ignore=')}")
    SUITES[f"all-unit-{version}"] = all_tests
    SUITES[f"unit-{version}"] = (
        f"{PORTABLE} {CASES} {unit(OF_PACKAGES)}",
        f"{MEMORY} {FEW} {CASES} -m packages --ignore=tests/unit/spark tests/unit {unit(OF_PACKAGES, '--ignore=')}",
    )


def command(arguments: str, name: str, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Return the command of a part, and its environment."""
    words = shlex.split(arguments)
    variables = [word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word)]
    general = [f"--junitxml={options.reports}/{name}.xml", "-o", f"cache_dir=.reports/cache/{name}"]
    general += ["--last-failed"] * options.again + [f"--hypothesis-profile={options.profile}"] * bool(options.profile)
    general += [f"--seed={options.seed}"] * bool(options.seed)
    rest = [word for word in words if word.split("=", 1) not in variables]
    # Bytecode is kept: otherwise each run, and each process that it starts, would compile all tests and modules again.
    return [sys.executable, "-m", "pytest", *general, *rest], os.environ | {KEPT: ""} | dict(variables)


def has_passed(report: Path) -> bool:
    """Return True for a report without failures. Only its start is searched: failures can contain the same text."""
    return report.exists() and NO_FAILURE in report.read_bytes()[:300]


def run(suite: str, options: argparse.Namespace) -> int:
    """Run the parts of a suite at once; return the exit code of pytest, 0 if all passed."""
    names = [suite, f"{suite}-half"]
    options.reports.mkdir(parents=True, exist_ok=True)
    output = options.reports / f"{suite}.other.log"
    running: dict[Path, subprocess.Popen[bytes]] = {}
    with output.open("wb") as other:
        try:
            for name, arguments in zip(names, SUITES[suite], strict=False):
                if options.again and has_passed(options.reports.parent / f"{name}.xml"):
                    continue
                words, variables = command(arguments, name, options)
                print(shlex.join(words), flush=True)
                target = other if running else None
                report = options.reports / f"{name}.xml"
                running[report] = subprocess.Popen(words, env=variables, stdout=target, stderr=target)
            codes = [process.wait() for process in running.values()]
        finally:
            for process in running.values():
                process.terminate()
                process.wait()
    for report, code in zip(running, codes, strict=True):
        if code and has_passed(report):  # the process ended by a signal after its last test
            report.unlink()
    sys.stdout.buffer.write(output.read_bytes())
    sys.stdout.flush()
    output.unlink()
    return max(map(abs, codes), default=0)


def main(arguments: list[str]) -> int:
    """Run the suites, and return 0 if they passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="+", choices=[*SUITES], metavar="SUITE")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--reports", type=Path, default=Path(".reports"))
    parser.add_argument("--profile")
    parser.add_argument("--seed")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)  # pytest also receives it, and stops servers before it ends
    for suite in options.suites:
        if code := run(suite, options):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
