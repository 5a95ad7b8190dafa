"""Home-made phrases in code, tests and documentation: their number may only fall."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# Each phrase, and what plain technical English has instead. A phrase can be right in one sentence, so the counts are
# limits of a folder, and not 0.
PHRASES = {
    r"\bthose (?:that|of|in|with|which|who)\b": "the noun: 'files that …', 'the settings of …'",
    r"\bis no (?!longer\b|more\b)\w+": "'is not a …'",
    r"\bare no (?!longer\b|more\b)\w+": "'are not …'",
    r"\b(?!stand)(?<!let )alone\b": "'only'",
    r"\bof which\b": "two sentences, or 'whose'",
    r"\banew\b": "'again', 're-'",
    r"\bbeside\b": "'next to', 'while … runs', 'compared with'",
    r"\blikewise\b": "'the same for …', 'also'",
    r"\bamid\b": "'during', 'while'",
    r"\bgo(?:es)? on\b": "'continue', 'resume'",
    r"\bgave up\b|\bgiven up\b|\bgives? up\b": "'abandon', 'stop', 'fail'",
    r"\bas it came\b|\bas they came\b": "'unchanged'",
    r"\bat hand\b": "'available'",
    r"\bby itself\b|\bby themselves\b": "'automatically', 'on its own'",
    r"\bis to be\b|\bare to be\b": "'must be', 'will be'",
    r"\bwhatever\b": "name the cases",
    r"\bnobody\b|\beverybody\b|\banybody\b": "the process, reader or writer that is meant",
    r"\bas (?:far|long) as (?:it|they) (?:can|is|are)\b": "'if', 'while'",
    r"\bthere (?:is|are) none\b": "'there is no …', 'it is missing'",
    r"\bdear\b": "'expensive', 'slow'",
    r"\bthe like\b": "'similar …', or the list",
    r"\bput(?:s)? (?:it |them )?(?:aside|back)\b": "'quarantine', 'restore'",
    r"\bfound (?:to be |there)\b|\bwas found\b": "'exists', 'is'",
    r"\bthat is (?:there|left)\b|\bthat are (?:there|left)\b|\bwhat is left\b": "'remaining', 'existing'",
    r"\bwhat (?:it|they|is|was|a|the|has|users?|others?) \w+": "the noun that is meant",
    r"\bmends?\b|\bmended\b": "'repair', 'fix'",
    r"\bcares? for\b": "'maintain'",
    r"\blooks? (?:again|at|into|for|up)\b": "'check', 'read', 'inspect', 'search'",
    r"\bsays?\b|\btells?\b|\btold\b": "'reports', 'returns', 'contains', 'shows'",
    r"\bin turn\b": "'in sequence', 'consecutive'",
    r"\bsuch a\b|\bsuch an\b": "'a'",
    r"\bmay (?:be|have) (?:there|gone)\b|\bis gone\b|\bare gone\b": "'is deleted', 'is missing'",
    r"\bit(?:s)? own\b|\btheir own\b|\bof (?:its|their|his|one's) own\b": "leave out, or 'separate'",
    r"\bjust as\b|\balike\b": "'the same way'",
    r"\bhas (?:been )?made\b|\bmakes? (?:of|sure)\b|\bmade of\b": "'create', 'build', 'ensure'",
}
# The numbers only fall: lower them with the text.
MAXIMA = {"src": 299, "tests": 540, "docs": 73, "README.md": 0, "CONTRIBUTING.md": 2, "CHANGELOG.md": 1}
# A limit this much above the count is out of date.
SLACK = 30


def lines_of(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line of Python and Markdown."""
    paths = [root] if root.is_file() else sorted([*root.rglob("*.py"), *root.rglob("*.md")])
    for path in paths:
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line


@pytest.mark.parametrize("name", MAXIMA)
def test_home_made_phrases_only_become_fewer(name: str) -> None:
    matches = []
    for place, line in lines_of(ROOT / name):
        for phrase, instead in PHRASES.items():
            matches += [f"{place}: {match[0]!r}: write {instead}" for match in re.finditer(phrase, line)]
    listed = "\n".join(matches)
    assert len(matches) <= MAXIMA[name], (
        f"{len(matches)} home-made phrases in {name}, and at most {MAXIMA[name]} are accepted. Name the thing, the "
        f"actor and its verb, in short sentences. The phrases:\n{listed}"
    )
    assert len(matches) > MAXIMA[name] - SLACK, f"{len(matches)} phrases in {name}: lower its limit in MAXIMA"
