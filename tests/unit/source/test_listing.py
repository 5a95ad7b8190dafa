"""The files that a listing contains: patterns, hidden names, links, and storage systems without directories."""

from __future__ import annotations

import os
import random
import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError, PermissionDenied
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.table import OPTIONS
from ftfile.core.options.typed import FilesOptions
from ftfile.source.globs import glob_pattern
from ftfile.source.known_rows import identity_hash, key_of
from ftfile.source.listing import list_files
from ftfile.source.settings import SourceSettings
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.source.tailing import Tailing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.source.listing import Listing
    from ftfile.storage.api import FileInfo
    from ftfile.testing.fs.volume import Storage


def listed(path: object, **options: str) -> list[str]:
    settings = SourceSettings.from_options(
        parse_options({"path": str(path), "fileFormat": "text", **options}, FilesOptions)
    )
    storage = {"followLinks": options.get("followLinks", "false")}
    return sorted(list_files(open_filesystem(settings.root, settings=storage), settings).paths)


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_AFI_1_2_FSI_12_subdirectories_are_listed_if_so_told(tmp_path: Path) -> None:
    make(tmp_path / "in", "a", "b/c", "b/day=1/d", "day=1/e", "day=1/hour=2/f")
    assert listed(tmp_path / "in") == ["in/a", "in/day=1/e", "in/day=1/hour=2/f"]
    everything = ["in/a", "in/b/c", "in/b/day=1/d", "in/day=1/e", "in/day=1/hour=2/f"]
    assert listed(tmp_path / "in", recursiveFileLookup="true") == everything


def test_AFI_3_FSI_17_empty_directories_are_no_error(tmp_path: Path) -> None:
    assert listed(tmp_path / "in") == []
    for number in range(5):
        (tmp_path / "in" / f"x={number}").mkdir(parents=True)
    assert listed(tmp_path / "in") == []


def test_names_that_spark_leaves_out_are_hidden(tmp_path: Path) -> None:
    hidden = ["_a", ".a", "a._COPYING_", "_temporary/a", ".x=1/a", "_SUCCESS"]
    make(tmp_path / "in", *hidden, "a", "_x=1/b", "x=_1/c")
    assert listed(tmp_path / "in", recursiveFileLookup="true") == ["in/_x=1/b", "in/a", "in/x=_1/c"]
    assert listed(tmp_path / "in/*/a", recursiveFileLookup="true") == []
    assert listed(tmp_path / "in/_temporary") == ["_temporary/a"]
    assert listed(tmp_path / "in/_t*/a") == ["_temporary/a"]


def test_24_a_file_with_two_names_is_listed_once_and_linked_directories_never(tmp_path: Path) -> None:
    make(tmp_path / "in", "b.log", "d=1/c.log")
    (tmp_path / "in/a.log").hardlink_to(tmp_path / "in/b.log")
    (tmp_path / "in/a-link.log").symlink_to(tmp_path / "in/b.log")
    (tmp_path / "in/loop=1").symlink_to(tmp_path / "in")
    (tmp_path / "in/dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "in/through").symlink_to(tmp_path / "in/b.log/x")
    (tmp_path / "in/itself").symlink_to(tmp_path / "in/itself")
    (tmp_path / "in/long").symlink_to("x" * 300)
    (tmp_path / "in/to=2").symlink_to(tmp_path / "in/d=1")
    for follow in ("false", "true"):
        everything = listed(tmp_path / "in", recursiveFileLookup="true", followLinks=follow)
        assert everything == ["in/a.log", "in/d=1/c.log"]
        assert listed(tmp_path / "in/*/*", followLinks=follow) == ["d=1/c.log"]


def test_links_to_files_are_passed_over_unless_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "in", "a.log", "d=1/b.log")
    make(tmp_path / "other", "x.log")
    (tmp_path / "in/x.log").symlink_to(tmp_path / "other/x.log")
    (tmp_path / "in/d=1/y.log").symlink_to(tmp_path / "other/x.log")
    os.mkfifo(tmp_path / "in/pipe")
    assert listed(tmp_path / "in") == ["in/a.log", "in/d=1/b.log"]
    assert "3 links or pipes are not followed, the first is 'file://" in caplog.text
    assert "/in/d=1/y.log'; followLinks=true follows links" in caplog.text
    assert listed(tmp_path / "in/*.log") == ["a.log"]
    assert listed(tmp_path / "in/x.log") == []
    assert listed(tmp_path / "in/x.log", followLinks="true") == ["x.log"]
    assert "in/d=1/y.log" in listed(tmp_path / "in", followLinks="true")  # two links to one file


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("in", ["in/a.log", "in/b.txt"]),
        ("in/a.log", ["in/a.log"]),
        ("in/*.log", ["in/a.log"]),
        ("in/{a,b}.*", ["in/a.log", "in/b.txt"]),
        ("in/?.[l-m]og", ["in/a.log"]),
        ("in/?.[^l]*", ["in/b.txt"]),
        ("{in,out}/[ab]*", ["in/a.log", "in/b.txt", "out/a.log"]),
        ("*/sub/{d.log,deep/*}", ["in/sub/d.log", "in/sub/deep/e.log"]),
        ("{in/sub,out}", ["in/sub/d.log", "out/a.log"]),
        ("*", ["in/a.log", "in/b.txt", "out/a.log"]),
        ("nowhere/*", []),
        ("in/a.log/x", []),
        (r"in/\a.log", ["in/a.log"]),
    ],
)
def test_FSI_13_16_patterns_of_paths_are_those_of_hadoop(tmp_path: Path, glob: str, found: list[str]) -> None:
    """Inputs that are nested or overlap list each file once."""
    make(tmp_path, "in/a.log", "in/b.txt", "in/sub/d.log", "in/sub/deep/e.log", "out/a.log")
    settings = SourceSettings.from_options(
        parse_options({"path": f"{tmp_path}/{glob}", "fileFormat": "text"}, FilesOptions)
    )
    above = os.path.relpath(settings.root.removeprefix("file://"), tmp_path).removeprefix(".")
    assert [os.path.join(above, path) for path in listed(f"{tmp_path}/{glob}")] == found  # noqa: PTH118


