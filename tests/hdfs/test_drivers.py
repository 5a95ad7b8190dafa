"""Faults of HDFS and the network, as the drivers see them: refusals, silence, broken connections, dead servers."""

from __future__ import annotations

import base64
import contextlib
import getpass
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import requests

from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    StreamClosed,
    Unavailable,
    Unsupported,
    WrongConnection,
)
from ftfile.core.per_process import PerProcess
from ftfile.core.retries import RetryPolicy
from ftfile.storage.calls import start as run_later
from ftfile.storage.hdfs import native as native_driver
from ftfile.storage.hdfs import webhdfs_client
from ftfile.storage.hdfs.webhdfs import CHUNK_BYTES
from ftfile.storage.hdfs.webhdfs_files import Upload
from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.support import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.storage.api import FileSystem, OutputStream
    from tests.hdfs.minicluster import MiniCluster

_directories = (f"/drivers-{number}" for number in itertools.count())


@pytest.fixture(params=["webhdfs", "hdfs"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(cluster: MiniCluster, scheme: str) -> str:
    return (cluster.web_url if scheme == "webhdfs" else cluster.url) + next(_directories)


@pytest.fixture
def urls(cluster: MiniCluster) -> list[str]:
    """A directory for each driver, for faults that take long to cause."""
    return [root + next(_directories) for root in (cluster.web_url, cluster.url)]


@pytest.fixture
def fs(url: str) -> FileSystem:
    return opened(url)


def opened(url: str, **settings: str) -> FileSystem:
    # The directory is created with the default patience, because its creation is not tested.
    open_filesystem(url).make_directories("")
    return open_filesystem(url, settings=settings, policy=RetryPolicy(attempts=1))


# ------------------------------------------------------------------------------- settings


def test_replication_block_size_and_permissions_are_those_asked_for(cluster: MiniCluster, url: str) -> None:
    given = {"replication": "2", "blockSize": "65536", "filePermission": "640", "directoryPermission": "750"}
    fs = opened(url, **given)
    fs.make_directories("a/b")
    write(fs, "a/b/streamed", b"data")
    fs.create_exclusive("a/b/exclusive", b"data")
    fs.put("a/b/put", b"data")
    directory = url[url.index("/", 12) :]
    for path in ("streamed", "exclusive", "put"):
        status = status_of(cluster, f"{directory}/a/b/{path}")
        assert (status["replication"], status["blockSize"], status["permission"]) == (2, 65536, "640")
    assert status_of(cluster, f"{directory}/a")["permission"] == "750"


def test_what_the_server_does_not_take_is_unsupported(url: str) -> None:
    for settings in ({"blockSize": "512"}, {"replication": "700"}):
        with pytest.raises(Unsupported, match=r"blockSize|replication"):
            opened(url, **settings).create_exclusive("file", b"data")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"color": "red"}, r"no setting storage\.color"), ({"replication": "many"}, "replication='many'")],
)
def test_settings_are_checked(url: str, settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_filesystem(url, settings=settings)


def test_a_name_service_is_found_in_hadoops_configuration(
    cluster: MiniCluster, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR"):
        open_filesystem("webhdfs://ns/x" if scheme == "webhdfs" else "hdfs:///x")
    rpc, web = cluster.url[len("hdfs://") :], cluster.web_url[len("webhdfs://") :]
    settings = {
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "away,here",
        # No process listens there. The next NameNode is tried, also for changes, because the refused one changed
        # nothing.
        "dfs.namenode.rpc-address.ns.away": "127.0.0.1:1",
        "dfs.namenode.http-address.ns.away": "127.0.0.1:1",
        "dfs.namenode.rpc-address.ns.here": rpc,
        "dfs.namenode.http-address.ns.here": web,
        "dfs.client.failover.proxy.provider.ns": "org.apache.hadoop.hdfs.server.namenode.ha."
        "ConfiguredFailoverProxyProvider",
    }
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    (tmp_path / "hdfs-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]))
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://ns</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    fs = opened(f"{scheme}://ns{next(_directories)}")
    fs.create_exclusive("file", b"data")
    assert fs.read("file") == b"data"
    if scheme == "hdfs":
        opened(f"hdfs://{next(_directories)}").put("file", b"data")


def test_another_user_is_refused(url: str, scheme: str) -> None:
    opened(url, directoryPermission="700").put("file", b"data")
    code = f"from ftfile.testing.context import open_filesystem as o; o({url!r}).put('other', b'')"
    environment = os.environ | {"HADOOP_USER_NAME": "nobody"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "PermissionDenied" in run.stderr
    assert "user=nobody" in run.stderr
    if scheme == "webhdfs":
        with pytest.raises(PermissionDenied, match="user=nobody"):
            open_filesystem(url, settings={"user": "nobody"}).put("other", b"")
    else:
        with pytest.raises(ConfigError, match="HADOOP_USER_NAME"):
            open_filesystem(url, settings={"user": "nobody"})


def test_without_its_package_hdfs_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(ConfigError, match=r"pip install 'ftfile\[hdfs\]'"):
        open_filesystem("hdfs://namenode-of-nobody:8020/x")


def test_the_port_of_the_other_driver_is_told_at_once(cluster: MiniCluster, scheme: str) -> None:
    mistaken = cluster.url.replace("hdfs", "webhdfs") if scheme == "webhdfs" else cluster.web_url.replace("web", "")
    fs = open_filesystem(f"{mistaken}/x", policy=RetryPolicy(attempts=1))
    for call in (lambda: fs.stat("file"), lambda: fs.put("file", b"data"), lambda: fs.rename("file", "other")):
        with pytest.raises(WrongConnection, match=r"dfs\.namenode\.(http|rpc)-address"):
            call()


# ------------------------------------------------------------------------------- delegation tokens


def token_file(path: Path, text: str) -> str:
    """Write a token in Hadoop's format, after a token of another kind."""
    other = b"\x01i\x01p" + b"\x04YARN" + b"\x00"
    token = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    path.write_bytes(b"HDTS\x00\x02" + b"\x01a" + other + b"\x01b" + token)
    return str(path)


def test_a_token_is_shown_with_every_request(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NameNode without Kerberos issues tokens and ignores them: the test checks only that the right one is sent."""
    asking = {"op": "GETDELEGATIONTOKEN", "user.name": me(), "renewer": me()}
    text = requests.get(f"{cluster.pages}webhdfs/v1/", asking, timeout=100).json()["Token"]["urlString"]
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", token_file(tmp_path / "tokens", text))
    shown = []
    real = requests.Session.send

    def send(session: requests.Session, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        shown.append(urllib.parse.parse_qs(urllib.parse.urlsplit(str(request.url)).query).get("delegation"))
        return real(session, request, **more)

    monkeypatch.setattr(requests.Session, "send", send)
    fs = open_filesystem(f"{cluster.web_url}{next(_directories)}")
    with pytest.raises(NotFound):
        fs.stat("file")
    assert shown == [[text]]
    assert text not in repr(fs) + repr(fs.__dict__)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"nonsense", "not a token file"),
        (b"HDTS\x02...", "not a token file"),
        (b"HDTS\x01\x0b\x0a...", "truncated"),
        (b"HDTS\x00\x01\x01a\x05id", "truncated"),
    ],
)
def test_a_token_file_that_cannot_be_read_is_named(
    cluster: MiniCluster, content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokens").write_bytes(content)
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    with pytest.raises(ConfigError, match=f"tokens.*{reason}"):
        open_filesystem(cluster.web_url + "/x")


# ------------------------------------------------------------------------------- lost and late replies


def test_every_call_ends_although_the_namenode_is_silent(cluster: MiniCluster, url: str) -> None:
    write(opened(url), "file", b"data")
    fs = opened(url, timeout="3", patience="0")
    stream = begun(fs)
    stream.write(b"data")
    calls: list[Callable[[], object]] = [
        lambda: fs.stat("file"),
        lambda: fs.list(""),
        lambda: fs.read("file"),
        lambda: fs.open("file"),
        lambda: fs.delete("file"),  # first checks the file, which changes nothing
        lambda: fs.create_exclusive("exclusive", b"data"),  # only the temporary file may exist
        lambda: fs.make_directories("a"),  # is idempotent
        lambda: fs.create("new"),
        lambda: fs.put("hint", b""),
        lambda: fs.rename("file", "other"),
        # The stream still has the written data and can write it again, so the state need not be checked.
        stream.close,
    ]
    cluster.freeze("namenode")
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            errors = list(pool.map(error_of, calls))
    finally:
        cluster.thaw("namenode")
    # By HTTP, the first request to the NameNode only redirects to a DataNode and creates nothing.
    making = Unavailable if url.startswith("webhdfs") else OutcomeUnknown
    assert [type(error) for error in errors[:-1]] == [Unavailable] * 7 + [making] * 2 + [OutcomeUnknown]
    assert isinstance(errors[-1], Unavailable | OutcomeUnknown)
    for error in errors[:4]:
        assert "check that NameNode and DataNodes run" in str(error)
    # In one listing: the rename may take effect only now.
    assert len({info.path for info in open_filesystem(url).list("")} & {"file", "other"}) == 1


def begun(fs: FileSystem) -> OutputStream:
    """Return a new file, created by a driver whose timeout may be too short for a slow machine."""
    for number in itertools.count():
        with contextlib.suppress(OutcomeUnknown, Unavailable):
            return fs.create(f"open-{number}")
    raise AssertionError


def error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def test_a_lost_reply_of_a_change_is_not_sent_again(cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = opened(cluster.web_url + next(_directories), patience="5")
    write(fs, "file", b"data")
    sent = []
    real = requests.Session.send

    def send(session: requests.Session, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        response = real(session, request, **more)
        if "RENAME" in str(request.url):
            sent.append(request.url)
            raise requests.ReadTimeout("lost")
        return response

    monkeypatch.setattr(requests.Session, "send", send)
    with pytest.raises(OutcomeUnknown, match="lost"):
        fs.rename("file", "renamed")
    assert len(sent) == 1
    assert fs.exists("renamed")


def test_an_upload_that_is_cut_short_does_not_count(cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = opened(cluster.web_url + next(_directories), patience="0")
    stream: Any = fs.create("file")
    stream.write(b"x" * CHUNK_BYTES * 2)
    connection = stream._upload._connection  # noqa: SLF001
    connection.sock.shutdown(2)
    with pytest.raises(OutcomeUnknown):
        stream.close()
    with pytest.raises(StreamClosed):
        stream.write(b"more")
    # The DataNode closes the incomplete file; no sign shows that data are missing.
    assert fs.exists("file")
    assert stream.abort()
    assert not fs.exists("file")

    def cut(upload: Upload, data: bytes) -> None:
        upload._connection.send(b"5\r\n" + data[:5] + b"\r\n")  # noqa: SLF001
        upload.cut()
        raise ConnectionResetError("cut")

    monkeypatch.setattr(Upload, "send", cut)
    with pytest.raises(Unavailable):
        fs.create_exclusive("exclusive", b"x" * 1000)
    assert not fs.exists("exclusive")


def test_bytes_that_changed_on_the_way_are_no_file(
    cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    block_bytes = 1 << 16
    fs = opened(cluster.web_url + next(_directories), blockSize=str(block_bytes))
    content = bytes(range(251)) * 5_000
    for size_bytes in (0, 1, 511, 512, 5_000, 3 * block_bytes, len(content)):
        write(fs, f"streamed-{size_bytes}", content[:size_bytes])
        fs.create_exclusive(f"exclusive-{size_bytes}", content[:size_bytes])
    assert caplog.text == "", "the written data were compared"
    real = http.client.HTTPConnection.send

    def send(connection: http.client.HTTPConnection, data: bytes) -> None:
        sent = bytes(data)
        real(connection, sent.replace(b"secret", b"SECRET"))

    monkeypatch.setattr(http.client.HTTPConnection, "send", send)
    for text in (b"secret", content + b"secret"):
        with pytest.raises(StorageError, match="other bytes than were sent"):
            write(fs, "new", text)
        with pytest.raises(StorageError, match="other bytes than were sent"):
            fs.create_exclusive("new", text)
        assert not fs.exists("new")


def test_storage_that_lost_bytes_makes_no_exclusive_file(cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = opened(cluster.web_url + next(_directories))
    real = Upload.send
    monkeypatch.setattr(Upload, "send", lambda upload, data: real(upload, data[:-1]))
    with pytest.raises(StorageError, match="3 of 4 bytes"):
        fs.create_exclusive("file", b"data")
    assert fs.list("") == []


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("nothing", "new", NotFound),
        ("file", "nowhere/new", NotFound),
        ("file", "other", AlreadyExists),
        ("file", "new", OutcomeUnknown),
    ],
)
def test_a_no_without_a_reason_is_an_error(
    cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch, source: str, target: str, expected: type[StorageError]
) -> None:
    fs = opened(cluster.web_url + next(_directories), patience="0")
    fs.put("file", b"data")
    fs.put("other", b"data")
    monkeypatch.setattr(webhdfs_client.WebClient, "move", lambda *_: False)
    with pytest.raises(expected):
        fs.rename(source, target)
    monkeypatch.setattr(webhdfs_client.WebClient, "make_directories", lambda *_: False)
    with pytest.raises(StorageError, match="did not create the directory"):
        fs.make_directories("a")
    monkeypatch.setattr(webhdfs_client.WebClient, "remove", lambda *_: False)
    with pytest.raises(NotFound):
        fs.delete("file")


def test_a_file_is_closed_before_the_library_notices(cluster: MiniCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind: PerProcess[set[Any]] = PerProcess(set)
    monkeypatch.setattr(native_driver, "_left_behind", left_behind)
    monkeypatch.setattr(native_driver, "WAITS_S", (0.003,) * 100)
    fs = opened(cluster.url + next(_directories), blockSize="65536")
    before = cluster.bean("FSNamesystem")["NumFilesUnderConstruction"]

    def is_closed_early(size_bytes: int, number: int) -> bool:
        fs.create_exclusive(f"{size_bytes}-{number}", b"x" * size_bytes)
        found = bool(left_behind.here)
        left_behind.here.clear()
        return found

    # On a busy machine, the library is sometimes first.
    for size_bytes in (1, 65_537, 200_000):
        assert any(is_closed_early(size_bytes, number) for number in range(100)), size_bytes
    # The blocks of this file are full, so an early close cannot be detected.
    assert not is_closed_early(2 << 20, 0)
    # The NameNode would recover open files later.
    cluster.wait_for(
        "have all files closed", lambda: cluster.bean("FSNamesystem")["NumFilesUnderConstruction"] <= before
    )


# ------------------------------------------------------------------------------- servers that die, writers that die


def test_safe_mode_is_named_and_waited_for(cluster: MiniCluster, urls: list[str]) -> None:
    impatient = [opened(url, patience="0") for url in urls]
    patient = [opened(url, patience="600") for url in urls]
    for fs in patient:
        write(fs, "file", b"data")
    cluster.admin("-safemode", "enter")
    try:
        for fs in impatient:
            with pytest.raises(Unavailable, match="safe mode"):
                fs.rename("file", "other")
            with pytest.raises(Unavailable, match="safe mode"):
                fs.put("hint", b"")
            assert fs.read("file") == b"data"
    finally:
        leaving = run_later(lambda: cluster.admin("-safemode", "leave"))
        for fs in patient:
            fs.rename("file", "other")
        leaving.result()
    for fs in patient:
        assert fs.read("other") == b"data"


def test_a_namenode_that_is_killed_and_comes_back_is_waited_for(cluster: MiniCluster, urls: list[str]) -> None:
    patient = [opened(url, patience="600") for url in urls]
    impatient = [opened(url, patience="0") for url in urls]
    for fs in patient:
        write(fs, "file", b"data")
    cluster.kill_namenode()
    try:
        for fs in impatient:
            # The driver may have sent a change over a connection that was already broken; it then checks the state.
            with pytest.raises(Unavailable, match="check that NameNode and DataNodes run"):
                fs.stat("file")
            with pytest.raises(Unavailable, match="check that NameNode and DataNodes run"):
                fs.rename("file", "other")
    finally:
        cluster.start_namenode(wait=False)
    for fs in patient:
        fs.rename("file", "renamed")
        fs.create_exclusive("exclusive", b"data")
        assert fs.read("exclusive") == fs.read("renamed") == b"data"
    cluster.wait_until_ready()
    # A DataNode notices its lost connection to the NameNode only at its next request.
    with contextlib.suppress(OutcomeUnknown):
        write(opened(cluster.web_url + next(_directories)), "file", b"data")


def test_a_lost_datanode_is_named_and_waited_for(cluster: MiniCluster, urls: list[str]) -> None:
    impatient = [opened(url, patience="0") for url in urls]
    patient = [opened(url, patience="600") for url in urls]
    for fs in patient:
        write(fs, "file", b"data")
    cluster.kill_datanode()
    try:
        for fs in impatient:
            with pytest.raises(StorageError, match=r"DataNode"):
                fs.create_exclusive("new", b"data")
            with pytest.raises(Unavailable):
                fs.read("file")
    finally:
        cluster.start_datanode(wait=False)
    for fs in patient:
        assert fs.read("file") == b"data"
        fs.create_exclusive("new", b"data")
    cluster.wait_until_ready()


KILLED_WRITER = """\
import os, signal, sys
from ftfile.testing.context import open_filesystem
fs = open_filesystem(sys.argv[1])
streams = [fs.create(name) for name in ("staged", "to-delete", "to-rename")]
for stream in streams:
    stream.write(b"x" * (3 << 20))
fs.put("hint", b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lease_of_a_killed_writer_blocks_nobody(fs: FileSystem, url: str) -> None:
    subprocess.run([sys.executable, "-c", KILLED_WRITER, url], env=os.environ, check=False, timeout=600)
    fs.delete("to-delete")
    fs.rename("to-rename", "renamed")
    fs.put("hint", b"whole")
    assert fs.read("hint") == b"whole"
    with pytest.raises(AlreadyExists):
        fs.create("staged")
    write(fs, "staged-2", b"data")
    fs.delete("staged")
    fs.delete("renamed")
    assert {info.path for info in fs.list("")} == {"hint", "staged-2"}


FORKED = """\
import os, sys
from ftfile.testing.context import open_filesystem
urls = sys.argv[1:]
used = [open_filesystem(url) for url in urls]
for fs in used:
    fs.make_directories("")
    fs.put("hint", b"mine")
child = os.fork()
if child == 0:
    for fs in used:
        fs.create_exclusive("of-the-child", fs.read("hint"))
    del used[:], fs
    print("done", flush=True)
    sys.exit()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *[fs.read("of-the-child") for fs in used])
"""


def test_a_fork_of_who_is_connected_goes_on_and_ends(urls: list[str]) -> None:
    code = [sys.executable, "-W", "ignore", "-c", FORKED, *urls]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        try:
            told, _ = parent.communicate(timeout=600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
    assert told.split() == ["done", "0", "b'mine'", "b'mine'"]


def status_of(cluster: MiniCluster, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.pages}webhdfs/v1{path}?op=GETFILESTATUS&user.name={me()}") as reply:
        status: dict[str, Any] = json.load(reply)["FileStatus"]
    return status


def me() -> str:
    return getpass.getuser()
