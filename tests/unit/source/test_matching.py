"""The rules that match listed files with known files, applied to values, without storage."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import PermissionDenied
from ftfile.source.contents import Fingerprints
from ftfile.source.file_table import Row
from ftfile.source.known_rows import NO_IDENTITY, KnownFile
from ftfile.source.matching import (
    CHANGED,
    Content,
    ContentProbe,
    Failure,
    IdentityRule,
    Match,
    known_probes,
    match_known,
    match_unchanged,
)

if TYPE_CHECKING:
    from ftfile.source.matching import Answer

BOTH = pytest.mark.parametrize("keeps_truncated", [False, True], ids=["native", "content"])
REFUSED = Failure(PermissionDenied("open", "a", "as the test wants it"))


def key(path: str) -> bytes:
    return path.encode().ljust(16, b"\0")


def identity(number: int) -> bytes:
    return number.to_bytes(8, "little") if number else NO_IDENTITY


def known(path: str, number: int, position: int = 100, content: str = "x", modified_ms: int = 5) -> KnownFile:
    """Return a file that was read up to `position` and had this length at that time."""
    marks = Fingerprints(f"{content}{position}", content)
    return KnownFile(key(path), position, position, modified_ms, identity(number), *marks)


def listed(path: str, number: int, at_path: KnownFile | None = None, size_bytes: int = 200, time_ms: int = 9) -> Row:
    """Return a listed file, which is unchanged or differs from its known state."""
    marks = size_bytes, time_ms, identity(number)
    is_changed = at_path is not None and marks != (at_path.size_bytes, at_path.modified_ms, at_path.identity)
    place = ord(path)
    return Row(place, path, key(path), size_bytes, time_ms, str(number), identity(number), at_path, 0.0, is_changed)


def prints(content: str = "x", positions: tuple[int, ...] = (100,)) -> Content:
    return Content({position: Fingerprints(f"{content}{position}", content) for position in positions}, 200, 200)


def decide(
    rows: list[Row], answers: dict[str, Answer], *elsewhere: KnownFile, keeps_truncated: bool = False
) -> dict[str, Match]:
    """Return the matches of rows by path. The order of the rows does not matter."""
    files: dict[bytes, list[KnownFile]] = {}
    for file in (*elsewhere, *(row.known for row in rows if row.known is not None and row.is_changed)):
        files.setdefault(file.identity, []).append(file)
    by_place = {ord(path): answer for path, answer in answers.items()}
    results = []
    for ordered in itertools.permutations(rows):
        matches = match_known(ordered, files, by_place, keeps_truncated=keeps_truncated)
        results.append({row.path: matches[row.place] for row in rows})
        claimed = [match.file.key for match in matches.values() if match.file is not None]
        assert len(set(claimed)) == len(claimed), "a known file is claimed once"
    assert all(result == results[0] for result in results)
    return results[0]


def rules(matches: dict[str, Match]) -> dict[str, IdentityRule]:
    return {path: match.rule for path, match in matches.items()}


@BOTH
def test_a_file_that_grows_goes_on(keeps_truncated: bool) -> None:
    file = known("a", 1)
    match = decide([listed("a", 1, file)], {"a": prints()}, keeps_truncated=keeps_truncated)["a"]
    assert (match.rule, match.position, match.before) == (IdentityRule.SAME, 100, Fingerprints("x100", "x"))
    assert (match.previous_keys, match.displaces) == ((), False)


@BOTH
@pytest.mark.parametrize("size_bytes", [0, 50, 200])
def test_a_file_with_other_content_was_truncated(size_bytes: int, keeps_truncated: bool) -> None:
    """A listed size below the position proves a truncation. Only content can find the old lines in another file."""
    row = listed("a", 1, known("a", 1), size_bytes)
    assert len(known_probes([row], {})) == (size_bytes == 200)
    answers: dict[str, Answer] = {"a": prints("other")} if size_bytes == 200 else {}
    match = decide([row], answers, keeps_truncated=keeps_truncated)["a"]
    assert (match.rule, match.position, match.before) == (IdentityRule.TRUNCATED, 0, None)
    assert match.displaces == keeps_truncated


@BOTH
@pytest.mark.parametrize("answer", [CHANGED, REFUSED])
def test_a_file_of_which_the_probe_failed_is_undecided(answer: Failure, keeps_truncated: bool) -> None:
    """No known file is displaced, because the undecided file may be the known file."""
    file = known("a", 1)
    for row in (listed("a", 1, file), listed("a", 2, file), listed("b", 1)):
        match = decide([row], {row.path: answer}, file, keeps_truncated=keeps_truncated)[row.path]
        assert match == Match(row, IdentityRule.UNDECIDED, error=answer.error)


@BOTH
def test_a_renamed_file_goes_on_and_the_new_one_is_read(keeps_truncated: bool) -> None:
    file = known("a", 1)
    rows = [listed("a", 2, file), listed("b", 1)]
    matches = decide(rows, {"a": prints("new"), "b": prints()}, keeps_truncated=keeps_truncated)
    assert rules(matches) == {"a": IdentityRule.NEW, "b": IdentityRule.MOVED}
    assert (matches["b"].position, matches["b"].previous_keys) == (100, (file.key,))
    assert not matches["a"].displaces


@pytest.mark.parametrize("is_first", [False, True])
def test_of_several_files_with_one_identity_one_that_was_not_displaced_goes_on(is_first: bool) -> None:
    """A displaced file is not at any path: another file has its identity now."""
    gone = known("a", 1, 50, modified_ms=9)._replace(is_displaced=True)
    renamed = known("c", 1, 40, modified_ms=1)
    elsewhere = [gone, renamed] if is_first else [renamed, gone]
    match = decide([listed("b", 1)], {"b": prints(positions=(40, 50))}, *elsewhere)["b"]
    assert (match.rule, match.file) == (IdentityRule.MOVED, renamed)


@BOTH
def test_a_file_renamed_onto_a_known_name_displaces_that(keeps_truncated: bool) -> None:
    rows = [listed("b", 1, known("b", 2, content="y"))]
    match = decide(rows, {"b": prints()}, known("a", 1), keeps_truncated=keeps_truncated)["b"]
    assert (match.rule, match.position, match.displaces) == (IdentityRule.MOVED, 100, True)


@BOTH
def test_two_files_that_exchange_their_names_go_on(keeps_truncated: bool) -> None:
    first, second = known("a", 1), known("b", 2, content="y")
    rows = [listed("a", 2, first), listed("b", 1, second)]
    matches = decide(rows, {"a": prints("y"), "b": prints()}, keeps_truncated=keeps_truncated)
    assert rules(matches) == {"a": IdentityRule.MOVED, "b": IdentityRule.MOVED}
    assert [match.file for match in matches.values()] == [second, first]
    assert not any(match.displaces for match in matches.values())


@BOTH
@pytest.mark.parametrize(("content", "rule"), [("x", IdentityRule.SAME), ("y", IdentityRule.REPLACED)])
def test_another_file_at_a_path_goes_on_if_it_begins_as_the_known_one(
    content: str, rule: IdentityRule, keeps_truncated: bool
) -> None:
    match = decide([listed("a", 2, known("a", 1))], {"a": prints(content)}, keeps_truncated=keeps_truncated)["a"]
    assert (match.rule, match.displaces) == (rule, rule is IdentityRule.REPLACED)
    assert match.position == (100 if rule is IdentityRule.SAME else 0)


def test_path_and_identity_come_before_the_identity_alone() -> None:
    """An identity was reused: both known files begin like the listed file."""
    here, elsewhere = known("a", 1), known("b", 1, modified_ms=50)
    match = decide([listed("a", 1, here)], {"a": prints()}, elsewhere)["a"]
    assert (match.rule, match.file) == (IdentityRule.SAME, here)


def test_the_identity_comes_before_the_path_alone() -> None:
    """A file with another identity is new, even if it begins like the renamed file."""
    file = known("a", 1)
    matches = decide([listed("a", 2, file), listed("b", 1)], {"a": prints(), "b": prints()})
    assert rules(matches) == {"a": IdentityRule.NEW, "b": IdentityRule.MOVED}


def test_of_several_files_with_an_identity_the_newest_that_is_equal_goes_on() -> None:
    old, new, other = known("a", 1, 50), known("b", 1, 100, modified_ms=6), known("c", 1, 120, "y", modified_ms=7)
    row = listed("d", 1)
    (probe,) = known_probes([row], {identity(1): [old, new, other]})
    assert probe.positions == {50, 100, 120}
    match = decide([row], {"d": prints(positions=(50, 100, 120))}, old, new, other)["d"]
    assert match.file == new


def test_a_path_does_not_tell_while_the_file_with_the_known_identity_is_undecided() -> None:
    """The undecided file may be the known file. In this case, the file at the known path is another file."""
    file = known("a", 1)
    matches = decide([listed("a", 2, file), listed("b", 1)], {"a": prints(), "b": REFUSED})
    assert rules(matches) == {"a": IdentityRule.UNDECIDED, "b": IdentityRule.UNDECIDED}
    assert matches["a"].error is None
    matches = decide([listed("a", 2, file), listed("b", 1)], {"a": prints("new"), "b": REFUSED})
    assert rules(matches) == {"a": IdentityRule.REPLACED, "b": IdentityRule.UNDECIDED}, (
        "the file stays known until b opens"
    )


def test_without_identities_path_and_content_tell() -> None:
    file = known("a", 0)
    other = known("b", 0, content="y")
    rows = [listed("a", 0, file), listed("b", 0, other), listed("c", 0)]
    matches = decide(rows, {"a": prints(), "b": prints("z"), "c": prints()})
    assert rules(matches) == {"a": IdentityRule.SAME, "b": IdentityRule.TRUNCATED, "c": IdentityRule.NEW}


def test_of_a_file_of_which_nothing_was_read_the_identity_tells() -> None:
    file = known("a", 1, 0)
    assert known_probes([listed("b", 1)], {identity(1): [file]}) == []
    assert rules(decide([listed("a", 1, file)], {})) == {"a": IdentityRule.SAME}
    assert rules(decide([listed("b", 1)], {}, file)) == {"b": IdentityRule.MOVED}
    match = decide([listed("a", 2, file)], {})["a"]
    assert (match.rule, match.displaces) == (IdentityRule.NEW, False)


def test_files_that_nobody_suspects_are_the_ones_at_their_paths() -> None:
    file = known("a", 1, 100)
    assert match_unchanged(listed("a", 1, file)) == Match(listed("a", 1, file), IdentityRule.SAME, file)
    assert match_unchanged(listed("b", 2)).rule is IdentityRule.NEW


def test_one_probe_is_at_all_positions_up_to_the_listed_size() -> None:
    file, elsewhere = known("a", 1, 100), known("b", 2, 150)
    row = listed("a", 2, file, size_bytes=120)
    assert known_probes([row], {identity(2): [elsewhere]}) == [ContentProbe(row, frozenset({100}))]
    assert known_probes([listed("c", 3)], {}) == []
