from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import logging
import pickle
import threading
import traceback
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import ftfile
from ftfile import kv
from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    EncodingError,
    FtfileError,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
    Unsupported,
)
from ftfile.core.retries import RetryPolicy
from ftfile.storage.fsspec_client import BLOCK_BYTES, remote_error
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.filesystem import FileSystemContract
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.storage.fake_objects import ObjectFile, Objects, known_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem

names = (f"store-{number}" for number in itertools.count())


class TestFsspec(FileSystemContract):
    @pytest.fixture
    def filesystem(self) -> FileSystem:
        known_as("objects", Objects)
        self.root = f"{next(names)}/some/where"
        return open_filesystem(f"objects://{self.root}")

    def stored(self, filesystem: FileSystem, path: str) -> bytes:  # noqa: ARG002
        content: bytes = Objects.store[f"/{self.root}/{path}"].getvalue()
        return content

    @pytest.mark.slow
    def test_of_many_renames_to_one_target_one_wins(self, filesystem: FileSystem) -> None:
        super().test_of_many_renames_to_one_target_one_wins(filesystem)

    @pytest.mark.slow
    def test_of_many_exclusive_creations_one_wins(self, filesystem: FileSystem) -> None:
        super().test_of_many_exclusive_creations_one_wins(filesystem)

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        def refuse(*_: object, **__: object) -> bool:
            raise OSError(errno.ENOSPC, "no space left")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ObjectFile, "_upload_chunk", refuse)
            yield filesystem


def prove(kind: type, scheme: str = "objects") -> None:
    known_as(scheme, kind)
    open_filesystem(f"{scheme}://{next(names)}/some/where").prove("_ftfile")


@pytest.mark.slow
@pytest.mark.packages
def test_what_keeps_its_word_passes_and_nothing_is_left() -> None:
    known_as("objects", Objects)
    where = f"{next(names)}/some/where"
    filesystem = open_filesystem(f"objects://{where}")
    filesystem.prove("_ftfile")
    filesystem.prove("_ftfile")
    assert [path for path in Objects.store if path.startswith(f"/{where}")] == []


class Overwriting(Objects):
    def make(self, path: str, content: bytes, *, is_new: bool) -> None:  # noqa: ARG002
        super().make(path, content, is_new=False)


class LookingFirst(Overwriting):
    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "xb" and self.exists(path):
            raise FileExistsError(path)
        return super()._open(path, mode, block_size, **kwargs)


class LookingLast(Overwriting):
    """Looks when a file is closed, but not in one step with making it."""

    others = threading.Barrier(2)

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        if is_new and self.exists(path):
            raise FileExistsError(path)
        if "/race-" in path:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.others.wait(20)
        super().make(path, content, is_new=is_new)


class OverwritingLarge(Objects):
    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        super().make(path, content, is_new=is_new and len(content) < BLOCK_BYTES)


class OverwritingLater(Objects):
    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        super().make(path, content, is_new=is_new and not path.endswith("/other"))


class Vague(Objects):
    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        try:
            super().make(path, content, is_new=is_new)
        except FileExistsError:
            raise OSError("it did not work") from None


class WithoutModeX(Objects):
    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "xb":
            raise ValueError(f"no mode {mode}")
        return super()._open(path, mode, block_size, **kwargs)


class WantingDirectories(Objects):
    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        if self._parent(path) not in self.pseudo_dirs:
            raise FileNotFoundError(path)
        super().make(path, content, is_new=is_new)


class ListingLate(Objects):
    """Always returns its first listing, even after its cache is invalidated."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen: dict[str, Any] = {}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if path not in self.seen:
            self.seen[path] = super().ls(path, detail, **kwargs)
        return self.seen[path]


class ListingTheDead(Objects):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen: dict[str, Any] = {}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        self.seen |= {each["name"]: each for each in super().ls(path, detail, **kwargs)}
        return [*self.seen.values()]


class FindingTheDead(Objects):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen: dict[str, Any] = {}

    def info(self, path: str, **kwargs: Any) -> Any:
        try:
            self.seen[path] = super().info(path, **kwargs)
        except FileNotFoundError:
            if path not in self.seen:
                raise
        return self.seen[path]


class ReadingLate(Objects):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen: dict[str, bytes] = {}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        return self.seen.setdefault(path, super().cat_file(path, **kwargs))[start:end]


class OneClientAlone(Objects):
    """Each instance has separate objects."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.__dict__["store"] = {}


