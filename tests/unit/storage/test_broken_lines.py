"""Every call of the drivers that speak HTTP ends, and what came in part is never taken for the whole."""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from ftfile.core.errors import ConfigError, OutcomeUnknown, StorageError, Unavailable
from ftfile.core.retries import RetryPolicy
from ftfile.storage import calls as deadline
from ftfile.storage.hdfs import webhdfs_nodes
from ftfile.testing.context import open_filesystem
from tests.unit.storage import broken_lines
from tests.unit.storage.broken_lines import Answer, Server, listing, reply, status_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from tests.unit.storage.broken_lines import Step

pytestmark = [pytest.mark.slow, pytest.mark.packages, pytest.mark.short_limits]

KIB, MIB = 1 << 10, 1 << 20
CONTENT = bytes(range(256)) * 8
# A whole answer of many bytes: dripping, it takes much longer than a call may, and never longer than a test.
LONG = "X-Long: " + "x" * 200


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


def opened(scheme: str, server: Server, timeout: str = "5", patience: str = "0.05", **more: str) -> FileSystem:
    own = {"timeout": timeout, "patience": patience, **more}
    if scheme == "webhdfs":
        return open_filesystem(f"webhdfs://{server.address}/out", settings=own, policy=RetryPolicy(attempts=1))
    own |= {"endpoint": f"http://{server.address}", "region": "us-east-1"}
    return open_filesystem("s3://bucket/out", settings=own, policy=RetryPolicy(attempts=1))


def prove(fs: Any) -> None:
    """Say that the storage keeps conditions, without a trial."""
    fs.inner._bucket.client.proven["bucket"] = True  # noqa: SLF001


def read_at(fs: FileSystem) -> bytes:
    with fs.open("file") as file:
        return file.read_at(8, 1000)


def placed(address: str) -> Answer:
    """Where a DataNode takes content: here."""
    place = f"Location: http://{address}/webhdfs/v1/out/file?placed=1"
    return Answer(reply(b"", place, status="307 Temporary Redirect"))


WRITTEN = Answer(reply(status="201 Created"))
LENGTH = {
    "s3": Answer(reply(b"", "ETag: x", "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT", length=2048)),
    "webhdfs": Answer(reply(status_of_file(2048))),
}
# What a new file's first requests are answered, until its content is sent.
BEFORE_CONTENT: dict[str, list[Step]] = {"s3": [], "webhdfs": [placed, WRITTEN, LENGTH["webhdfs"], placed]}
DRIPPING_HEAD = Answer(reply(b"", LONG), whole=20)
DRIPPING_BODY = Answer(reply(b"x" * 500), whole=60)
SAME = Answer(reply(b"", "ETag: x", "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT", "x-amz-meta-ftfile-id: same"))
DONE = b'{"boolean": true}'

COPIED = b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>"
# Of a successful request whose answer must have content.
CUT_ANSWERS = {
    "content": Answer(reply(COPIED[:-10], length=len(COPIED)), ending="close"),
    "content of open length": Answer(reply(COPIED[:-10], length=-1), ending="close"),
    "all content": Answer(reply(), ending="close"),
    "all content of open length": Answer(reply(length=-1), ending="close"),
    "blanks of open length": Answer(reply(b"\n\n", length=-1), ending="close"),
    "headers": Answer(b"HTTP/1.1 200 OK\r\n", ending="close"),
    "later headers": Answer(b"HTTP/1.1 200 OK\r\nDate: now\r\nTransfer-Enc", ending="close"),
}
WHOLE = Answer(reply(b"<C><ETag>x</ETag></C>", "ETag: x"))

READING: dict[str, Callable[[FileSystem], object]] = {
    "stat": lambda fs: fs.stat("file"),
    "list": lambda fs: fs.list("directory"),
    "read": lambda fs: fs.read("file"),
}
CHANGING: dict[str, Callable[[FileSystem], object]] = {
    "rename": lambda fs: fs.rename("file", "other"),
    "put": lambda fs: fs.put("file", CONTENT),
}


