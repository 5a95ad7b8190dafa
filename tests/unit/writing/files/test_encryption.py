"""Encryption from the options to the readers, and to all that is done with a directory."""

from __future__ import annotations

import itertools
import json
import pickle
import stat
from pathlib import Path

import pyarrow.parquet.encryption as parquet_encryption
import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, StillOpen
from ftfile.filters.api import BadStream
from ftfile.filters.chain import Chain
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.layout import storage_identity
from ftfile.log.sealed import keys_of
from ftfile.operate.compact import compact_log
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.filters import independent_decoder
from tests.unit.writing.files.encrypted import (
    FIRST,
    SECOND,
    check,
    committed,
    files_of,
    forget_all,
    out,
    parts,
    ring,
    ring_text,
    rows_of,
    snapshot,
    stream,
    write_ring,
)

pytestmark = pytest.mark.contents

__all__ = ("out", "ring")

# Every codec is in test_matrix.py.
CASES = [
    *(("text", "none"), ("json", "zstd"), ("csv", "gzip"), ("binary", "snappy")),
    *(("parquet", "zstd"), ("avro", "deflate"), ("orc", "zlib"), ("arrow", "lz4")),
]
ROLLING = {
    "batch": {},
    "two batches": {"maxBatchesPerFile": "2"},
    "five records": {"maxRecordsPerFile": "5", "rolling": "policy"},
    "600 bytes at most": {"maxBytesPerFile": "600", "rolling": "policy", "strictFileSize": "true"},
}
SECRET = "a secret that nobody may read"
WITH_OWN_OF_PARQUET = pytest.mark.skipif(
    not hasattr(parquet_encryption.EncryptionConfiguration, "uniform_encryption"),
    reason="this pyarrow cannot encrypt all of a Parquet file",
)


def assert_nothing_is_readable(path: str) -> None:
    """No word, and no file that others can open."""
    for file in files_of(path):
        assert SECRET.encode() not in file.read_bytes(), file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.slow
