"""Requests of the drivers of HDFS, and their reactions to answers; without a server of HDFS.

That real servers do as they are asked is tested in tests/hdfs.
"""

from __future__ import annotations

import base64
import http.server
import socketserver
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.core.per_process import PerProcess
from ftfile.core.retries import RetryPolicy
from ftfile.storage.calls import NoThreadError
from ftfile.storage.hdfs import base as hadoop
from ftfile.storage.hdfs import native as native_driver
from ftfile.storage.hdfs import native_nodes as hdfs_native_nodes
from ftfile.storage.hdfs import webhdfs as web_driver
from ftfile.storage.hdfs.credentials.token_file import DelegationToken
from ftfile.storage.hdfs.java_errors import CredentialsRefused, remote_error
from ftfile.storage.hdfs.webhdfs import CHUNK_BYTES
from ftfile.storage.hdfs.webhdfs_files import Upload, refusal
from ftfile.testing.context import ManualClock, open_filesystem
from tests.unit.storage.fake_hdfs import Names, WebServer, install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from ftfile.storage.registry import RetryingFileSystem

MIB = 1 << 20
LOST = RuntimeError("connection reset by peer")
NOT_READY = RuntimeError(
    'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Name node is in safe mode")'
)


class SafeModeException(Exception):
    pass


class StandbyException(Exception):
    pass


class IOException(Exception):
    pass


@pytest.fixture
def names() -> Names:
    return Names()


def opened(url: str, **settings: str) -> FileSystem:
    return open_filesystem(url, settings=settings, clock=ManualClock(), policy=RetryPolicy(attempts=1))