class WithoutTimes(Objects):
    def info(self, path: str, **kwargs: Any) -> Any:
        return {**super().info(path, **kwargs), "created": None}


class WithoutLengths(Objects):
    def info(self, path: str, **kwargs: Any) -> Any:
        return {**super().info(path, **kwargs), "size": None}


class WithOtherLengths(Objects):
    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return [{**each, "size": 0} for each in super().ls(path, detail, **kwargs)]


class NeverGivingUp(Objects):
    class File(ObjectFile):
        def discard(self) -> None:
            self.close()

    file = File


@parametrize(
    ("kind", "lack"),
    [
        (Overwriting, "overwrites an existing file when it creates one"),
        (LookingFirst, "lets 2 of 2 writers create the same file"),
        (LookingLast, "lets [234] of 4 writers create the same file"),
        (OverwritingLarge, "lets 2 of 2 writers create the same file"),
        (OverwritingLater, "overwrites an existing file when it moves a file"),
        (Vague, r"does not raise FileExistsError .*it did not work"),
        (WithoutModeX, r"does not create new files \(mode 'xb'\).*no mode xb"),
        (
            WantingDirectories,
            "has no bucket or container of this name, or requires directories to be created before files",
        ),
        (MemoryFileSystem, "shows files while they are written"),
        (ListingLate, "does not list a written file at once"),
        (ListingTheDead, "lists a deleted file"),
        (FindingTheDead, "finds a deleted file"),
        (ReadingLate, "does not return the content that was written last"),
        (OneClientAlone, "does not find a written file at once"),
        (WithoutTimes, "reports no time of modification"),
        (WithoutLengths, "reports a length of -1 bytes"),
        (WithOtherLengths, "lists files with a wrong length or time"),
        (NeverGivingUp, "keeps files whose write was aborted"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "so",
    quick=2,
    packages=True,
)
def test_what_falls_short_is_refused(kind: type, lack: str) -> None:
    with pytest.raises(Unsupported, match=rf"{kind.__name__} of \S+ {lack}.*: use a newer version.*another driver"):
        prove(kind, f"objects-{kind.__name__.lower()}")


def test_a_disk_by_way_of_fsspec_is_refused(tmp_path: Path) -> None:
    # As it is by sftp, and wherever else files are seen while they are written.
    (tmp_path / "_ftfile").mkdir()
    with pytest.raises(Unsupported, match=r"LocalFileSystem of local://.* or requires directories"):
        open_filesystem(f"local:{tmp_path}").prove("_ftfile")
    with pytest.raises(
        Unsupported,
        match=r"LocalFileSystem of local://.* (shows files|has no bucket)",
    ):
        open_filesystem(f"local:{tmp_path}", settings={"auto_mkdir": "true"}).prove("_ftfile")


class Silent(Objects):
    """Never answers while its flag is set."""

    waits: ClassVar[list[threading.Event]] = []

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        for wait in self.waits:
            wait.wait(100)
        super().make(path, content, is_new=is_new)


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.short_limits
def test_every_call_ends() -> None:
    known_as("silent", Silent)
    filesystem = open_filesystem(f"silent://{next(names)}", settings={"calltimeout": "0.1"})
    answer = threading.Event()
    Silent.waits.append(answer)
    stream = filesystem.create("file")
    try:
        stream.write(b"data")
        with pytest.raises(OutcomeUnknown, match=r"TimeoutError.*no response within 0\.1 s"):
            stream.close()
        assert not stream.abort()
        # Who does not answer has not shown that it cannot.
        with pytest.raises(OutcomeUnknown, match="TimeoutError"):
            filesystem.prove("")
    finally:
        Silent.waits.clear()
        answer.set()
    open_filesystem(f"silent://{next(names)}").prove("")


class SilentAtFirst(Objects):
    """Calls the storage when it is opened; the storage does not answer while its flag is set."""

    waits: ClassVar[list[threading.Event]] = []

    def __init__(self, **arguments: Any) -> None:
        for wait in self.waits:
            wait.wait(100)
        super().__init__(**arguments)


@pytest.mark.slow
@pytest.mark.short_limits
def test_opening_ends_and_is_tried_anew() -> None:
    known_as("silentatfirst", SilentAtFirst)
    where, settings = f"silentatfirst://{next(names)}", {"calltimeout": "0.1"}
    answer = threading.Event()
    SilentAtFirst.waits.append(answer)
    try:
        with pytest.raises(Unavailable, match=r"TimeoutError when fsspec opened.*no response within 0\.1 s"):
            open_filesystem(where, settings=settings)
    finally:
        SilentAtFirst.waits.clear()
        answer.set()
    open_filesystem(where, settings=settings).create_exclusive("file", b"data")


@pytest.mark.parametrize(
    ("error", "reading", "changing"),
    [
        (FileNotFoundError("x"), NotFound, NotFound),
        (IsADirectoryError("x"), NotFound, NotFound),
        (NotADirectoryError("x"), NotADirectory, NotADirectory),
        (FileExistsError("x"), AlreadyExists, AlreadyExists),
        (PermissionError("x"), PermissionDenied, PermissionDenied),
        (NotImplementedError(), Unsupported, Unsupported),
        (OSError(errno.ENOSPC, "full"), OutOfSpace, OutOfSpace),
        (OSError("Forbidden"), Unavailable, OutcomeUnknown),
        (TimeoutError(), Unavailable, OutcomeUnknown),
        (ConnectionResetError(), Unavailable, OutcomeUnknown),
        (RuntimeError("Failed to upload block"), Unavailable, OutcomeUnknown),
        (TypeError("an argument too many"), StorageError, OutcomeUnknown),
    ],
    ids=repr,
)
def test_errors_are_those_of_the_port(
    error: Exception, reading: type[StorageError], changing: type[StorageError]
) -> None:
    assert type(remote_error("stat", "file", error)) is reading
    assert type(remote_error("close", "file", error)) is changing


@pytest.mark.parametrize("name", ["status_code", "status", "code"])
def test_a_status_tells_what_an_error_is(name: str) -> None:
    error = RuntimeError("refused")
    for status, kind in ((401, PermissionDenied), (403, PermissionDenied), (404, NotFound), (500, OutcomeUnknown)):
        setattr(error, name, status)
        assert type(remote_error("close", "file", error)) is kind


class Told(Objects):
    arguments: ClassVar[dict[str, Any]] = {}

    def __init__(self, **kwargs: Any) -> None:
        type(self).arguments = kwargs
        super().__init__(use_listings_cache=kwargs["use_listings_cache"])


def test_settings_are_arguments_and_secrets_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known_as("told", Told)
    monkeypatch.setenv("MY_KEY", "s3cret")
    settings = {
        "account_name": "me",
        "account_key": "env:MY_KEY",
        "anon": "false",
        "retries": "3",
        "zone": "0012",
        "digits": '"12"',
        "client_kwargs": '{"a": [1], "password": "env:MY_KEY", "pool": {"token": null}}',
        "odd": "[it",
        "callTimeout": "30",
    }
    filesystem = open_filesystem(f"told://{next(names)}", settings=settings)
    assert Told.arguments == {
        "account_name": "me",
        "account_key": "s3cret",
        "anon": False,
        "retries": 3,
        "zone": "0012",
        "digits": "12",
        "client_kwargs": {"a": [1], "password": "s3cret", "pool": {"token": None}},
        "odd": "[it",
        "use_listings_cache": False,
    }
    assert b"s3cret" not in pickle.dumps(filesystem)
    assert "s3cret" not in repr(filesystem)


@pytest.mark.parametrize("way", ["anon", "google_default", "cloud", "cache", "browser"])
def test_a_way_to_find_credentials_is_no_secret(way: str) -> None:
    known_as("told", Told)
    open_filesystem(f"told://{next(names)}", settings={"token": way})
    assert Told.arguments["token"] == way
    # Of any other argument it may be one.
    for name in ("secret", "sas_token"):
        with pytest.raises(ConfigError, match="do not put secrets"):
            open_filesystem(f"told://{next(names)}", settings={name: way})


@pytest.mark.slow
@pytest.mark.packages
def test_a_keyed_store_shows_no_secret(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    known_as("told", Told)
    monkeypatch.setenv("MY_KEY", "s3cret")
    url, plain = f"told://{next(names)}/store", "pl4in"
    for opened in (kv.open, functools.partial(kv.KeyValueStore, writer="w")):
        with pytest.raises(ConfigError, match="do not put secrets") as caught:
            opened(url, storage={"account_key": plain})
        assert plain not in "".join(traceback.format_exception(caught.value))
    storage = {"account_key": "env:MY_KEY"}
    with kv.KeyValueStore(url, writer="w", storage=storage, maintenance="inline") as store:
        for window in range(2):
            store.begin_window(window)
            store.put(b"key", b"value")
            store.end_window()
        store.committed(0)
        reader = kv.open(url, storage=storage)
        config = store._recorder.config  # noqa: SLF001
        assert Told.arguments["account_key"] == "s3cret"
        for each in (store, reader, config, reader.log, reader.log.fs):
            assert "s3cret" not in f"{each!r} {each}"
        assert b"s3cret" not in pickle.dumps(config)
        assert not any(b"s3cret" in kept.getvalue() for kept in Told.store.values())
    assert "s3cret" not in caplog.text


class Talkative(Objects):
    """Tells all that it knows."""

    def __init__(self, account_key: str = "", nested: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__(use_listings_cache=kwargs["use_listings_cache"])
        self.secret = account_key
        if account_key == "wr0ng-secret":
            raise ValueError(f"{account_key} is no key")

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:  # noqa: ARG002
        signed = "https://host/path?upload_id=ABC123&x=1 AccountKey=DEF456;Next=1 ?sig=GHI%2B789&se=1"
        error = OSError(f"refused with {self.secret}: {signed}")
        if path.endswith("/below"):
            raise OSError("refused") from error
        raise error


def test_no_error_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    known_as("talkative", Talkative)
    monkeypatch.setenv("MY_KEY", "wr0ng-secret")
    settings = {"account_key": "env:MY_KEY"}
    with pytest.raises(ConfigError, match=r"ValueError: … is no key") as opening:
        open_filesystem(f"talkative://{next(names)}", settings=settings)
    monkeypatch.setenv("MY_KEY", "r1ght-secret")
    monkeypatch.setenv("OTHER_KEY", "n3sted-secret")
    settings |= {"nested": '{"password": "env:OTHER_KEY"}'}
    with pytest.raises(OutcomeUnknown, match=r"refused with …:.*upload_id=…&x=1 .*;Next=1.*&se=1") as making:
        open_filesystem(f"talkative://{next(names)}", settings=settings).create_exclusive("file", b"")
    with pytest.raises(OutcomeUnknown, match="refused") as below:
        open_filesystem(f"talkative://{next(names)}", settings=settings).create_exclusive("below", b"")
    for caught in (opening, making, below):
        shown = "".join(traceback.format_exception(caught.value))
        assert not [each for each in ("-secret", "ABC123", "DEF456", "GHI") if each in shown.replace("MY_KEY", "")]


class Strict(Objects):
    def __init__(self, *, use_listings_cache: bool) -> None:
        super().__init__(use_listings_cache=use_listings_cache)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"account_key": "s3cret"}, "storage.account_key: .*do not put secrets.*env:NAME"),
        ({"sas_token": "s3cret"}, "storage.sas_token: .*do not put secrets"),
        ({"Password": "123"}, "storage.Password: .*do not put secrets"),
        ({"client_kwargs": '{"secret": "s3cret"}'}, r"storage.client_kwargs \(in it, secret\): .*do not put secrets"),
        ({"tokens": '["s3cret"]'}, "storage.tokens: .*do not put secrets"),
        ({"endpoint_url": "https://me:s3cret@host"}, "storage.endpoint_url: .*do not put secrets"),
        ({"account_key": "env:NOT_THERE"}, "'NOT_THERE', which storage.account_key names, is not set"),
        ({"calltimeout": "soon"}, "storage.callTimeout='soon': it must be a number of seconds"),
        ({"calltimeout": "0"}, "storage.callTimeout='0'"),
    ],
)
def test_settings_that_are_wrong(settings: dict[str, str], message: str) -> None:
    known_as("told", Told)
    with pytest.raises(ConfigError, match=message) as caught:
        open_filesystem(f"told://{next(names)}", settings=settings)
    assert "s3cret" not in str(caught.value)