def test_AFI_19_patterns_of_names_choose_files(tmp_path: Path) -> None:
    make(tmp_path / "in", "a.log", "b.log", "c.txt", "day=1/a.log")
    assert listed(tmp_path / "in", pathGlobFilter="a.*") == ["in/a.log", "in/day=1/a.log"]
    assert listed(tmp_path / "in", filePattern=r"[ab]\.log") == ["in/a.log", "in/b.log", "in/day=1/a.log"]
    assert listed(tmp_path / "in", filePattern=r"[ab]") == []
    assert listed(tmp_path / "in", ignoreFilePattern=r".*\.log") == ["in/c.txt"]
    assert listed(tmp_path / "in", filePattern=r"./day=.*") == []
    assert listed(tmp_path / "in", filePattern=rf"{tmp_path}/in/day=.*") == ["in/day=1/a.log"]
    assert listed(tmp_path / "in", ignoreFilePattern=r".*/in/[^/]*") == ["in/day=1/a.log"]


def test_a_directory_that_only_leads_to_the_root_need_not_be_listed() -> None:
    for glob in ("in", "*"):
        tailing = Tailing(glob)
        tailing.write("a.log", "x")
        whole = tailing.fs.list

        def refuse(path: str, whole: Callable[[str], list[FileInfo]] = whole) -> list[FileInfo]:
            if not path:
                raise PermissionDenied("list", path, "others may not list it")
            return whole(path)

        tailing.replace("list", refuse)
        if glob == "in":
            assert list_files(tailing.fs, tailing.settings).paths == ["in/a.log"]
        else:
            with pytest.raises(PermissionDenied):
                tailing.scan()


@pytest.mark.parametrize("storage", ["disk", "s3", "hdfs"])
def test_every_kind_of_storage_is_listed(storage: Storage) -> None:
    tailing = Tailing("in/*", recursiveFileLookup="true")
    fs = CrashingFileSystem(clock=tailing.clock, storage=storage)
    for name in ("a.log", "d/b.log", "d/e/c.log", "_x/d.log"):
        fs.make_directories(name.rpartition("/")[0])
        with fs.create(name) as stream:
            stream.write(b"x\n")
    assert sorted(list_files(fs, tailing.settings).paths) == ["a.log", "d/b.log", "d/e/c.log"]


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*", ["", "a", "a.b"], ["a/b"]),
        ("a?", ["ab"], ["a", "abc", "a/"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[^a-c]x", ["dx"], ["ax"]),
        ("[!a]x", ["bx"], ["ax"]),
        ("[]]x", ["]x"], ["x"]),
        ("[a&&b]", ["&", "a"], ["c"]),
        ("{a,b{c,d}}x", ["ax", "bcx", "bdx"], ["bx", "cx"]),
        ("{a}", ["a"], ["{a}"]),
        (r"\*\{\[", ["*{["], ["x{["]),
        ("a.b", ["a.b"], ["axb"]),
        ("a,b", ["a,b"], ["a"]),
        ("a}", ["a}"], ["a"]),
        ("ä*", ["äö"], ["a"]),
    ],
)
def test_patterns(glob: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in [*yes, *no] if glob_pattern(glob).fullmatch(name)] == yes


