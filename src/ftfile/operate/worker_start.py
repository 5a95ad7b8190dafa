"""The time that a Python process of Spark takes to start on this machine."""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.interpreter import LAUNCHER, setting
from ftfile.operate.findings import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.operate.findings import Finding

__all__ = ("check_start", "spark_archives")

# In seconds of processor time: a smaller saving does not justify a setting.
SAVING_S = 0.1
# In seconds, for a busy machine.
START_S_MAX = 60

# Imports the modules with which Spark commits a micro-batch. Prints the processor time since the start of the process.
_PROBE = """
import importlib.util, json, os, time
import pyspark.sql.worker.python_streaming_sink_runner as started
spent = time.process_time()
has_pandas = importlib.util.find_spec("pandas") is not None
if has_pandas:
    import pandas
file, cached = started.__file__, started.__cached__
pandas_s = time.process_time() - spent if has_pandas else 0
print(json.dumps([spent, pandas_s, file, cached is not None and os.path.exists(cached)]))
"""


@dataclass(frozen=True, slots=True)
class _Start:
    """A measured start of a process.

    Attributes:
        start_s: processor time in seconds until the modules of a task are imported.
        pandas_s: seconds to import pandas; 0 if it is not installed.
        file: path of a module of pyspark, in an archive or installed.
        has_byte_code: True if Python found byte code of this module.
    """

    start_s: float
    pandas_s: float
    file: str
    has_byte_code: bool

    @property
    def archive(self) -> str:
        """Return the path of the archive with pyspark; empty if the process imported an installed pyspark."""
        path, separator, _ = self.file.partition(".zip" + os.sep)
        if separator:
            return f"{path}.zip"
        return ""


def spark_archives() -> list[str]:
    """Return the paths of the archives that Spark on this machine adds to PYTHONPATH; empty without Spark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = importlib.util.find_spec("pyspark")
        home = ""
        if spec is not None and spec.origin:
            home = os.path.dirname(spec.origin)
    folder = glob.escape(os.path.join(home, "python", "lib"))
    return sorted(glob.glob(f"{folder}/pyspark.zip") + glob.glob(f"{folder}/py4j-*-src.zip"))


def check_start(program: str) -> list[Finding]:
    """Start the Python of Spark's workers as Spark does, and return the start time and how to reduce it.

    Args:
        program: path of the interpreter, or of `ftfile-python`.

    Returns:
        One finding. The list is empty without Spark, or if the program cannot import pyspark, which other checks
        report.
    """
    archives = spark_archives()
    if not archives:
        return []
    start = _measure_start(program, archives)
    if start is None:
        return []
    assignment = setting(os.path.join(os.path.dirname(program), LAUNCHER))
    remedy = ""
    package = start.file.rpartition(f"{os.sep}sql{os.sep}")[0]
    actual = f"{start.start_s:.2f} s of the processor, with pyspark from {start.archive or package}"
    if start.archive:
        installed = _measure_start(program, [])
        if installed is None:
            remedy = f"Install the same pyspark for {program}, and set {assignment}"
        elif start.start_s - installed.start_s >= SAVING_S:
            actual += f", which is compiled at each start; {installed.start_s:.2f} s with the installed pyspark"
            remedy = f"Set {assignment} before the session is created"
    elif not start.has_byte_code:
        remedy = f"Compile it: {shlex.quote(program)} -m compileall -q {shlex.quote(package)}"
        actual += ", which has no byte code"
    if start.pandas_s:
        actual += f"; tasks that import pandas take {start.pandas_s:.2f} s more"
    expected = "Python processes of Spark that start from compiled files"
    return [check("worker-start", expected, actual, remedy, is_passed=not remedy)]


def _measure_start(program: str, archives: Sequence[str]) -> _Start | None:
    """Start the program with archives on PYTHONPATH; None if it cannot import pyspark."""
    inherited = [path for path in [os.environ.get("PYTHONPATH", "")] if path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*archives, *inherited])}
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the user has set for Spark
            [program, "-c", _PROBE], capture_output=True, text=True, timeout=START_S_MAX, check=False, env=environment
        )
        return _Start(*json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None
