"""Each kept input of the fuzzer is accepted, or refused with a documented error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.corpora import KEPT, keep, kept_inputs, packed, unpacked
from tests.fuzz.keep import shortened
from tests.fuzz.results import run_of
from tests.fuzz.target import Draws, Target, accepts
from tests.fuzz.targets import all_targets, target_named

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = all_targets()
GIT_BYTES_MAX = 900_000


@pytest.mark.filterwarnings("ignore")  # of Python, about regular expressions in options
@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_are_accepted_or_refused(name: str) -> None:
    accepted = [accepts(TARGETS[name], data) for data in kept_inputs(name)]
    assert any(accepted), "no input reaches the end of the parser"


def test_each_corpus_has_a_target() -> None:
    assert {path.name for path in KEPT.iterdir()} == {*TARGETS}


def test_all_corpora_are_small() -> None:
    assert sum(path.stat().st_size for path in KEPT.rglob("*") if path.is_file()) < GIT_BYTES_MAX


def test_inputs_are_packed() -> None:
    inputs = [b"", b"a", b"\0\n" * 500]
    assert list(unpacked(packed(inputs))) == inputs


def test_the_smallest_inputs_and_findings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.corpora.KEPT", tmp_path)
    monkeypatch.setattr("tests.fuzz.corpora.INPUTS_BYTES_MAX", 5)
    assert keep("records", [b"long", b"abc", b"a", b"a"]) == 2
    (tmp_path / "records/found-1").write_bytes(b"found")
    assert list(kept_inputs("records")) == [b"a", b"abc", b"found"]


def test_a_target_is_found_by_its_name() -> None:
    assert target_named("records").parse is TARGETS["records"].parse
    with pytest.raises(LookupError):
        target_named("unknown")


def test_first_bytes_choose_settings() -> None:
    draws = Draws(b"\1\5line\nrest")
    assert (draws.byte(), draws.choice("abc"), draws.line(), draws.rest()) == (1, "c", b"line", b"rest")
    assert (Draws(b"").byte(), Draws(b"").choice("abc")) == (0, "a")


def test_a_finding_is_shortened_to_the_same_error() -> None:
    def parse(data: bytes) -> None:
        if b"x" in data and b"y" in data:
            raise KeyError(data)
        if len(data) < 3:
            raise ValueError("another error")

    assert shortened(Target(parse, list, (ValueError,)), b"a" * 50 + b"x" + b"b" * 50 + b"y") == b"xy"


LOG = """#2\tINITED cov: 20 ft: 9 corp: 1/2b exec/s: 0 rss: 121Mb
#900\tDONE   cov: 31 ft: 12 corp: 3/9b lim: 101 exec/s: 300 rss: 122Mb
{}stat::number_of_executed_units: 900
"""


def test_results_are_read_from_the_log(tmp_path: Path) -> None:
    assert run_of("records", tmp_path).row() == "| records | - | 0 | 0 | not started |"
    (tmp_path / "log").write_text(LOG.format("Done 900 runs in 3 second(s)\n"))
    assert run_of("records", tmp_path).row() == "| records | 3 | 900 | 31 | none |"
    (tmp_path / "log").write_text(LOG.format(""))
    (tmp_path / "found").mkdir()
    (tmp_path / "found/crash-1").touch()
    assert run_of("records", tmp_path).row() == "| records | - | 900 | 31 | crash-1 |"
