"""The table of formats, and each place that must list them and cannot be derived from it: a failure names the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftfile.core.options import kinds
from ftfile.formats.api import FORMATS, LineFormat, format_from_options
from ftfile.source.decode import READERS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", [*dict.fromkeys((*kinds.FORMATS, *FORMATS))])
def test_every_place_has_every_format(name: str) -> None:
    page, project = (ROOT / "docs/formats/README.md").read_text(), (ROOT / "pyproject.toml").read_text()
    module = FORMATS.get(name, "ftfile.formats.?:").partition(":")[0]
    is_of_lines = name in FORMATS and isinstance(format_from_options(name, {}), LineFormat)
    codecs = next(line for line in page.splitlines() if line.startswith("| `compression` |"))
    has = {
        "core/options/kinds.py, FORMATS": name in kinds.FORMATS,
        "formats/api.py, FORMATS": name in FORMATS,
        "source/decode.py, READERS": name in READERS,
        "pyproject.toml, the contract of formats": f'"{module}"' in project,
        f"docs/formats/{name}.md": (ROOT / f"docs/formats/{name}.md").is_file(),
        f"docs/formats/README.md: a link to {name}.md": f"({name}.md" in page,
        "docs/formats/README.md, Compression: a column": is_of_lines or f" {name} |" in codecs,
    }
    places = [place for place, is_there in has.items() if not is_there]
    assert not places, "\n".join(("lack it:", *places))
