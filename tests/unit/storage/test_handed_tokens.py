"""Delegation tokens that Spark's driver sends to executors: which of them, when, and where they never appear."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.storage.hdfs.credentials import jvm_tokens, private_files
from ftfile.storage.hdfs.credentials import tokens as tokens_of_process
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE, ProcessTokens
from ftfile.storage.hdfs.credentials.token_file import DelegationToken, read_tokens, token_file
from ftfile.storage.hdfs.credentials.tokens import find_token, origin_of, refuse_token
from ftfile.storage.hdfs.handover import FROM_DRIVER
from ftfile.storage.registry import settings_for_others
from ftfile.testing.context import open_filesystem
from tests.hdfs.servers import write_site

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "webhdfs://ns/out"
SERVICE = "ha-hdfs:ns"
RPC = "HDFS_DELEGATION_TOKEN"


def field(data: bytes) -> bytes:
    return bytes([len(data)]) + data


def token(issued_ms: int, service: str = SERVICE, kind: str = RPC) -> DelegationToken:
    """Return a token with one day between its issue and its end."""
    dates = b"".join(b"\x8a" + date.to_bytes(6, "big") for date in (issued_ms, issued_ms + 86_400_000))
    identifier = b"\0" + field(b"etl") + field(b"yarn") + field(b"") + dates
    password = f"S3CRET {issued_ms}".encode()
    content = b"".join(map(field, (identifier, password, kind.encode(), service.encode())))
    return DelegationToken(content, kind, service)


OTHERS = (token(1, "ha-hdfs:other"), token(2, "10.0.0.1:8030", "YARN_AM_RM_TOKEN"))
OLD, NEW = token(1_700_000_000_000), token(1_700_000_100_000)


class Process:
    """The tokens of one process of Spark; `enter` makes this process look like it."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory.mkdir()
        self.file = directory / "tokens"
        self._directory, self._patch = directory, monkeypatch
        self._state = ProcessTokens()
        self._environment: str | None = None

    def write(self, *tokens: DelegationToken) -> None:
        self.file.write_bytes(token_file(tokens))
        self._environment = str(self.file)

    def remove(self) -> None:
        self._environment = None

    def enter(self) -> None:
        self._patch.setattr(tokens_of_process, "_process", self._state)
        self._patch.chdir(self._directory)
        if self._environment is None:
            self._patch.delenv(FILE_VARIABLE, raising=False)
        else:
            self._patch.setenv(FILE_VARIABLE, self._environment)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    """A driver with a token of the service, and with tokens that are not for it."""
    write_site(
        tmp_path / "hdfs-site.xml",
        {"dfs.ha.namenodes.ns": "n", "dfs.namenode.http-address.ns.n": "namenode.invalid:9870"},
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    process = Process(tmp_path / "driver", monkeypatch)
    process.write(OLD, *OTHERS)
    process.enter()
    return process


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(tmp_path / "executor", monkeypatch)


def token_here() -> DelegationToken | None:
    return find_token("ns", [])


def tokens_of_libraries() -> list[DelegationToken]:
    """Return the tokens that other clients of Hadoop read in this process."""
    return read_tokens(Path(os.environ[FILE_VARIABLE]).read_bytes())


@pytest.mark.parametrize("url", [URL, "hdfs://ns/out"])
def test_a_batch_brings_the_token_of_its_service_and_no_other(driver: Process, executor: Process, url: str) -> None:
    del driver
    sent = pickle.dumps(settings_for_others(url, {}))
    assert sent.count(b"S3CRET") == 1
    executor.enter()
    pickle.loads(sent)
    assert token_here() == OLD
    assert tokens_of_libraries() == [OLD]
    assert stat.S_IMODE(Path(os.environ[FILE_VARIABLE]).stat().st_mode) == 0o600


@pytest.mark.parametrize(("own", "handed", "expected"), [(OLD, NEW, NEW), (NEW, OLD, NEW), (NEW, NEW, NEW)])
def test_the_token_that_was_issued_later_is_used(
    driver: Process, executor: Process, own: DelegationToken, handed: DelegationToken, expected: DelegationToken
) -> None:
    driver.write(handed)
    driver.enter()
    sent = pickle.dumps(settings_for_others(URL, {}))
    hive = token(3, "metastore:9083", "HIVE_DELEGATION_TOKEN")
    executor.write(own, hive)
    executor.enter()
    pickle.loads(sent)
    assert token_here() == expected
    assert sorted(tokens_of_libraries(), key=lambda each: each.kind) == [expected, hive]
    assert (os.environ[FILE_VARIABLE] == str(executor.file)) == (own == NEW)


def test_a_refused_token_is_replaced_by_an_older_one(driver: Process, executor: Process) -> None:
    """YARN renews the token of the submission, which the driver has, and not the newer one of an executor."""
    del driver
    sent = pickle.dumps(settings_for_others(URL, {}))
    executor.write(NEW)
    executor.enter()
    pickle.loads(sent)
    assert token_here() == NEW
    refuse_token(NEW)
    assert token_here() == OLD
    assert tokens_of_libraries() == [OLD]
    refuse_token(OLD)
    assert token_here() is not None, "the error of the server explains more than a missing token"


def test_a_token_that_is_older_than_a_refused_one_is_received(driver: Process, executor: Process) -> None:
    for handed in (NEW, OLD):
        driver.write(handed)
        driver.enter()
        sent = pickle.dumps(settings_for_others(URL, {}))
        executor.enter()
        pickle.loads(sent)
        assert token_here() == handed
        refuse_token(handed)


def test_a_token_file_that_is_replaced_by_a_newer_one_counts_again(driver: Process, executor: Process) -> None:
    driver.write(NEW)
    driver.enter()
    sent = pickle.dumps(settings_for_others(URL, {}))
    executor.write(OLD)
    executor.enter()
    pickle.loads(sent)
    assert token_here() == NEW
    newest = token(1_700_000_200_000)
    executor.file.write_bytes(token_file([newest]))
    assert token_here() == newest
    assert os.environ[FILE_VARIABLE] == str(executor.file)
    executor.file.unlink()
    assert token_here() == NEW


def test_a_process_does_not_keep_tokens_that_its_file_contains(driver: Process) -> None:
    """The driver, and executors of `local[*]`, would otherwise use them after the file has been replaced."""
    pickle.loads(pickle.dumps(settings_for_others(URL, {})))
    older = token(1_600_000_000_000)
    driver.write(older)
    assert token_here() == older


def test_each_batch_brings_the_token_that_the_driver_has_then(driver: Process, executor: Process) -> None:
    """A reader lives as long as its query, and is pickled for each batch."""
    settings = settings_for_others(URL, {})
    first = pickle.dumps(settings)
    driver.write(NEW)
    second = pickle.dumps(settings)
    executor.enter()
    for sent, expected in ((first, OLD), (second, NEW), (first, NEW)):
        pickle.loads(sent)
        assert token_here() == expected


def test_a_process_between_driver_and_executor_passes_the_token_on(
    driver: Process, executor: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del driver
    sent = pickle.dumps(settings_for_others(URL, {}))
    Process(tmp_path / "between", monkeypatch).enter()
    sent_again = pickle.dumps(pickle.loads(sent))
    executor.enter()
    pickle.loads(sent_again)
    assert token_here() == OLD


def test_the_settings_are_the_same_for_each_token_and_show_none(driver: Process, executor: Process) -> None:
    """They are keys of caches, and parts of messages."""
    settings = settings_for_others(URL, {})
    sent = pickle.dumps(settings)
    driver.write(NEW)
    assert settings_for_others(URL, {}) == settings
    executor.enter()
    arrived = pickle.loads(sent)
    assert arrived == settings
    assert hash(arrived[FROM_DRIVER]) == hash(settings[FROM_DRIVER])
    assert "S3CRET" not in f"{settings!r} {arrived!r} {json.dumps(arrived)} {vars(tokens_of_process)}"
    used = token_here()
    assert used is not None
    assert "The token for ha-hdfs:ns came from Spark's driver with the batch" in origin_of(used)
    assert "S3CRET" not in origin_of(used)


def test_tokens_stay_with_the_driver_if_the_user_wants_so(driver: Process, executor: Process) -> None:
    del driver
    sent = pickle.dumps(settings_for_others(URL, {"handtokens": "False"}))
    assert b"S3CRET" not in sent
    executor.enter()
    with pytest.raises(ConfigError, match=r"the driver has a delegation token .* omit storage\.handTokens=false, or"):
        open_filesystem(URL, settings=pickle.loads(sent))
    with pytest.raises(ConfigError, match=r"storage\.handTokens='no': it must be true or false"):
        open_filesystem(URL, settings={"handTokens": "no"})


def test_without_tokens_nothing_changes(executor: Process, driver: Process) -> None:
    driver.file.write_bytes(token_file([]))
    sent = pickle.dumps(settings_for_others(URL, {}))
    executor.enter()
    settings = pickle.loads(sent)
    assert token_here() is None
    assert FILE_VARIABLE not in os.environ
    open_filesystem(URL, settings=settings)


def kept(jvm: int, *tokens: DelegationToken) -> str:
    """Keep the tokens of a JVM, as the driver's program does; return the file."""
    jvm_tokens.keep_tokens(jvm, token_file(tokens))
    return str(Path(private_files.make_user_directory(), f"tokens-{jvm}"))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(jvm_tokens, "_kept", set())
    return directory


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("has_file", [True, False])
def test_processes_below_a_jvm_use_the_tokens_that_the_program_keeps(
    driver: Process, executor: Process, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    """Other processes do not, also on the same host."""
    if not has_file:
        driver.remove()
        driver.enter()
    jvm = os.getppid()
    settings = settings_for_others(URL, {})
    path = kept(jvm, NEW, *OTHERS)
    assert token_here() == NEW, "in the program itself"
    monkeypatch.setattr(jvm_tokens, "_kept", set())
    assert token_here() == NEW, "in a process that descends from the JVM"
    assert os.environ[FILE_VARIABLE] == path
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
    used = token_here()
    assert used is not None
    assert "is from the driver's JVM, by ftfile.spark.attach" in origin_of(used)
    sent = pickle.dumps(settings)
    jvm_tokens.forget_tokens(jvm)
    assert token_here() == (OLD if has_file else None)
    assert os.environ.get(FILE_VARIABLE) == (str(driver.file) if has_file else None)
    executor.enter()
    pickle.loads(sent)
    assert token_here() == NEW
    kept(2**22 + 1, token(1_700_000_200_000))
    monkeypatch.setattr(jvm_tokens, "_kept", set())
    assert token_here() == NEW


def test_a_directory_that_others_can_use_is_not_used(
    driver: Process, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del driver
    path = Path(kept(os.getppid(), NEW))
    assert path.parent.name == f"ftfile-{os.geteuid()}"
    path.parent.chmod(0o755)
    assert token_here() == OLD
    path.parent.rename(temporary / "elsewhere")
    path.parent.symlink_to(temporary / "elsewhere")
    assert token_here() == OLD
    monkeypatch.setenv("TMPDIR", str(temporary / "elsewhere"))
    kept(os.getppid(), NEW)
    assert token_here() == NEW


def make_open_directory(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def make_link(path: Path) -> None:
    target = path.parent / "private"
    target.mkdir(mode=0o700)
    path.symlink_to(target)


def states_below(directory: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in directory.rglob("*")}


OBSTACLES: dict[str, Callable[[Path], object]] = {
    "a directory": make_open_directory,
    "a file": Path.touch,
    "a link": make_link,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_other_users_cannot_prevent_that_tokens_are_kept(
    driver: Process, temporary: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Any user can create names in `/tmp`, and only the owner can remove them."""
    del driver
    taken = temporary / f"ftfile-{os.geteuid()}"
    for path in (taken, taken.with_name(f"{taken.name}-0"), taken.with_name(f"{taken.name}-zzzzzzzz")):
        shutil.rmtree(temporary / "private", ignore_errors=True)
        OBSTACLES[name](path)
    before = states_below(temporary)
    jvm = os.getppid()
    path = Path(kept(jvm, OLD))
    assert path == Path(kept(jvm, NEW, *OTHERS)), "one directory, also for later calls"
    assert path.parent not in before
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    monkeypatch.setattr(jvm_tokens, "_kept", set())
    assert token_here() == NEW, "in a process that descends from the JVM"
    assert os.environ[FILE_VARIABLE] == str(path)
    jvm_tokens.forget_tokens(jvm)
    assert token_here() == OLD
    assert [*path.parent.iterdir()] == []
    path.parent.rmdir()
    assert states_below(temporary) == before, "nothing of the other user was changed"


def test_files_of_ended_jvms_are_removed(driver: Process, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del driver
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept(ended.pid, NEW)
    kept(os.getppid(), NEW)
    assert [path.name for path in temporary.glob("*/*")] == [f"tokens-{os.getppid()}"]
    monkeypatch.setattr(jvm_tokens, "_kept", set())
    kept(os.getpid(), NEW)
    assert len([*temporary.glob("*/*")]) == 2


def test_a_warning_comes_before_the_end_of_the_token(driver: Process, caplog: pytest.LogCaptureFixture) -> None:
    day_ms = 86_400_000
    now_ms = SYSTEM.clock.now_ms()
    settings = settings_for_others(URL, {})
    for age_ms, warnings in ((day_ms // 2, 0), (day_ms - 3_600_000, 1)):
        driver.write(token(now_ms - age_ms))
        for _ in range(2):
            pickle.dumps(settings)
        assert caplog.text.count("no batch can use HDFS after the end of its token. The token for") == warnings
    assert "S3CRET" not in caplog.text