def test_what_is_not_installed_or_refuses_its_arguments() -> None:
    with pytest.raises(ConfigError, match=r"fsspec cannot open it \(ImportError: .*storage\.<argument>"):
        open_filesystem("dropbox://x/y")
    known_as("strict", Strict)
    with pytest.raises(ConfigError, match=r"fsspec cannot open it \(TypeError: .*path_to_nowhere"):
        open_filesystem("strict://x/y", settings={"path_to_nowhere": "1"})


def test_times_are_read_in_every_spelling() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=timezone.utc)
    known_as("timed", Timed)
    filesystem = open_filesystem(f"timed://{next(names)}")
    filesystem.create_exclusive("file", b"")
    for name, value in (
        ("mtime", moment),
        ("mtime", moment.timestamp()),
        ("updated", "2026-01-02T03:04:05.600000Z"),
        ("last_modified", moment.replace(tzinfo=None)),
        ("LastModified", "2026-01-02T03:04:05+00:00"),
    ):
        Timed.time = {name: value}
        assert filesystem.stat("file").modified_ms == 1_767_323_045_000


class Timed(Objects):
    time: ClassVar[dict[str, Any]] = {}

    def info(self, path: str, **kwargs: Any) -> Any:
        return {**super().info(path, **kwargs), **self.time}


