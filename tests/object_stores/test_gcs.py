"""Google Cloud Storage by gcsfs: an emulator passes the capability test and the contract of file systems."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import OutcomeUnknown, StorageError, Unsupported
from ftfile.storage.paths import NAME_BYTES_MAX
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.filesystem import ODD_NAMES, FileSystemContract
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.object_stores import gcs
from tests.object_stores.hostile import hasten
from tests.object_stores.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from tests.object_stores.gcs import GcsStorage

pytestmark = [
    # gcsfs sends large bodies by aiohttp, which warns that this takes time
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
    pytest.mark.skipif(bool(gcs.what_is_missing()), reason=gcs.what_is_missing()),
]

_directories = (f"directory-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def storage() -> Iterator[GcsStorage]:
    with gcs.fake_gcs() as storage:
        yield storage


@pytest.fixture
def directory() -> str:
    return next(_directories)


@pytest.fixture
def fs(storage: GcsStorage, directory: str) -> FileSystem:
    return open_filesystem(f"{storage.url}/{directory}", settings=storage.settings)


class TestContract(FileSystemContract):
    race_rounds = rename_rounds = 50 if THOROUGH else 5
    clock_slack_ms = 1_500  # the driver's times are in whole seconds
    # The emulator creates a file under a longer temporary name.
    odd_names = tuple(name for name in ODD_NAMES if len(name.encode()) < NAME_BYTES_MAX)

    @pytest.fixture
    def filesystem(self, storage: GcsStorage, directory: str, fs: FileSystem) -> FileSystem:
        self.storage, self.directory = storage, directory
        return fs

    def stored(self, filesystem: FileSystem, path: str) -> bytes:  # noqa: ARG002
        return self.storage.content(f"{self.directory}/{path}")


def test_the_trial_passes_and_leaves_nothing(storage: GcsStorage, directory: str, fs: FileSystem) -> None:
    fs.prove("_ftfile")
    assert storage.names(directory) == set()


def test_a_bucket_that_is_not_there(storage: GcsStorage) -> None:
    with pytest.raises(Unsupported, match="has no bucket or container of this name, or requires directories"):
        open_filesystem("gs://nobody-made-it/directory", settings=storage.settings).prove("_ftfile")


@pytest.fixture
def hasty() -> Iterator[None]:
    undo = hasten()
    yield
    undo()


class SwallowingOne(Proxy):
    """Swallows the reply to the exchange at which `left` reaches 0; it counts the exchanges that match `pattern`."""

    def __init__(self, port: int) -> None:
        self.left = 10**9
        self.pattern = b""
        super().__init__(port, 0, 0.0)

    def __enter__(self) -> SwallowingOne:  # noqa: PYI034
        return self

    def draw(self, request: bytes) -> tuple[str | None, float]:
        with self._lock:
            self.left -= re.match(self.pattern, request) is not None
            return ("swallow" if self.left == 0 else None), 0.0


# By operation: the requests, some of which the client sends together, and whether a retry repairs a lost reply.
REQUESTS = {
    "create_exclusive": {rb"POST /upload/\S*ifGenerationMatch": True, rb"POST /upload/\S*upload_id": False},
    "rename": {
        rb"GET /storage/": True,
        rb"GET /download/": True,
        rb"POST /upload/\S*ifGenerationMatch": True,
        rb"POST /upload/\S*upload_id": False,
        rb"DELETE /storage/": True,
    },
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("operation", REQUESTS)
def test_a_lost_reply_never_says_that_nothing_is_there(storage: GcsStorage, directory: str, operation: str) -> None:
    """gcsfs repeats the end of an upload, but the emulator has already dropped the upload."""
    with SwallowingOne(storage.port) as proxy:
        settings = storage.settings_at(f"http://{proxy.address}")
        fs = open_filesystem(f"{storage.url}/{directory}", settings=settings)
        for number, (pattern, is_made_up_for) in enumerate(REQUESTS[operation].items()):
            source, target = f"source-{number}", f"target-{number}"
            fs.create_exclusive(source, b"content")
            proxy.pattern, proxy.left = pattern, 1
            error: StorageError | None = None
            try:
                if operation == "rename":
                    fs.rename(source, target)
                else:
                    fs.create_exclusive(target, b"content")
            except StorageError as raised:
                error = raised
            assert proxy.left <= 0, f"no request was {pattern!r}"
            proxy.left = 10**9
            # The operation took effect, with or without an error.
            assert target in storage.names(directory)
            if is_made_up_for:
                assert error is None
                assert (source in storage.names(directory)) == (operation == "create_exclusive")
            else:
                assert type(error) is OutcomeUnknown
                assert "upload_id=…" in str(error)


@pytest.mark.usefixtures("hasty")
def test_no_hint_is_ahead_whichever_reply_is_lost(
    storage: GcsStorage, directory: str, tmp_path: Path, seed: int
) -> None:
    """At every exchange of a batch, in the suite at some."""
    url = f"{storage.url}/{directory}"
    with SwallowingOne(storage.port) as proxy:
        told = storage.settings_at(f"http://{proxy.address}") | {"callTimeout": "60"}
        settings = {f"storage.{name}": text for name, text in told.items()}
        query = MicroBatch(
            url, {"value": "string"}, {"fileFormat": "text", **settings}, checkpoint=str(tmp_path), attempts=2
        )
        query.run(0, [[{"value": "0"}], [{"value": "0"}]])
        step = 1 if THOROUGH else 9
        batch = 0
        for lost in range(1 + seed % step, 200, step):
            batch += 1
            proxy.left = lost
            query.run(batch, [[{"value": str(batch)}], [{"value": str(batch)}]])
            check_directory(open_filesystem(url, settings=storage.settings))
            if proxy.left > 0:
                break
        query.restart()
        query.run(batch + 1, [[{"value": str(batch + 1)}], [{"value": str(batch + 1)}]])
    assert batch >= 5
    report = check_directory(open_filesystem(url, settings=storage.settings))
    expected = Counter({str(number).encode(): 2 for number in range(batch + 2)})
    assert report.live_rows == report.visible_rows == expected
