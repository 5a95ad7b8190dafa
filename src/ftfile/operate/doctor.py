"""`ftfile.doctor`: checks of this machine, and of a directory that it reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from ftfile import core
from ftfile.core import __version__
from ftfile.core.arguments import Access
from ftfile.core.codecs import CODECS
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, PermissionDenied, StorageError
from ftfile.core.extensions import SPARK_LEAST
from ftfile.core.interpreter import command_of_spark, is_plain, launcher_of, setting
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.opening import open_log
from ftfile.log.read.times import created_ms, time_text
from ftfile.operate.findings import CheckReport, check, find, sort_worst_first
from ftfile.operate.worker_start import check_start
from ftfile.storage.paths import parse
from ftfile.storage.registry import is_local, normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.operate.findings import Finding


PYTHON_LEAST = (3, 10)
JAVA_LEAST = 17
ANSWER_S = 60  # seconds for another program to print its version, on a busy machine
CLOCK_AHEAD_MS = 60_000
FREE_BYTES_LEAST = 1 << 30

# A line of the metadata of an installation. pyproject.toml uses no other markers.
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)[^;]*(; *(sys_platform == '(?P<system>\w+)')?( and )?(extra == '(?P<extra>[\w-]+)')?)?"
)
# By extra: its use. Spark has a check of its own.
USES_OF_EXTRAS = {
    "s3": "s3:// and s3a:// URLs",
    "hdfs": "hdfs:// URLs",
    "kerberos": "webhdfs:// with a ticket",
    "avro": "reading fileFormat=avro",
    "kms": "keyProvider=aws-kms:…",
    "prometheus": "metrics for Prometheus",
    "opentelemetry": "metrics for OpenTelemetry",
    "report": "the page of ftfile.report",
    "cli": "the command `ftfile`",
    **{name: f"compression={name} for lines" for name, codec in CODECS.items() if codec.package},
}
_SCHEMES = {"s3": "s3", "s3a": "s3", "hdfs": "hdfs"}
_REMEDIES = {
    CorruptData: Advice(Remedy("verify"), " finds the damaged files"),
    PermissionDenied: "Check the credentials, and the permissions of the storage and the directory",
    ConfigError: "Check the path, and the provider of the keys",
    StorageError: "Check the URL, the settings, the network and the credentials",
}


def doctor(
    path: str | os.PathLike[str] | None = None,
    *,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
    measure_start: bool = True,
) -> CheckReport:
    """Check Python, packages, Spark, Java and the Python of Spark's workers; with a path, also the directory.

    It writes nothing, does not start Spark, and raises nothing: a failed check is an error in the report, with its
    remedy. For a directory it checks that the storage accepts the credentials, that the log can be read and decrypted,
    and that the clock of the storage agrees with this machine's. For a local directory it also checks the permission to
    write, and the free space.

    Args:
        path: of the directory; None to check only the machine.
        key_provider: see `ftfile.open`.
        storage: see `ftfile.open`.
        context: see `ftfile.open`.
        measure_start: start the Python of Spark's workers and measure it, which takes about two seconds.
    """
    worker = _worker()
    findings = [_python(), _packages(), _spark(), _java(), worker, *_extras()]
    _, command = command_of_spark()
    if measure_start and worker.severity == "ok" and (program := shutil.which(command)) is not None:
        findings += check_start(program)
    if path is not None:
        findings += _directory(os.fspath(path), Access(key_provider, storage, context=context))
    return CheckReport(findings=sort_worst_first(findings))


def _python() -> Finding:
    actual = f"{sys.version.split()[0]} at {sys.executable}, with ftfile {__version__}"
    expected = f"Python {'.'.join(map(str, PYTHON_LEAST))} or later"
    return check("python", expected, actual, is_passed=sys.version_info >= PYTHON_LEAST)


def list_required(extra: str = "") -> list[str] | None:
    """Return the packages that ftfile, or one of its extras, needs on this system; None without an installation."""
    try:
        requirements = metadata.requires("ftfile") or []
    except metadata.PackageNotFoundError:
        return None
    names: list[str] = []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is not None and (match["extra"] or "") == extra and match["system"] in {None, sys.platform}:
            names.append(match["name"])
    return names


def _list_missing(extra: str = "") -> list[str]:
    return [name for name in list_required(extra) or [] if _version(name) is None]


def _packages() -> Finding:
    if list_required() is None:
        actual = f"ftfile is imported from {os.path.dirname(core.__file__)}, which is not an installation"
        remedy = "To check the packages, install ftfile: pip install ftfile"
        return replace(find("packages", "", "an installation of ftfile", actual, remedy=remedy), severity="info")
    missing = _list_missing()
    if missing:
        actual = f"not installed: {', '.join(missing)}"
    else:
        actual = f"pyarrow {_version('pyarrow')}, and all others"
    remedy = f"Install the missing packages: pip install {' '.join(missing)}"
    return check("packages", "all packages that ftfile needs", actual, remedy, is_passed=not missing)


def _spark() -> Finding:
    expected = f"pyspark {SPARK_LEAST}.0 or later"
    package = "pyspark-client"
    if _version("pyspark") or not _version("pyspark-client"):
        package = "pyspark"
    version = _version(package)
    if version is None:
        remedy = (
            "For streams, install pyspark, in the version of your cluster if there is one: pip install 'ftfile[spark]'"
        )
        return replace(find("spark", "", expected, "pyspark is not installed here", remedy=remedy), severity="info")
    remedy = (
        f"Replace {package} {version} by {package} {SPARK_LEAST}.0 or later: "
        f"pip install '{package}>={SPARK_LEAST}.0'. A cluster must run the same version of Spark"
    )
    is_passed = int(version.split(".")[0]) >= SPARK_LEAST
    return check("spark", expected, f"{package} {version}", remedy, is_passed=is_passed)


def _java() -> Finding:
    """Check the Java that Spark would start. Clients of a Spark Connect server need no Java."""
    home = os.environ.get("JAVA_HOME")
    is_client = _version("pyspark") is None or os.environ.get("SPARK_REMOTE", "").startswith("sc://")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    expected = f"a JDK {JAVA_LEAST} or later"
    remedy = (
        f"To run Spark on this machine, install {expected}, from the package manager or https://adoptium.net, and set "
        "JAVA_HOME to its directory"
    )
    if program is None or not os.path.exists(program):
        actual = f"JAVA_HOME={home!r} has no bin/java" if home else "there is no java on the PATH"
        return replace(
            find("java", "", expected, actual, remedy=remedy), severity="info" if is_client and not home else "error"
        )
    text = _output([program, "-version"])
    match = re.search(r'version "(?:1\.)?(\d+)[^"]*"', text)
    actual = f"{match[0][9:-1]} at {program}" if match else f"{program} does not print its version: {text[:200]!r}"
    return check("java", expected, actual, remedy, is_passed=match is not None and int(match[1]) >= JAVA_LEAST)


def _worker() -> Finding:
    """Compare the Python that Spark starts for its workers on this machine with this one."""
    _, command = command_of_spark()
    program = shutil.which(command)
    own_version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    expected = f"Python {own_version} with ftfile {__version__}, as here"
    remedy = f"Start the application with {setting(launcher_of(sys.executable))}"
    if program is None:
        actual = f"{command!r}, which Spark starts, is not a program"
        return replace(find("workers", "", expected, actual, remedy=remedy), severity="error")
    if not is_plain(command):
        actual = f"{command!r}: Spark finds no program by a path with spaces, quotes or operators of a shell"
        return replace(find("workers", "", "a path that Spark finds", actual, remedy=remedy), severity="error")
    code = "import sys; print('%d.%d' % sys.version_info[:2]); import ftfile.core as own; print(own.__version__)"
    lines = _output([program, "-c", code]).split()
    version = lines[0] if lines else "unknown"
    release = lines[1] if len(lines) > 1 else "none"
    actual = f"Python {version} with ftfile {release} at {program}"
    return check("workers", expected, actual, remedy, is_passed=(version, release) == (own_version, __version__))


def _extras() -> Iterator[Finding]:
    if list_required() is None:
        return
    for extra, use in USES_OF_EXTRAS.items():
        is_installed = not _list_missing(extra)
        actual = f"{extra} is {'installed' if is_installed else 'not installed'}, for {use}"
        yield check("extra", f"ftfile[{extra}]", actual, f"pip install 'ftfile[{extra}]'", is_passed=is_installed)


def _directory(path: str, access: Access) -> Iterator[Finding]:
    expected = "a directory of ftfile that can be read"
    try:
        url = normalise(path)
    except FtfileError as error:
        yield find("directory", "", expected, str(error), remedy="Write a local path, or a URL such as s3://bucket/out")
        return
    extra = _SCHEMES.get(parse(url).scheme)
    if extra is not None and _list_missing(extra):
        remedy = f"Install the package for {USES_OF_EXTRAS[extra]}: pip install 'ftfile[{extra}]'"
        yield find("driver", "", f"ftfile[{extra}]", f"{USES_OF_EXTRAS[extra]} need a package", remedy=remedy)
        return
    try:
        log = open_log(path, access)
        head = log.refresh()
    except (CorruptData, ConfigError, StorageError) as error:
        yield find("directory", "", expected, error.text, remedy=_remedy_of(error))
    else:
        yield check("directory", expected, f"{url}: version {head.version}", is_passed=True)
        time_ms = None
        if head.version >= 0:
            time_ms = created_ms(log, head.version)
        if time_ms is not None:
            now_ms = log.fs.context.clock.now_ms()
            times = f"the newest version was written at {time_text(time_ms)}, and the time here is {time_text(now_ms)}"
            yield check("clock", "clocks that agree", times, is_passed=time_ms - now_ms <= CLOCK_AHEAD_MS)
    if is_local(url):
        yield from _local(parse(url).path)


def _remedy_of(error: FtfileError) -> str:
    for kind, remedy in _REMEDIES.items():
        if isinstance(error, kind):
            return remedy
    raise error


def _local(path: str) -> Iterator[Finding]:
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there)
    may_write = os.access(there, os.W_OK | os.X_OK)
    if may_write:
        actual = f"{there} may be written"
    else:
        actual = f"{there} may not be written by this user"
    yield check("permissions", "a directory that this user may write to", actual, is_passed=may_write)
    usage = shutil.disk_usage(there)
    space = f"{usage.free / (1 << 30):.1f} GiB of {usage.total / (1 << 30):.1f} GiB are free"
    yield check("space", f"{FREE_BYTES_LEAST >> 30} GiB that are free", space, is_passed=usage.free >= FREE_BYTES_LEAST)


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