@pytest.mark.parametrize("glob", ["[a", "{a", "{a,{b}", "[z-a]", "[]", "a[!]", "[^]b"])
def test_a_pattern_that_is_none_is_an_error_at_once(glob: str) -> None:
    for options in ({"path": f"/in/{glob}"}, {"path": "/in", "pathGlobFilter": glob}):
        with pytest.raises(ConfigError, match="the pattern"):
            SourceSettings.from_options(parse_options({"fileFormat": "text", **options}, FilesOptions))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": "in"}, "relative"),
        ({}, "the option `path` is missing"),
        ({"tail": "true", "fileFormat": "parquet"}, "tail=true is only for text, json, csv without multiLine"),
        ({"tail": "true", "fileFormat": "csv", "multiLine": "true"}, "tail=true is only for"),
        ({"encoding": "utf-16"}, "encoding='utf-16': growing files are cut into lines at the byte 0x0A"),
        ({"encoding": "UTF-16LE", "tail": "true"}, "Set tail=false, which reads a file once"),
        (
            {"encoding": "utf-32", "tail": "false"},
            "encoding='utf-32': it must be UTF-16, UTF-16LE, UTF-16BE, or an encoding in",
        ),
        ({"encoding": "klingon"}, "encoding='klingon': it must be UTF-16"),
        ({"encoding": "hex"}, "encoding='hex': it must be UTF-16"),
        ({"encoding": "undefined"}, "encoding='undefined': it must be UTF-16"),
        ({"encoding": "utf-8\0"}, "encoding='utf-8\\x00': it must be UTF-16"),
        ({"lineSep": ""}, "lineSep=''"),
        ({"lineSep": "||"}, "lineSep='||': its end must differ from its beginning"),
        ({"lineSep": "→", "encoding": "latin-1"}, "lineSep='→': it cannot be encoded in iso8859-1"),
        ({"lineSep": "|", "encoding": "GBK"}, "lineSep='|': it cannot be encoded in gbk, or its bytes can be part of"),
        ({"multiLine": "true"}, "'multiLine' is for fileFormat=json|csv, but fileFormat is text"),
        ({"filePattern": "["}, "a regular expression"),
        ({"fileIdentity": "inode"}, "one of `native`, `content`"),
        ({"maxCachedFiles": "9"}, "maxFileAge forgets files sooner"),
        ({"startingVersion": "1"}, "is for following"),
        ({"maxRowsPerTrigger": "1"}, "is for following"),
        ({"scanIntervalMillis": "1"}, "use scanInterval"),
    ],
)
def test_mistakes_say_what_to_write_instead(options: dict[str, str], text: str) -> None:
    given = {"path": "/in", "fileFormat": "text", **options}
    if not options:
        del given["path"]
    with pytest.raises(ConfigError) as caught:
        SourceSettings.from_options(parse_options(given, FilesOptions))
    assert text in str(caught.value)


# The value of each option of a field differs from its default.
GIVEN: dict[str, str] = {
    "followLinks": "true",
    "recursiveFileLookup": "true",
    "pathGlobFilter": "*.log",
    "filePattern": "a.*",
    "ignoreFilePattern": "b.*",
    "startingOffsets": "latest",
    "maxFilesPerTrigger": "3",
    "maxBytesPerTrigger": "4",
    "scanInterval": "5s",
    "maxFileAge": "6s",
    "closeInactive": "8s",
    "minFileAge": "9s",
    "fileIdentity": "content",
    "allowOverwrites": "true",
    "failOnDataLoss": "true",
    "maxRetries": "11",
}


def test_fields_have_the_names_and_the_defaults_of_their_options() -> None:
    required = {"path": "/in", "fileFormat": "text"}
    computed = {"root", "pattern", "decoding", "tail"}
    by_default = SourceSettings.from_options(parse_options(required, FilesOptions))
    parsed = parse_options(required | GIVEN, FilesOptions)
    settings = SourceSettings.from_options(parsed)
    names = {field.name for field in fields(SourceSettings)} - computed
    by_field = {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name): name for name in GIVEN}
    assert by_field.keys() == names
    defaults = {option.name: option.default for option in OPTIONS if "files" in option.used_by}
    for field, name in by_field.items():
        assert getattr(by_default, field) == defaults[name], name
        assert getattr(settings, field) == parsed.given[name] != defaults[name], name


