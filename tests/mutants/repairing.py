"""Mistakes of verifying a directory, of repairing it, and of what it says of itself."""

from __future__ import annotations

from tests.mutants.mutant import dropped, wrong

VERIFY = "tests/unit/maintenance/test_verify.py"
REPAIR = "tests/unit/maintenance/test_repair.py"
STATUS = "tests/unit/maintenance/test_status.py"

VERIFIED = (
    wrong(
        "a range is compared by what it keeps alone",
        "maintenance/verify/history.py",
        "return self.kept & _WHOLE, self.ended & _WHOLE, self.removes & _WHOLE",
        "return self.kept & _WHOLE, self.ended & _WHOLE, 0",
        f"{VERIFY}::TestHealthy",
    ),
    wrong(
        "an old break of the log is passed over",
        "maintenance/verify/log_scan.py",
        "            if record is None:\n                if version < last:",
        "            if record is None:\n                if version < 0:",
        f"{VERIFY}::TestLog::test_a_hole",
    ),
    wrong(
        "what a range knows beyond the head is believed",
        "maintenance/verify/log_scan.py",
        "for name in list_ranges(fs) if name.last > head}",
        "for name in list_ranges(fs) if name.last < 0}",
        f"{VERIFY}::TestDerived::test_a_range_beyond_the_head",
    ),
    wrong(
        "of two live files of one name the first is taken for the file",
        "maintenance/verify/misplaced.py",
        "owner = next((add for add in adds if has_content(files.fs, final, add)), None)",
        "owner = adds[0]",
        f"{VERIFY}::TestParts::test_one_name_twice",
    ),
    wrong(
        "a foreign file of the recorded length is taken for the part",
        "commit/places.py",
        "return has_content(fs, final.path, add)",
        "return final.size_bytes == add.length",
        f"{VERIFY}::TestParts::test_a_foreign_file_of_the_same_length_at_the_name",
    ),
    wrong(
        "whatever is where a removed part was is taken for it",
        "maintenance/verify/files.py",
        "if not has_content(files.fs, path, remove):",
        "if not files.fs.exists(path):",
        f"{VERIFY}::TestParts::test_a_foreign_file_where_a_removed_part_was",
    ),
    wrong(
        "what is committed while one verifies is called unknown",
        "maintenance/verify/run.py",
        "    _forget_newer(reader, scan, files)\n",
        "",
        f"{VERIFY}::TestHealthy::test_commits_meanwhile_are_no_findings",
    ),
)
REPAIRED = (
    wrong(
        "a repair gives up what is lost without being asked",
        "maintenance/repair/run.py",
        "return finding.path in self.give_up",
        "return True",
        f"{REPAIR}::TestParts::test_a_missing_part_is_given_up_by_name_only",
    ),
    wrong(
        "a renamed part is looked for at the name that cannot exist",
        "maintenance/repair/rewriting.py",
        'return replace(Remove.of(add), final_path=f"{layout.RETIRED}/{add.id}.given-up")',
        "return Remove.of(add)",
        f"{REPAIR}::TestParts::test_the_record_of_another_name_can_be_published_by_anybody",
    ),
    dropped(
        "nobody is told that what was renamed is published",
        "maintenance/repair/run.py",
        "mender.settle(report)",
        f"{REPAIR}::TestParts::test_a_name_that_cannot_exist",
    ),
    wrong(
        "content is bound to a name that the part has no more",
        "maintenance/repair/rewriting.py",
        "new_id = layout.unique_part(add.id) + ids.unique()[len(layout.unique_part(add.id)) :]",
        "new_id = ids.unique()",
        f"{REPAIR}::test_an_encrypted_part_gets_another_name",
    ),
    wrong(
        "files that records made visible stay when these are put aside",
        "maintenance/repair/cutting.py",
        "for visible in _made_visible(fs, name.version):",
        "for visible in ():",
        f"{REPAIR}::TestLog::test_a_hole",
    ),
    wrong(
        "a hidden file is taken from the part that it belongs to",
        "maintenance/repair/mending.py",
        "if source == layout.retired_path(add.id):",
        "if source:",
        f"{REPAIR}::TestParts::test_a_live_part_that_was_retired",
    ),
)
STATED = (
    wrong(
        "what nobody hinted at is called unpublished",
        "maintenance/status.py",
        "            if problem is not None and head.is_live(add, entry.version):",
        '            problem = problem or ""\n            if head.is_live(add, entry.version):',
        f"{STATUS}::test_what_was_published_is_not_listed",
    ),
)
REPAIRING = (*VERIFIED, *REPAIRED, *STATED)
