"""`ftfile.doctor`: faults of this machine, and of a directory as it is seen from here, each with its remedy."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Literal, TypeAlias

from ftfile.core.codecs import CODECS
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, PermissionDenied, StorageError
from ftfile.core.version import __version__
from ftfile.log.opening import open_log
from ftfile.log.read.times import created_ms, time_text
from ftfile.storage.paths import parse
from ftfile.storage.registry import is_local, normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context


State: TypeAlias = Literal["ok", "info", "warning", "error"]

PYTHON_LEAST = (3, 10)
SPARK_LEAST = 4  # a major version
JAVA_LEAST = 17
ANSWER_S = 60  # seconds for another program to tell its version, on a busy machine
CLOCK_AHEAD_MS = 60_000
FREE_BYTES_LEAST = 1 << 30

_NEEDED = (
    *("arro3-io", "cryptography", "fsspec", "google-crc32c", "hdfs", "isal", "lz4"),
    *("numpy", "pyarrow", "requests", "xxhash"),
)
# By extra: the module that it brings, and for what.
_EXTRAS = {
    "s3": ("botocore", "s3:// and s3a:// URLs"),
    "hdfs": ("hdfs_native", "hdfs:// URLs"),
    "kerberos": ("requests_kerberos", "webhdfs:// with a ticket"),
    "avro": ("fastavro", "reading fileFormat=avro"),
    "kms": ("boto3", "keyProvider=aws-kms:…"),
    **{name: (codec.package, f"compression={name} for lines") for name, codec in CODECS.items() if codec.package},
}
_SCHEMES = {"s3": "s3", "s3a": "s3", "hdfs": "hdfs"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State  # `error` keeps ftfile from working, `warning` may, `info` is about what only some need
    found: str
    remedy: str = ""  # what to do; empty where nothing is to be done


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The result of `ftfile.doctor`."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Return True if nothing is an error."""
        return all(check.state != "error" for check in self.checks)


