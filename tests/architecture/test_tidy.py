from __future__ import annotations

import ast
import fnmatch
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    *(".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "conftest.py"),
    *("benchmarks", "docs", "pyproject.toml", "src", "tests"),
}
MODULE_LINES_MAX = 400
TEST_LINES_MAX = 800
FUNCTION_LINES_MAX = 50
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b|# *XX" + "X")  # in pieces, or this line would be found
# Somebody's home, and this very checkout: what names them works on one machine.
HOMES = ("/home/", "/Users/", f"{Path.home()}/", f"{ROOT}/")
MACHINE = re.compile(rf"(?<![\w.}}])({'|'.join(map(re.escape, HOMES))})\w")


def files_below(folder: Path) -> Iterator[Path]:
    """Every file that is, or would be, committed."""
    for path in sorted(folder.iterdir()):
        if not any(fnmatch.fnmatch(path.name, pattern) for pattern in IGNORED):
            yield from files_below(path) if path.is_dir() else [path]


IGNORED = [".git", *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line)]
FILES = list(files_below(ROOT))
PYTHON = [path for path in FILES if path.suffix == ".py"]
SOURCES = [path for path in PYTHON if path.is_relative_to(ROOT / "src") and path.name != "__main__.py"]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT / "src" if path in SOURCES else ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_top_level_is_fixed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == TOP_LEVEL


@pytest.mark.parametrize("path", PYTHON, ids=short)
def test_modules_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    lines_max = TEST_LINES_MAX if path.is_relative_to(ROOT / "tests") else MODULE_LINES_MAX
    assert len(text.splitlines()) <= lines_max
    lengths = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }
    assert not {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES_MAX}


@pytest.mark.parametrize("path", FILES, ids=short)
def test_text_is_finished_and_at_home_everywhere(path: Path) -> None:
    found = [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), start=1)
        if UNFINISHED.search(line) or MACHINE.search(line)
    ]
    assert not found


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_all_names_what_a_module_offers(path: Path) -> None:
    defined = {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    module = importlib.import_module(dotted(path))
    listed = getattr(module, "__all__", ())
    assert isinstance(listed, tuple)
    assert defined <= set(listed)
    assert not [name for name in listed if not hasattr(module, name)]


def imported_names(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", PYTHON, ids=short)
def test_modules_take_from_each_other_only_what_they_offer(path: Path) -> None:
    modules = {dotted(source): source for source in SOURCES}
    taken = {
        (module, name)
        for module, name in imported_names(path)
        if module in modules and f"{module}.{name}" not in modules
        if name not in getattr(importlib.import_module(module), "__all__", ())
    }
    assert not taken
