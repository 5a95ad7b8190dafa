"""The program that Spark should start for its Python processes, and the settings by which Spark finds it."""

from __future__ import annotations

import os
import re
import shlex

__all__ = ("LAUNCHER", "command_of_spark", "is_plain", "launcher_of", "setting")

LAUNCHER = "ftfile-python"
_DRIVER, _WORKERS = "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"
# Spark 4.3 searches its Python by `sh -c "command -v PROGRAM"` without quotes. If that fails, it finds no data source.
_OF_SHELL = re.compile(r"""[\s"'$&();<>\\`|]""")


def launcher_of(executable: str) -> str:
    """Return the path of `ftfile-python`, which starts an interpreter faster for Spark.

    If the launcher is not installed next to the interpreter, or starts another one, return the path of the interpreter.
    """
    directory = os.path.dirname(executable)
    launcher = os.path.join(directory, LAUNCHER)
    started = os.path.join(directory, "python3")
    is_own = os.access(launcher, os.X_OK) and os.path.exists(started) and os.path.samefile(started, executable)
    if is_own:
        return launcher
    return executable


def is_plain(program: str) -> bool:
    """Return True if Spark finds a program by this path or name: it has no spaces, quotes or operators of a shell."""
    return _OF_SHELL.search(program) is None


def command_of_spark() -> tuple[str, str]:
    """Return the variable by which Spark finds the Python of a data source, and its value: a path or a name on PATH.

    The JVM of the driver reads the variables. The result holds for all Python processes of the source, also in tasks.
    """
    for variable in (_DRIVER, _WORKERS):
        command = os.environ.get(variable)
        if command:
            return variable, command
    return _WORKERS, "python3"


def setting(program: str) -> str:
    """Return the assignments for a shell by which Spark starts a program for data sources and for other Python code.

    If the path is not plain, Spark finds the program only by its name on PATH.
    """
    variables = [_WORKERS]
    if os.environ.get(_DRIVER):
        variables.insert(0, _DRIVER)
    directory, name = os.path.split(program)
    if is_plain(program):
        return " ".join(f"{variable}={program}" for variable in variables)
    return f'PATH={shlex.quote(directory)}:"$PATH" {" ".join(f"{variable}={name}" for variable in variables)}'