def doctor(
    path: str | os.PathLike[str] | None = None,
    *,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> DoctorReport:
    """Check Python, packages, Spark, Java and the workers' interpreter; with a path, also whether it can be used.

    It writes nothing, starts no Spark, and raises nothing: what fails is an error in the report, with its remedy. Of a
    directory it checks that its store answers with these credentials, that the log can be read and decrypted, that its
    clock agrees with this machine's, and of a local one the permission to write, and the space.

    Args:
        path: of the directory; None for the machine alone.
        key_provider: see `ftfile.open`.
        storage: likewise.
        context: likewise.
    """
    checks = [_python(), _packages(), _spark(), _java(), _worker(), *_extras()]
    if path is not None:
        checks += _directory(os.fspath(path), key_provider, storage, context)
    return DoctorReport(tuple(checks))


def _python() -> Check:
    version_text = f"{sys.version.split()[0]} at {sys.executable}, with ftfile {__version__}"
    if sys.version_info < PYTHON_LEAST:
        return Check("Python", "error", version_text, f"install Python {'.'.join(map(str, PYTHON_LEAST))} or later")
    return Check("Python", "ok", version_text)


def _packages() -> Check:
    missing = [name for name in _NEEDED if _version(name) is None]
    if missing:
        return Check("packages", "error", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return Check("packages", "ok", f"pyarrow {_version('pyarrow')}, numpy {_version('numpy')}, and all others")


def _spark() -> Check:
    version = _version("pyspark") or _version("pyspark-client")
    if version is None:
        remedy = "for streams: pip install 'ftfile[spark]', or the pyspark of your cluster"
        return Check("Spark", "info", "pyspark is not installed here", remedy)
    if int(version.split(".")[0]) < SPARK_LEAST:
        return Check("Spark", "error", f"pyspark {version}", f"install pyspark {SPARK_LEAST}.0 or later")
    return Check("Spark", "ok", f"pyspark {version}")


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = f"for Spark on this machine: install a JDK {JAVA_LEAST} or later, and set JAVA_HOME"
    if program is None or not os.path.exists(program):
        where = f"JAVA_HOME={home!r} has no bin/java" if home else "there is no java on the PATH"
        return Check("Java", "error" if home else "info", where, remedy)
    text = _output([program, "-version"])
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', text)
    if match is None:
        return Check("Java", "error", f"{program} does not tell its version: {text[:200]!r}", remedy)
    state: State = "ok" if int(match[1]) >= JAVA_LEAST else "error"
    return Check("Java", state, f"{match[0][9:-1]} at {program}", "" if state == "ok" else remedy)


def _worker() -> Check:
    """Compare the Python that Spark starts for its workers on this machine with this one."""
    command = os.environ.get("PYSPARK_PYTHON") or "python3"
    program = shutil.which(command)
    remedy = f"set PYSPARK_PYTHON={sys.executable}, or install the same Python and ftfile there"
    if program is None:
        return Check("workers", "error", f"{command!r}, which Spark starts, is no program", remedy)
    code = (
        "import sys; print('%d.%d' % sys.version_info[:2]); import ftfile.core.version as own; print(own.__version__)"
    )
    lines = _output([program, "-c", code]).split()
    own_version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not lines or lines[0] != own_version:
        actual = f"Python {lines[0] if lines else 'unknown'} at {program}, and {own_version} here"
        return Check("workers", "warning", actual, remedy)
    if lines[1:] != [__version__]:
        actual = lines[1] if len(lines) == 2 else "none"  # noqa: PLR2004 - both versions
        return Check("workers", "warning", f"ftfile {actual} at {program}, and {__version__} here", remedy)
    return Check("workers", "ok", f"Python {own_version} with ftfile {__version__} at {program}")


def _extras() -> Iterator[Check]:
    for extra, (module, use) in _EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Check(f"extra {extra}", "info", f"not installed, for {use}", f"pip install 'ftfile[{extra}]'")
        else:
            yield Check(f"extra {extra}", "ok", f"installed, for {use}")


def _directory(
    path: str, key_provider: str | None, storage: Mapping[str, str] | None, context: Context
) -> Iterator[Check]:
    try:
        url = normalise(path)
    except FtfileError as error:
        yield Check("path", "error", str(error), "write a local path, or a URL such as s3://bucket/out")
        return
    extra = _SCHEMES.get(parse(url).scheme)
    if extra is not None and importlib.util.find_spec(_EXTRAS[extra][0]) is None:
        yield Check("driver", "error", f"{_EXTRAS[extra][1]} need a package", f"pip install 'ftfile[{extra}]'")
        return
    try:
        log = open_log(path, key_provider, storage, context)
        head = log.refresh()
    except CorruptData as error:
        yield Check("directory", "error", str(error), "ftfile.open(path).verify() says what is damaged")
    except PermissionDenied as error:
        yield Check("directory", "error", str(error), "check credentials, and permissions of the store and directory")
    except ConfigError as error:
        yield Check("directory", "error", str(error), "check the path, and where the keys are")
    except StorageError as error:
        yield Check("directory", "error", str(error), "check the URL, the settings, the network and the credentials")
    else:
        yield Check("directory", "ok", f"{url}: version {head.version}")
        time_ms = created_ms(log, head.version) if head.version >= 0 else None
        if time_ms is not None:
            yield _clock(time_ms, context.clock.now_ms())
    if is_local(url):
        yield from _local(parse(url).path)


def _clock(time_ms: int, now_ms: int) -> Check:
    times = f"the newest version is of {time_text(time_ms)}, and here it is {time_text(now_ms)}"
    if time_ms - now_ms > CLOCK_AHEAD_MS:
        return Check("clock", "error", times, "set the clocks of this machine and of the store, by NTP")
    return Check("clock", "ok", times)


def _local(path: str) -> Iterator[Check]:
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if os.access(there, os.W_OK | os.X_OK):
        yield Check("permissions", "ok", f"{there} may be written")
    else:
        yield Check("permissions", "warning", f"{there} may not be written by this user", "chmod or chown, to write")
    usage = shutil.disk_usage(there)
    space = f"{usage.free / (1 << 30):.1f} GiB of {usage.total / (1 << 30):.1f} GiB are free"
    if usage.free < FREE_BYTES_LEAST:
        yield Check("space", "warning", space, "make room: a full disk fails batches, which come again")
    else:
        yield Check("space", "ok", space)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    """Return the output of a program; empty if it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own interpreter and Java
            command, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout or done.stderr
