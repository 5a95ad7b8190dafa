"""A fault at every request of a batch: raised or survived, no row is lost and none doubled."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import FtfileError
from ftfile.fs.registry import open_filesystem
from ftfile.testing.clock import ManualClock, SeededIds
from ftfile.testing.contract_support import write
from ftfile.testing.repeatable import repeatable
from tests.object_stores.servers import BUCKET, client
from tests.object_stores.test_driver import uploads
from tests.object_stores.test_sink import Sink, rows
from tests.object_stores.wire import FAULTS, Fault, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.object_stores.servers import Store

FOR_EVER = 10**9


@pytest.fixture(autouse=True)
def nobody_waits() -> Iterator[None]:
    with repeatable(ManualClock(), SeededIds()):
        yield


class Stream:
    """A query whose batches meet faults, each at another request; what fails is run again, by a new process."""

    def __init__(self, store: Store, checkpoint: Path, publish: str, **options: str) -> None:
        self.sink = Sink(store, checkpoint)
        self.direct = publish == "direct"
        self._query = self.sink.query(publish=publish, **options)
        self._letters: list[str] = []
        self.run()

    def run(self, wire: Wire | None = None) -> FtfileError | None:
        """Run the next batch, and return what it raised."""
        batch = len(self._letters) // 2
        self._letters += [f"{batch}a", f"{batch}b"]
        tasks = [rows(f"{batch}a"), rows(f"{batch}b")]
        error = None
        if wire is not None:
            with wire():
                try:
                    self._query.run(batch, tasks)
                except FtfileError as raised:
                    error = raised
        if wire is None or error is not None:
            self._query.restart()
            self._query.run(batch, tasks[::-1])
        return error

    def check(self) -> None:
        self._query.restart()
        self.run()
        self.sink.checked(*self._letters, direct=self.direct)


# How files get their names: by copies that keep conditions, as on AWS; by hand, as the stores here need it; at once.
# What had no effect is noticed alike under final names.
CASES = [
    *((fault, how) for how in ("copy", "by hand") for fault in FAULTS),
    *((fault, "direct") for fault in FAULTS if fault.effect),
]


def publish_of(how: str) -> str:
    return "direct" if how == "direct" else "copy"


@pytest.mark.parametrize(("fault", "how"), CASES, ids=str)
def test_a_fault_that_passes_is_survived(store: Store, tmp_path: Path, how: str, fault: Fault) -> None:
    stream = Stream(store, tmp_path, publish_of(how))
    for at in itertools.count():
        wire = Wire(store, fault, at, like_aws=how != "by hand")
        error = stream.run(wire)
        if wire.hit is None:
            break
        assert error is None, f"{fault} at request {at}, {wire.hit}: {error!r}"
    assert at >= (3 if fault.conditional else 6)
    stream.check()


@pytest.mark.parametrize(("fault", "how"), [case for case in CASES if not case[0].conditional], ids=str)
def test_a_fault_that_stays_loses_and_doubles_nothing(store: Store, tmp_path: Path, how: str, fault: Fault) -> None:
    # Nobody waits, but each try is a request.
    options = {"storage.patience": "1", "publishTimeout": "3s"}
    stream = Stream(store, tmp_path, publish_of(how), **options)
    for at in range(1, 40, 6):
        wire = Wire(store, fault, at, FOR_EVER, settings=options, like_aws=how != "by hand")
        error = stream.run(wire)
        if wire.hit is None:
            break
        assert error is not None or wire.hit == "put", f"{fault} from request {at}, {wire.hit}: nobody noticed"
    assert at > 1, "no request met it"
    stream.check()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_that_passes_is_survived_by_a_copy_in_parts(store: Store, tmp_path: Path, fault: Fault) -> None:
    content = bytes(range(256)) * (5 << 12) + b"more than a part"
    fs = open_filesystem(Sink(store, tmp_path).url, settings=store.settings | {"partSize": "5MiB"})
    fs.prove("")
    write(fs, "0", content)
    identity = fs.stat("0").identity
    hits = set()
    for at in itertools.count():
        wire = Wire(store, fault, at, settings={"storage.partSize": "5MiB"})
        with wire():
            fs.rename(f"{at}", f"{at + 1}")
        if wire.hit is None:
            break
        hits.add(wire.hit)
    assert "complete" in hits
    assert fault.conditional or "copy part" in hits
    assert [info.path for info in fs.list("")] == [f"{at + 1}"]
    assert fs.stat(f"{at + 1}").identity == identity
    assert fs.read(f"{at + 1}") == content
    # Of an upload that began without an answer nobody knows; of others nothing is left.
    left = uploads(store)
    assert len(left) <= (fault.effect and not fault.conditional)
    for each in left:
        client(store.endpoint).abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])
