"""Every file below `_ftfile` is damaged in each way: the findings of verify, and the result of a repair."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.arguments import Access
from ftfile.core.codecs import READERS_ENDINGS
from ftfile.core.errors import CorruptData
from ftfile.formats.api import FORMATS
from ftfile.log.format import layout
from ftfile.log.opening import open_log
from ftfile.operate.verify.verify_directory import verify
from tests.unit.operate.every_file import ELSEWHERE, KINDS, harmed, write_directory
from tests.unit.operate.harms import ENCRYPTED, HARMS, MATRIX

if TYPE_CHECKING:
    from ftfile.operate.repair import RepairReport
    from ftfile.operate.verify.verify_directory import VerifyReport

ROOT = Path(__file__).parents[3]
PAGES = runpy.run_path(str(ROOT / ".ci/harms.py"))
CELLS = [
    pytest.param(name, harm, encrypted, id=f"{name}, {harm}{', encrypted' * encrypted}", marks=marks)
    for encrypted, marks in ((False, ()), (True, pytest.mark.slow))
    for name in MATRIX
    for harm in HARMS
]


def verified(url: str) -> VerifyReport:
    return verify(open_log(url, Access(), repairs=True).fs, full=True)


def cell_of(report: VerifyReport, repaired: RepairReport) -> str:
    """Return the text of a cell of the table, from the first finding and the findings that remain after a repair."""
    if not report.findings:
        assert repaired.steps == ()
        return ""
    worst = report.findings[0]
    result = "mended" if not repaired.findings else {"on request": "request", "no": "copy"}[worst.repair]
    return f"{worst.severity} {worst.code} {result}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "harm", "encrypted"), CELLS)
def test_what_is_found_and_mended(name: str, harm: str, encrypted: bool) -> None:
    cell = (ENCRYPTED if encrypted and name in ENCRYPTED else MATRIX)[name][HARMS.index(harm)]
    with harmed(KINDS[name], harm, encrypted=encrypted) as url:
        if "not opened" in cell:
            with pytest.raises(CorruptData, match=r"_ftfile/directory/_format.*Restore it"):
                verified(url)
            return
        before = verified(url)
        if harm in {"deleted", "emptied"} and name != "dead letters":
            quick = verify(open_log(url, Access(), repairs=True).fs)
            assert quick.findings == before.findings, "a check without the content finds the same"
        repaired = ftfile.repair(url, dry_run=False, full=True)
        assert cell_of(before, repaired) == cell
        codes = {finding.code for finding in before.findings if finding.severity != "info"}
        assert len(codes) == ("error" in cell or "warning" in cell), "one damage causes one finding"
        if "request" in cell:
            lost = [found.path for found in repaired.findings if any(act.kind == "give-up" for act in found.actions)]
            repaired = ftfile.repair(url, dry_run=False, full=True, give_up=lost, accept_lost_records=True)
        assert repaired.ok == ("copy" not in cell or "info" in cell)
        if "mended" in cell:
            after = verified(url)
            assert (after.findings, after.files, after.rows) == ((), before.files, before.rows)
            assert after.rows > 0


@pytest.mark.parametrize(
    "encrypted", [pytest.param(False, id="plain"), pytest.param(True, id="encrypted", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_found_before(name: str, encrypted: bool) -> None:
    with harmed(KINDS[name], None, encrypted=encrypted) as url:
        findings = verified(url).findings
        # The part is staged, as if its committer had died.
        waits = name == "committed part, not published"
        assert [found.code for found in findings] == ["not-published"] * waits


def test_the_table_has_every_place_of_the_layout() -> None:
    constants = {name for name, value in vars(layout).items() if isinstance(value, str) and value.startswith("_ftfile")}
    places = constants | {name for name in vars(layout) if name.endswith("_path") and not name.startswith("_")}
    named = {place for kind in KINDS.values() for place in kind.places}
    missing = places - named - ELSEWHERE
    assert not missing, f"every_file.KINDS has no file of {sorted(missing)}"
    assert named <= places
    assert MATRIX.keys() == KINDS.keys()
    assert ENCRYPTED.keys() <= KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_each_file_lies_in_the_place_that_is_named(name: str) -> None:
    kind = KINDS[name]
    with harmed(kind, None, encrypted=False) as url:
        path = kind.find(open_log(url, Access()).fs) if name != "committed part, not published" else ""
    for place in kind.places if path else ():
        value = getattr(layout, place)
        assert not isinstance(value, str) or path == value or path.startswith(f"{value}/")


def test_the_page_has_this_table() -> None:
    page = PAGES["PAGE"].read_text()
    assert page == PAGES["to_markdown"](page), "run `make docs`"


@pytest.mark.parametrize("in_store", [False, True])
def test_no_reader_takes_one_for_data(tmp_path: Path, in_store: bool) -> None:
    """Spark ignores names that begin with an underscore. DuckDB selects files by their depth and extension."""
    write_directory(tmp_path, in_store=in_store)
    own = [path.relative_to(tmp_path / layout.META) for path in (tmp_path / layout.META).rglob("*") if path.is_file()]
    assert len({path.parts[0] for path in own}) >= (5 if in_store else 9)
    assert [path for path in own if path.name[0] != "_" or len(path.parts) == 1] == []
    assert {path.suffix for path in own} & {".txt", *READERS_ENDINGS, *map(".{}".format, FORMATS)} == set()
