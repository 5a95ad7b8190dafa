"""The file with the tokens of a process: where it is, who can read it, and when it ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ftfile.storage.hdfs.credentials.process_file import ProcessFile
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE, ProcessTokens
from ftfile.storage.hdfs.credentials.token_file import DelegationToken, read_tokens
from tests.unit.storage.test_handed_tokens import NEW, OLD

ROOT = Path(__file__).parents[3]
# Receives a token as an executor does, prints the path of its file, waits for a line, and ends in the given way.
PROGRAM = """
import os, sys
if sys.argv[2] == "directory":
    del os.memfd_create  # as on systems without it
from ftfile.storage.hdfs.credentials import tokens
from tests.unit.storage.test_handed_tokens import NEW
tokens.receive_tokens([NEW])
print(os.environ["HADOOP_TOKEN_FILE_LOCATION"], flush=True)
sys.stdin.readline()
if sys.argv[1] == "at once":
    os._exit(0)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory that is also the directory for temporary files; all users can write to it."""
    directory = tmp_path / "place"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


class Process:
    """A process with tokens from Spark's driver."""

    def __init__(self, place: Path, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != FILE_VARIABLE}
        environment |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "TMPDIR": str(place)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=place,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.file = Path(self.process.stdout.readline().rstrip("\n"))

    def end(self, *, killed: bool = False) -> None:
        if killed:
            self.process.kill()
        self.process.communicate("\n")
        assert self.process.returncode == (-signal.SIGKILL if killed else 0)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only on Linux")
@pytest.mark.parametrize("end", ["at exit", "at once", "killed"])
def test_no_file_remains_however_the_process_ends(place: Path, end: str) -> None:
    """Spark ends its Python workers with `os._exit`."""
    process = Process(place, end, "memory")
    assert [*place.rglob("*")] == [], "no file for tokens, also while the process runs"
    assert read_tokens(process.file.read_bytes()) == [NEW], "another program of this user can read it"
    assert stat.S_IMODE(process.file.stat().st_mode) == 0o600
    process.end(killed=end == "killed")
    assert not process.file.exists()
    assert [*place.rglob("*")] == []


def test_without_memory_files_the_file_is_in_a_private_directory(place: Path) -> None:
    process = Process(place, "at exit", "directory")
    assert process.file.parent == place / f"ftfile-{os.geteuid()}"
    assert read_tokens(process.file.read_bytes()) == [NEW]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (process.file.parent, process.file)]
    assert modes == [0o700, 0o600]
    process.end()
    assert [*process.file.parent.iterdir()] == []


def test_without_memory_files_those_of_killed_processes_are_removed(place: Path) -> None:
    running = Process(place, "at exit", "directory")
    killed = Process(place, "at exit", "directory")
    killed.end(killed=True)
    killed.file.with_suffix(".new").touch()
    assert killed.file.exists()
    last = Process(place, "at exit", "directory")
    assert {*running.file.parent.iterdir()} == {running.file, last.file}
    for process in (running, last):
        process.end()
    assert [*running.file.parent.iterdir()] == []


def test_new_content_replaces_the_old_one_under_the_same_path() -> None:
    file = ProcessFile()
    path = file.write(b"long content")
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    for content in (b"other", b"other", b"", b"long content"):
        assert file.write(content) == path
        assert Path(path).read_bytes() == content
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors
    file.leave_to_parent()
    assert not Path(path).exists()


def test_a_descriptor_that_the_program_closed_and_used_again_is_left_alone(tmp_path: Path) -> None:
    file = ProcessFile()
    descriptor = int(file.write(b"first").rpartition("/")[2])
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, descriptor)
    try:
        assert Path(file.write(b"first")).read_bytes() == b"first"
        assert Path(file.write(b"second")).read_bytes() == b"second"
        file.leave_to_parent()
        assert os.path.samestat(os.fstat(descriptor), os.fstat(other))
        assert (tmp_path / "other").read_bytes() == b""
    finally:
        os.close(other)
        os.close(descriptor)


def test_without_memory_files_those_of_ended_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    directory = tmp_path / f"ftfile-{os.geteuid()}"
    directory.mkdir(mode=0o700)
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f"process-{ended.pid}", f"process-{ended.pid}.new", f"process-{os.getppid()}", "process-x"):
        (directory / name).touch()
    path = Path(ProcessFile().write(b"content"))
    assert {*directory.iterdir()} == {path, directory / f"process-{os.getppid()}", directory / "process-x"}


@pytest.mark.parametrize("received", [OLD, NEW])
def test_a_child_process_writes_a_file_of_its_own(received: DelegationToken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark forks its workers, which can run longer than their parent."""
    monkeypatch.setenv(FILE_VARIABLE, "")  # so that the variable is removed afterwards
    monkeypatch.delenv(FILE_VARIABLE)
    tokens = ProcessTokens()
    tokens.receive([OLD])
    tokens.merge()
    path = os.environ[FILE_VARIABLE]
    child = os.fork()
    if child == 0:
        is_own = False
        try:
            tokens.receive([received])
            tokens.merge()
            own = os.environ[FILE_VARIABLE]
            is_own = own.startswith(f"/proc/{os.getpid()}/") and read_tokens(Path(own).read_bytes()) == [received]
        finally:
            os._exit(0 if is_own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tokens.merge()
    assert os.environ[FILE_VARIABLE] == path
    assert read_tokens(Path(path).read_bytes()) == [OLD]