def test_a_file_that_shrank_is_not_read_short() -> None:
    known_as("objects", Objects)
    filesystem = open_filesystem(f"objects://{next(names)}", policy=RetryPolicy(attempts=1))
    filesystem.create_exclusive("file", b"four")
    with filesystem.open("file") as file:
        filesystem.put("file", b"2")
        with pytest.raises(Unavailable, match="1 bytes were received from position 0 instead of 4"):
            file.read_at(0, 4)


def test_large_files_are_sent_copied_and_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fsspec", "fsspec_client"):
        monkeypatch.setattr(f"ftfile.storage.{module}.BLOCK_BYTES", 100)
    monkeypatch.setattr("ftfile.storage.fsspec_client.READ_BYTES", 70)
    known_as("objects", Objects)
    filesystem = open_filesystem(f"objects://{next(names)}")
    content = bytes(range(256)) * 4
    with filesystem.create("file") as stream:
        for start in range(0, len(content), 77):
            stream.write(content[start : start + 77])
    assert filesystem.read("file") == content
    filesystem.rename("file", "moved")
    assert filesystem.read("moved") == content
    assert not filesystem.exists("file")


class Short(Objects):
    """Takes less than it is given."""

    class file(ObjectFile):  # noqa: N801 - as fsspec names it
        def write(self, data: Any) -> int:
            return int(super().write(data[:-1]))


