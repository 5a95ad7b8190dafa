"""The S3 driver beyond the contract: large files, long listings, errors, credentials."""

from __future__ import annotations

import io
import itertools
import logging
import socket
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from urllib3 import HTTPResponse

from ftfile.core.context import SYSTEM
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
)
from ftfile.storage.api import copy_range
from ftfile.storage.s3 import filesystem as s3
from ftfile.storage.s3.answers import meaning_of_answer
from ftfile.storage.s3.bucket import S3Bucket
from ftfile.storage.s3.filesystem import S3Upload
from ftfile.storage.s3.settings import S3Settings
from ftfile.testing.context import ManualClock, SeededIds, open_filesystem, repeatable
from ftfile.testing.contracts.support import write
from tests.guarded import free_ports
from tests.object_stores.servers import BUCKET, CREDENTIALS, PROFILES, client
from tests.object_stores.test_sink import Sink, rows
from tests.object_stores.wire import FAULTS, Fault, Wire

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from tests.object_stores.servers import Storage

_directories = (f"driver-{number}" for number in itertools.count())

MIB = 1 << 20
SMALL_PARTS = {"partSize": "5MiB"}


def opened(storage: Storage, **settings: str) -> FileSystem:
    return open_filesystem(f"{storage.url}/{next(_directories)}", settings=storage.settings | settings)


def uploads(storage: Storage) -> list[Any]:
    found: list[Any] = client(storage.endpoint).list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    return found


def give_up_uploads(storage: Storage) -> None:
    for each in uploads(storage):
        client(storage.endpoint).abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])


