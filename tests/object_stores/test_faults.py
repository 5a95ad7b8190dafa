"""A fault at every request of a batch: no row is lost or duplicated, raised or survived."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.contracts.support import write
from tests.crash.share import THOROUGH
from tests.object_stores.servers import BUCKET, client
from tests.object_stores.test_driver import uploads
from tests.object_stores.test_sink import Sink, rows
from tests.object_stores.wire import FAULTS, Fault, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.object_stores.servers import Storage

FOR_EVER = 10**9


@pytest.fixture(autouse=True)
def nobody_waits() -> Iterator[None]:
    with repeatable(ManualClock(), SeededIds()):
        yield


class Stream:
    """A query whose batches meet faults, each at another request. A new process repeats a failed step."""

    def __init__(self, storage: Storage, checkpoint: Path, publish: str, **options: str) -> None:
        self.sink = Sink(storage, checkpoint)
        self.direct = publish == "direct"
        self.query = self.sink.query(publish=publish, **options)
        self.letters: list[str] = []
        self.run()

    def run(self, wire: Wire | None = None) -> FtfileError | None:
        """Run the next steps and return the error of a step."""
        error = None
        for step in self.steps():
            if wire is not None and error is None:
                with wire():
                    try:
                        step()
                    except FtfileError as raised:
                        error = raised
                if error is None:
                    continue
            self.query.restart()
            step()
        return error

    def steps(self) -> Iterator[Callable[[], object]]:
        """Yield repeatable steps: a batch."""
        batch = len(self.letters) // 2
        self.letters += [f"{batch}a", f"{batch}b"]
        tasks = itertools.cycle(([rows(f"{batch}a"), rows(f"{batch}b")], [rows(f"{batch}b"), rows(f"{batch}a")]))
        yield lambda: self.query.run(batch, next(tasks))

    def check(self) -> None:
        self.query.restart()
        self.run()
        self.sink.checked(*self.letters, direct=self.direct)


class RollingStream(Stream):
    """Each run assembles a file from two batches in the tasks of the next batch, and compacts small files."""

    def __init__(self, storage: Storage, checkpoint: Path, publish: str, **options: str) -> None:
        super().__init__(storage, checkpoint, publish, maxBatchesPerFile="2", **options)
        # With two finished files, the compaction of every run has work.
        self.run()
        self.run()
        assert "compact" in {version.operation for version in self.sink.open().history()}

    def steps(self) -> Iterator[Callable[[], object]]:
        """Yield two batches and a compaction."""
        yield from super().steps()
        yield from super().steps()
        yield lambda: ftfile.compact(self.sink.url, storage=self.sink.storage.settings, context=current())

    def check(self) -> None:
        ftfile.flush(self.sink.url, storage=self.sink.storage.settings, context=current())
        self.query.restart()
        self.sink.checked(*self.letters)


# How files get their names: by conditional copies, as on AWS; by separate requests, as the servers here need; directly.
WAYS = ("copy", "by hand", "direct")


def ways(fault: Fault) -> tuple[str, ...]:
    """Return the ways for a fault. A fault without effect is detected the same way under final names."""
    return WAYS if fault.effect else WAYS[:2]


@pytest.fixture(params=WAYS if THOROUGH else ["drawn"])
def how(request: pytest.FixtureRequest, fault: Fault, seed: int) -> str:
    """Each way in `make long`, otherwise a drawn way for each fault."""
    found = ways(fault)
    if request.param == "drawn":
        return random.Random(f"{seed} {request.node.name}").choice(found)
    if request.param not in found:
        pytest.skip("detected the same way under final names")
    return str(request.param)


@pytest.fixture
def publish(how: str) -> str:
    return "direct" if how == "direct" else "copy"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_that_passes_is_survived(
    storage: Storage, tmp_path: Path, seed: int, how: str, publish: str, fault: Fault
) -> None:
    """At every request. In the suite at every other one, if the fault can meet any request."""
    step = 1 if THOROUGH or fault.conditional or fault.changes else 2
    stream = Stream(storage, tmp_path, publish)
    for at in itertools.count(seed % step, step):
        wire = Wire(storage, fault, at, like_aws=how != "by hand")
        error = stream.run(wire)
        if wire.hit is None:
            break
        assert error is None, f"{fault} at request {at}, {wire.hit}: {error!r}"
    assert at >= (3 if fault.conditional else 4)
    stream.check()


@pytest.fixture
def many_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write checkpoints often, so that no run reads much more than the run before."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 4)


@pytest.fixture(params=["copy", "by hand"] if THOROUGH else ["drawn"])
def like_aws(request: pytest.FixtureRequest, seed: int) -> bool:
    how = random.Random(f"{seed} {request.node.name}").choice(["copy", "by hand"])
    return (how if request.param == "drawn" else request.param) == "copy"


@pytest.mark.usefixtures("many_checkpoints")
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_that_passes_is_survived_where_files_are_assembled(
    storage: Storage, tmp_path: Path, seed: int, like_aws: bool, fault: Fault
) -> None:
    """At every request. In the suite at some requests, and at fewer for faults that also meet reads."""
    step = 1 if THOROUGH else 16 if fault.conditional else 30 if fault.changes else 80
    stream = RollingStream(storage, tmp_path, "copy")
    for at in itertools.count(seed % step, step):
        wire = Wire(storage, fault, at, like_aws=like_aws)
        error = stream.run(wire)
        if wire.hit is None:
            break
        assert error is None, f"{fault} at request {at}, {wire.hit}: {error!r}"
    assert at >= 12
    stream.check()


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up publishing early: the clock does not wait, but each try is a request."""
    monkeypatch.setattr(keeping, "PUBLISH_TIMEOUT_S", 3.0)


