"""Run the quick tests in environments in which users start them, and print a line for each environment.

Usage: surroundings.py [NAME...]; without names, all environments. Each one runs the quick unit tests, a command, and a
stream in Spark. Environments that this machine cannot provide are skipped with the reason. Outputs are kept in
.reports/surroundings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / ".reports/surroundings"
USER = "12345"  # without an entry in passwd

# The command that runs another command in each environment.
SURROUNDINGS: dict[str, list[str]] = {
    "as it is": [],
    "background": ["sh", "-c", '"$@" & wait $!', "sh"],  # the shell lets it ignore SIGINT
    "nohup": ["nohup"],
    "closed input": ["sh", "-c", 'exec "$@" <&-', "sh"],
    "no terminal": ["setsid", "--wait"],
    "C": ["env", "LANG=C", "LC_ALL=C"],
    "Turkish": ["env", "LC_ALL=tr_TR.UTF-8", "JAVA_TOOL_OPTIONS=-Duser.language=tr -Duser.country=TR"],
    "New York": ["env", "TZ=America/New_York"],
    "Kolkata": ["env", "TZ=Asia/Kolkata"],
    "umask": ["sh", "-c", 'umask 077; exec "$@"', "sh"],
    "no home": ["env", "-u", "HOME"],
    "home that is not writable": ["env", "HOME=/proc"],
    "user without a name": ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"],
    "small memory": ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m,noexec x /dev/shm; exec "$@"', "sh"],
    "few files": ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh"],
    "one core": ["taskset", "-c", "0"],
    "no bytecode": ["env", "PYTHONDONTWRITEBYTECODE=1"],
    "warnings": ["env", "PYTHONWARNINGS=error"],
    "another Spark": [
        "env",
        "PYSPARK_DRIVER_PYTHON=jupyter",
        "PYSPARK_DRIVER_PYTHON_OPTS=notebook",
        "SPARK_HOME=/opt/spark",
        "SPARK_CONF_DIR=/opt/spark/conf",
        "HADOOP_CONF_DIR=/etc/hadoop",
    ],
    "proxy": [
        "env",
        "http_proxy=http://192.0.2.1:9",
        "https_proxy=http://192.0.2.1:9",
        "HTTP_PROXY=http://192.0.2.1:9",
    ],
}

NO_SPARK = {"user without a name"}  # Hadoop's classes do not start; `make` says so in its first line

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--seed=1", "--hypothesis-profile=few"]
COMMANDS = {
    "unit": [*PYTEST, "-n", "2", "-m", "not slow", "tests/unit", "tests/hostile"],
    "command": [sys.executable, "-m", "ftfile.tools.cli", "write", "{scratch}/out", "tests/unit/tools/cli/rows.jsonl"],
    "stream": [*PYTEST, "tests/spark/test_stream.py", "-k", "test_rows_arrive_once_for_every_reader"],
}


def run(name: str, scratch: Path) -> list[str]:
    """Run all commands in an environment, and return the names of those that failed."""
    failed = []
    variables = os.environ | {"TMPDIR": str(scratch)}
    for command, words in COMMANDS.items():
        if command == "stream" and name in NO_SPARK:
            continue
        log = REPORTS / f"{name.replace(' ', '-')}-{command}.log"
        with log.open("wb") as output:
            done = subprocess.run(
                [*SURROUNDINGS[name], *(word.replace("{scratch}", str(scratch)) for word in words)],
                cwd=ROOT,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            failed.append(f"{command} ({log.relative_to(ROOT)})")
    return failed


def main(names: list[str]) -> int:
    """Run the environments, and return 0 if nothing failed."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    code = 0
    for name in names or SURROUNDINGS:
        words = SURROUNDINGS[name]
        if words and subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
            print(f"{name}: skipped, {words[0]} does not work here", flush=True)
            continue
        began_s = time.monotonic()
        scratch = Path(tempfile.mkdtemp(prefix="ftfile-"))
        scratch.chmod(0o777)
        try:
            failed = run(name, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        print(f"{name}: {', '.join(failed) or 'passed'} after {time.monotonic() - began_s:.0f} s", flush=True)
        code = code or int(bool(failed))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