@pytest.fixture
def native(names: Names, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    install(monkeypatch, names)
    # Closing is quick here, on however slow a machine.
    monkeypatch.setattr(native_driver, "WAITS_S", (60.0,))
    return opened("hdfs://namenode:8020/out")


@pytest.fixture
def web(names: Names) -> Iterator[FileSystem]:
    with WebServer(names) as server:
        yield opened(server.url)


@pytest.fixture(params=["native", "web"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    found: FileSystem = request.getfixturevalue(request.param)
    return found


class TestExclusive:
    def test_is_a_synced_and_measured_file_that_gets_its_name(self, native: FileSystem, names: Names) -> None:
        native.create_exclusive("log", b"content")
        assert names.files == {"/out/log": b"content"}
        steps = [each.partition(" ")[0] for each in names.asked]
        assert steps == ["create", "status", "write", "hsync", "close", "status", "rename"]
        assert names.asked[-1] == "rename False"

    def test_the_same_by_http(self, web: FileSystem, names: Names) -> None:
        web.create_exclusive("log", b"content")
        assert names.files == {"/out/log": b"content"}
        assert names.asked == [
            "CREATE CREATE,OVERWRITE,SYNC_BLOCK true",
            "CONTENT",
            "GETFILESTATUS",
            "GETFILECHECKSUM",
            "RENAME NONE",
        ]

    def test_is_not_made_of_less_than_was_sent(self, fs: FileSystem, names: Names) -> None:
        names.swallowed = 1
        with pytest.raises(StorageError, match="6 of 7 bytes"):
            fs.create_exclusive("log", b"content")
        assert names.files == {}

    def test_nobody_loses_what_may_have_its_name(self, fs: FileSystem, names: Names) -> None:
        names.losses = {"rename": [LOST], "RENAME": [ConnectionResetError()]}
        with pytest.raises(OutcomeUnknown):
            fs.create_exclusive("log", b"content")
        assert names.files == {"/out/log": b"content"}
        assert sum(each.lower().startswith("rename") for each in names.asked) == 1, "it was sent again"

    @pytest.mark.slow
    def test_the_loser_leaves_nothing(self, fs: FileSystem, names: Names) -> None:
        names.files["/out/log"] = b"first"
        with pytest.raises(AlreadyExists):
            fs.create_exclusive("log", b"second")
        assert names.files == {"/out/log": b"first"}

    def test_a_temporary_file_whose_writing_failed_is_written_under_another_name(
        self, native: FileSystem, names: Names
    ) -> None:
        names.errors["close"] = [LOST]
        native.create_exclusive("log", b"content")
        assert names.files == {"/out/log": b"content"}
        tries = [each for each in names.asked if each.startswith("create ")]
        assert len(set(tries)) == len(tries) == 2

    @pytest.mark.slow
    def test_the_same_by_http_where_a_datanode_refused_it(self, web: FileSystem, names: Names) -> None:
        names.errors["CONTENT"] = [StandbyException("not now")]
        web.create_exclusive("log", b"content")
        assert names.files == {"/out/log": b"content"}
        assert names.asked.count("DELETE") == 1

    def test_a_try_that_takes_effect_late_does_not_empty_it(self, native: FileSystem, names: Names) -> None:
        late = names.ask

        def ask(text: str) -> None:
            if text.startswith("rename "):
                first = next(each for each in names.asked if each.startswith("create ")).split()[1]
                names.files[first] = b""
            late(text)

        names.errors["close"] = [LOST]
        names.ask = ask  # type: ignore[method-assign] # only of these names
        native.create_exclusive("log", b"content")
        assert names.files == {"/out/log": b"content"}

    def test_nothing_is_left_of_many_tries(self, native: FileSystem, names: Names) -> None:
        names.errors["close"] = [LOST] * 1_000
        with pytest.raises(Unavailable):
            native.create_exclusive("log", b"content")
        assert names.files == {}

    def test_storage_that_is_away_is_not_asked_to_delete_every_try(self, native: FileSystem, names: Names) -> None:
        names.errors = {"create": [NOT_READY] * 1_000, "delete": [NOT_READY] * 1_000}
        with pytest.raises(Unavailable):
            native.create_exclusive("log", b"content")
        assert names.asked.count("delete") == 1


class TestWaiting:
    def test_for_a_namenode_that_is_not_ready(self, native: FileSystem, names: Names) -> None:
        names.files["/out/a"] = b"data"
        names.errors["rename"] = [NOT_READY] * 3
        native.rename("a", "b")
        assert names.files == {"/out/b": b"data"}
        names.errors["read"] = [NOT_READY]
        assert native.read("b") == b"data"

    def test_for_one_that_answers_by_http(self, web: FileSystem, names: Names) -> None:
        names.files["/out/a"] = b"data"
        names.errors["RENAME"] = [SafeModeException("in safe mode")] * 3
        web.rename("a", "b")
        assert names.files == {"/out/b": b"data"}

    @pytest.mark.parametrize("patience", [0, 30])
    @pytest.mark.parametrize("operation", ["rename", "stat"])
    def test_ends(self, patience: int, operation: str, native: FileSystem, names: Names) -> None:
        del native  # it brings the library
        clock = ManualClock()
        fs = open_filesystem("hdfs://namenode:8020/out", settings={"patience": str(patience)}, clock=clock)
        names.errors = {"rename": [NOT_READY] * 1_000, "status": [NOT_READY] * 1_000}
        began_s = clock.monotonic_s()
        with pytest.raises(Unavailable, match="safe mode"):
            fs.rename("a", "b") if operation == "rename" else fs.stat("a")
        assert patience - 2 <= clock.monotonic_s() - began_s <= patience


class TestNativeStreams:
    def test_a_small_file_is_begun_anew_where_a_datanode_refuses_it(self, native: FileSystem, names: Names) -> None:
        names.errors["hsync"] = [LOST]
        with native.create("file") as stream:
            stream.write(b"data")
            stream.hsync()
        assert names.files == {"/out/file": b"data"}
        assert names.asked.count("create /out/file True") == 1

    def test_it_is_not_where_nobody_knows_whether_it_was_begun(self, native: FileSystem, names: Names) -> None:
        stream = native.create("file")
        stream.write(b"data")
        names.errors |= {"hsync": [LOST], "create": [LOST]}
        with pytest.raises(OutcomeUnknown):
            stream.hsync()
        assert names.asked.count("create /out/file True") == 1

    def test_a_large_one_is_not_as_it_is_not_at_hand_any_more(self, native: FileSystem, names: Names) -> None:
        stream = native.create("file")
        for _ in range(3):
            stream.write(b"x" * MIB)
        names.errors["hsync"] = [LOST]
        with pytest.raises(OutcomeUnknown):
            stream.hsync()
        assert names.asked.count("create /out/file True") == 0

    @pytest.mark.slow
    def test_many_bytes_have_more_time(self, native: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native_driver, "SMALL_TIMEOUT_S", 0.1)
        content = b"x" * (16 << 20)
        names.takes_s = 0.2
        with native.create("file") as stream:
            for _ in range(2):
                stream.write(content)
        names.takes_s = 0
        assert names.files == {"/out/file": content * 2}
        assert names.asked.count("write") == 2

    def test_only_what_is_sent_has_time_for_it(
        self, native: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = []

        def run(timeout_s: float, call: Callable[[], object], look: object = None) -> object:
            del look
            limits.append(timeout_s)
            return call()

        stream = native.create("file")
        for _ in range(2):
            stream.write(b"x" * MIB)
        monkeypatch.setattr(hdfs_native_nodes, "run_within", run)
        names.errors["hsync"] = [LOST]
        stream.hsync()
        assert limits == [
            native_driver.SMALL_TIMEOUT_S,
            native_driver.SMALL_TIMEOUT_S * 3,
        ]  # once more, with 2 MiB

    @pytest.mark.parametrize("make", ["create", "create_exclusive"])
    def test_an_erasure_coded_file_is_refused_and_goes(self, native: FileSystem, names: Names, make: str) -> None:
        names.replicas, names.coded = 1, True
        content = [b"data"] if make == "create_exclusive" else []
        with pytest.raises(Unsupported, match="erasure-coded"):
            getattr(native, make)("file", *content)
        assert names.files == {}

    def test_one_replica_is_not_taken_for_erasure_coding(self, native: FileSystem, names: Names) -> None:
        names.replicas = 1
        with native.create("file") as stream:
            stream.write(b"data")
        assert names.files == {"/out/file": b"data"}

    def test_each_directory_is_looked_at_once(self, native: FileSystem, names: Names) -> None:
        for path in ("a/1", "a/2", "b/1", "a/3"):
            native.create(path)
        assert names.asked.count("status") == 2
        names.replicas, names.coded = 1, True
        with pytest.raises(Unsupported):
            native.create("a/below/1")

    def test_a_file_that_the_library_cannot_sync_is_no_silent_datanode(self, native: FileSystem, names: Names) -> None:
        names.errors["hsync"] = [RuntimeError('OperationFailed("hsync is not supported for erasure-coded files")')]
        stream = native.create("file")
        with pytest.raises(Unsupported, match="erasure-coded"):
            stream.hsync()


@pytest.mark.slow
def test_a_change_whose_reply_was_lost_goes_to_no_other_namenode(
    names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.files["/out/a"] = b"data"
    with WebServer(names) as one, WebServer(names) as other:
        settings = {
            "dfs.ha.namenodes.ns": "1,2",
            "dfs.namenode.http-address.ns.1": one.address,
            "dfs.namenode.http-address.ns.2": other.address,
        }
        lines = "".join(
            f"<property><name>{name}</name><value>{text}</value></property>" for name, text in settings.items()
        )
        (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{lines}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        names.losses["RENAME"] = [ConnectionResetError()]
        with pytest.raises(OutcomeUnknown, match="lost"):
            opened("webhdfs://ns/out").rename("a", "b")
    # The look is for what kind of server it is.
    assert names.asked == ["RENAME NONE", "GETFILESTATUS"]


SECRET = base64.urlsafe_b64encode(b"T0PSECRET").decode().rstrip("=")


@pytest.mark.slow
def test_no_error_shows_the_token(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_driver, "web_token", lambda *_, **__: DelegationToken(b"T0PSECRET", "", ""))
    names.files["/out/a"] = b"data"
    names.losses["RENAME"] = [ConnectionResetError()]
    with WebServer(names) as server:
        fs = opened(server.url, patience="0.1")
        # As servers and proxies do that include the request in their answer.
        names.errors["RENAME"] = [IOException(f"what is /webhdfs/v1/out/a?op=RENAME&delegation={SECRET}&x=1")]
        with pytest.raises(OutcomeUnknown, match="delegation=…&x=1") as repeated:
            fs.rename("a", "b")
        with pytest.raises(OutcomeUnknown) as lost:
            fs.rename("a", "b")
    assert SECRET not in str(refusal("the proxy", 502, f"no way to /?op=OPEN&delegation={SECRET}".encode()))
    with pytest.raises(Unavailable, match="delegation=") as looking:
        fs.stat("a")
    with pytest.raises(Unavailable, match="delegation=") as changing:
        fs.rename("a", "b")
    for caught in (lost, repeated, looking, changing):
        assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("timeout", "0 -5 nan inf soon"),
        ("patience", "-5 nan inf soon"),
        ("replication", "0 -3 1.5 many"),
        ("blockSize", "0 -512 1000 1.5KiB many"),
        ("filePermission", "77777 -1 888 rw-"),
        ("directoryPermission", "77777 -1 888 rwx"),
    ],
)
@pytest.mark.parametrize("url", ["hdfs://namenode:8020/out", "webhdfs://namenode:9870/out"])
def test_settings_that_mean_nothing_are_refused_at_start(url: str, name: str, texts: str, native: FileSystem) -> None:
    del native  # it brings the library
    for text in texts.split():
        with pytest.raises(ConfigError, match=f"{name}='{text}': it must be"):
            opened(url, **{name: text})


BLOCK_REFUSED = "Specified block size is less than configured minimum value (dfs.namenode.fs-limits.min-block-size)"


UNREPORTED = type("IOException", (Exception,), {})(
    "Unable to close file because the last block BP-1:blk_1 does not have enough number of replicas."
)


class TestWebStreams:
    """No DataNode has reported the last block for so long that HDFS's client has stopped waiting."""

    @pytest.mark.slow
    def test_a_small_file_is_sent_again(self, web: FileSystem, names: Names) -> None:
        stream = web.create("file")
        stream.write(b"data")
        names.errors["CONTENT"] = [UNREPORTED] * 3
        stream.close()
        assert names.files == {"/out/file": b"data"}
        web.create_exclusive("log", b"content")
        names.errors["CONTENT"] = [UNREPORTED] * 3
        web.put("log", b"new")
        assert names.files["/out/log"] == b"new"

    @pytest.mark.slow
    def test_a_large_one_is_not_as_it_is_not_at_hand_any_more(
        self, web: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(web_driver, "ABORT_WAIT_S", 0.0)
        stream = web.create("file")
        stream.write(b"x" * MIB)
        names.errors["CONTENT"] = [UNREPORTED]
        with pytest.raises(Unavailable, match=r"locateFollowingBlock\.retries"):
            stream.close()
        assert stream.abort()
        assert names.files == {}


class TestTryingSettings:
    @pytest.fixture(params=["hdfs", "webhdfs"])
    def url(
        self, request: pytest.FixtureRequest, native: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[str]:
        del native  # it brings the library
        monkeypatch.setattr(hadoop, "_proven", PerProcess(set))
        with WebServer(names) as server:
            yield server.url if request.param == "webhdfs" else "hdfs://namenode:8020/out"

    def test_is_done_once_and_leaves_nothing(self, url: str, names: Names) -> None:
        opened(url).prove("_ftfile")
        assert names.asked == [], "nothing was asked for"
        opened(url, filePermission="640").prove("_ftfile")
        tried = len(names.asked)
        assert tried > 0
        opened(url, filePermission="640").prove("_ftfile")
        assert len(names.asked) == tried
        opened(url, filePermission="640", replication="2").prove("_ftfile")
        assert len(names.asked) == 2 * tried
        assert names.files == {}

    def test_says_what_is_refused(self, url: str, names: Names) -> None:
        for _ in range(2):
            native = RuntimeError(f'RPCError("java.io.IOException", "{BLOCK_REFUSED}")')
            names.errors = {"create": [native], "CREATE": [IOException(BLOCK_REFUSED)]}
            with pytest.raises(Unsupported, match=r"min-block-size.*set another storage.blockSize"):
                opened(url, blockSize="512").prove("_ftfile")
        assert names.files == {}

    def test_says_what_a_server_made_of_a_permission(
        self, url: str, names: Names, caplog: pytest.LogCaptureFixture
    ) -> None:
        names.mode = 0o600
        opened(url, filePermission="640").prove("_ftfile")
        assert "the permission 600, not the requested filePermission 640" in caplog.text


def test_a_process_without_threads_has_done_nothing(native: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise NoThreadError("can't start new thread")

    monkeypatch.setattr(native_driver, "start", refuse)
    with pytest.raises(Unavailable, match="can't start new thread"):
        native.put("hint", b"content")
    with pytest.raises(Unavailable, match="can't start new thread"):
        native.create_exclusive("log", b"content")


NOT_EMPTY = "PathIsNotEmptyDirectoryException"


class PathIsNotEmptyDirectoryException(Exception):
    pass


class TestDirectories:
    def test_are_no_files_to_delete(self, fs: FileSystem, names: Names) -> None:
        names.directories.add("/out/directory")
        with pytest.raises(NotFound):
            fs.delete("directory")
        assert "delete" not in [each.lower() for each in names.asked]

    def test_are_not_gone_as_long_as_something_is_in_them(self, fs: FileSystem, names: Names) -> None:
        names.directories.add("/out/directory")
        names.errors["delete"] = [RuntimeError(f'RPCError("org.apache.hadoop.fs.{NOT_EMPTY}", "it is not empty")')]
        names.errors["DELETE"] = [PathIsNotEmptyDirectoryException("it is not empty")]
        assert not fs.remove_directory("directory")


def test_an_upload_is_given_up_when_its_file_is_there(web: FileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose connection breaks before would be made later, and be there for good."""
    steps: list[str] = []
    numbers = iter("1112")

    def file_number(*_: object) -> int:
        steps.append(f"number {next(numbers, 'none')}")
        return int(steps[-1].split()[1])

    def noted(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def call(*args: object) -> object:
            steps.append(name)
            return real(*args)

        monkeypatch.setattr(kind, name, call)

    monkeypatch.setattr(web_driver.WebHdfsFileSystem, "file_number", file_number)
    noted(Upload, "cut")
    noted(web_driver.WebHdfsFileSystem, "discard")
    stream = web.create("file")
    del steps[:]
    stream.write(b"x" * CHUNK_BYTES)
    stream.abort()
    assert steps == ["number 1", "number 1", "number 1", "number 2", "cut", "discard"]


class TestHints:
    def test_who_is_overtaken_leaves_it_to_the_other(self, fs: FileSystem, names: Names) -> None:
        overtaken = FileNotFoundError("/out/hint (inode 7) Holder one does not have any open files")
        names.errors |= {"write": [overtaken], "CONTENT": [overtaken]}
        names.files["/out/hint"] = b"of the other"
        fs.put("hint", b"content")
        assert names.errors["write"] == [] or names.errors["CONTENT"] == []

    def test_one_that_is_never_closed_holds_nobody_up(
        self, native: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(native_driver, "HINT_TIMEOUT_S", 0.1)
        names.slow = True
        native.put("hint", b"content")
        with names.changed:
            assert names.changed.wait_for(lambda: names.files.get("/out/hint") == b"content", 300)
        began_s = time.monotonic()
        assert native.stat("hint").size_bytes == 7
        assert time.monotonic() - began_s < 300
        with names.changed:
            names.open_files.clear()
            names.changed.notify_all()

    def test_where_there_is_no_directory_there_is_none(self, fs: FileSystem, names: Names) -> None:
        names.errors |= {"create": [FileNotFoundError("a")], "CREATE": [FileNotFoundError("a")]}
        with pytest.raises(NotFound) as caught:
            fs.put("a/hint", b"content")
        assert (caught.value.operation, caught.value.path) == ("put", "a/hint")


def test_a_panic_of_the_library_is_an_error_of_the_port(native: FileSystem, names: Names) -> None:
    panic: Any = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    names.files["/out/a"] = b"data"
    names.errors["status"] = [panic("index out of range")]
    names.errors["rename"] = [panic("index out of range")]
    impatient = opened("hdfs://namenode:8020/out", patience="0")
    with pytest.raises(Unavailable, match="index out of range"):
        impatient.stat("a")
    with pytest.raises(OutcomeUnknown, match="index out of range"):
        native.rename("a", "b")
    names.errors["status"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        native.stat("a")


@pytest.mark.slow
def test_a_no_without_a_reason_is_not_a_yes(web: FileSystem, names: Names) -> None:
    names.files |= {"/out/a": b"a", "/out/b": b"b"}
    with pytest.raises(AlreadyExists):
        web.rename("a", "b")


def test_what_is_held_of_a_file_that_is_being_written_is_told(fs: FileSystem) -> None:
    stream, most = fs.create("file"), 0
    for _ in range(128):
        stream.write(bytes(25_000))
        held = [thing for thing in vars(stream).values() if isinstance(thing, bytearray)]
        most = max(most, sum(map(len, held)))
    stream.close()
    assert 225_000 < most <= fs.capabilities.stream_bytes


@pytest.mark.parametrize("path", ["a:b", ".snapshot/a"])
def test_names_that_hdfs_does_not_have_are_refused_before_it_is_asked(path: str, fs: FileSystem, names: Names) -> None:
    with pytest.raises(Unsupported, match=r"colon|reserved by HDFS"):
        fs.create_exclusive(path, b"")
    assert names.asked == []


def test_paths_are_as_long_as_the_namenode_takes_them_with_the_root(fs: FileSystem) -> None:
    assert fs.capabilities.path_bytes_max == 8_000 - len("/out/")


@pytest.mark.parametrize(
    ("operation", "exception", "message", "expected"),
    [
        ("create", "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "", OutOfSpace),
        ("create", "org.apache.hadoop.security.AccessControlException", "", PermissionDenied),
        ("stat", "org.apache.hadoop.security.token.SecretManager$InvalidToken", "token is expired", CredentialsRefused),
        ("stat", "org.apache.hadoop.security.AccessControlException", "", PermissionDenied),
        ("create", "org.apache.hadoop.ipc.StandbyException", "", Unavailable),
        (
            "create",
            "java.io.IOException",
            "File /x could only be written to 0 of the 1 minReplication nodes",
            Unavailable,
        ),
        ("close", "java.io.IOException", str(UNREPORTED), Unavailable),
        ("create", "AlreadyBeingCreatedException", "", AlreadyExists),
        ("write", "LeaseExpiredException", "", NotFound),
        ("rename", "java.io.IOException", "what nobody knows", OutcomeUnknown),
        ("stat", "java.io.IOException", "what nobody knows", Unavailable),
    ],
)
def test_what_servers_say_has_a_meaning(
    operation: str, exception: str, message: str, expected: type[StorageError]
) -> None:
    error = remote_error(operation, "file", exception, f"{message}\nat org.apache...")
    assert type(error) is expected
    assert "at org" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "GSSAPI error: GSS_S_FAILURE: Unspecified GSS failure, minor: Ticket expired",
        "GSS_S_CREDENTIALS_EXPIRED: the referenced credentials have expired",
    ],
)
def test_an_expired_ticket_is_no_lack_of_one(text: str, native: FileSystem, names: Names) -> None:
    names.errors |= {"status": [RuntimeError(text)], "rename": [RuntimeError(text)]}
    for call in (lambda: native.stat("a"), lambda: native.rename("a", "b")):
        with pytest.raises(PermissionDenied, match=r"ticket of this process has expired.*kinit -R"):
            call()


@pytest.mark.parametrize(("tokens", "refusals"), [("aaa", 1), ("abb", 2), ("abc", 2)])
def test_refused_credentials_are_replaced_once(
    tokens: str, refusals: int, native: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tokens` are the contents of the token file, one after the other."""
    contents = [DelegationToken(content.encode(), "HDFS_DELEGATION_TOKEN", "namenode:8020") for content in tokens]
    driver = cast("RetryingFileSystem", native).inner
    monkeypatch.setattr(driver, "_token", contents.pop(0))
    monkeypatch.setattr(driver, "_find_token", lambda: contents.pop(0))
    refusal = RuntimeError('RPCError("org.apache.hadoop.security.token.SecretManager$InvalidToken", "expired")')
    names.errors["status"] = [refusal] * 3
    with pytest.raises(PermissionDenied, match="The token for namenode:8020 is from the file"):
        native.stat("a")
    assert len(names.errors["status"]) == 3 - refusals


class IpcPort(socketserver.StreamRequestHandler):
    """A port for Hadoop's own protocol: it explains itself to a GET, and hangs up on all else."""

    def handle(self) -> None:
        if self.rfile.read(4) == b"GET ":
            self.wfile.write(
                b"HTTP/1.1 404 Not Found\r\nContent-type: text/plain\r\n\r\n"
                b"It looks like you are making an HTTP request to a Hadoop IPC port. "
                b"This is not the correct port for the web interface on this daemon.\r\n"
            )


@contextmanager
def served(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield "{}:{}".format(*server.server_address)
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_webhdfs_on_the_port_for_hdfs_is_told_at_once() -> None:
    with served(IpcPort) as address:
        fs = opened(f"webhdfs://{address}/out")
        for call in (
            lambda: fs.stat("file"),
            lambda: fs.list(""),
            lambda: fs.put("file", b"data"),
            lambda: fs.make_directories("a"),
            lambda: fs.rename("file", "other"),
            lambda: fs.create_exclusive("other", b"data"),
        ):
            with pytest.raises(WrongConnection, match=r"write webhdfs://host:9870 \(dfs\.namenode\.http-address"):
                call()


def test_hdfs_on_a_web_port_is_told_at_once(native: FileSystem, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    del native  # it brings the library
    hung_up = "RPC listener disconnected"
    monkeypatch.setattr(http.server.BaseHTTPRequestHandler, "log_message", lambda *_: None)
    with served(http.server.BaseHTTPRequestHandler) as web, served(IpcPort) as rpc:
        fs = opened(f"hdfs://{web}/out")
        names.errors |= {"status": [OSError(hung_up)], "create": [OSError("Broken pipe (os error 32)")]}
        names.errors["mkdirs"] = [OSError("Connection reset by peer (os error 104)")]
        for call in (lambda: fs.stat("file"), lambda: fs.create("file"), lambda: fs.make_directories("a")):
            with pytest.raises(WrongConnection, match=rf"{web} is the address of a web server; use hdfs://host:8020"):
                call()
        # A NameNode that closed the connection may be up again.
        names.errors["status"] = [OSError(hung_up)]
        with pytest.raises(Unavailable, match=hung_up):
            opened(f"hdfs://{rpc}/out", patience="0").stat("file")
    names.errors["status"] = [OSError(hung_up)]
    with pytest.raises(Unavailable, match=hung_up):
        opened(f"hdfs://{rpc}/out", patience="0").stat("file")  # no server listens now
