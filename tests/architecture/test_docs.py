from __future__ import annotations

import re
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