@pytest.mark.usefixtures("few_tries")
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if not fault.conditional], ids=str)
def test_a_fault_that_stays_loses_and_doubles_nothing(
    storage: Storage, tmp_path: Path, how: str, publish: str, fault: Fault
) -> None:
    options = {"storage.patience": "1"}
    stream = Stream(storage, tmp_path, publish, **options)
    for at in range(1, 40, 6):
        wire = Wire(storage, fault, at, FOR_EVER, settings=options, like_aws=how != "by hand")
        error = stream.run(wire)
        if wire.hit is None:
            break
        assert error is not None or wire.hit == "put", f"{fault} from request {at}, {wire.hit}: no error"
    assert at > 1, "no request met it"
    stream.check()


@pytest.fixture(params=[fault for fault in FAULTS if not fault.conditional] if THOROUGH else ["drawn"], ids=str)
def staying(request: pytest.FixtureRequest, seed: int) -> Fault:
    drawn = random.Random(seed).choice([fault for fault in FAULTS if not fault.conditional])
    return drawn if request.param == "drawn" else request.param


@pytest.mark.usefixtures("many_checkpoints", "few_tries")
def test_a_fault_that_stays_loses_and_doubles_nothing_where_files_are_assembled(
    storage: Storage, tmp_path: Path, seed: int, like_aws: bool, staying: Fault
) -> None:
    options = {"storage.patience": "1"}
    stream = RollingStream(storage, tmp_path, "copy", **options)
    step = (2 if THOROUGH else 9) if staying.changes else (7 if THOROUGH else 45)
    for at in itertools.count(seed % step, step):
        wire = Wire(storage, staying, at, FOR_EVER, settings=options, like_aws=like_aws)
        error = stream.run(wire)
        if wire.hit is None:
            break
        # Optional requests may fail: checkpoints are listed after a commit and before they are deleted.
        saves_work = wire.hit in {"put", "delete"} or all("_ftfile/checkpoints/" in url for url in wire.hit_urls)
        assert error is not None or saves_work, f"from request {at}, {wire.hit_urls}: no error"
    assert at > step, "no request met it"
    stream.check()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_that_passes_is_survived_by_a_copy_in_parts(storage: Storage, tmp_path: Path, fault: Fault) -> None:
    content = bytes(range(256)) * (5 << 12) + b"more than a part"
    fs = open_filesystem(Sink(storage, tmp_path).url, settings=storage.settings | {"partSize": "5MiB"})
    fs.prove("")
    write(fs, "0", content)
    identity = fs.stat("0").identity
    hits = set()
    for at in itertools.count():
        wire = Wire(storage, fault, at, settings={"storage.partSize": "5MiB"})
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
    # An upload whose creation was not answered may remain; no other upload does.
    left = uploads(storage)
    assert len(left) <= (fault.effect and not fault.conditional)
    for each in left:
        client(storage.endpoint).abort_multipart_upload(Bucket=BUCKET, Key=each["Key"], UploadId=each["UploadId"])