class TestDripping:
    """A byte now and then: no silence, and no end."""

    @pytest.mark.parametrize("call", READING)
    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_an_answer_to_a_look(self, scheme: str, call: str) -> None:
        for answer in (DRIPPING_HEAD, DRIPPING_BODY):
            if (scheme, call) == ("s3", "stat") and answer is DRIPPING_BODY:
                continue  # it has none
            with Server(answer) as server, pytest.raises(Unavailable, match=r"no response within 0\.\d+ s"):
                READING[call](opened(scheme, server, timeout="0.25"))

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_the_content_of_a_range(self, scheme: str) -> None:
        with Server(LENGTH[scheme], DRIPPING_BODY) as server, pytest.raises(Unavailable, match=r"within 1\.0\d+ s"):
            read_at(opened(scheme, server, timeout="1"))

    @pytest.mark.parametrize(
        ("scheme", "call", "before"),
        [("s3", "put", []), ("webhdfs", "rename", []), ("webhdfs", "put", [placed])],
    )
    def test_an_answer_to_a_change(self, scheme: str, call: str, before: list[Step]) -> None:
        with (
            Server(*before, DRIPPING_HEAD) as server,
            pytest.raises(OutcomeUnknown, match=r"no response within 1(\.\d+)? s"),
        ):
            CHANGING[call](opened(scheme, server, timeout="1"))

    def test_where_content_goes_is_asked_again(self) -> None:
        with Server(DRIPPING_HEAD, placed, WRITTEN) as server:
            opened("webhdfs", server, timeout="1", patience="30").put("file", CONTENT)

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_a_file_that_is_being_closed(self, scheme: str) -> None:
        with Server(*BEFORE_CONTENT[scheme], DRIPPING_HEAD) as server:
            stream = opened(scheme, server, timeout="1").create("file")
            stream.write(CONTENT)
            with pytest.raises(OutcomeUnknown, match=r"no response within 1(\.\d+)? s"):
                stream.close()

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_data_have_time_as_long_as_they_come(self, scheme: str) -> None:
        content = bytes(3 * MIB)
        # Of a call without data this would be too slow.
        slow = Answer(reply(content), whole=3 * MIB - 75)
        with Server(slow) as server:
            assert opened(scheme, server, timeout="1", patience="30").read("file") == content

    def test_data_of_unknown_length_have_time_as_long_as_they_come(self) -> None:
        slow = Answer(reply(bytes(3 * MIB), length=-1), whole=3 * MIB - 60, ending="close")
        with Server(slow) as server:
            assert len(opened("webhdfs", server, timeout="1", patience="30").read("file")) == 3 * MIB

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_data_have_time_as_long_as_they_go(self, scheme: str) -> None:
        # All of it takes longer than a call without data may.
        parts = {"partSize": "16MiB"} if scheme == "s3" else {}
        status = "201 Created" if scheme == "webhdfs" else "200 OK"
        done = Answer(reply(b"", "ETag: x", status=status), step_s=0.08)
        with Server(*BEFORE_CONTENT[scheme], done) as server:
            fs = opened(scheme, server, timeout="1", patience="30", **parts)
            with fs.create("file") as stream:
                stream.write(bytes(16 * MIB))


ENDLESS_HEAD = Answer(reply(b"", "X-Long: " + "x" * 60_000), whole=20)
ENDLESS_BODY = Answer(reply(b"x" * 60_000), whole=60)


def busy() -> int:
    """Return the number of threads in a call: the innermost function of other threads waits for calls."""
    frames = sys._current_frames()  # noqa: SLF001 - documented
    calling = [thread.ident for thread in threading.enumerate() if thread.name == "ftfile-call"]
    return sum(frames[number].f_code.co_name != "_work" for number in calling if number in frames)