class TestLargeFiles:
    CONTENT = b"".join(b"%07d\n" % number for number in range(12 * MIB // 8))

    def test_they_are_sent_in_parts_and_seen_when_they_are_whole(self, storage: Storage) -> None:
        fs = opened(storage, **SMALL_PARTS)
        with Wire(storage, settings={"storage.partSize": "5MiB"})() as wire:
            with fs.create("large") as stream:
                for start in range(0, len(self.CONTENT), MIB):
                    stream.write(self.CONTENT[start : start + MIB])
                assert not fs.exists("large")
                assert len(uploads(storage)) == 1
            assert wire.counts()["part"] == 3
        assert fs.read("large") == self.CONTENT
        assert not uploads(storage)
        with fs.open("large") as file:
            assert file.read_at(5 * MIB - 4, 8) == self.CONTENT[5 * MIB - 4 :][:8]

    def test_one_write_may_be_larger_than_many_parts(self, storage: Storage) -> None:
        fs = opened(storage, **SMALL_PARTS)
        write(fs, "large", self.CONTENT)
        assert fs.read("large") == self.CONTENT

    def test_an_upload_is_given_up_when_the_writer_fails(self, storage: Storage) -> None:
        fs = opened(storage, **SMALL_PARTS)

        def fail() -> None:
            with fs.create("large") as stream:
                stream.write(self.CONTENT)
                raise ConnectionError

        with pytest.raises(ConnectionError):
            fail()
        assert not uploads(storage)
        assert not fs.exists("large")

    def test_nothing_is_written_over(self, storage: Storage) -> None:
        fs = opened(storage, **SMALL_PARTS)
        stream = fs.create("large")
        stream.write(self.CONTENT)
        fs.create_exclusive("large", b"first")
        with pytest.raises(AlreadyExists):
            stream.close()
        stream.abort()
        assert fs.read("large") == b"first"
        assert not uploads(storage)

    @pytest.mark.parametrize("like_aws", [True, False])
    def test_they_are_copied_within_the_storage(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch, like_aws: bool
    ) -> None:
        monkeypatch.setattr(s3, "COPY_BYTES_MAX", 8 * MIB)
        fs = opened(storage, **SMALL_PARTS)
        write(fs, "large", self.CONTENT)
        write(fs, "taken", b"taken")
        before = fs.stat("large")
        fs.rename("large", "warm-up")
        too_large = Fault(effect=False, status=400, code="EntityTooLarge", copies=True)
        wire = Wire(storage, too_large, times=9, like_aws=like_aws, settings={"storage.partSize": "5MiB"})
        with wire():
            fs.rename("warm-up", "moved")
            with pytest.raises(AlreadyExists):
                fs.rename("moved", "taken")
        assert wire.counts()["copy part"] == 4
        assert wire.counts()["read"] == 0
        assert fs.read("moved") == self.CONTENT
        assert fs.stat("moved").identity == before.identity
        assert not uploads(storage)

    def test_a_copy_by_hand_holds_no_large_file(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(s3, "HELD_BYTES_MAX", 4)
        fs = opened(storage)
        write(fs, "warm-up", b"four")
        write(fs, "larger", b"larger")
        fs.rename("warm-up", "warm")
        with Wire(storage)() as wire:
            fs.rename("larger", "moved")
        assert (wire.counts()["copy part"], wire.counts()["read"]) == (1, 0)
        with Wire(storage)() as wire:
            fs.rename("warm", "held")
        assert (wire.counts()["copy part"], wire.counts()["read"]) == (0, 1)
        assert (fs.read("moved"), fs.read("held")) == (b"larger", b"four")

    def test_nothing_is_left_of_a_copy_that_another_completed(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = next(_directories)
        fs = open_filesystem(f"{storage.url}/{key}", settings=storage.settings | SMALL_PARTS)
        write(fs, "source", self.CONTENT)
        whole = S3Upload.complete

        def complete_late(upload: S3Upload) -> None:
            origin = {"Bucket": BUCKET, "Key": f"{key}/source"}
            client(storage.endpoint).copy_object(Bucket=BUCKET, Key=f"{key}/target", CopySource=origin)
            whole(upload)

        monkeypatch.setattr(S3Upload, "complete", complete_late)
        fs.rename("source", "target")
        assert fs.read("target") == self.CONTENT
        assert not fs.exists("source")
        assert not uploads(storage)

    def test_a_lost_answer_to_the_completion_is_found_out(self, storage: Storage) -> None:
        fs = opened(storage, **SMALL_PARTS)
        for fault in (Fault(effect=True), Fault(effect=True, status=200, code="InternalError")):
            path = f"large-{fault.status}"
            wire = Wire(storage, fault, at=4, settings={"storage.partSize": "5MiB"})
            with wire(), repeatable(ManualClock(), SeededIds(fault.status)):
                write(fs, path, self.CONTENT)
            assert wire.hit == "complete"
            assert fs.read(path) == self.CONTENT

    @pytest.mark.parametrize("fault", FAULTS, ids=str)
    def test_copied_parts_meet_a_fault_at_each_request(self, storage: Storage, fault: Fault) -> None:
        fs = opened(storage)
        write(fs, "source", self.CONTENT)
        done = 0
        for at in itertools.count():
            wire = Wire(storage, fault, at=at)
            with wire(), repeatable(ManualClock(), SeededIds(at)), fs.create(f"file-{at}") as stream:
                for _ in range(2):
                    copy_range(stream, "source", 8, len(self.CONTENT) - 8)
            assert fs.read(f"file-{at}") == self.CONTENT[8:] * 2
            if wire.hit is None:
                break
            done += 1
        assert done >= (1 if fault.conditional else 4)
        # No process has the id of an upload whose creation was not answered.
        assert len(uploads(storage)) <= fault.effect
        give_up_uploads(storage)

    def test_copies_fail_with_the_storage(self, storage: Storage) -> None:
        fs = opened(storage, patience="1")
        write(fs, "source", self.CONTENT)
        settings = {"storage.patience": "1"}
        wire = Wire(storage, Fault(effect=False, status=500, code="InternalError"), at=1, times=99, settings=settings)
        with repeatable(ManualClock(), SeededIds()):
            stream = fs.create("large")
            with wire(), pytest.raises(OutcomeUnknown):  # noqa: PT012 - which of the two finds out is open
                copy_range(stream, "source", 0, len(self.CONTENT))
                stream.close()
            stream.abort()
        assert not uploads(storage)
        assert not fs.exists("large")

    def test_a_part_that_cannot_be_sent_fails_the_file(self, storage: Storage) -> None:
        fs = opened(storage, **SMALL_PARTS, patience="1")
        settings = {"storage.partSize": "5MiB", "storage.patience": "1"}
        wire = Wire(storage, Fault(effect=False, status=500, code="InternalError"), at=2, times=99, settings=settings)
        with repeatable(ManualClock(), SeededIds()):
            stream = fs.create("large")
            with wire(), pytest.raises(OutcomeUnknown):  # noqa: PT012 - which of the two finds out is open
                stream.write(self.CONTENT)
                stream.close()
            stream.abort()
        assert not uploads(storage)
        assert not fs.exists("large")


def test_a_listing_takes_as_many_requests_as_it_needs(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = opened(storage)
    for name in ("a", "b", "c/d", "c/e", "f", "g/h"):
        fs.create_exclusive(name, b"")
    whole = S3Bucket.pages
    monkeypatch.setattr(S3Bucket, "pages", lambda self, *args, **more: whole(self, *args, MaxKeys=2, **more))
    with Wire(storage)() as wire:
        assert {info.path: info.is_directory for info in fs.list("")} == {
            "a": False,
            "b": False,
            "c": True,
            "f": False,
            "g": True,
        }
    assert wire.sent == ["list"] * 3


def test_the_longest_path(storage: Storage) -> None:
    fs = opened(storage)
    limit = fs.capabilities.path_bytes_max
    assert limit is not None
    path = ("d" * 200 + "/") * 6
    path = f"{path[: limit - 10]}/".replace("//", "/").ljust(limit, "f")
    write(fs, "staged", b"content")
    with pytest.raises(Unsupported):
        fs.rename("staged", f"{path}f")
    fs.rename("staged", path)
    assert fs.read(path) == b"content"


def test_a_marker_of_a_directory_is_no_file(storage: Storage) -> None:
    fs = opened(storage)
    fs.create_exclusive("a/b", b"")
    key = f"{next(_directories)}"
    other = open_filesystem(f"{storage.url}/{key}", settings=storage.settings)
    client(storage.endpoint).put_object(Bucket=BUCKET, Key=f"{key}/directory/", Body=b"")
    assert [info.path for info in other.list("")] == ["directory"]


def test_keys_that_are_no_paths_are_not_listed(moto: Storage) -> None:
    key = f"{next(_directories)}"
    fs = open_filesystem(f"{moto.url}/{key}", settings=moto.settings)
    for name in ("/foreign", "a", "b//foreign", "b/c"):
        client(moto.endpoint).put_object(Bucket=BUCKET, Key=f"{key}/{name}", Body=b"")
    assert [info.path for info in fs.list("")] == ["b", "a"]
    assert [info.path for info in fs.list("b")] == ["b/c"]


class TestIdentity:
    def test_a_rename_that_was_left_half_way_is_finished(self, storage: Storage) -> None:
        fs = opened(storage)
        write(fs, "source", b"data")
        write(fs, "warm-up", b"")
        fs.rename("warm-up", "warm")
        wire = Wire(storage, Fault(effect=False, status=403, code="AccessDenied"), at=3)
        with wire(), pytest.raises(PermissionDenied):
            fs.rename("source", "target")
        assert wire.hit == "delete"
        assert fs.stat("source").identity == fs.stat("target").identity
        fs.rename("source", "target")
        assert not fs.exists("source")
        assert fs.read("target") == b"data"

    def test_a_file_of_another_with_the_same_content_is_not_taken_for_ones_own(self, storage: Storage) -> None:
        fs = opened(storage)
        fs.create_exclusive("file", b"same")
        with pytest.raises(AlreadyExists):
            fs.create_exclusive("file", b"same")
        write(fs, "source", b"same")
        with pytest.raises(AlreadyExists):
            fs.rename("source", "file")
        assert fs.exists("source")

    def test_what_others_wrote_has_none_and_is_moved_all_the_same(self, storage: Storage) -> None:
        key = next(_directories)
        fs = open_filesystem(f"{storage.url}/{key}", settings=storage.settings)
        client(storage.endpoint).put_object(Bucket=BUCKET, Key=f"{key}/foreign", Body=b"data")
        assert fs.stat("foreign").identity is None
        fs.rename("foreign", "moved")
        assert fs.read("moved") == b"data"


@pytest.mark.parametrize(
    ("code", "status", "writing", "reading"),
    [
        ("NoSuchKey", 404, NotFound, NotFound),
        ("", 404, NotFound, NotFound),
        ("404", 404, NotFound, NotFound),
        ("NoSuchBucket", 404, StorageError, StorageError),
        ("PreconditionFailed", 412, AlreadyExists, AlreadyExists),
        ("412", 412, AlreadyExists, AlreadyExists),
        ("ConditionalRequestConflict", 409, Unavailable, Unavailable),
        ("409", 409, Unavailable, Unavailable),
        ("ExistingObjectIsDirectory", 409, StorageError, StorageError),
        ("SlowDown", 503, Unavailable, Unavailable),
        ("SlowDown", 429, Unavailable, Unavailable),
        ("", 503, OutcomeUnknown, Unavailable),
        ("ServiceUnavailable", 503, OutcomeUnknown, Unavailable),
        ("InternalError", 500, OutcomeUnknown, Unavailable),
        ("InternalError", 200, OutcomeUnknown, Unavailable),
        ("", 502, OutcomeUnknown, Unavailable),
        ("", 504, OutcomeUnknown, Unavailable),
        ("RequestTimeout", 400, Unavailable, Unavailable),
        ("BadDigest", 400, Unavailable, Unavailable),
        ("AccessDenied", 403, PermissionDenied, PermissionDenied),
        ("403", 403, PermissionDenied, PermissionDenied),
        ("SignatureDoesNotMatch", 403, PermissionDenied, PermissionDenied),
        ("ExpiredToken", 400, PermissionDenied, PermissionDenied),
        ("QuotaExceeded", 403, OutOfSpace, OutOfSpace),
        ("NotImplemented", 501, Unsupported, Unsupported),
        ("KeyTooLongError", 400, Unsupported, Unsupported),
        ("PermanentRedirect", 301, StorageError, StorageError),
        ("SomethingNew", 400, StorageError, StorageError),
    ],
)
def test_what_answers_mean(code: str, status: int, writing: type[StorageError], reading: type[StorageError]) -> None:
    for reads, expected in ((False, writing), (True, reading)):
        kind, detail = meaning_of_answer(code=code, status=status, message="text", reads=reads)
        assert kind is expected
        assert f"({status}): text" in detail


class TestSilence:
    def test_storage_that_never_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            fs = self.opened(server.getsockname()[1], timeout="2", patience="0.1")
            with pytest.raises(Unavailable, match="does not respond"):
                fs.stat("file")
            with pytest.raises(OutcomeUnknown, match="lost"):
                fs.create_exclusive("file", b"")
            with pytest.raises(OutcomeUnknown, match="lost"):
                fs.put("file", b"")

    def test_storage_that_is_not_there(self) -> None:
        fs = self.opened(*free_ports(1), patience="0.1")
        for call in (lambda: fs.stat("file"), lambda: fs.create_exclusive("file", b""), lambda: fs.list("")):
            with pytest.raises(Unavailable, match="does not respond"):
                call()

    @pytest.mark.parametrize("refused", ["ExpiredToken", "AccessDenied", "QuotaExceeded", "NotImplemented"])
    def test_a_refusal_after_a_lost_answer_settles_nothing(self, refused: str) -> None:
        fs = self.opened(9)
        _answers(fs, [None, (403, refused)])
        with repeatable(ManualClock(), SeededIds()), pytest.raises(OutcomeUnknown, match=rf"lost.*{refused}"):
            fs.create_exclusive("file", b"")
        _answers(fs, [(403, refused)])
        with pytest.raises((PermissionDenied, OutOfSpace, Unsupported), match=refused):
            fs.create_exclusive("file", b"")

    def test_what_exists_and_may_not_be_looked_at_may_be_ones_own(self) -> None:
        fs = self.opened(9)
        _answers(fs, [(412, "PreconditionFailed"), (403, ""), (403, "ExpiredToken")])
        with repeatable(ManualClock(), SeededIds()), pytest.raises(OutcomeUnknown):
            fs.create_exclusive("file", b"")

    def test_what_a_doubtful_close_made_is_deleted_or_told(self, storage: Storage) -> None:
        fs = opened(storage, patience="1")
        for settled in (True, False):
            stream = fs.create("file")
            stream.write(b"data")
            silent = Wire(storage, Fault(effect=True), times=99, settings={"storage.patience": "1"})
            with repeatable(ManualClock(), SeededIds()), silent():
                with pytest.raises(OutcomeUnknown):
                    stream.close()
                if not settled:
                    assert not stream.abort()
            assert fs.exists("file")
            if settled:
                assert stream.abort()
                assert not fs.exists("file")

    def test_patience_waits_for_it(self, storage: Storage) -> None:
        fs = opened(storage)
        wire = Wire(storage, Fault(effect=False, status=503, code="SlowDown"), times=5)
        clock = ManualClock()
        with wire(), repeatable(clock, SeededIds()):
            fs.create_exclusive("file", b"data")
        assert wire.sent == ["put"] * 6
        assert fs.read("file") == b"data"

    def opened(self, port: int, **settings: str) -> FileSystem:
        own = {"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"}
        fs: Any = open_filesystem("s3://bucket/x", settings=own | settings)
        inner: FileSystem = fs.inner
        return inner


def _answers(fs: Any, answers: list[tuple[int, str] | None]) -> None:
    """Answer the next requests with a status and a code, or not at all."""
    left = iter(answers)

    def answer(request: Any, **_: object) -> AWSResponse:
        told = next(left)
        if told is None:
            raise ReadTimeoutError(endpoint_url=request.url)
        status, code = told
        body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
        return AWSResponse(request.url, status, {}, HTTPResponse(io.BytesIO(body), preload_content=False))

    events = fs._bucket.client._client.meta.events  # noqa: SLF001 - where requests leave
    events.unregister("before-send.s3", unique_id="answers")
    events.register_first("before-send.s3", answer, unique_id="answers")


class TestSettings:
    @pytest.mark.parametrize(
        ("url", "settings", "error"),
        [
            ("s3:///x", {}, "names no bucket"),
            ("s3://key@bucket/x", {}, "names no bucket"),
            ("s3://bucket", {"colour": "red"}, "no setting storage.colour: its settings are endpoint"),
            ("s3://bucket", {"timeout": "soon"}, "storage.timeout='soon'"),
            ("s3://bucket", {"patience": "-1"}, "storage.patience='-1'"),
            ("s3://bucket", {"partSize": "1MiB"}, "5MiB or more"),
            ("s3://bucket", {"partSize": "large"}, "5MiB or more"),
            ("s3://bucket", {"addressing": "sideways"}, "auto, path, virtual"),
            ("s3://bucket", {"endpoint": "no url"}, "no url"),
            ("s3://bucket", {"endpoint": "https://user:T0PSECRET@host"}, "storage.endpoint has a user before its host"),
            ("s3://bucket", {"endpoint": "https://T0PSECRET@host/"}, "storage.endpoint has a user before its host"),
            ("s3://bucket", {"profile": "nobody"}, "nobody"),
            ("s3://bucket", {"accessKeyVariable": "A"}, "give both"),
            ("s3://bucket", {"sessionTokenVariable": "A"}, "give both"),
            ("s3://bucket", {"accessKeyVariable": "NOT_SET", "secretKeyVariable": "B"}, "NOT_SET"),
            ("s3://bucket", {"accessKeyVariable": "A", "secretKeyVariable": "B", "profile": "p"}, "omit one of them"),
        ],
    )
    def test_what_is_refused(self, url: str, settings: dict[str, str], error: str) -> None:
        with pytest.raises(ConfigError, match=error) as caught:
            open_filesystem(url, settings=settings)
        assert "T0PSECRET" not in str(caught.value)

    def test_names_come_in_any_case(self, storage: Storage) -> None:
        fs = opened(storage, partsize="5MiB", PATIENCE="3")
        assert fs.capabilities.stream_bytes == 5 * MIB

    def test_another_spelling_of_the_scheme(self, storage: Storage) -> None:
        open_filesystem("s3://bucket/spelled", settings=storage.settings).create_exclusive("file", b"data")
        assert open_filesystem("s3a://bucket/spelled", settings=storage.settings).read("file") == b"data"

    def test_a_bucket_that_is_not_there_is_said_to_be_so(self, storage: Storage) -> None:
        fs = open_filesystem("s3://no-such-bucket/x", settings=storage.settings)
        with pytest.raises(StorageError, match="no such bucket") as caught:
            fs.create_exclusive("file", b"")
        assert type(caught.value) is StorageError

    @pytest.mark.parametrize("name", ["accessKey", "secretkey", "sessionToken", "secret", "AccessKeyId"])
    def test_secrets_are_refused_and_not_repeated(self, storage: Storage, name: str) -> None:
        with pytest.raises(ConfigError, match=f"storage.{name}: .*AWS_ACCESS_KEY_ID") as caught:
            opened(storage, **{name: "T0PSECRET"})
        assert "T0PSECRET" not in str(caught.value)


class TestCredentials:
    @pytest.fixture
    def nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in CREDENTIALS:
            monkeypatch.delenv(name)

    @pytest.mark.usefixtures("nobody")
    def test_none_are_an_error_that_says_where_to_give_them(self, storage: Storage) -> None:
        # Another setting, so that no cached client with credentials is used.
        with pytest.raises(PermissionDenied, match=r"no credentials .*object-stores\.md"):
            opened(storage, timeout="31").stat("file")

    @pytest.mark.usefixtures("nobody")
    def test_variables_that_options_name(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        names = {"accessKeyVariable": "STORAGE_KEY", "secretKeyVariable": "STORAGE_SECRET"}
        for variable, value in zip(names.values(), CREDENTIALS.values(), strict=True):
            monkeypatch.setenv(variable, value)
        opened(storage, **names).create_exclusive("file", b"")

    @pytest.mark.usefixtures("nobody")
    def test_a_profile(self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        values = zip(("aws_access_key_id", "aws_secret_access_key"), CREDENTIALS.values(), strict=True)
        text = "".join(f"{name} = {value}\n" for name, value in values)
        (tmp_path / "credentials").write_text(f"[writer]\n{text}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        opened(storage, profile="writer").create_exclusive("file", b"")

    def test_those_that_were_renewed_are_taken_without_a_new_process(
        self, real: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "credentials").write_text(PROFILES.replace("[wrong]", "[renewed]"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        with pytest.raises(PermissionDenied, match="does not accept these credentials"):
            opened(real, profile="renewed").create_exclusive("file", b"")
        (tmp_path / "credentials").write_text(PROFILES.replace("[right]", "[renewed]"))
        opened(real, profile="renewed").create_exclusive("file", b"")

    def test_wrong_ones_are_refused_by_the_storage(self, real: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"WRONG_KEY": "ftfile-access", "WRONG_SECRET": "T0PSECRET"}.items():
            monkeypatch.setenv(name, value)
        fs = opened(real, accessKeyVariable="WRONG_KEY", secretKeyVariable="WRONG_SECRET")
        with pytest.raises(PermissionDenied, match="does not accept these credentials") as caught:
            fs.create_exclusive("file", b"")
        assert "T0PSECRET" not in str(caught.value)

    def test_other_values_of_variables_lead_to_another_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = S3Settings(
            endpoint="http://127.0.0.1:9", region="us-east-1", variables=("STORAGE_KEY", "STORAGE_SECRET")
        )
        bucket = S3Bucket("bucket", "", settings, SYSTEM)
        clients = []
        for secret in ("T0PSECRET", "T0PSECRET", "0THER"):
            monkeypatch.setenv("STORAGE_KEY", "access")
            monkeypatch.setenv("STORAGE_SECRET", secret)
            clients.append(bucket.client)
        assert clients[0] is clients[1] is not clients[2]

    @pytest.mark.parametrize("broken", ["STORAGE_KEY", "STORAGE_TOKEN"])
    def test_a_line_feed_in_one_is_told_without_it(self, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
        names = {"accessKeyVariable": "STORAGE_KEY", "secretKeyVariable": "STORAGE_SECRET"}
        names["sessionTokenVariable"] = "STORAGE_TOKEN"
        for name in names.values():
            monkeypatch.setenv(name, "T0PSECRET\n" if name == broken else "T0PSECRET")
        settings = names | {"endpoint": "http://127.0.0.1:9", "region": "us-east-1", "patience": "1"}
        with pytest.raises(PermissionDenied, match="line feed at its end") as caught:
            open_filesystem("s3://bucket", settings=settings).create_exclusive("file", b"")
        assert "T0PSECRET" not in "".join(traceback.format_exception(caught.value))

    def test_what_else_cannot_be_sent_is_not_taken_for_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in CREDENTIALS.items():
            monkeypatch.setenv(name, text)
        monkeypatch.setenv("HTTP_PROXY", "http://proxy:99999999")
        settings = {"endpoint": "http://storage.example", "region": "us-east-1", "patience": "0.1"}
        with pytest.raises(StorageError) as caught:
            open_filesystem("s3://bucket", settings=settings).stat("file")
        assert "line feed" not in str(caught.value)

    def test_they_are_nowhere(self, storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        names = {"storage.accessKeyVariable": "AWS_ACCESS_KEY_ID", "storage.secretKeyVariable": "AWS_SECRET_ACCESS_KEY"}
        sink = Sink(storage, tmp_path / "checkpoint")
        query = sink.query(**names, maxBatchesPerFile="2")
        with caplog.at_level(logging.DEBUG, logger="ftfile"):
            planned = query.pickled_plan()
            query.run(0, [rows("a")])
        told = [planned, repr(query.config()).encode(), caplog.text.encode()]
        fs = open_filesystem(sink.url, settings=storage.settings)
        told += [fs.read(path) for path in sink.names()]
        for text in told:
            assert not any(secret.encode() in text for secret in CREDENTIALS.values())
        # A process that finishes open files uses its own settings.
        assert any(path.startswith("_ftfile/log/") for path in sink.names())
        assert not any(b"accesskeyvariable" in fs.read(path).lower() for path in sink.names())
