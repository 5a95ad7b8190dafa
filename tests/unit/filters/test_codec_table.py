"""The table of line codecs. A failure names each place that lacks a codec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ftfile.core.codecs import CODECS, READERS_ENDINGS, codec_of
from ftfile.filters.chain import codec

ROOT = Path(__file__).parents[3]


def text(path: str) -> str:
    return (ROOT / path).read_text()


def between(path: str, start: str, end: str) -> str:
    """Return the text of a file between two markers."""
    return text(path).partition(start)[2].partition(end)[0]


def lacking(name: str) -> list[str]:
    """Return the places that lack a codec."""
    row = CODECS[name]
    line_codec = codec(name)
    levels = "{} to {} ({})".format(*line_codec.levels, line_codec.level_default) if line_codec.levels else "none"
    line = f"| `{name}` | `{row.ending}` | {levels} |"
    checksums = between("docs/compression.md", "- *Damage.* ", " files contain checksums")
    written = between("docs/options.md", "| `compression` (write) |", "\n")
    libraries = between("benchmarks/compression.py", "_LIBRARIES: dict", "\n}\n")
    decoders = between("tests/unit/writing/files/test_filters.py", "DECODERS: dict", "\n}\n")
    has = {
        f"docs/compression.md, the table: {line} …": line in text("docs/compression.md"),
        "docs/compression.md, *Damage*: if its files carry checksums": (f"`{name}`" in checksums) == row.has_checksum,
        "docs/options.md: run `make docs`": f"`{name}`" in written,
        "benchmarks/compression.py, _LIBRARIES: only its library": f'"{name}": ' in libraries,
        "tests/unit/writing/files/test_filters.py, DECODERS: an independent decoder": f'"{row.ending}": ' in decoders,
    }
    return [place for place, is_there in (has | has_package(name, row.package)).items() if not is_there]


def has_package(name: str, package: str) -> dict[str, bool]:
    """Return the places that must name the package of a codec, and whether they do."""
    if not package:
        return {}
    project, line = text("pyproject.toml"), f"| `{package}` | `{name}` |"
    advice = f"`pip install 'ftfile[{name}]'`"
    return {
        f"pyproject.toml: the extra {name}": bool(re.search(rf'^{name} = \["{package}>=', project, re.MULTILINE)),
        f"pyproject.toml, unit: the extra {name}": bool(re.search(rf'^  "ftfile\[[\w,]*\b{name}\b', project, re.M)),
        f"docs/internals/dependencies.md: {line} …": line in text("docs/internals/dependencies.md"),
        f"docs/compression.md: {advice}": advice in text("docs/compression.md"),
    }


@pytest.mark.parametrize("name", CODECS)
def test_every_place_has_every_codec(name: str) -> None:
    places = lacking(name)
    assert not places, "\n".join(("lack it:", *places))


@pytest.mark.parametrize("name", CODECS)
def test_a_class_is_what_its_row_says(name: str) -> None:
    line_codec = codec(name)
    assert (line_codec.name, line_codec.extension, line_codec.joins) == (name, CODECS[name].ending, True)
    assert codec_of(f"a{CODECS[name].ending}") == name


def test_pages_name_all_endings_by_which_readers_decompress() -> None:
    named = between("docs/directories-and-names.md", "and names that end in", "without that codec")
    assert set(re.findall(r"`(\.\w+)`", named)) == READERS_ENDINGS, "docs/directories-and-names.md, 'names that end in'"


def test_endings_are_told_apart() -> None:
    endings = [row.ending for row in CODECS.values()]
    assert not [(one, other) for one in endings for other in endings if one != other and one.endswith(other)]
    assert len({*endings}) == len(endings)
