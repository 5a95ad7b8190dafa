"""The log of an encrypted directory: every changed, moved, replaced or foreign file is detected."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, ReplayMismatch
from ftfile.log import publish as keeping
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import record as record_format
from ftfile.log.records import read_published
from ftfile.log.sealed import Seal
from ftfile.operate.compact import compact_log
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import some
from tests.kit.parameters import parametrize
from tests.unit.filters import independent_decoder
from tests.unit.writing.files.encrypted import (
    FIRST,
    SECOND,
    committed,
    files_of,
    forget_all,
    out,
    ring,
    rows_of,
    stream,
    write_ring,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("out", "ring")


def three_batches(out: str, ring: Path, query_id: str = "a") -> MicroBatch:
    query = stream(out, ring, query_id)
    for batch in range(3):
        query.run(batch, [rows_of(f"{query_id}{batch}")])
    forget_all()
    return query


def new_queries(out: str, ring: Path, *query_ids: str) -> None:
    for query_id in query_ids:
        stream(out, ring, query_id, onNewQuery="continue").run(0, [rows_of(query_id)])


def record(out: str, version: int) -> Path:
    return Path(out, f"_ftfile/log/_{version:020d}.record")


def assert_noticed(out: str, *kinds: type[FtfileError]) -> None:
    forget_all()
    with pytest.raises(kinds or (CorruptData,)):
        ftfile.open(out).to_arrow()


def changed_at_every_byte(path: Path, seed: int | None = None) -> Iterator[None]:
    """Change one byte after the other, with a seed a share of them; and cut the file."""
    content = path.read_bytes()
    for place in range(len(content)) if seed is None else some(range(len(content)), seed):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        yield
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        yield
    path.write_bytes(content)


@pytest.mark.slow
def test_every_changed_byte_of_a_record_is_detected(out: str, ring: Path) -> None:
    stream(out, ring).run(0, [rows_of("some")])
    for _ in changed_at_every_byte(record(out, 0)):
        assert_noticed(out, CorruptData, ConfigError)
    assert committed(out) == ["some"]


@pytest.mark.slow
def test_every_changed_byte_of_a_companion_is_detected(out: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_format, "COMPANION_FROM_BYTES", 1)
    stream(out, ring).run(0, [rows_of("some")])
    (companion,) = [path for path in files_of(out, "_ftfile/log") if path.suffix == ".changes"]
    for _ in changed_at_every_byte(companion):
        assert_noticed(out, CorruptData, ConfigError)
    assert committed(out) == ["some"]


@pytest.mark.slow
def test_every_changed_byte_of_a_checkpoint_is_detected(out: str, ring: Path, seed: int) -> None:
    three_batches(out, ring)
    log = CommitLog(ftfile.open(out).file_system)
    write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
    (checkpoint,) = files_of(out, "_ftfile/checkpoints")
    for _ in changed_at_every_byte(checkpoint, seed):
        assert_noticed(out, CorruptData, ConfigError)
    assert committed(out) == ["a0", "a1", "a2"]


@pytest.mark.slow
def test_every_changed_byte_of_a_range_is_detected(out: str, ring: Path, seed: int) -> None:
    three_batches(out, ring)
    compact_log(out)
    found, _ = sorted(files_of(out, "_ftfile/compacted"))
    directory = ftfile.open(out)
    log = CommitLog(directory.file_system)
    write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
    for version in range(2):
        record(out, version).unlink()  # which would stand in for it
    assert directory.to_arrow().num_rows == 3
    for _ in changed_at_every_byte(found, seed):
        with pytest.raises((CorruptData, ConfigError)):
            directory.to_arrow()


@pytest.mark.slow
def test_every_changed_byte_of_a_hint_makes_it_none(out: str, ring: Path) -> None:
    three_batches(out, ring)
    fs = ftfile.open(out).file_system
    hint = Path(out, "_ftfile/hints/_published")
    assert read_published(fs) is not None
    for _ in changed_at_every_byte(hint):
        assert read_published(fs) is None
    assert read_published(fs) is not None


@pytest.mark.slow
def test_every_changed_byte_of_what_a_directory_says_of_itself_is_detected(out: str, ring: Path) -> None:
    three_batches(out, ring)
    for _ in changed_at_every_byte(Path(out, "_ftfile/directory/_format")):
        assert_noticed(out, CorruptData, ConfigError)
    assert committed(out) == ["a0", "a1", "a2"]


def test_an_independent_decoder_verifies_records(out: str, ring: Path) -> None:
    three_batches(out, ring)
    seal = json.loads(Path(out, "_ftfile/directory/_format").read_text().splitlines()[1])
    for path in files_of(out, "_ftfile/log"):
        name = str(path.relative_to(out))
        body = independent_decoder.record(path.read_bytes(), name, seal["directoryId"], lambda *_: FIRST)
        lines = record_format.from_checked_text(body, name)
        assert json.loads(lines[0])["ftfileRecord"] == 1


class TestFilesOfTheLog:
    """Each of them as somebody would forge it who knows the formats and has no key."""

    @pytest.fixture
    def files(self, out: str, ring: Path) -> list[Path]:
        three_batches(out, ring)
        compact_log(out)
        log = CommitLog(ftfile.open(out).file_system)
        write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
        found = [path for path in files_of(out, "_ftfile") if path.suffix in {".record", ".checkpoint", ".compacted"}]
        assert len(found) == 6
        return [*found, Path(out, "_ftfile/hints/_published")]

    def refused(self, out: str, path: Path) -> str:
        fs = ftfile.open(out).file_system
        with pytest.raises(CorruptData) as by_reading:
            fs.read(str(path.relative_to(out)))
        with pytest.raises(CorruptData) as by_opening:
            fs.open(str(path.relative_to(out)))
        assert str(by_reading.value) == str(by_opening.value)
        return str(by_reading.value)

    def test_without_a_mac(self, out: str, files: list[Path]) -> None:
        for path in files:
            content = path.read_bytes()
            path.write_bytes(content[: content.rindex(b"\nhmac-")])
            assert "a file that ends in its MAC" in self.refused(out, path)

    @pytest.mark.slow
    def test_that_are_right_but_for_the_mac(self, out: str, files: list[Path]) -> None:
        for path in files:
            content = path.read_bytes()
            cut = content.rindex(b"\nhmac-")
            body = b"\n".join(content[:cut].splitlines()[:1]) + b" \n"
            path.write_bytes(body + checksum(body).encode() + b"\n" + content[cut:])
            assert "content that the key 'first' authenticates in this directory" in self.refused(out, path)

    @pytest.mark.slow
    def test_under_the_name_of_another(self, out: str, files: list[Path]) -> None:
        contents = [path.read_bytes() for path in files]
        for path, content in zip(files, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)
            assert "content that the key 'first' authenticates in this directory" in self.refused(out, path)

    @pytest.mark.slow
    def test_of_another_directory(self, out: str, ring: Path, files: list[Path]) -> None:
        other = three_batches(f"{out}-other", ring)
        moved = {f"_ftfile/log/_{version:020d}.record" for version in range(3)} | {"_ftfile/hints/_published"}
        for path in files:
            name = str(path.relative_to(out))
            if name in moved:
                shutil.copy(Path(other.path, name), path)
                moved.remove(name)
                assert "content that the key 'first' authenticates in this directory" in self.refused(out, path)
        assert not moved


class TestRecords:
    def test_that_changed_places(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        shutil.copy(record(out, 1), record(out, 2))
        assert_noticed(out)

    @pytest.mark.slow
    def test_of_another_directory_behind_the_newest(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        other = three_batches(f"{out}-other", ring)
        other.run(3, [rows_of("not here")])
        shutil.copy(record(other.path, 3), record(out, 3))
        assert_noticed(out)

    @pytest.mark.slow
    def test_that_are_missing(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        record(out, 1).unlink()
        assert_noticed(out)

    @pytest.mark.slow
    def test_of_another_history_are_not_mixed_with_these(self, out: str, ring: Path) -> None:
        """All of them are authentic, and of this directory."""
        new_queries(out, ring, *"abc")
        old = record(out, 1).read_bytes()
        record(out, 1).unlink()
        Path(out, "_ftfile/hints/_published").unlink()
        forget_all()
        with pytest.raises(CorruptData):
            new_queries(out, ring, "d", "e")
        assert_noticed(out)
        record(out, 2).unlink()
        new_queries(out, ring, "d")
        assert committed(out) == ["a", "d"]
        new, hint = record(out, 1).read_bytes(), Path(out, "_ftfile/hints/_published")
        new_queries(out, ring, "f")
        hint.unlink()
        record(out, 1).write_bytes(old)
        assert_noticed(out)
        record(out, 1).write_bytes(new)
        assert committed(out) == ["a", "d", "f"]

    @pytest.mark.slow
    def test_behind_a_checkpoint_that_is_gone_are_not_mixed_with_new_ones(self, out: str, ring: Path) -> None:
        query = three_batches(out, ring)
        compact_log(out)
        log = CommitLog(ftfile.open(out).file_system)
        write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
        query.run(3, [rows_of("a3")])
        for path in (
            *files_of(out, "_ftfile/checkpoints"),
            *files_of(out, "_ftfile/hints"),
            *(record(out, version) for version in range(3)),
        ):
            path.unlink(missing_ok=True)
        forget_all()
        with pytest.raises(CorruptData):
            new_queries(out, ring, *"nopq")
        assert_noticed(out)

    def test_without_a_mac(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        whole = record(out, 2).read_bytes()
        record(out, 2).write_bytes(whole[: whole.index(b"\nhmac-")])
        assert_noticed(out)

    def test_with_the_mac_of_a_key_that_is_not_trusted(self, out: str, ring: Path) -> None:
        write_ring(ring, first=FIRST, others=SECOND)
        stream(out, ring, encryptionKeyId="others").run(0, [rows_of("some")])
        write_ring(ring, first=FIRST)
        assert_noticed(out, ConfigError)

    def test_when_all_that_says_that_they_have_macs_is_gone(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        seal = Path(out, "_ftfile/directory/_format")
        line = record_format.to_checked_text(seal.read_bytes().splitlines()[:1])
        seal.unlink()
        assert_noticed(out, CorruptData, ConfigError)
        with pytest.raises(CorruptData, match="no such file"):
            stream(out, ring).pickled_plan()
        seal.write_bytes(line)
        assert_noticed(out, ConfigError)
        with pytest.raises(ConfigError, match="not encrypted"):
            stream(out, ring).pickled_plan()
        with pytest.raises(ConfigError, match="not encrypted"):
            ftfile.open(out, key_provider=f"file:{ring}")

    @pytest.mark.slow
    def test_of_a_directory_that_took_its_name(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        three_batches(f"{out}-other", ring)
        seal = Path(out, "_ftfile/directory/_format")
        seal.write_bytes(Path(f"{out}-other", "_ftfile/directory/_format").read_bytes())
        assert_noticed(out)

    def test_stay_when_the_directory_moves(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        shutil.copytree(out, f"{out}-moved")
        assert committed(f"{out}-moved") == ["a0", "a1", "a2"]


class TestFingerprints:
    """Fingerprints of rows in records, by which a repeated batch is recognised."""

    def fingerprints(self, out: str) -> list[str]:
        lines = [file.read_bytes().splitlines()[0] for file in files_of(out, "_ftfile/log")]
        return [json.loads(line)["fingerprint"]["digest"] for line in lines]

    def test_confirm_no_guess(self, out: str, ring: Path) -> None:
        query = stream(out, ring)
        for batch in range(2):
            query.run(batch, [rows_of("some")])
        MicroBatch(f"{out}-guess", {"word": "string"}, {"fileFormat": "text"}, "a").run(0, [rows_of("some")])
        stream(f"{out}-other", ring).run(0, [rows_of("some")])
        (guess,) = self.fingerprints(f"{out}-guess")
        found = [*self.fingerprints(out), *self.fingerprints(f"{out}-other")]
        assert not any(guess in digest for digest in found)
        assert len({*found}) == 3

    def test_recognise_a_batch_under_any_key(self, out: str, ring: Path) -> None:
        write_ring(ring, first=FIRST, second=SECOND)
        stream(out, ring, encryptionKeyId="first").run(0, [rows_of("some", "words")])
        forget_all()
        query = stream(out, ring, encryptionKeyId="second")
        assert query.run(0, [rows_of("words"), rows_of("some")]).replayed
        with pytest.raises(ReplayMismatch):
            query.run(0, [rows_of("other", "words")])
        log = CommitLog(ftfile.open(out).file_system)
        write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
        forget_all()
        assert query.run(0, [rows_of("words", "some")]).replayed
        with pytest.raises(ReplayMismatch):
            query.run(0, [rows_of("other", "words")])


class TestDowngrade:
    def test_keys_are_never_given_for_nothing(self, out: str, ring: Path) -> None:
        MicroBatch(out, {"word": "string"}, {"fileFormat": "text"}).run(0, [rows_of("forged")])
        forget_all()
        assert committed(out) == ["forged"]
        for read in (ftfile.open, ftfile.flush, ftfile.compact, ftfile.vacuum):
            with pytest.raises(ConfigError, match="this directory is not encrypted"):
                read(out, key_provider=f"file:{ring}")
        with pytest.raises(ConfigError, match="this directory is not encrypted"):
            stream(out, ring).pickled_plan()

    def test_nobody_writes_in_the_clear_beside(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        plain = MicroBatch(out, {"word": "string"}, {"fileFormat": "text"}, "a")
        with pytest.raises(ConfigError, match="this directory is encrypted"):
            plain.pickled_plan()

    def test_nobody_begins_in_the_clear_where_a_first_commit_failed(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        for path in (*files_of(out, "_ftfile/log"), *files_of(out, "_ftfile/hints")):
            path.unlink()
        plain = MicroBatch(out, {"word": "string"}, {"fileFormat": "text"}, "a")
        with pytest.raises(ConfigError, match="this directory is encrypted"):
            plain.pickled_plan()


class TestWhereKeysAre:
    def seal(self, out: str, key_provider: str | None) -> None:
        path = Path(out, "_ftfile/directory/_format")
        first, line = record_format.from_checked_text(path.read_bytes(), "format")
        line = replace(Seal.of(line), key_provider=key_provider).to_line()
        path.write_bytes(record_format.to_checked_text([first, line]))
        forget_all()

    @parametrize("reference", ["command:touch {out}/started", "env:HOME", "aws-kms:", "module:x", "", None], quick=3)
    def test_storage_starts_nothing_and_names_nobody(self, out: str, ring: Path, reference: str | None) -> None:
        three_batches(out, ring)
        self.seal(out, reference and reference.format(out=out))
        with pytest.raises(ConfigError, match="no key provider was given"):
            ftfile.open(out)
        assert not Path(out, "started").exists()

    @pytest.mark.parametrize("reference", ["file:\0", "file:/proc/self/root/keys", "nosuch:x"])
    def test_a_reader_that_names_its_keys_asks_nobody_else(
        self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch, reference: str
    ) -> None:
        three_batches(out, ring)
        self.seal(out, reference)
        assert ftfile.open(out, key_provider=f"file:{ring}").to_arrow().num_rows == 3
        forget_all()
        monkeypatch.setenv("FTFILE_KEY_PROVIDER", f"file:{ring}")
        assert ftfile.open(out).to_arrow().num_rows == 3

    @pytest.mark.parametrize("reference", ["file", "file:", "file:keys"])
    def test_storage_names_no_file_by_the_working_directory(
        self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch, reference: str
    ) -> None:
        three_batches(out, ring)
        self.seal(out, reference)
        monkeypatch.chdir(ring.parent)
        assert ring.name == "keys"
        with pytest.raises(ConfigError, match=r"names a key file without an absolute path: .* keyProvider"):
            ftfile.open(out)
        assert ftfile.open(out, f"file:{ring}").to_arrow().num_rows == 3

    @pytest.mark.slow
    def test_keys_beside_the_data_are_not_believed(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        inside = Path(out, "some", "keys")
        inside.parent.mkdir()
        shutil.copy(ring, inside)
        Path(f"{out}-directory").symlink_to(out)
        Path(f"{out}-file").symlink_to(inside)
        at_our_place = f"{out}/../{Path(out).name}/some/keys"
        others = (f"/{inside}", f"///{inside}", f"/proc/self/root{inside}", f"/proc/self/root{ring}", f"/{ring}")
        for path in (inside, at_our_place, *others, f"{out}-directory/some/keys", f"{out}-file"):
            self.seal(out, f"file:{path}")
            for opened in (out, f"{out}-directory"):
                with pytest.raises(ConfigError, match="no key provider was given"):
                    ftfile.open(opened)

    def test_keys_beside_the_data_are_known_by_what_they_are(
        self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where a directory is mounted at two places."""
        three_batches(out, ring)
        shutil.copy(ring, Path(out, "keys"))
        Path(f"{out}-again").symlink_to(out)
        monkeypatch.setattr("os.path.realpath", lambda path: path)
        self.seal(out, f"file:{out}-again/keys")
        with pytest.raises(ConfigError, match="no key provider was given"):
            ftfile.open(out)

    @pytest.mark.slow
    def test_what_is_checked_is_what_is_read(self, out: str, ring: Path) -> None:
        three_batches(out, ring)
        link = Path(f"{out}-link")
        link.symlink_to(ring)
        self.seal(out, f"file:{link}")
        directory = ftfile.open(out)
        forged = Path(f"{out}-forged")
        write_ring(forged, first=SECOND)
        link.unlink()
        link.symlink_to(forged)
        assert directory.to_arrow().num_rows == 3

    @pytest.mark.parametrize("directory", [False, True], ids=["pipe", "directory"])
    def test_what_is_no_file_is_not_waited_for(self, out: str, ring: Path, directory: bool) -> None:
        three_batches(out, ring)
        place = Path(f"{out}-keys")
        if directory:
            place.mkdir(0o700)
        else:
            os.mkfifo(place, 0o600)
        self.seal(out, f"file:{place}")
        with pytest.raises(ConfigError, match=r"is not a regular file|Is a directory"):
            ftfile.open(out).to_arrow()

    @pytest.mark.slow
    def test_what_is_said_goes_before_what_storage_says(
        self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        three_batches(out, ring)
        self.seal(out, "file:/no/such/keys")
        with pytest.raises(ConfigError, match="/no/such/keys"):
            ftfile.open(out).to_arrow()
        assert ftfile.open(out, key_provider=f"file:{ring}").to_arrow().num_rows == 3
        monkeypatch.setenv("FTFILE_KEY_PROVIDER", f"file:{ring}")
        assert ftfile.open(out).to_arrow().num_rows == 3

    def test_a_variable_of_ours_may_be_named(self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FTFILE_OUR_KEYS", ring.read_text())
        stream(out, ring, keyProvider="env:FTFILE_OUR_KEYS").run(0, [rows_of("some")])
        assert committed(out) == ["some"]

    @parametrize(
        "line",
        [
            "{}",
            "[]",
            "sealed",
            '{"sealed": 2, "directory": "", "keyProvider": null}',
            f'{{"sealed": 1, "directory": "{32 * "0"}", "keyProvider": 5}}',
        ],
        quick=2,
    )
    def test_a_seal_that_is_none(self, out: str, ring: Path, line: str) -> None:
        three_batches(out, ring)
        path = Path(out, "_ftfile/directory/_format")
        path.write_bytes(record_format.to_checked_text([path.read_bytes().splitlines()[0], line.encode()]))
        assert_noticed(out)


@pytest.mark.slow
def test_ranges_and_checkpoints_are_written_and_read(out: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 1)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    query = stream(out, ring)
    for batch in range(12):
        query.run(batch, [rows_of(f"{batch:02}")])
        query.restart()
    assert files_of(out, "_ftfile/checkpoints")
    assert files_of(out, "_ftfile/compacted")
    assert committed(out) == [f"{batch:02}" for batch in range(12)]
    assert committed(out, 4) == [f"{batch:02}" for batch in range(5)]
