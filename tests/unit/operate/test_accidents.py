"""Each accident of docs/disaster-recovery.md happens to a real directory, and the commands of its scene repair it."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import OutOfSpace
from ftfile.filters.keys import forget_keys
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.read.snapshot import read_records
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.accidents import (
    BATCHES,
    PAGE,
    SCENES,
    Scene,
    as_after_long,
    commands,
    is_as_shown,
    on_terminal,
    sections,
    shown_outputs,
    to_markdown,
)
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ADVICE = (Path(__file__).parents[3] / "docs/disaster-recovery.md").read_text()
SHOWN = shown_outputs()

# The number of times that ftfile's reader returns each position of the source at the end. Each position has two rows.
AT_FIRST = dict.fromkeys(range(BATCHES), 2)
ONE_MORE = {**AT_FIRST, BATCHES: 2}
FOUND: dict[str, dict[int, int]] = dict.fromkeys(SCENES, ONE_MORE) | {
    "The log is lost": {BATCHES: 2},
    "The format file is lost": AT_FIRST,
    "Parts are deleted or damaged": {0: 1, 1: 1, 2: 1, BATCHES: 2},
    "The checkpoint is lost": {**ONE_MORE, BATCHES + 1: 2},
    "The directory is lost, and the checkpoint is there": {BATCHES: 2},
    "A file of a store is lost": AT_FIRST,
    "The log of a store is lost": AT_FIRST,
    "Windows of a store are lost": AT_FIRST,
}
# The positions for plain readers, if they see files that are not in the new log.
SEEN = {"The log is lost": ONE_MORE}
# Accidents after which a migration creates the new log. Without finished and unencrypted files it cannot create one.
MIGRATED = {"The directory of the log, and all beside it, is lost"}
# Accidents that are impossible if all files are open, or if the whole log is encrypted.
NOT_OPEN = {
    "A foreign file is in the way",
    "Before an accident",
    "Half a copy",
    "Parts are deleted or damaged",
    "The clock was wrong",
}
VARIANTS = ("no hints", "several queries", "open", "encrypted")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a path of the same length on every machine, because outputs wrap their lines."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def _long(request: pytest.FixtureRequest) -> Iterator[None]:
    with as_after_long(request.node.callspec.params.get("title", "") if hasattr(request.node, "callspec") else ""):
        yield


@pytest.mark.parametrize("title", SCENES)
def test_accident(title: str, tmp_path: Path) -> None:
    with on_terminal():
        scene = Scene(tmp_path, title)
        for command, (_, shown) in zip(SCENES[title], SHOWN[title], strict=True):
            output = scene.do(command)
            assert is_as_shown(output, shown), f"$ {command}\n{output}"
    assert scene.read() == Counter(FOUND[title])
    assert scene.seen() == Counter(SEEN.get(title, FOUND[title]))
    check(scene)


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    write_ring(tmp_path / "keys", first=FIRST)
    yield request.param
    forget_keys()


@pytest.mark.parametrize("title", [title for title in SCENES if " of a store " not in title])
def test_in_other_directories(title: str, variant: str, tmp_path: Path) -> None:
    """The same commands repair the directory, and no other rows are lost."""
    if variant == "open" and title in NOT_OPEN:
        pytest.skip("it harms finished files")
    options = {
        "open": {"rolling": "policy", "maxBatchesPerFile": "100"},
        "encrypted": {"encryption": "aes-gcm", "keyProvider": f"file:{tmp_path}/keys"},
    }
    scene = Scene(tmp_path, title, options.get(variant), queries=1 + (variant == "several queries"))
    if variant == "no hints":
        for hint in (tmp_path / "data/out/_ftfile/hints").iterdir():
            hint.unlink()
    if variant == "encrypted" and title == "The format file is lost":
        check_sealed(scene)
        return
    for command in SCENES[title]:
        scene.do(command)
    if variant == "open":
        scene.do("ftfile flush /data/out")
    lost_all = title in MIGRATED and variant in {"open", "encrypted"}
    assert scene.read() == Counter({BATCHES: 2} if lost_all else FOUND[title])
    assert ftfile.open(str(scene.at("/data/out"))).verify(full=True).ok
    if variant not in {"open", "encrypted"}:
        assert scene.seen() == Counter(SEEN.get(title, FOUND[title]))


def check(scene: Scene) -> None:
    """Check the invariants of the repaired directory. `verify` has at most findings of severity `info`."""
    directory = ftfile.open(str(scene.at("/data/out")))
    report = directory.verify(full=True)
    assert report.ok
    fs = directory.file_system
    adds = [add for record in read_records(CommitLog(fs)) for add in record.adds]
    gone = {
        add.id for add in adds if not any(map(fs.exists, (add.path, add.final_path or "", layout.retired_path(add.id))))
    }
    assert not gone & directory.snapshot().adds.keys()
    foreign = [action.path for finding in report.findings for action in finding.actions]
    check_directory(fs, damaged=gone, foreign=foreign)


def check_sealed(scene: Scene) -> None:
    """No command recreates the format file of an encrypted directory, and a copy of it repairs the directory."""
    scene.do("rm /data/out/_ftfile/directory/_format")
    for command in ("ftfile status /data/out", "ftfile repair /data/out", "spark-submit job.py"):
        output = scene.do(command)
        assert "Restore it from a copy" in output, output
    assert not scene.at("/data/out/_ftfile/directory/_format").exists()
    scene.do("cp /backup/out/_ftfile/directory/_format /data/out/_ftfile/directory/_format")
    assert scene.do("spark-submit job.py") == ""
    assert scene.read() == Counter(ONE_MORE)


def test_the_page_has_the_commands_of_each_accident() -> None:
    assert {title: [command for command, _ in steps] for title, steps in SHOWN.items()} == SCENES
    assert to_markdown(SHOWN) == PAGE.read_text(), "run `make docs`"


def test_each_command_of_the_advice_is_played() -> None:
    advice = {title: [command for command, _ in commands(text)] for title, text in sections(ADVICE).items()}
    assert sum(map(len, advice.values())) > 10
    unplayed = [(title, each) for title, script in advice.items() for each in script if each not in SCENES[title]]
    assert not unplayed


def test_every_accident_of_the_table_has_its_section() -> None:
    table = re.findall(r"^\| \[[^\]]*\]\(#([^)]*)\)", ADVICE, flags=re.MULTILINE)
    titles = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in SCENES}
    assert set(table) == titles - {"before-an-accident", "only-the-log-is-older"}
    assert FOUND.keys() == SCENES.keys()


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The page shows the error text for the error of the operating system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may mount no file system of its own")
    try:
        options = {"fileFormat": "json", "compression": "none"}
        query = MicroBatch(str(disk / "out"), {"id": "long", "text": "string"}, options)
        query.run(0, [[{"id": 0, "text": ""}]])
        with pytest.raises(OutOfSpace, match=r"no space is left on the disk; free space or inodes"):
            query.run(1, [[{"id": 1, "text": "x" * (1 << 20)}]])
        assert ftfile.open(str(disk / "out")).verify(full=True).ok
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        with pytest.raises(OutOfSpace):
            query.run(1, [[{"id": 1, "text": ""}]])
        (disk / "filler").unlink()
        query.run(1, [[{"id": 1, "text": ""}]])
        assert sorted(ftfile.open(str(disk / "out")).to_arrow()["id"].to_pylist()) == [0, 1]
        check_directory(open_filesystem(str(disk / "out")))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert not any(disk.iterdir())
