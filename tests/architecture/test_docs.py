from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """The names that headings get, as code hosts make them."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in sorted(PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    source = ROOT / page
    prose = re.sub(r"```.*?```|`[^`]*`", "", source.read_text(), flags=re.DOTALL)
    broken = []
    for target, anchor in LINK.findall(prose):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (source.parent / target).resolve() if target else source
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert not broken


def test_every_target_is_there() -> None:
    """Of those that pages, programs and other targets name."""
    makefile = (ROOT / "Makefile").read_text()
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z][a-z-]*)", page.read_text())}
    for rule in re.findall(r"^[a-z-]+:([^=#\n]*)(?:##.*)?$", makefile, flags=re.MULTILINE):
        named |= set(re.findall(r"(?<![\w$(.-])[a-z][a-z-]+(?![\w%)-])", re.sub(r"\$\(.*?\)", "", rule)))
    assert {"test", "bench", "object-store-tests", "environment"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))


def test_prose_has_one_width(tmp_path: Path) -> None:
    prose = runpy.run_path(str(ROOT / ".ci/prose.py"))
    wide = [
        f"{page.relative_to(ROOT)}: {lines[0][:60]}"
        for page in PAGES
        for is_prose, lines in prose["blocks"](page.read_text())
        if is_prose and prose["is_wide"](lines)
    ]
    assert not wide, "run `make format`"
    page = tmp_path / "page.md"
    line, code = f"- {'word ' * 30}`a b`", f"```\n{'code ' * 30}\n```"
    page.write_text(f"{line}\n\n{code}\n")
    prose["main"]([str(page)])
    assert page.read_text() == f"- {'word ' * 22}word\n  {'word ' * 7}`a b`\n\n{code}\n"
