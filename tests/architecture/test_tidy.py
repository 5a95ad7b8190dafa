from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    *(".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "conftest.py"),
    *("benchmarks", "docs", "pyproject.toml", "src", "tests"),
}
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b|# *XX" + "X")  # split, because otherwise this line would match
# A home directory, or this checkout: text that names them works on one machine only.
HOMES = ("/home/", "/Users/", "/root/", f"{ROOT}/")
MACHINE = re.compile(rf"(?<![\w.}}])({'|'.join(map(re.escape, HOMES))})\w")


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def files_below(folder: Path) -> Iterator[Path]:
    """Every file that is committed or would be."""
    for path in sorted(folder.iterdir()):
        if not any(fnmatch.fnmatch(name, pattern) for name in (path.name, f"/{short(path)}") for pattern in IGNORED):
            yield from files_below(path) if path.is_dir() else [path]


IGNORED = [".git", *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line)]
FILES = list(files_below(ROOT))
PYTHON = [path for path in FILES if path.suffix == ".py"]
SOURCES = [path for path in PYTHON if path.is_relative_to(ROOT / "src") and path.name != "__main__.py"]


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT / "src" if path in SOURCES else ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_top_level_is_fixed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == TOP_LEVEL


class Module(NamedTuple):
    """The parts of a parsed module that tests check. The trees of all modules would slow down garbage collection."""

    defined: set[str]  # functions and classes at its top, without a leading underscore
    imported: list[tuple[str, str]]  # modules and the names imported from them


@functools.cache
def parsed(path: Path) -> Module:
    tree = ast.parse(path.read_text())
    everywhere = [*statements(tree)]
    return Module(
        {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"},
        [
            (node.module, alias.name)
            for node in everywhere
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        ],
    )


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield each statement at any depth. Expressions are skipped: they are most of a tree and contain no statements."""
    left: list[ast.stmt] = [*tree.body]
    while left:
        node = left.pop()
        yield node
        for block in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for name in ("body", "orelse", "finalbody"):
                left += getattr(block, name, ())


def test_text_is_finished_and_at_home_everywhere() -> None:
    found = [
        f"{short(path)}, line {number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), start=1)
        if UNFINISHED.search(line) or MACHINE.search(line)
    ]
    assert not found


def test_all_names_what_a_module_offers() -> None:
    wrong = []
    for path in SOURCES:
        module = importlib.import_module(dotted(path))
        listed = getattr(module, "__all__", None)
        if listed is None:
            continue
        assert isinstance(listed, tuple), short(path)
        missing = [*parsed(path).defined.difference(listed), *(name for name in listed if not hasattr(module, name))]
        wrong += [f"{short(path)}: {name}" for name in missing]
    assert not wrong


def test_modules_of_users_name_what_they_offer() -> None:
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if "internals" not in page.parts)]
    named = {name for page in pages for name in re.findall(r"ftfile(?:\.\w+)+", page.read_text())}
    public = [
        path
        for path in SOURCES
        if path.name != "__init__.py"
        if any(name == dotted(path) or name.startswith(f"{dotted(path)}.") for name in named)
        or dotted(path).startswith("ftfile.testing.")
    ]
    assert public
    assert not [short(path) for path in public if not hasattr(importlib.import_module(dotted(path)), "__all__")]


def test_modules_take_from_each_other_only_what_they_offer() -> None:
    """mypy refuses imports of names that a module itself imports (no_implicit_reexport)."""
    modules = {dotted(source) for source in SOURCES}
    taken = [
        f"{short(path)}: {name} of {module}"
        for path in PYTHON
        for module, name in parsed(path).imported
        if module in modules and f"{module}.{name}" not in modules
        if not is_offered(importlib.import_module(module), name)
    ]
    assert not taken


def is_offered(module: ModuleType, name: str) -> bool:
    listed = getattr(module, "__all__", None)
    if listed is None:
        return name[0] != "_" or name.startswith("__")
    return name in {*listed, "*", "__all__"}
