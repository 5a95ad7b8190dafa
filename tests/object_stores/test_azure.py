"""Azure by adlfs and fsspec: Azurite passes the capability test and the tests of the whole sink."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import pytest

import ftfile
from ftfile.core.errors import Unsupported
from ftfile.storage.registry import WrapperFileSystem, WrapperStream
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.filesystem import FileSystemContract
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.object_stores import azure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.storage.api import FileSystem, OutputStream
    from tests.object_stores.azure import AzureStorage

# adlfs sends large bodies by aiohttp, which warns that this takes time.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

Result = TypeVar("Result")

CHANGES = {"create", "close", "create_exclusive", "rename", "put", "delete"}
BATCHES = [[[{"value": letter} for letter in task] for task in batch] for batch in (("ab", "c"), ("d", "ef"), ("gh",))]
# For each way to write the batches.
LEAST_CHANGES = 20
EXPECTED = Counter(letter.encode() for letter in "abcdefgh")

_directories = (f"directory-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def storage(azurite: AzureStorage) -> AzureStorage:
    return azurite


@pytest.fixture(scope="module")
def container(storage: AzureStorage) -> FileSystem:
    """The whole container, which needs one capability test."""
    return open_filesystem(storage.url, settings=storage.settings)


@pytest.fixture
def directory() -> str:
    return next(_directories)


@pytest.fixture
def fs(storage: AzureStorage, directory: str) -> FileSystem:
    return open_filesystem(f"{storage.url}/{directory}", settings=storage.settings)


def names(storage: AzureStorage, directory: str) -> set[str]:
    """Return all names in a directory, read without the driver."""
    with storage.client() as client:
        found = client.get_container_client(azure.CONTAINER).list_blob_names(name_starts_with=f"{directory}/")
        return {name.partition("/")[2] for name in found}


class TestContract(FileSystemContract):
    race_rounds = rename_rounds = 50 if THOROUGH else 5
    clock_slack_ms = 1_500  # its times are in whole seconds

    @pytest.fixture
    def filesystem(self, storage: AzureStorage, directory: str, fs: FileSystem) -> FileSystem:
        self.storage, self.directory = storage, directory
        return fs

    def stored(self, filesystem: FileSystem, path: str) -> bytes:  # noqa: ARG002
        with self.storage.client() as client:
            blob = client.get_blob_client(azure.CONTAINER, f"{self.directory}/{path}")
            content: bytes = blob.download_blob().readall()
            return content

    # Azurite does not list directories whose names end with a blank, and adlfs does not list a name of blanks.
    @pytest.mark.parametrize("name", [" a", "a ", " ", "a /b", "a/ b", "a\u3000"])
    def test_names_that_it_may_not_list_are_refused(self, filesystem: FileSystem, name: str) -> None:
        for call in (filesystem.create, filesystem.stat, lambda path: filesystem.create_exclusive(path, b"")):
            with pytest.raises(Unsupported, match=r"begins or ends with a space.*replace it"):
                call(name)


def test_the_trial_passes_and_leaves_nothing(storage: AzureStorage, directory: str, fs: FileSystem) -> None:
    fs.prove("_ftfile")
    assert names(storage, directory) == set()


class Killed(BaseException):
    """The process was killed."""


class Mortal(WrapperFileSystem):
    """A storage system that kills its process after a number of changes; None for no limit."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.left: int | None = None
        self.done = 0
        self._lock = threading.Lock()

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        with self._lock:
            if operation in CHANGES:
                if self.left is not None and self.done >= self.left:
                    raise Killed(f"{operation} {path}")
                self.done += 1
        return super().around(operation, path, call)

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)


def stream(url: str, checkpoint: Path, options: dict[str, str]) -> MicroBatch:
    """Run the batches from the first unrecorded one to the end."""
    query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text", **options}, checkpoint=str(checkpoint))
    query.restart()
    for batch_id in range(query.next_batch(), len(BATCHES)):
        query.run(batch_id, BATCHES[batch_id])
    return query


@pytest.mark.parametrize(
    "options", [{}, {"maxRecordsPerFile": "3", "maxBatchesPerFile": "2"}, {"publish": "direct"}], ids=str
)
def test_a_stream_that_is_killed_anywhere_and_comes_again(
    container: FileSystem, tmp_path: Path, seed: int, options: dict[str, str]
) -> None:
    def is_killed_after(changes: int) -> bool:
        fs = Mortal(container)
        checkpoint, directory = tmp_path / str(changes), next(_directories)
        with mounted(fs) as root:
            url = f"{root}/{directory}"
            fs.left = changes
            with contextlib.suppress(Killed):
                stream(url, checkpoint, options)
            is_killed, fs.left = fs.done == changes, None
            query = stream(url, checkpoint, options)
            # Killed again, before Spark recorded the last commit.
            (checkpoint / f"commits/{len(BATCHES) - 1}").unlink()
            query.restart()
            assert query.run(len(BATCHES) - 1, [list(itertools.chain(*BATCHES[-1]))]).replayed
            ftfile.flush(url)
            report = check_directory(open_filesystem(url), direct="publish" in options)
            assert report.live_rows == EXPECTED
            assert report.visible_rows == EXPECTED or "publish" in options
            assert ftfile.open(url).to_arrow().num_rows == EXPECTED.total()
        return is_killed

    moments = itertools.count() if THOROUGH else [random.Random(seed).randrange(LEAST_CHANGES)]
    assert list(itertools.takewhile(is_killed_after, moments))
