"""Every call of the drivers that speak HTTP ends, and what came in part is never taken for the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from ftfile.core.errors import OutcomeUnknown, StorageError, Unavailable
from ftfile.core.retry import RetryPolicy
from ftfile.fs.registry import open_filesystem
from tests.unit.fs.broken_lines import Answer, Server, listing, reply, status_of_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import FileSystem
    from tests.unit.fs.broken_lines import Step

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


def opened(scheme: str, server: Server, timeout: str = "0.25", patience: str = "0.05", **more: str) -> FileSystem:
    own = {"timeout": timeout, "patience": patience, **more}
    if scheme == "webhdfs":
        return open_filesystem(f"webhdfs://{server.address}/out", settings=own, policy=RetryPolicy(attempts=1))
    own |= {"endpoint": f"http://{server.address}", "region": "us-east-1"}
    return open_filesystem("s3://bucket/out", settings=own, policy=RetryPolicy(attempts=1))


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
            with Server(answer) as server, pytest.raises(Unavailable, match=r"no answer within 0\.\d+ s"):
                READING[call](opened(scheme, server))

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_the_content_of_a_range(self, scheme: str) -> None:
        with Server(LENGTH[scheme], DRIPPING_BODY) as server, pytest.raises(Unavailable, match=r"within 0\.2\d+ s"):
            read_at(opened(scheme, server))

    @pytest.mark.parametrize(
        ("scheme", "call", "before"),
        [("s3", "put", []), ("webhdfs", "rename", []), ("webhdfs", "put", []), ("webhdfs", "put", [placed])],
    )
    def test_an_answer_to_a_change(self, scheme: str, call: str, before: list[Step]) -> None:
        with (
            Server(*before, DRIPPING_HEAD) as server,
            pytest.raises(OutcomeUnknown, match=r"no answer within 0\.\d+ s"),
        ):
            CHANGING[call](opened(scheme, server))

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_a_file_that_is_being_closed(self, scheme: str) -> None:
        with Server(*BEFORE_CONTENT[scheme], DRIPPING_HEAD) as server:
            stream = opened(scheme, server).create("file")
            stream.write(CONTENT)
            with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.2\d* s"):
                stream.close()

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_data_have_time_as_long_as_they_come(self, scheme: str) -> None:
        content = bytes(3 * MIB)
        # Of a call without data this would be too slow.
        slow = Answer(reply(content), whole=3 * MIB - 30)
        with Server(slow) as server:
            assert opened(scheme, server, timeout="0.4", patience="30").read("file") == content

    @pytest.mark.parametrize("scheme", ["s3", "webhdfs"])
    def test_data_have_time_as_long_as_they_go(self, scheme: str) -> None:
        # All of it takes longer than a call without data may.
        parts = {"partSize": "16MiB"} if scheme == "s3" else {}
        done = Answer(reply(status="201 Created" if scheme == "webhdfs" else "200 OK"), step_s=0.04)
        with Server(*BEFORE_CONTENT[scheme], done) as server:
            fs = opened(scheme, server, timeout="0.4", patience="30", **parts)
            with fs.create("file") as stream:
                stream.write(bytes(16 * MIB))


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
        # By what it promises, too.
        short = Answer(reply(CONTENT[8:500]))
        with Server(LENGTH[scheme], short) as server, pytest.raises(Unavailable, match="492 bytes came"):
            read_at(opened(scheme, server))
        with Server(LENGTH[scheme], short, Answer(reply(CONTENT[8:1008]))) as server:
            assert read_at(opened(scheme, server, patience="30")) == CONTENT[8:1008]

    @pytest.mark.parametrize("call", ["stat", "read"])
    def test_headers_of_s3(self, call: str) -> None:
        cut = Answer(reply(CONTENT, "ETag: x")[:30], ending="close")
        with Server(cut) as server, pytest.raises(Unavailable):
            READING[call](opened("s3", server))

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

    def test_an_answer_of_s3_to_a_change(self) -> None:
        copied = b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>"
        taken = Answer(reply(status="412 Precondition Failed"))
        # Also what says nothing of its length.
        for length in (len(copied), -1):
            cut = Answer(reply(copied[:-10], length=length), ending="close")
            with Server(cut, taken, SAME, SAME, Answer(reply(status="204 No Content"))) as server:
                fs: Any = opened("s3", server, patience="30")
                fs.inner._bucket.client.proven["bucket"] = True  # noqa: SLF001 - no trial
                fs.rename("file", "other")
            assert [each.split()[0] for each in server.requests] == ["PUT", "PUT", "HEAD", "HEAD", "DELETE"]

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