def test_the_encoding_is_that_of_the_line_end() -> None:
    settings = SourceSettings.from_options(
        parse_options({"path": "/in", "fileFormat": "text", "lineSep": "ä", "encoding": "latin-1"}, FilesOptions)
    )
    assert settings.separator == b"\xe4"


def test_a_file_is_as_it_was_since_the_first_listing_with_its_size_time_and_identity() -> None:
    tailing = Tailing()
    for name in "abcd":
        tailing.write(name, "x")
    first = list_files(tailing.fs, tailing.settings, None, 1.0)
    second = list_files(tailing.fs, tailing.settings, first, 2.0)
    assert first.since_s.tolist() == second.since_s.tolist() == [1.0] * 4
    tailing.clock.advance(1)
    tailing.append("a", "y")
    tailing.write("b", "y")
    tailing.rename("c", "e")
    tailing.write("0", "x")
    third = list_files(tailing.fs, tailing.settings, second, 3.0)
    since_s = dict(zip(third.paths, third.since_s.tolist(), strict=True))
    assert since_s == {"in/0": 3.0, "in/a": 3.0, "in/b": 3.0, "in/d": 1.0, "in/e": 3.0}
    tailing.rename("d", "f")
    tailing.rename("e", "d")
    fourth = list_files(tailing.fs, tailing.settings, third, 4.0)
    assert dict(zip(fourth.paths, fourth.since_s.tolist(), strict=True))["in/d"] == 4.0


def columns(listing: Listing) -> list[tuple[object, ...]]:
    numbers = (listing.sizes, listing.times, listing.keys, listing.hashes)
    return [*zip(listing.paths, listing.identities, *(column.tolist() for column in numbers), strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_a_listing_beside_the_one_before_has_what_it_has_alone(seed: int) -> None:
    draw, tailing, before = random.Random(seed), Tailing(), None
    names = set()
    for number in range(8):
        tailing.clock.advance(1)
        for _ in range(draw.randrange(4)):
            name, other = draw.sample("abcdefgh", 2)
            if name not in names:
                tailing.write(name, "x")
                names.add(name)
            elif draw.random() < 0.4:
                tailing.append(name, "y")
            elif other not in names and draw.random() < 0.6:
                tailing.rename(name, other)
                names = names - {name} | {other}
            else:
                tailing.delete(name)
                if draw.random() < 0.5:
                    tailing.write(name, "z")
                else:
                    names.remove(name)
        fresh = list_files(tailing.fs, tailing.settings)
        before = list_files(tailing.fs, tailing.settings, before, float(number))
        assert columns(before) == columns(fresh)


def test_keys_are_those_of_the_listing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys and hashes of a million files take up to a third of the time of a listing."""
    tailing = Tailing()
    for name in "abc":
        tailing.write(name, "x")
    before = list_files(tailing.fs, tailing.settings)
    tailing.append("a", "y")
    hashed: list[str | None] = []
    for function in (key_of, identity_hash):

        def noted(*arguments: str | None, function: Callable[..., bytes] = function) -> bytes:
            hashed.append(arguments[-1])
            return function(*arguments)

        monkeypatch.setattr(f"ftfile.source.listing.{function.__name__}", noted)
    second = list_files(tailing.fs, tailing.settings, before)
    assert second.keys is before.keys
    assert second.hashes is before.hashes
    assert not hashed
    tailing.write("0", "x")
    third = list_files(tailing.fs, tailing.settings, second)
    place = third.paths.index("in/0")
    assert hashed == ["in/0", third.identities[place]]
    assert len(third.keys) == 4


def test_a_file_that_another_has_replaced_has_the_hash_of_that(tmp_path: Path) -> None:
    make(tmp_path, "a", "b")
    settings = SourceSettings.from_options(parse_options({"path": str(tmp_path), "fileFormat": "text"}, FilesOptions))
    fs = open_filesystem(settings.root)
    before = list_files(fs, settings)
    (tmp_path / "b").rename(tmp_path / "a")
    (listing, fresh) = (list_files(fs, settings, one) for one in (before, None))
    assert columns(listing) == columns(fresh)
    assert set(listing.hashes.tolist()) < set(before.hashes.tolist())