def test_a_newer_key_in_the_file_is_used_by_the_next_batch(out: str, ring: Path) -> None:
    """In one process, which has checked the same options before."""
    query = stream(out, ring)
    for batch in range(2):
        query.run(batch, [rows_of(f"{batch}")])
    ring.write_text(ring_text(second=SECOND))
    query.run(2, [rows_of("2")])
    write_ring(ring, first=FIRST, second=SECOND)
    adds = [*snapshot(out).adds.values()]
    assert [snapshot(out).definitions[add.encoding]["filters"][-1]["keyId"] for add in adds] == [
        *2 * ["first"],
        "second",
    ]
    assert committed(out) == ["0", "1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("rolling", ROLLING)
@pytest.mark.parametrize(("file_format", "codec"), CASES)
def test_all_that_is_done_with_a_directory(out: str, ring: Path, file_format: str, codec: str, rolling: str) -> None:
    more = {"header": "true", "nullValue": "-"} if file_format == "csv" else {}
    query = stream(out, ring, fileFormat=file_format, compression=codec, **ROLLING[rolling], **more)
    words: list[str] = []
    for batch in range(4):
        new = [f"{SECRET} {batch} {number}" for number in range(7)]
        words += new
        query.run(batch, [rows_of(*new[:4]), rows_of(*new[4:])])
        assert committed(out) == sorted(words)
        assert_nothing_is_readable(out)
    check(out)
    ftfile.flush(out)
    assert committed(out) == sorted(words)
    ftfile.compact(out)
    assert committed(out) == sorted(words)
    assert committed(out, 1) == sorted(words[:14])
    ftfile.vacuum(out, dry_run=False, retention="0s", force=True)
    compact_log(out)
    assert committed(out) == sorted(words)
    check(out)
    assert_nothing_is_readable(out)
    assert all(part.name.endswith(".enc") for part in parts(out))
    query.run(4, [rows_of("one more")])
    assert committed(out) == sorted([*words, "one more"])
    ftfile.drop(out, "all")
    assert committed(out) == []


def test_an_independent_decoder_reads_parts(out: str, ring: Path) -> None:
    stream(out, ring, compression="none").run(0, [rows_of("some", "words")])
    (add,) = snapshot(out).adds.values()
    (part,) = parts(out)
    keys = {("first", b""): FIRST}
    assert independent_decoder.decode(part.read_bytes(), storage_identity("part", add.path), keys) == b"some\nwords\n"
    # Who has no log finds the identity in the name.
    assert storage_identity("part", add.path) == f"part {part.name.partition('.')[0].rpartition('-')[2]}@0"


@pytest.mark.slow
def test_strict_sizes_are_those_on_storage(out: str, ring: Path) -> None:
    for codec in ("none", "gzip"):
        path = f"{out}-{codec}"
        query = stream(path, ring, compression=codec, rolling="policy", maxBytesPerFile="5000", strictFileSize="true")
        for batch in range(6):
            query.run(batch, [rows_of(*(f"{batch} {number * 7919 % 1000003}" for number in range(500)))])
        ftfile.flush(path)
        sizes = [part.stat().st_size for part in parts(path)]
        assert len(sizes) > 2
        assert max(sizes) <= 5000
        assert sorted(sizes)[1] > 4000


def test_spools_and_staged_files(out: str, ring: Path) -> None:
    query = stream(out, ring, rolling="policy")
    query.run(0, [rows_of(SECRET)])
    query.run_tasks(1, [rows_of(SECRET)])
    assert {path.suffix for path in files_of(out, "_ftfile/staged")} == {".spool"}
    assert len(files_of(out, "_ftfile/staged")) == 2
    assert_nothing_is_readable(out)


def test_whoever_opens_a_directory_writes_for_its_owner(out: str, ring: Path) -> None:
    stream(out, ring).run(0, [rows_of("some")])
    log = CommitLog(ftfile.open(out).file_system)
    write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
    assert files_of(out, "_ftfile/checkpoints")
    assert_nothing_is_readable(out)


def test_what_is_spilled(out: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ftfile.writing.files.part_writer import SpilledRows

    seen: list[bytes] = []
    take_all = SpilledRows.take_all

    def noting(self: SpilledRows) -> object:
        self.spill()
        spilled = [path for path in files_of(out) if path.suffix == ".spill"]
        seen.extend(path.read_bytes() for path in spilled)
        assert_nothing_is_readable(out)
        return take_all(self)

    monkeypatch.setattr(SpilledRows, "take_all", noting)
    options = {"fileFormat": "json", "fileNameColumn": "name", "encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
    monkeypatch.setattr("resource.getrlimit", lambda _: (4, 4))
    query = MicroBatch(out, {"word": "string", "name": "string"}, options)
    rows = [{"word": f"{SECRET} {number}", "name": f"n{number % 5}"} for number in range(50)]
    query.run(0, [rows])
    assert len(seen) == 1
    assert len(seen[0]) > 100
    assert committed(out) == sorted(row["word"] for row in rows)


class TestDeadLetters:
    def query(self, out: str, ring: Path) -> MicroBatch:
        options = {"fileFormat": "json", "fileNameColumn": "name", "badRecords": "deadLetter"}
        options |= {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
        return MicroBatch(out, {"word": "string", "name": "string"}, options)

    def run(self, out: str, ring: Path) -> None:
        self.query(out, ring).run(0, [[{"word": SECRET, "name": None}]])

    def refused(self, out: str, path: Path, name: str, told: str) -> None:
        """Put a file next to the existing dead letters."""
        forged = Path(out, "_ftfile/deadLetters", name)
        forged.parent.mkdir(parents=True, exist_ok=True)
        forged.write_bytes(path.read_bytes())
        forget_all()
        with pytest.raises(CorruptData, match=told):
            list(ftfile.open(out).dead_letters())
        forged.unlink()

    def test_are_encrypted(self, out: str, ring: Path) -> None:
        self.run(out, ring)
        assert_nothing_is_readable(out)
        forget_all()
        (letter,) = ftfile.open(out).dead_letters()
        assert letter.row["word"] == SECRET

    def test_an_independent_decoder_reads_them(self, out: str, ring: Path) -> None:
        self.run(out, ring)
        (file,) = files_of(out, "_ftfile/deadLetters")
        directory = json.loads(Path(out, "_ftfile/directory/_format").read_text().splitlines()[1])["directoryId"]
        identity = f"deadLetters {file.name.split('.')[0].rpartition('-')[2]}@0 {directory}"
        plain = independent_decoder.decode(file.read_bytes(), identity, {("first", b""): FIRST})
        assert json.loads(plain)["row"]["word"] == SECRET

    def test_of_others_are_refused(self, out: str, ring: Path) -> None:
        self.run(out, ring)
        (file,) = files_of(out, "_ftfile/deadLetters")
        forged = file.with_name("_0000000000-00000-aaaaaaaaaaaa.deadLetters")
        forged.write_text('{"reason":"","query":"","batch":0,"partition":0,"row":{}}\n')
        with pytest.raises(CorruptData, match="encrypted dead letters"):
            list(ftfile.open(out).dead_letters())
        forged.unlink()
        again = file.with_name(file.name.replace("-00000-", "-00001-"))
        again.write_bytes(file.read_bytes())
        with pytest.raises(CorruptData, match="dead letters of partition 1"):
            list(ftfile.open(out).dead_letters())
        again.unlink()
        identity = file.name.partition(".")[0].rpartition("-")[2]
        file.rename(file.with_name(file.name.replace(identity, identity[::-1])))
        with pytest.raises(CorruptData):
            list(ftfile.open(out).dead_letters())

    def test_of_another_directory_are_refused(self, out: str, ring: Path) -> None:
        self.run(out, ring)
        self.run(f"{out}-other", ring)
        (mine,), (file,) = (files_of(path, "_ftfile/deadLetters") for path in (out, f"{out}-other"))
        mine.unlink()
        name = file.name.replace("-00000-", "-00001-")
        self.refused(out, file, f"{file.parent.name}/{name}", "copied from another file")

    @pytest.mark.parametrize("rolling", ["batch", "policy"])
    def test_what_is_no_dead_letter_is_none(self, out: str, ring: Path, rolling: str) -> None:
        """Somebody may have had rows written that look like dead letters."""
        forged = json.dumps({"reason": "", "query": "a", "batch": 0, "partition": 0, "row": {}})
        stream(out, ring, compression="none", badRecords="deadLetter", rolling=rolling).run(0, [rows_of(forged)])
        (file,) = parts(out) or files_of(out, "_ftfile/staged")
        unique = file.name.partition(".")[0].rpartition("-")[2][:12]
        self.refused(out, file, f"a/_0000000000-00000-{unique}.aes-gcm.deadLetters", "copied from another file")

    @pytest.mark.slow
    def test_of_attempts_that_were_not_committed_are_refused(self, out: str, ring: Path) -> None:
        """As far as the log still knows."""
        query = self.query(out, ring)
        query.run_tasks(0, [[{"word": "of a first attempt", "name": None}]])
        query.restart()
        self.run(out, ring)
        query = self.query(out, ring)
        query.run_tasks(1, [[{"word": "of a batch that never was", "name": None}]])
        (published,) = files_of(out, "_ftfile/deadLetters")
        owner = published.parent.name
        for file in files_of(out, "_ftfile/staged"):
            unique = file.name.partition(".")[0].rpartition("-")[2][:12]
            batch = int(file.name.removeprefix("_").partition("-")[0])
            told = ["a task's dead letters once", "a batch that was committed"][batch]
            self.refused(out, file, f"{owner}/_{batch:010d}-00000-{unique}.aes-gcm.deadLetters", told)
            self.refused(out, file, f"{owner}/_0000000000-00007-{unique}.aes-gcm.deadLetters", "dead letters of")
            self.refused(out, file, f"other/_{batch:010d}-00000-{unique}.aes-gcm.deadLetters", "dead letters of")
            self.refused(out, file, f"{owner}/{unique}.aes-gcm.deadLetters", "the name of their task")
        assert len([*ftfile.open(out).dead_letters()]) == 1

    @pytest.mark.slow
    def test_every_byte_is_authenticated(self, out: str, ring: Path) -> None:
        self.run(out, ring)
        (file,) = files_of(out, "_ftfile/deadLetters")
        content = file.read_bytes()
        for place in range(len(content)):
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises((CorruptData, ConfigError)):
                list(ftfile.open(out).dead_letters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_format", "rolling"),
    [
        *((name, "batch") for name in ("text", "binary", "parquet", "avro", "orc", "arrow")),
        *((name, "policy") for name in ("text", "parquet")),
    ],
)
def test_every_changed_byte_of_a_file_is_detected(out: str, ring: Path, file_format: str, rolling: str) -> None:
    stream(out, ring, fileFormat=file_format, rolling=rolling).run(0, [rows_of("some", "words")])
    (file,) = parts(out) or files_of(out, "_ftfile/staged")
    content, directory = file.read_bytes(), ftfile.open(out)
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises((CorruptData, ConfigError)):
            directory.to_arrow()
    for end in range(len(content)):
        file.write_bytes(content[:end])
        with pytest.raises(CorruptData):
            directory.to_arrow()
    file.write_bytes(content)
    assert committed(out) == ["some", "words"]


@pytest.mark.parametrize("file_format", ["text", "parquet"])
def test_files_that_changed_places_are_detected(out: str, ring: Path, file_format: str) -> None:
    query = stream(out, ring, fileFormat=file_format, compression="none")
    query.run(0, [rows_of("some")])
    query.run(1, [rows_of("many")])
    first, second = parts(out)
    contents = first.read_bytes(), second.read_bytes()
    assert len(contents[0]) == len(contents[1])
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(CorruptData):
        ftfile.open(out).to_arrow()


@parametrize(
    "options",
    # Of Parquet files no checksum is looked at.
    [{"fileFormat": "parquet", "compression": "none"}, {}, {"rolling": "policy"}],
    quick=1,
)
def test_an_older_state_of_one_file_shows_nothing_older(out: str, ring: Path, options: dict[str, str]) -> None:
    query = stream(out, ring, **options)
    query.run(0, [rows_of("some")])
    before = {path: path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}
    query.run(1, [rows_of("many")])
    after = {path: path.read_bytes() for path in Path(out).rglob("*") if path.is_file()}
    changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    # Only hints are written twice. A hint names the place where a search begins.
    assert {path.parent.name for path in changed} <= {"hints"}
    for path in changed:
        path.write_bytes(before[path])
        forget_all()
        assert committed(out) == ["many", "some"]
    # Each new file gets the content of an older file, which is bound to another name.
    for path in after.keys() - before.keys():
        for older in (old for old in before if old.suffix == path.suffix):
            path.write_bytes(before[older])
            forget_all()
            with pytest.raises(CorruptData):
                committed(out)
            path.write_bytes(after[path])


@pytest.mark.slow
def test_segments_that_changed_places_are_detected(out: str, ring: Path) -> None:
    query = stream(out, ring, rolling="policy")
    query.run(0, [rows_of("some")])
    query.run(1, [rows_of("many")])
    first, second = files_of(out, "_ftfile/staged")
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(CorruptData):
        ftfile.open(out).to_arrow()
    with pytest.raises(StillOpen, match="2 reasons"):
        ftfile.flush(out)


def test_pieces_of_a_spool_are_bound_to_their_places(out: str, ring: Path) -> None:
    """Also if checksums match: otherwise the checksums in the log detect the swap first."""
    schema = {"word": "string", "place": "string"}
    options = {"fileFormat": "text", "encryption": "aes-gcm", "keyProvider": f"file:{ring}", "rolling": "policy"}
    MicroBatch(out, schema, options | {"partitionBy": "place"}).run(
        0, [[{"word": f"in {place}", "place": place} for place in "ab"]]
    )
    fs = ftfile.open(out).file_system
    adds = list(snapshot(out).adds.values())
    assert [add.offset > 0 for add in adds] == [False, True]
    for add, at in itertools.product(adds, repeat=2):
        data = fs.read(add.path)[add.offset :][: add.length]
        chain, identity = Chain.for_reading(add.filters, keys_of(fs)), storage_identity("segment", at.path, at.offset)
        if add is at:
            assert chain.decode(data, identity) == f"in {add.directory_key[-1]}\n".encode()
        else:
            with pytest.raises(BadStream):
                chain.decode(data, identity)


class TestKeys:
    @pytest.mark.slow
    def test_old_ones_stay_readable(self, out: str, ring: Path) -> None:
        stream(out, ring).run(0, [rows_of("old")])
        write_ring(ring, first=FIRST, second=SECOND)
        with pytest.raises(ConfigError, match="choose one with encryptionKeyId: first, second"):
            stream(out, ring).run(1, [rows_of("new")])
        stream(out, ring, encryptionKeyId="second").run(1, [rows_of("new")])
        assert committed(out) == ["new", "old"]
        assert b"second" in parts(out)[1].read_bytes()[:20]
        assert ftfile.open(out).snapshot().adds
        write_ring(ring, second=SECOND)
        with pytest.raises(ConfigError, match="there is no key 'first' in the key file"):
            committed(out)

    @pytest.mark.slow
    def test_another_one_ends_open_files(self, out: str, ring: Path) -> None:
        write_ring(ring, first=FIRST, second=SECOND)
        stream(out, ring, rolling="policy", encryptionKeyId="first").run(0, [rows_of("old")])
        other = stream(out, ring, rolling="policy", encryptionKeyId="second")
        for batch in (1, 2):
            other.run(batch, [rows_of("new")])
        (part,) = parts(out)
        assert b"first" in part.read_bytes()[:20]
        assert committed(out) == ["new", "new", "old"]

    def test_upkeep_goes_on_with_the_newest(self, out: str, ring: Path) -> None:
        write_ring(ring, first=FIRST, second=SECOND)
        stream(out, ring, encryptionKeyId="first").run(0, [rows_of("old")])
        stream(out, ring, encryptionKeyId="second").run(1, [rows_of("new")])
        forget_all()
        ftfile.drop(out, "all")
        assert files_of(out, "_ftfile/log")[-1].read_bytes().splitlines()[-1].startswith(b"hmac-sha256 second ")

    @parametrize("ranges", [False, True], ids=["", "ranges"], quick=1)
    def test_upkeep_goes_on_with_the_newest_behind_a_checkpoint(self, out: str, ring: Path, ranges: bool) -> None:
        write_ring(ring, first=FIRST, second=SECOND)
        stream(out, ring, encryptionKeyId="first").run(0, [rows_of("old")])
        stream(out, ring, encryptionKeyId="second", rolling="policy").run(1, [rows_of("new")])
        for upkeep in (ftfile.flush, lambda path: ftfile.drop(path, "all")):
            if ranges:
                compact_log(out)
            forget_all()
            log = CommitLog(ftfile.open(out).file_system)
            write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
            forget_all()
            upkeep(out)
            assert files_of(out, "_ftfile/log")[-1].read_bytes().splitlines()[-1].startswith(b"hmac-sha256 second ")
        assert committed(out) == []

    def test_upkeep_goes_on_with_the_newest_where_commits_keep_checkpoints(
        self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 1)
        write_ring(ring, first=FIRST, second=SECOND)
        query = stream(out, ring, encryptionKeyId="second", rolling="policy")
        for batch in range(2):
            query.run(batch, [rows_of("some")])
        assert files_of(out, "_ftfile/checkpoints")
        forget_all()
        ftfile.flush(out)
        assert len(parts(out)) == 1

    def test_another_key_of_the_same_name(self, out: str, ring: Path) -> None:
        stream(out, ring).run(0, [rows_of("some")])
        write_ring(ring, first=SECOND)
        with pytest.raises(CorruptData, match="another key has this name"):
            ftfile.open(out).to_arrow()
        with pytest.raises(CorruptData, match="another key has this name"):
            stream(out, ring).pickled_plan()

    def test_a_missing_one_is_missed_before_any_task(self, out: str, ring: Path) -> None:
        stream(out, ring).run(0, [rows_of("some")])
        ring.unlink()
        forget_all()
        with pytest.raises(ConfigError, match="cannot be read on the host"):
            stream(out, ring).config()
        with pytest.raises(ConfigError, match="cannot be read on the host"):
            ftfile.open(out).to_arrow()

    @parametrize("kind", [pytest.param("parquet", marks=WITH_OWN_OF_PARQUET), "aes-gcm"], quick=1)
    def test_that_are_missing_are_so_for_a_file(self, out: str, ring: Path, kind: str) -> None:
        write_ring(ring, first=FIRST, second=SECOND)
        options = {"fileFormat": "parquet", "encryption": kind}
        stream(out, ring, encryptionKeyId="first", **options).run(0, [rows_of("some")])
        stream(out, ring, encryptionKeyId="second", **options).run(1, [rows_of("more")])
        log = CommitLog(ftfile.open(out).file_system)
        write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
        compact_log(out)
        write_ring(ring, second=SECOND)
        (part,) = parts(out)[:1]
        with pytest.raises(ConfigError, match=rf"'{part.name}' cannot be read: there is no key 'first'"):
            ftfile.open(out).to_arrow()
        with pytest.raises(ConfigError, match=r"'_ftfile/log/_0+\.record' cannot be read: there is no key 'first'"):
            ftfile.open(out).history()
        write_ring(ring, first=SECOND, second=SECOND)
        told = rf"'{part.name}' (cannot be read|is corrupt): .* the key '?"
        with pytest.raises((CorruptData, ConfigError), match=told):
            ftfile.open(out).to_arrow()

    def test_are_in_no_message_and_in_no_task(self, out: str, ring: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        query = stream(out, ring)
        planned = query.pickled_plan()
        messages = query.run_tasks(0, [rows_of("some")])
        query.commit(0, messages)
        config = query.config()
        ftfile.open(out).to_arrow()
        ftfile.compact(out)
        shown = (
            repr(config).encode() + repr(messages).encode() + pickle.dumps(messages) + planned + caplog.text.encode()
        )
        stored = b"".join(path.read_bytes() for path in files_of(out))
        for secret in (FIRST, FIRST.hex().encode(), ring.read_bytes().split()[1]):
            assert secret not in shown
            assert secret not in stored

    @pytest.mark.slow
    def test_provider_by_the_environment(self, out: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FTFILE_KEY_PROVIDER", f"command:cat {ring}")
        options = {"fileFormat": "text", "encryption": "aes-gcm"}
        MicroBatch(out, {"word": "string"}, options).run(0, [rows_of("some")])
        assert committed(out) == ["some"]
        monkeypatch.delenv("FTFILE_KEY_PROVIDER")
        forget_all()
        with pytest.raises(ConfigError, match="no key provider was given"):
            ftfile.open(out)
        for read in (ftfile.open, ftfile.flush, ftfile.compact, ftfile.vacuum):
            read(out, key_provider=f"file:{ring}")
        ftfile.drop(out, "all", key_provider=f"file:{ring}")
        assert ftfile.open(out, f"file:{ring}").to_arrow().num_rows == 0


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"encryption": "aes"}, "aes-gcm"),
            ({"encryption": "none"}, "keyProvider without encryption"),
            ({"encryption": "none", "encryptionKeyId": "first"}, "encryptionKeyId and keyProvider without encryption"),
            ({"encryptionKeyId": "other"}, "there is no key 'other'"),
            ({"encryptionKeyId": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "this value contains a key"),
            ({"keyProvider": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "is not one of aws-kms:"),
            ({"encryptionKey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "keys are never set in options"),
            ({"parquet.encryption.key.list": "a: AAECAw=="}, "keys are never set in options"),
            ({"encryption": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "it takes one of `none`, `aes-gcm`"),
            ({"encryptionKeyId": "first:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "this value contains a key"),
            ({"keyProvider": "file:/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}, "this value contains a key"),
            ({"encryption.key": "AAECAw"}, "keys are never set in options"),
            ({"encryption_key": "AAECAw"}, "keys are never set in options"),
            ({"aesKey": "AAECAw"}, "keys are never set in options"),
            ({"dataKey": "AAECAw"}, "keys are never set in options"),
            ({"kmsKey": "AAECAw"}, "keys are never set in options"),
            ({"parquet.encryption.uniform.key": "AAECAw"}, "keys are never set in options"),
            ({"password": "x"}, "keys are never set in options"),
            ({"filters": "aes-gcm"}, "set encryption=aes-gcm"),
            pytest.param(
                {"filters": "any", "encryption": "parquet", "fileFormat": "parquet"},
                "encryption=parquet with filters",
                marks=WITH_OWN_OF_PARQUET,
            ),
        ],
    )
    def test_what_is_refused(self, out: str, ring: Path, options: dict[str, str], told: str) -> None:
        with pytest.raises(ConfigError, match=told) as caught:
            stream(out, ring, **options).config()
        assert "AAECAw" not in str(caught.value)

    def test_a_provider_is_needed(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FTFILE_KEY_PROVIDER", raising=False)
        with pytest.raises(ConfigError, match="encryption=aes-gcm without keyProvider"):
            MicroBatch(out, {"word": "string"}, {"fileFormat": "text", "encryption": "aes-gcm"}).config()

    @pytest.mark.usefixtures("usual_umask")
    def test_permissions_can_be_given(self, out: str, ring: Path) -> None:
        stream(out, ring, filePermission="640").run(0, [rows_of("some")])
        (part,) = parts(out)
        assert stat.S_IMODE(part.stat().st_mode) == 0o640

    @pytest.mark.usefixtures("usual_umask")
    @parametrize("rolling", ["batch", "policy"], quick=1)
    def test_upkeep_keeps_permissions(self, out: str, ring: Path, rolling: str) -> None:
        stream(out, ring, "before").run(0, [rows_of("old")])
        query = stream(out, ring, "b", filePermission="640", rolling=rolling, onNewQuery="continue")
        for batch in range(4):
            query.run(batch, [rows_of(f"{batch}")])
            if batch == 1:
                ftfile.flush(out)
        query.run_tasks(4, [rows_of("lost")])
        before = set(files_of(out))
        for upkeep in (
            ftfile.flush,
            ftfile.compact,
            compact_log,
            lambda path: ftfile.drop(path, "all"),
            lambda path: ftfile.vacuum(path, dry_run=False, retention="0s", force=True),
        ):
            forget_all()
            upkeep(out)
            new = set(files_of(out)) - before - set(files_of(out, "_ftfile/retired"))
            assert {stat.S_IMODE(path.stat().st_mode) for path in new} <= {0o640}, upkeep
        assert len(new) > 3