def test_what_is_written_short_is_no_file() -> None:
    known_as("short", Short)
    filesystem = open_filesystem(f"short://{next(names)}", policy=RetryPolicy(attempts=1))
    with pytest.raises(StorageError, match="3 of 4 bytes were accepted"):
        filesystem.create_exclusive("file", b"four")
    assert filesystem.list("") == []


class Discarding(Objects):
    """Remembers the files that were discarded; none can be closed."""

    discarded: ClassVar[list[str]] = []

    class file(ObjectFile):  # noqa: N801 - as fsspec names it
        def close(self) -> None:
            if not self.closed:
                raise PermissionError("no")

        def discard(self) -> None:
            Discarding.discarded.append(self.path)


def test_a_file_that_cannot_be_closed_is_given_up_at_once() -> None:
    known_as("discarding", Discarding)
    where = next(names)
    stream = open_filesystem(f"discarding://{where}", policy=RetryPolicy(attempts=1)).create("file")
    stream.write(b"content")
    with pytest.raises(PermissionDenied):
        stream.close()
    # No abort is necessary, and the garbage collector closes the remaining stream.
    assert Discarding.discarded == [f"/{where}/file"]


class Raced(Objects):
    """Another publisher of the same file is always faster in deleting it."""

    def _rm(self, path: str) -> None:
        super()._rm(path)
        raise FileNotFoundError(path)


