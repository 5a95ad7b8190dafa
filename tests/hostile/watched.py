"""Runs public calls on directories in a watched process.

Its arguments are the checkpoint of the query that wrote, and directories. ftfile wrote the first directory unchanged:
the calls do their imports there. From then on the process records its imports, opened files, started programs and
connections. For each further directory it prints a line of JSON: by the name of a call, its outcome and its forbidden
actions.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.errors import FtfileError

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_BYTES = 1 << 30
# Limits of a call: processor time, and clock time, which is longer because the machine may be busy.
CALL_S, CALL_BY_CLOCK_S = 10, 120
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "ctypes.dlopen")
_CONNECTS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind", "urllib.Request")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown")
# Files of packages, and of ftfile's package.
_MODULES = (".py", ".pyc", ".zip", "METADATA", "entry_points.txt")
_PACKAGE = f"{Path(ftfile.__file__).parent}/"
_OF_NAMES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink")
# Files about the machine that Python and its libraries read.
_OF_MACHINE = ("/proc/", "/sys/", "/dev/null", "/dev/urandom", "/usr/share/zoneinfo", "/etc/localtime")


def _opened(directory: str) -> ftfile.Directory:
    return ftfile.open(directory)


CALLS: dict[str, Callable[[str], object]] = {
    "to_arrow": lambda directory: _opened(directory).to_arrow().num_rows,
    "status": lambda directory: _opened(directory).status(staged=True).version,
    "history": lambda directory: len([*_opened(directory).history()]),
    "verify": lambda directory: len(_opened(directory).verify(full=True).findings),
    "flush due": lambda directory: ftfile.flush(directory, due_only=True).files,
    "compact": lambda directory: ftfile.compact(directory, dry_run=True),
    "repair": ftfile.repair,
    "vacuum": ftfile.vacuum,
    "flush": lambda directory: ftfile.flush(directory, threads=1).files,
}


class Watch:
    """Records the actions of the process outside its directory while it is on; a hook of Python's audit events."""

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint  # of the query that wrote; records name it
        self.directory: str | None = None  # None turns it off
        self.misdeeds: set[str] = set()
        loaded = {name.partition(".")[0] for name in sys.modules}
        self._packages = loaded | set(sys.stdlib_module_names) - {"antigravity"}

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.directory is None:
            return
        if event == "import" and str(arguments[0]).partition(".")[0] not in self._packages:
            self.misdeeds.add(f"imports {arguments[0]}")
        # for `dlopen`, None is the process itself
        elif (event in _STARTS and arguments != (None,)) or event in _CONNECTS:
            self.misdeeds.add(f"{event} {arguments!r:.200}")
        elif event in {"open", "os.listdir", "os.scandir"} or event in _CHANGES:
            paths = 2 if event in {"os.rename", "os.link"} else 1
            for path, descriptor in zip(arguments[:paths], _directories(event, arguments, paths), strict=True):
                if not (event == "open" and _is_name_in_opened(path, arguments[2])):
                    self._check_path(event, path, descriptor)

    def _check_path(self, event: str, path: object, descriptor: int) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        above = Path(f"/proc/self/fd/{descriptor}").readlink() if descriptor >= 0 else Path()
        full = above / os.fsdecode(path)
        # If a link is removed or renamed, it is not followed.
        absolute = (
            str(Path(os.path.realpath(full.parent)) / full.name) if event in _OF_NAMES else os.path.realpath(full)
        )
        is_module = event == "open" and (absolute.endswith(_MODULES) or absolute.startswith(_PACKAGE))
        # A directory is opened to sync the names in it, and a stream checks the directories above its files for
        # `_ftfile`.
        parents = Path(self.directory or "/").parents
        is_above = event == "open" and Path(absolute.removesuffix("/_ftfile") or "/") in parents
        if not (self._is_allowed(f"{absolute}/") or is_module or is_above or _is_import(event, absolute)):
            self.misdeeds.add(f"{event} {absolute}")

    def _is_allowed(self, path: str) -> bool:
        return path.startswith((f"{self.directory}/", f"{self.checkpoint}/", *_OF_MACHINE))


def _directories(event: str, arguments: tuple[Any, ...], paths: int) -> tuple[int, ...]:
    """Return the directory descriptor of each path, which are the last arguments of changing events."""
    return arguments[-paths:] if event in _CHANGES else (-1,) * paths


def _is_name_in_opened(path: object, flags: int) -> bool:
    """Return True for a name in a directory that was already opened: the open call follows no link."""
    return isinstance(path, str) and "/" not in path and path != ".." and bool(flags & (os.O_NOFOLLOW | os.O_EXCL))


def _is_import(event: str, path: str) -> bool:
    """Return True for a folder that is listed to find modules."""
    return event in {"os.listdir", "os.scandir"} and any(path.startswith(folder) for folder in sys.path if folder)


def late(*_: object) -> None:
    """Raise a `TimeoutError`; a signal handler."""
    raise TimeoutError(f"it took more than {CALL_S} s of the processor, or {CALL_BY_CLOCK_S} s")


def bound_time(processor_s: float = CALL_S) -> None:
    """Send this process SIGPROF or SIGALRM when the time of a call is over."""
    signal.setitimer(signal.ITIMER_PROF, processor_s)
    signal.setitimer(signal.ITIMER_REAL, CALL_BY_CLOCK_S)


def unbound_time() -> None:
    """Cancel the signals."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)


def outcome_of(call: Callable[[], object]) -> str:
    """Return the result or error of a call. Only texts that begin with `raised` are not errors of ftfile."""
    try:
        return f"returned {call()!r:.200}"
    except FtfileError as error:
        return f"{type(error).__name__}: {error}"
    except BaseException as error:  # including MemoryError
        frames = traceback.extract_tb(error.__traceback__)
        own = next((frame for frame in reversed(frames) if "/ftfile/" in frame.filename), frames[-1])
        place = f"{own.name} at {own.filename.rpartition('/ftfile/')[2]}:{own.lineno}"
        return f"raised {type(error).__name__} {error!r:.300} in {place}"


def run(directory: str, watch: Watch) -> dict[str, dict[str, Any]]:
    """Return the outcome of each call and its forbidden actions."""
    outcomes = {}
    for name, call in CALLS.items():
        watch.misdeeds = set()
        bound_time()
        try:
            outcome = outcome_of(partial(call, directory))
        finally:
            unbound_time()
        outcomes[name] = {"outcome": outcome, "misdeeds": sorted(watch.misdeeds)}
    return outcomes


def data_bytes() -> int:
    """Return the bytes that count for the memory limit: Arrow reserves more than it uses."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
    return int(line.split()[1]) << 10


def main(checkpoint: str, whole: str, *forged: str) -> None:
    """Run all calls on an unchanged directory, and then, watched, on forged ones."""
    faulthandler.enable()
    signal.signal(signal.SIGPROF, late)
    signal.signal(signal.SIGALRM, late)
    run(whole, Watch(checkpoint))
    watch = Watch(checkpoint)
    sys.addaudithook(watch)
    limit = data_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for directory in forged:
        watch.directory = str(Path(directory).resolve())
        outcomes = run(directory, watch)
        watch.directory = None
        print(json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
