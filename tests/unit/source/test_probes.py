"""Probes of files that other programs write, rename and truncate between any two calls of the storage."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.source.contents import Fingerprints, fingerprints
from ftfile.source.extend import extend
from ftfile.source.file_table import Row
from ftfile.source.known_rows import KnownFile, identity_hash, key_of
from ftfile.source.matching import CHANGED, Content, ContentProbe, Failure, IdentityRule, Match
from ftfile.source.probes import ContentProbes, FileMemory, answer_to
from ftfile.source.settings import SourceSettings
from ftfile.storage.api import lasting_identity
from ftfile.testing.context import ManualClock
from tests.histories.source_storage import SourceStorage

if TYPE_CHECKING:
    from collections.abc import Callable

OLD = b"".join(b"old %06d\n" % number for number in range(300))
# No line of the new content is a line of the old content, wherever the old content ends.
NEW = b"".join(b"newer %06d\n" % number for number in range(400))
POSITIONS = (700, 2000)
SETTINGS = SourceSettings.from_options(parse_options({"path": "memory://nothing/", "fileFormat": "text"}, FilesOptions))


def prints(content: bytes, position: int) -> Fingerprints:
    marks = fingerprints(lambda offset, length: content[offset : offset + length], position)
    assert marks is not None
    return marks


class Logs:
    """A storage system with one listed log. A function is called once, before one of the calls of the storage."""

    def __init__(self, content: bytes = OLD) -> None:
        self.storage = SourceStorage(ManualClock(), random.Random(0), "honest", 0, 1)
        self.log = self.storage.create_file("a.log")
        self.storage.write(self.log, content)
        self.calls = 0

    def row(self, position: int = 0) -> Row:
        info, key = self.storage.stat("a.log"), key_of("r:///", "a.log")
        identity = lasting_identity(info.identity)
        marks = info.size_bytes, info.modified_ms, identity_hash(identity)
        known = KnownFile(key, position, position, 1, marks[2], *prints(OLD, position)) if position else None
        return Row(0, "a.log", key, *marks[:2], identity, marks[2], known, 0.0, is_changed=bool(position))

    def do_before(self, call: int, deed: Callable[[], None]) -> None:
        def count() -> None:
            self.calls += 1
            if self.calls == call:
                deed()

        self.storage.on_call = count

    def cut_off(self) -> None:
        self.storage.truncate(self.log)

    def delete(self) -> None:
        self.storage.unlink("a.log")

    def rewrite(self) -> None:
        """Truncate the log, and write a longer log."""
        self.cut_off()
        self.storage.write(self.log, NEW)

    def rotate(self) -> None:
        """Rename the log, and write a longer log at its path."""
        self.storage.move("a.log", "a.log.1")
        self.storage.write(self.storage.create_file("a.log"), NEW)


def test_a_probe_has_the_fingerprints_that_are_asked_for() -> None:
    logs = Logs()
    answer = answer_to(logs.storage, ContentProbe(logs.row(), frozenset(POSITIONS)))
    assert answer == Content({position: prints(OLD, position) for position in POSITIONS}, len(OLD), len(OLD))


@pytest.mark.parametrize("how", ["rewrite", "rotate", "cut_off", "delete"])
def test_a_probe_has_one_content_or_none_whenever_the_file_changes(how: str) -> None:
    answers = []
    for call in itertools.count(1):
        logs = Logs()
        row = logs.row()
        logs.do_before(call, getattr(logs, how))
        answer = answer_to(logs.storage, ContentProbe(row, frozenset(POSITIONS)))
        if logs.calls < call:
            break
        answers.append(answer)
    assert len(answers) == 8, "open, stat, and each fingerprint twice"
    # a probe never returns the content of another file at the path
    possible = (OLD, NEW) if how == "rewrite" else (OLD,)
    contents = [{position: prints(content, position) for position in POSITIONS} for content in possible]
    assert all(answer == CHANGED or (isinstance(answer, Content) and answer.prints in contents) for answer in answers)
    assert CHANGED in answers


def test_a_refusal_is_an_answer() -> None:
    logs = Logs()
    row = logs.row()
    logs.storage.refused = {"a.log"}
    answer = answer_to(logs.storage, ContentProbe(row, frozenset(POSITIONS)))
    assert isinstance(answer, Failure)
    assert "as the history wants it" in str(answer.error)


def test_answers_of_before_count_while_a_file_is_as_it_was() -> None:
    logs, memory = Logs(), FileMemory()

    def memory_of(row: Row) -> FileMemory:
        memory.begin(row.state)
        return memory

    probes, asked = ContentProbes(logs.storage, memory_of), ContentProbe(logs.row(), frozenset(POSITIONS))
    first = probes.answers_to([asked], 0.0)
    memory.until_s = 5.0
    logs.storage.refused = {"a.log"}
    assert probes.answers_to([asked], 1.0) == first
    assert probes.answers_to([asked._replace(positions=frozenset({700}))], 1.0) == first
    other = asked._replace(positions=frozenset({800}))
    assert probes.answers_to([other], 1.0) == {0: CHANGED}, "the file still waits"
    assert isinstance(probes.answers_to([other], 5.0)[0], Failure)
    logs.storage.write(logs.log, b"more\n")
    assert isinstance(probes.answers_to([ContentProbe(logs.row(), frozenset(POSITIONS))], 1.0)[0], Failure), (
        "the file has changed"
    )


@pytest.mark.parametrize("position", [0, 700, 2000])
@pytest.mark.parametrize("how", ["rewrite", "rotate"])
def test_a_range_has_one_content_whenever_the_file_changes(how: str, position: int) -> None:
    ranges = []
    for call in itertools.count(1):
        logs = Logs()
        row = logs.row(position)
        logs.do_before(call, getattr(logs, how))
        match = Match(row, IdentityRule.SAME if position else IdentityRule.NEW, row.known)
        extension = extend(logs.storage, SETTINGS, match, 0.0, None)
        if logs.calls < call:
            break
        ranges += [extension.range] if extension.range is not None else []
        assert extension.range is not None or extension.wait_s == 0
    for planned in ranges:
        contents = [content for content in (OLD, NEW) if prints(content, planned.end) == (planned.head, planned.tail)]
        assert len(contents) == 1
        assert contents[0][: planned.end].endswith(b"\n")
        assert not position or contents == [OLD], "the new file lacks the old lines"