class TestLeft:
    """A caller that stops waiting leaves no waiting thread behind."""

    @pytest.fixture(autouse=True)
    def soon_nobody_waits(self) -> Callable[[], None]:
        """A function that waits for that, while the server still drips."""

        def wait() -> None:
            end_s = time.monotonic() + 600
            while busy():
                assert time.monotonic() < end_s, "a thread still waits"
                time.sleep(0.02)

        wait()
        return wait

    @pytest.mark.parametrize("answer", [ENDLESS_HEAD, ENDLESS_BODY], ids=["head", "body"])
    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_by_a_look(self, scheme: str, answer: Answer, soon_nobody_waits: Callable[[], None]) -> None:
        with Server(answer) as server:
            for name, call in READING.items():
                if (name, answer) != ("stat", ENDLESS_BODY) or scheme == "webhdfs":
                    with pytest.raises(Unavailable, match="no response within"):
                        call(opened(scheme, server, timeout="0.25"))
            soon_nobody_waits()

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_by_content(self, scheme: str, soon_nobody_waits: Callable[[], None]) -> None:
        with Server(*BEFORE_CONTENT[scheme], ENDLESS_HEAD) as server:
            stream = opened(scheme, server, timeout="1").create("file")
            stream.write(CONTENT)
            with pytest.raises(OutcomeUnknown, match="no response within"):
                stream.close()
            soon_nobody_waits()

    def test_by_leave_to_send_that_is_cut_short(self, soon_nobody_waits: Callable[[], None]) -> None:
        cut = Answer(b"HTTP/1.1 100 Continue\r\n", takes=0, ending="close")
        with Server(cut) as server, pytest.raises(OutcomeUnknown):
            opened("s3", server, timeout="1").put("file", CONTENT)
        soon_nobody_waits()

    def test_by_a_part_of_an_upload_that_is_given_up(self, soon_nobody_waits: Callable[[], None]) -> None:
        begun = Answer(reply(b"<I><UploadId>1</UploadId></I>"))
        with Server(begun, ENDLESS_HEAD) as server:
            stream: Any = opened("s3", server, timeout="1", partSize="5MiB").create("file")
            stream.write(bytes(6 * MIB))
            (part,) = stream._upload._parts  # noqa: SLF001
            with pytest.raises(OutcomeUnknown, match="no response within 6 s"):
                part.result()
            soon_nobody_waits()