def test_a_file_whose_old_name_another_publisher_deleted_is_moved() -> None:
    known_as("raced", Raced)
    filesystem = open_filesystem(f"raced://{next(names)}")
    filesystem.create_exclusive("file", b"content")
    filesystem.rename("file", "moved")
    assert [info.path for info in filesystem.list("")] == ["moved"]


class Forgetting(Objects):
    """Forgets an upload with its end; a library that had no answer sends the end again, and hears that nothing is."""

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        super().make(path, content, is_new=is_new)
        raise FileNotFoundError(path)


def test_storage_that_says_of_an_upload_that_it_is_not_there_may_have_made_the_file() -> None:
    known_as("forgetting", Forgetting)
    filesystem = open_filesystem(f"forgetting://{next(names)}")
    with pytest.raises(OutcomeUnknown, match=r"FileNotFoundError.*the operation may have taken effect"):
        filesystem.create_exclusive("file", b"content")
    stream = filesystem.create("other")
    stream.write(b"content")
    with pytest.raises(OutcomeUnknown):
        stream.close()
    assert not stream.abort()
    # A move takes "nothing is there" for a source that was moved already.
    with pytest.raises(OutcomeUnknown):
        filesystem.rename("file", "moved")
    assert {info.path for info in filesystem.list("")} == {"file", "moved", "other"}
    with pytest.raises(NotFound):
        filesystem.rename("nowhere", "target")


class ForgettingOnce(Forgetting):
    """Loses the first upload, or one of several that race."""

    left: ClassVar[list[str]] = []

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        if self.left and path.endswith(self.left[0]):
            self.left.pop()
            super().make(path, content, is_new=is_new)
        Objects.make(self, path, content, is_new=is_new)


@parametrize("name", ["/one", "/two", "/race-3", "/other"], quick=1, packages=True)
def test_a_reply_that_is_lost_in_the_trial_is_no_verdict(name: str) -> None:
    ForgettingOnce.left.append(name)
    prove(ForgettingOnce, "forgettingonce")
    assert not ForgettingOnce.left


class Failing(Objects):
    """Fails at one of its changes, before or after it took effect."""

    changes = 0
    failing = (-1, "")

    @classmethod
    def change(cls, do: Callable[[], None]) -> None:
        number, effect = cls.failing
        Failing.changes += 1
        is_due = Failing.changes - 1 == number
        if not (is_due and effect == "before"):
            do()
        if is_due:
            # A library that sends a request again hears that the upload, or the file, is no longer there.
            raise FileNotFoundError("404") if effect == "sent again" else OSError("the connection broke")

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        self.change(lambda: super(Failing, self).make(path, content, is_new=is_new))

    def _rm(self, path: str) -> None:
        self.change(lambda: super(Failing, self)._rm(path))


