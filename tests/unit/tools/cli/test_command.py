"""The command in general: exit codes, help, the script, closed pipes, Ctrl-C, and missing packages."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

import ftfile
from ftfile.core import __version__, errors
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format import layout
from ftfile.tools.cli.__main__ import MISSING
from ftfile.tools.cli.app import app, examples
from ftfile.tools.cli.failures import code_of
from tests.unit.tools.cli.conftest import BATCHES
from tests.unit.tools.cli.running import COMMAND, ENVIRONMENT, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.testing.micro_batch import MicroBatch

pytestmark = [pytest.mark.slow, pytest.mark.packages]

ROOT = Path(__file__).parents[4]


def commands() -> Iterator[tuple[str, Callable[..., Any] | None]]:
    """Yield each command with its function."""
    for info in app.registered_commands:
        yield info.name or "", info.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for info in group.typer_instance.registered_commands:
            yield f"{group.name} {info.name}", info.callback


def test_every_command_has_help_with_examples() -> None:
    names = [name for name, _ in commands()]
    assert {*names, "", "kv"} == set(examples())
    for name in ("", "kv", *names):
        text = run(*name.split(), "--help").stdout
        assert "Examples" in text
        for example in examples()[name]:
            assert example.split()[1] in text


def test_every_example_is_a_command() -> None:
    """All options of an example exist. A missing directory is detected only later."""
    for example in {each for own in examples().values() for each in own}:
        words = shlex.split(re.split(r" [|>] |  #| && ", example.replace("COMMAND", "ls"))[0])
        assert words.pop(0) == "ftfile"
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        if words != ["--help"]:
            command.make_context("example", words)


def test_help_imports_nothing_heavy() -> None:
    # The command may exit without running the exit handlers of Python.
    print_modules = "tell = lambda *_: print(*sys.modules, flush=True); atexit.register(tell); os._exit = tell"
    command = "from ftfile.tools.cli.__main__ import main; sys.argv = ['ftfile', '--help']; main()"
    code = f"import atexit, os, sys; {print_modules}; {command}"
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    ).stdout
    heavy = {
        "pyarrow",
        "numpy",
        "fsspec",
        "cryptography",
        "pyspark",
        "ftfile.log",
        "ftfile.storage",
        "ftfile.operate",
    }
    modules = loaded.splitlines()[-1].split()
    assert not heavy & {*modules}
    # At most 0.2 s: importing about 350 modules takes 0.17 s. Most of these modules belong to typer and rich.
    own = [name for name in modules if name.startswith("ftfile")]
    assert (len(own) <= 40, len(modules) <= 450) == (True, True), f"{len(own)} of {len(modules)}: {own}"


CODES: dict[errors.FtfileError, int] = {
    errors.ConfigError("x"): 2,
    errors.SchemaError("x"): 2,
    errors.WrongConnection("read", "p", "x"): 2,
    errors.PermissionDenied("read", "p", "x"): 3,
    errors.Unavailable("read", "p", "x"): 3,
    errors.CorruptData("p", "a", "b"): 4,
    errors.EncodingError("x"): 4,
    errors.NotPublished("x"): 5,
    errors.HistoryGone("x"): 5,
    errors.StillOpen(["x"]): 5,
}


@pytest.mark.parametrize("error", CODES, ids=lambda error: type(error).__name__)
def test_errors_are_messages_with_a_code(error: errors.FtfileError, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("ftfile.operate.open_directory.OpenedDirectory", fail)
    result = run("ls", out, code=CODES[error])
    hint = f". `ftfile repair {out} --dry-run` finds all damage and changes nothing"
    assert result.stderr == f"ftfile: {error}{hint if isinstance(error, errors.CorruptData) else ''}\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("command", "module", "function"),
    [("source", "inspect_commands", "source_status"), ("migrate", "maintain_commands", "migrate")],
)
def test_files_of_others_are_not_repaired(
    command: str, module: str, function: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.CorruptData("p", "a", "b")

    monkeypatch.setattr(f"ftfile.tools.cli.{module}.ftfile.{function}", fail, raising=False)
    assert run(command, out, code=4).stderr == f"ftfile: {errors.CorruptData('p', 'a', 'b')}\n"


@pytest.mark.parametrize("name", ["out", "o'ut & co"])
def test_errors_contain_commands_for_the_path_of_the_user(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / name)

    def fail(*_: object, **__: object) -> None:
        remedy = Remedy("repair", give_up=["a b"], dry_run=False)
        raise errors.ConfigError(Advice("it is lost: ", remedy, " repairs it"))

    monkeypatch.setattr("ftfile.operate.open_directory.OpenedDirectory", fail)
    command = f"`ftfile repair {shlex.quote(path)} --give-up 'a b'`"
    assert run("ls", path, code=2).stderr == f"ftfile: it is lost: {command} repairs it\n"


def test_remedies_name_options_of_the_command(out: str) -> None:
    assert "such as --version 7, or a --timestamp" in run("restore", out, code=2).stderr
    output = run("source", out, "-o", "fileFormat=text", code=2).stderr
    assert "with --checkpoint /data/checkpoint" in output
    assert "with --option stateLocation=/data/state" in output


def test_every_error_has_a_code() -> None:
    kinds = [errors.FtfileError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert all(code_of(kind.__new__(kind)) in {2, 3, 4, 5} for kind in kinds)


def test_defects_are_not_hidden(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("unsupported operand")

    monkeypatch.setattr("ftfile.operate.open_directory.OpenedDirectory", fail)
    with pytest.raises(AssertionError, match="unsupported operand"):
        run("ls", out)


def test_wrong_words_end_with_2(out: str) -> None:
    assert "no-such" in run("ls", out, "--no-such", code=2).stderr
    assert "No such command" in run("lss", out, code=2).stderr
    assert "no log" in run("ls", f"{out}/nowhere", code=2).stderr
    assert "NAME=VALUE" in run("ls", out, "--storage", "x", code=2).stderr
    assert "no setting storage.x" in run("ls", out, "-S", "storage.x=y", code=2).stderr
    assert run("--version").stdout == f"ftfile {__version__}\n"


def test_a_closed_pipe_ends_it_quietly(out: str) -> None:
    parent, child = os.pipe()
    os.close(parent)
    process = subprocess.run([*COMMAND, "cat", out], stdout=child, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False)
    os.close(child)
    assert (process.returncode, process.stderr) == (141, b"")


def test_a_pipe_has_no_colours_and_no_progress(out: str) -> None:
    done = subprocess.run([*COMMAND, "compact", out], capture_output=True, env=ENVIRONMENT, check=True)
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.stdout.startswith(b"Merged 6 files")


def test_verbose_tells_what_is_logged(out: str) -> None:
    done = subprocess.run([*COMMAND, "-v", "compact", out], capture_output=True, env=ENVIRONMENT, check=True, text=True)
    assert "INFO" in done.stderr
    assert "compact: RewriteReport" in done.stderr


def test_warnings_are_lines_on_stderr(out: str) -> None:
    """The same warning is printed once. In a process that also uses the package, warnings are logged as before."""
    Path(out, layout.record_path(BATCHES - 1)).unlink()
    logger = logging.getLogger("ftfile")
    before = logger.level, [*logger.handlers]
    lost = "the log ends at version 1, but version 2 was published: its newest records are lost"
    for options in ((), ("--json",)):
        result = run("ls", out, *options)
        assert result.stderr == f"ftfile: warning: {lost}\n"
        assert "lost" not in result.stdout
    assert (logger.level, logger.handlers) == before


def test_warnings_of_findings_are_for_verbose(out: str) -> None:
    """The findings contain the same facts and the remedy."""
    Path(out, layout.record_path(BATCHES - 1)).unlink()
    assert run("verify", out, code=1).stderr == ""
    for options, warns in (([], False), (["-v"], True)):
        command = [*COMMAND, *options, "verify", out]
        done = subprocess.run(command, capture_output=True, env=ENVIRONMENT, check=False, text=True)
        assert ("WARNING" in done.stderr, "lost-records" in done.stdout) == (warns, True), done


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_what_is_missing_is_named(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; from ftfile.tools.cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=ENVIRONMENT, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, MISSING.format(name) + "\n")


def test_the_script() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    (name, module, function) = re.findall(r'\[project\.scripts\]\n(\w+) = "([\w.]+):(\w+)"', project)[0]
    assert name == "ftfile"
    assert callable(getattr(import_module(module), function))


def test_completion(out: str) -> None:
    del out
    environment = {**ENVIRONMENT, "_FTFILE_COMPLETE": "complete_bash", "COMP_WORDS": "ftfile v", "COMP_CWORD": "1"}
    done = subprocess.run(COMMAND, capture_output=True, env=environment, text=True, check=False)
    assert done.stdout.split() == ["verify", "vacuum"]


@pytest.mark.parametrize("command", ["compact", "vacuum"])
def test_ctrl_c_harms_nothing(command: str, tmp_path: Path, query: MicroBatch) -> None:
    """The command is interrupted after some of its changes to the storage."""
    from tests.unit.tools.cli.test_remove_commands import made_old

    if command == "vacuum":
        ftfile.compact(query.path)
        made_old(query.path, days=8)
    rows = ftfile.open(query.path).to_arrow().num_rows
    ready = tmp_path / "ready"
    call = "rename" if command == "compact" else "delete"
    code = f"""
import pathlib, time
from ftfile.storage.local import LocalFileSystem
from ftfile.tools.cli.__main__ import main
real, calls = LocalFileSystem.{call}, []
def slow(self, *paths):
    real(self, *paths)
    calls.append(paths)
    if len(calls) == 2:
        pathlib.Path({str(ready)!r}).touch()
        time.sleep(600)
LocalFileSystem.{call} = slow
main()
"""
    arguments = [command, query.path, "--yes" if command == "vacuum" else "--threads=1"]
    command_line = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True) as process:
        try:
            while not ready.exists() and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, output = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "interrupted" in output
    report = ftfile.open(query.path).verify(full=True)
    assert not [finding for finding in report.findings if finding.severity == "error"]
    assert ftfile.open(query.path).to_arrow().num_rows == rows
    # The next run of the command completes the changes.
    run(command, query.path, *(["--yes"] if command == "vacuum" else []))
    assert ftfile.open(query.path).verify(full=True).ok
    assert json.loads(run("verify", query.path, "--json").stdout)["rows"] == rows