class TestNothingSent:
    """A request that was never sent has done nothing."""

    def test_a_datanode_that_cannot_be_reached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits: list[float] = []

        def connect(address: object, timeout: float, *_: object) -> None:
            limits.append(timeout)
            raise TimeoutError(f"no way to {address}")

        monkeypatch.setattr("socket.create_connection", connect)
        with Server(placed) as server, pytest.raises(Unavailable, match="no way to"):
            opened("webhdfs", server, timeout="60").put("file", CONTENT)
        assert set(limits) == {10}

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_by_a_process_without_threads(self, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with Server(WRITTEN) as server:
            fs = opened(scheme, server)

            def refuse(*_: object, **__: object) -> None:
                raise deadline.NoThreadError("can't start new thread")

            monkeypatch.setattr(deadline, "start", refuse)
            with pytest.raises(Unavailable, match="can't start new thread"):
                fs.put("file", CONTENT)
        assert not server.requests


class TestHeldUp:
    """A DataNode answers some connections only when its calls to a dead NameNode have ended."""

    LONG = Answer(before_s=3600, takes=0)

    @pytest.fixture
    def opened_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], FileSystem]:
        """A function that opens the file system of a service with a dead NameNode, which it knows by then."""

        def opened_at(server: Server) -> FileSystem:
            settings = {
                "dfs.nameservices": "ns",
                "dfs.ha.namenodes.ns": "dead,active",
                "dfs.namenode.http-address.ns.dead": "127.0.0.1:1",
                "dfs.namenode.http-address.ns.active": server.address,
            }
            each = (f"<property><name>{name}</name><value>{text}</value></property>" for name, text in settings.items())
            (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{''.join(each)}</configuration>")
            monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
            fs = open_filesystem("webhdfs://ns/out", settings={"timeout": "3600"}, policy=RetryPolicy(attempts=1))
            fs.stat("file")
            return fs

        return opened_at

    @pytest.fixture(autouse=True)
    def quick(self) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        assert time.monotonic() - began_s < 600, "it waited for what is held up"

    def test_reading_begins_anew_at_once(self, opened_at: Callable[[Server], FileSystem]) -> None:
        with Server(LENGTH["webhdfs"], placed, self.LONG, placed, Answer(reply(CONTENT))) as server:
            assert opened_at(server).read("file") == CONTENT

    def test_writing_begins_anew_and_never_at_the_name_of_the_file(
        self, opened_at: Callable[[Server], FileSystem]
    ) -> None:
        """The server may start an abandoned upload late, when the file may have been moved already."""
        done, empty = Answer(reply(DONE)), Answer(reply(status_of_file(0)))
        there = LENGTH["webhdfs"]
        steps: list[Step] = [there, placed, self.LONG, placed, WRITTEN, empty, done, done]
        steps += [there, placed, self.LONG, placed, WRITTEN, done, done]
        with Server(*steps) as server, opened_at(server).create("file") as stream:
            stream.write(CONTENT)
        asked = [line.split()[1].partition("?") for line in server.requests]
        assert len(asked) == len(steps)
        uploads = [path for path, _, query in asked if "op=CREATE" in query]
        assert len(set(uploads)) == 4
        assert all(path.endswith(".tmp") for path in uploads)
        named = [path for path, _, query in asked if "op=RENAME" in query]
        assert named == uploads[1::2]

    def test_content_may_pause(
        self, opened_at: Callable[[Server], FileSystem], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(broken_lines, "DRIP_S", 2 * webhdfs_nodes.FIRST_WORD_MIN_S)
        whole = reply(CONTENT)
        with Server(LENGTH["webhdfs"], placed, Answer(whole, whole=len(whole) - 3)) as server:
            assert opened_at(server).read("file") == CONTENT
        assert len(server.requests) == 3

    def test_one_that_takes_content_may_take_its_time(self, opened_at: Callable[[Server], FileSystem]) -> None:
        slow = Answer(reply(status="201 Created"), before_s=2)
        with Server(LENGTH["webhdfs"], Answer(reply(DONE)), placed, slow) as server:
            opened_at(server).put("hint", CONTENT)
        assert len(server.requests) == 4


class TestSlow:
    """A storage system that works without sending any bytes."""

    def test_a_copy_has_longer_than_an_answer(self) -> None:
        silent = Answer(reply(COPIED), before_s=1)
        with Server(silent, Answer(reply(status="204 No Content"))) as server:
            fs = opened("s3", server, timeout="0.5")
            prove(fs)
            fs.rename("file", "other")
        assert len(server.requests) == 2


@pytest.mark.parametrize("call", READING)
@pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
def test_what_speaks_another_protocol_has_not_answered(scheme: str, call: str) -> None:
    with Server(Answer(b"\x15\x03\x01\x00\x02\x02\x46", ending="close")) as server, pytest.raises(Unavailable):
        READING[call](opened(scheme, server))


class PlainHttp(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1 << 16)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_plain_http_where_tls_is_asked_for_is_a_setting() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), PlainHttp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        fs = open_filesystem(f"swebhdfs://{address}/out", policy=RetryPolicy(attempts=1))
        with pytest.raises(ConfigError, match=f"{address}: the server does not speak TLS.*webhdfs://"):
            fs.put("hint", CONTENT)
        server.shutdown()


class TestShort:
    """A connection that ends, or is reset, before all came."""

    CUT = (
        Answer(reply(CONTENT, cut=48), ending="close"),
        Answer(reply(CONTENT, cut=2048), ending="close"),
        Answer(reply(CONTENT, cut=48), ending="reset"),
    )

    @pytest.fixture(params=[True, False])
    def library_looks(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of older versions it does not."""
        if not request.param:
            ignoring = property(lambda _: False, lambda *_: None)
            monkeypatch.setattr(urllib3.HTTPResponse, "enforce_content_length", ignoring, raising=False)

    @pytest.mark.usefixtures("library_looks")
    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_a_file(self, scheme: str) -> None:
        for cut in self.CUT:
            with Server(cut) as server, pytest.raises(Unavailable):
                opened(scheme, server).read("file")
            with Server(cut, Answer(reply(CONTENT))) as server:
                assert opened(scheme, server, patience="30").read("file") == CONTENT

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_a_range_that_is_shorter_than_was_asked_for(self, scheme: str) -> None:
        # Its Content-Length is short, too.
        short = Answer(reply(CONTENT[8:500]))
        with (
            Server(LENGTH[scheme], short) as server,
            pytest.raises(Unavailable, match="492 bytes were received") as caught,
        ):
            read_at(opened(scheme, server))
        assert "does not respond" not in str(caught.value)
        with Server(LENGTH[scheme], short, Answer(reply(CONTENT[8:1008]))) as server:
            assert read_at(opened(scheme, server, patience="30")) == CONTENT[8:1008]

    @pytest.mark.parametrize("call", ["stat", "read"])
    def test_headers_of_s3(self, call: str) -> None:
        cut = Answer(reply(CONTENT, "ETag: x")[:30], ending="close")
        with Server(cut) as server, pytest.raises(Unavailable):
            READING[call](opened("s3", server))

    def test_headers_of_a_look_wherever_they_are_cut(self) -> None:
        """An object whose id was not heard of would be another's, and one without a time has none."""
        whole = SAME.text.replace(b"Content-Length: 0\r\n", b"").replace(b"ETag", b"Content-Length: 7\r\nETag")
        ends = [place + 2 for place in range(len(whole) - 2) if whole[place : place + 2] == b"\r\n"]
        for end in (*ends, ends[1] + 5, len(whole) - 10, len(whole) - 1):
            with Server(Answer(whole[:end], ending="close"), Answer(whole)) as server:
                info = opened("s3", server, patience="30").stat("file")
            assert (info.size_bytes, info.identity, len(server.requests)) == (7, "same", 2), whole[:end]

    @pytest.mark.parametrize("length", [None, -1], ids=["promised", "open"])
    @pytest.mark.parametrize("cut", [1, 100, 10_000])
    def test_a_listing_of_s3(self, cut: int, length: int | None) -> None:
        content = listing("out/a", "out/b")
        size = len(content) if length is None else length
        broken = Answer(reply(content[: max(0, len(content) - cut)], length=size), ending="close")
        with Server(broken) as server, pytest.raises(Unavailable):
            opened("s3", server).list("")
        with Server(broken, Answer(reply(content))) as server:
            assert [info.path for info in opened("s3", server, patience="30").list("")] == ["a", "b"]

    @pytest.mark.parametrize("ending", ["close", "reset"])
    @pytest.mark.parametrize("cut", [0, 1, len(DONE)])
    def test_an_answer_of_a_namenode(self, cut: int, ending: str) -> None:
        answer = Answer(reply(DONE, length=len(DONE) + (not cut), cut=cut), ending=ending)
        with Server(answer) as server, pytest.raises(OutcomeUnknown):
            opened("webhdfs", server).rename("file", "other")
        with Server(answer) as server, pytest.raises(Unavailable):
            opened("webhdfs", server).stat("file")

    @pytest.mark.parametrize("cut", CUT_ANSWERS)
    def test_an_answer_of_s3_to_a_copy(self, cut: str) -> None:
        taken = Answer(reply(status="412 Precondition Failed"))
        with Server(CUT_ANSWERS[cut], taken, SAME, SAME, Answer(reply(status="204 No Content"))) as server:
            fs = opened("s3", server, patience="30")
            prove(fs)
            fs.rename("file", "other")
        assert [each.split()[0] for each in server.requests] == ["PUT", "PUT", "HEAD", "HEAD", "DELETE"]

    @pytest.mark.parametrize("cut", CUT_ANSWERS)
    def test_the_source_of_a_copy_that_may_not_be_there_stays(self, cut: str) -> None:
        with Server(CUT_ANSWERS[cut]) as server:
            fs = opened("s3", server)
            prove(fs)
            with pytest.raises(OutcomeUnknown):
                fs.rename("file", "other")
        assert {each.split()[0] for each in server.requests} == {"PUT"}

    def test_an_answer_of_s3_to_content(self) -> None:
        for cut in CUT_ANSWERS.values():
            with Server(cut) as server, pytest.raises(OutcomeUnknown):
                opened("s3", server).put("file", CONTENT)

    @pytest.mark.parametrize("lost", ["begin", "part", "end"])
    def test_an_answer_of_s3_to_an_upload(self, lost: str) -> None:
        for cut in CUT_ANSWERS.values():
            begun = Answer(reply(b"<I><UploadId>1</UploadId></I>"))
            before = {"begin": [], "part": [begun], "end": [begun, WHOLE, WHOLE]}[lost]
            # Sent again; the rest goes well.
            with Server(*before, cut, *[begun, *[WHOLE] * 3][len(before) :]) as server:
                with opened("s3", server, patience="30", partSize="5MiB").create("file") as stream:
                    stream.write(bytes(6 * MIB))
                methods = [each.split()[0] for each in server.requests]
            assert (
                methods
                == {
                    "begin": ["POST", "POST", "PUT", "PUT", "POST"],
                    "part": ["POST", "PUT", "PUT", "PUT", "POST"],
                    "end": ["POST", "PUT", "PUT", "POST", "POST"],
                }[lost]
            )

    @pytest.mark.parametrize("takes", [0, 100 * KIB])
    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_content_that_is_not_taken_to_its_end(self, scheme: str, takes: int) -> None:
        with Server(*BEFORE_CONTENT[scheme], Answer(takes=takes, ending="reset")) as server:
            stream = opened(scheme, server).create("file")
            with pytest.raises(OutcomeUnknown):  # noqa: PT012 - which of the two finds out is open
                stream.write(bytes(4 * MIB))
                stream.close()
            with pytest.raises(StorageError):
                stream.close()