class Keeping(Objects):
    """Caches listings until they are invalidated, even if another client changes the directory."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seen: dict[str, Any] = {}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        if path not in self.seen:
            self.seen[path] = super().ls(path, detail, **kwargs)
        return self.seen[path]

    def invalidate_cache(self, path: str | None = None) -> None:  # noqa: ARG002
        self.seen.clear()


@pytest.mark.slow
@pytest.mark.packages
def test_no_kept_listing_is_believed() -> None:
    known_as("keeping", Keeping)
    where = next(names)
    filesystem, other = (open_filesystem(f"keeping://{where}", settings=each) for each in ({}, {"x": "another client"}))
    for number in range(3):
        filesystem.create_exclusive(f"directory/{number}", b"")
        assert len(other.list("directory")) == number + 1
    filesystem.prove("")


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("publish", ["copy", "direct"])
@pytest.mark.parametrize("effect", ["before", "after", "sent again"])
def test_each_row_once_whatever_change_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish: str, effect: str
) -> None:
    known_as("failing", Failing)
    for module in ("fsspec", "fsspec_client"):
        monkeypatch.setattr(f"ftfile.storage.{module}.BLOCK_BYTES", 100)
    monkeypatch.setattr("ftfile.storage.fsspec.ROUNDS", 0)
    url, letters = f"failing://{next(names)}/data", "abcdefghijklmnopqrstuvwxyz"
    options = {"fileFormat": "text", "publish": publish}
    query = MicroBatch(url, {"value": "string"}, options, checkpoint=str(tmp_path))
    query.run(0, [[{"value": letters[0]}]])
    for batch in range(1, len(letters)):
        rows = [[{"value": letters[batch]}], [{"value": letters[batch].upper()}]]
        due = Failing.changes + batch - 1
        monkeypatch.setattr(Failing, "failing", (due, effect))
        with contextlib.suppress(FtfileError):
            query.run(batch, rows)
        query.restart()
        is_over = Failing.changes <= due
        monkeypatch.setattr(Failing, "failing", (-1, ""))
        query.run(batch, rows)
        if is_over:
            break
    assert 5 <= batch < len(letters) - 1
    written = sorted([*letters[: batch + 1], *letters[1 : batch + 1].upper()])
    report = check_directory(open_filesystem(url), direct=publish == "direct")
    assert report.live_rows == report.visible_rows == Counter(letter.encode() for letter in written)
    assert sorted(ftfile.open(url).to_arrow().column("value").to_pylist()) == written


def test_a_sink_on_what_falls_short_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    known_as("objects-over", Overwriting)
    query = MicroBatch("objects-over://x/y", {"value": "string"}, {}, checkpoint=str(tmp_path))
    with pytest.raises(Unsupported, match="overwrites an existing file"):
        query.run(0, [[{"value": "a"}]])
    assert list(Overwriting.store) == []


@pytest.mark.slow
@pytest.mark.parametrize("publish", ["copy", "direct"])
@pytest.mark.parametrize(
    ("where", "bad"), [("fileNameColumn", [" a", "a/b /c", "a\\b"]), ("partitionBy", ["a ", "a/ "])], ids=str
)
def test_records_for_names_that_are_not_kept_are_bad_ones(
    tmp_path: Path, publish: str, where: str, bad: list[str]
) -> None:
    known_as("objects", Objects)
    url, good = f"objects://{next(names)}/data", ["a b", "b", "c "][: 2 + (where == "fileNameColumn")]
    options = {"fileFormat": "text", "publish": publish, where: "name"}
    query = MicroBatch(url, {"value": "string", "name": "string"}, options, checkpoint=str(tmp_path))
    for name in bad:
        with pytest.raises(EncodingError, match=r"which this storage may not (keep|list); replace it"):
            query.run(0, [[{"value": name, "name": name}]])
    query = MicroBatch(url, {"value": "string", "name": "string"}, options | {"badRecords": "deadLetter"})
    query.run(0, [[{"value": name, "name": name} for name in (*bad, *good)]])
    assert [letter.row["value"] for letter in ftfile.open(url).dead_letters()] == bad
    report = check_directory(open_filesystem(url), direct=publish == "direct")
    assert report.live_rows == report.visible_rows == Counter(name.encode() for name in good)


def test_templates_for_names_that_are_not_kept_commit_nothing(tmp_path: Path) -> None:
    known_as("objects", Objects)
    url = f"objects://{next(names)}/data"
    for option in ({"partPrefix": " a"}, {"partFileName": "a\\b-{batch}.txt"}, {"directoryPattern": "yyyy' '"}):
        options = {"fileFormat": "text", **option}
        query = MicroBatch(url, {"value": "string"}, options, checkpoint=str(tmp_path))
        with pytest.raises(
            ConfigError, match=r"the name of a new file would be .* which this storage may not (keep|list)"
        ):
            query.run(0, [[{"value": "a"}]])
    assert check_directory(open_filesystem(url)).committed == {}
