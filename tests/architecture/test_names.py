"""Names in docstrings and comments, and commands and names in the pages for contributors, are those that there are."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
import tokenize
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.architecture.test_docs import is_defined, is_place, is_program

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "ftfile"
ARCHITECTURE = ROOT / "docs/internals/architecture.md"
PAGES = (ROOT / "CONTRIBUTING.md", ARCHITECTURE)
MODULE_LIST = runpy.run_path(str(ROOT / ".ci/modules.py"))
# Dotted names in code spans of docstrings and comments that are not names of modules, classes or values of ftfile.
OTHER_NAMES = {
    # entry-point groups
    *("ftfile.encoders", "ftfile.filesystems", "ftfile.filters", "ftfile.formats", "ftfile.key_providers"),
    # columns and values of users
    *("a.b", "a.element.b", "address.city", "df.rename_axis", "df.reset_index", "pa.array", "pa.scalar", "pl.col"),
    *("pc.field", "provider.collation", "1.5h"),
    # variables in the same module
    *("fs.create_exclusive", "fs.put", "files.staged", "lag.kind", "store.put", "version.rows"),
    # classes, properties and files of other programs
    *("StructType.fromJson", "StructType.json", "zipimporter.invalidate_caches"),
    *("ExternalCatalogUtils.escapePathName", "KeyToolkit.encryptKeyLocally"),
    *("delta.dataSkippingStatsColumns", "pyspark.zip", "vN.metadata.json", "DataFrame.where"),
}
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def spans_of_source(path: Path) -> Iterator[str]:
    """Yield the code spans in the docstrings and comments of a module."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from SPAN.findall(re.sub(r"\n\s*", " ", ast.get_docstring(node, clean=False) or ""))
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield from SPAN.findall(token.string)


class Class(NamedTuple):
    """The names in the body of a class, also of attributes, and the names of its bases."""

    names: set[str]
    bases: set[str]


def classes_of(directory: Path) -> dict[str, Class]:
    """Return the classes below a directory by name; classes of the same name are merged."""
    classes: dict[str, Class] = {}
    for path in directory.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found = classes.setdefault(node.name, Class(set(), set()))
                found.names.update(defined_in(node))
                found.bases.update(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))
    return classes


def defined_in(tree: ast.AST) -> set[str]:
    """Return the names of functions, classes, values and attributes that a module or a class defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def has_attribute(kind: str, name: str) -> bool:
    """Return True if a class of ftfile, or one of its bases, has an attribute."""
    waiting, seen = [kind], set[str]()
    while waiting:
        found = CLASSES.get(waiting.pop(), Class(set(), set()))
        if name in found.names:
            return True
        waiting += found.bases - seen
        seen |= found.bases
    return False


CLASSES = classes_of(PACKAGE)
# Modules by their names without folders.
MODULES: dict[str, list[str]] = {}
for _path in sorted(PACKAGE.rglob("*.py")):
    _parts = _path.relative_to(SOURCE).with_suffix("").parts
    MODULES.setdefault(_parts[-1], []).append(".".join(_parts))


def is_of_library(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def is_known(name: str) -> bool:
    """Return True for a dotted name of ftfile or of a library.

    It can begin with a folder, a module or a class of ftfile, or with a package.
    """
    first, _, rest = name.partition(".")
    if name in OTHER_NAMES or re.match(r"(spark|storage)\.", name):
        return True  # an option, or a call of a session
    if first in CLASSES:
        return has_attribute(first, rest.split(".")[0])
    if is_defined(name) or any(is_defined(f"{module}.{rest}") for module in MODULES.get(first, ())):
        return True
    if hasattr(builtins, first):
        return is_of_library(f"builtins.{name}")
    return first in sys.stdlib_module_names | {"pyarrow", "opentelemetry", "pytest", "typer"} and is_of_library(name)


def stale_names(path: Path) -> list[str]:
    stale = []
    for span in spans_of_source(path):
        name = re.split(r"[(\[ =]", span)[0].rstrip(",;:/")
        if re.fullmatch(r"[\w/-]+\.(py|java)(::\w+)*", name):
            is_stale = not (is_program(name) or (path.parent / name).exists())
        elif re.fullmatch(r"\w+(\.\w+)+", name):
            is_stale = not is_known(name)
        else:
            continue
        if is_stale:
            stale.append(name)
    return stale


def test_docstrings_and_comments_name_modules_and_attributes_that_there_are() -> None:
    stale = {str(path.relative_to(ROOT)): names for path in SOURCE.rglob("*.py") if (names := stale_names(path))}
    assert not stale


def test_a_stale_name_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""The steps of `write.batch`, and of `log.protocol.commit`; see `gone_module.py` and `publish.py`."""\n'
        "rolling = {}  # see `write.files.rolling_groups`, `rolling_groups.GroupTotals` and `CommitLog.vanish`\n"
    )
    assert stale_names(module) == ["write.batch", "gone_module.py", "write.files.rolling_groups", "CommitLog.vanish"]


# ------------------------------------------------------------------------------------------- the pages for contributors
def spans_of_page(page: Path) -> list[str]:
    """Return the code spans of a page, also those over two lines, and the lines of its blocks of shell."""
    text = page.read_text()
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [re.sub(r"\s*\n\s*", " ", span) for span in re.findall(r"`([^`]+)`", prose)] + blocks


def commands() -> list[str]:
    found = {span for page in PAGES for span in spans_of_page(page) if re.match(r"(make|\.venv/bin/\S+|ftfile) ", span)}
    return sorted(found)


def collected(arguments: list[str]) -> int:
    """Return the number of tests that a command line of pytest selects."""
    without_workers = re.sub(r"-n \d+ ?", "", " ".join(arguments)).split()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", *without_workers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(r"^(\d+)(?:/\d+)? tests? (?:collected|selected)", done.stdout, re.MULTILINE)
    return int(found[1]) if found is not None else 0


def problem_of_make(arguments: list[str]) -> str:
    makefile = (ROOT / "Makefile").read_text()
    targets = " ".join(re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", makefile, flags=re.MULTILINE)).split()
    for argument in arguments:
        variable, is_variable, value = argument.partition("=")
        if not is_variable and argument not in targets:
            return f"there is no target {argument}"
        if is_variable and f"$({variable}" not in makefile:
            return f"no target uses {variable}"
        if variable == "FILE" and not all(is_place(path) for path in value.split()):
            return f"there is no file {value}"
    return ""


def problem_of_python(arguments: list[str]) -> str:
    _, module, *more = arguments
    if importlib.util.find_spec(module) is None:
        return f"there is no module {module}"
    if module == "pytest" and not collected(more):
        return "no test is selected"
    return ""


def problem_of_ftfile(arguments: list[str]) -> str:
    command_line = [sys.executable, "-m", "ftfile.tools.cli", arguments[0], "--help"]
    if subprocess.run(command_line, capture_output=True, check=False).returncode:
        return f"there is no command {arguments[0]}"
    return ""


PROBLEMS = {"make": problem_of_make, ".venv/bin/python": problem_of_python, "ftfile": problem_of_ftfile}


def problem_of(command: str) -> str:
    """Return why a command of a page cannot do what the page expects; empty if it can."""
    program, *arguments = shlex.split(command)
    return PROBLEMS[program](arguments)


@pytest.mark.parametrize("command", commands())
def test_each_command_for_contributors_can_be_run(command: str) -> None:
    assert not problem_of(command)


def test_a_stale_command_is_noticed() -> None:
    assert problem_of("make nothing") == "there is no target nothing"
    assert problem_of("make try FILE=src/ftfile/nothing.py") == "there is no file src/ftfile/nothing.py"
    assert problem_of("make unit NOTHING=1") == "no target uses NOTHING"
    assert problem_of(".venv/bin/python -m pytest -m slow tests/unit/tools/cli/test_page.py") == "no test is selected"
    assert problem_of(".venv/bin/python -m tests.nothing") == "there is no module tests.nothing"
    assert problem_of("ftfile nothing") == "there is no command nothing"


def words_of_code() -> set[str]:
    """Return the words of all programs, as which contributors find a name."""
    words: set[str] = set()
    for top in ("src", "tests", "benchmarks", ".ci"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in {".py", ".java"} or (top == ".ci" and path.is_file() and path.suffix != ".pyc"):
                words |= {*re.findall(r"\w+", path.read_text())}
    return words | {*re.findall(r"\w+", (ROOT / "Makefile").read_text() + (ROOT / "pyproject.toml").read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_name_for_contributors_is_there(page: Path) -> None:
    words = words_of_code()
    missing = []
    for span in spans_of_page(page):
        name = span.lstrip("@").removesuffix("()")
        if re.fullmatch(r"--[a-z-]+", name):
            known = name[2:].replace("-", "_") in words or name[2:] in words
        elif re.fullmatch(r"\w+", name):
            known = name in words or is_place(f"**/{name}")
        elif re.fullmatch(r"[\w./-]*\w/?", name) and "/" in name and " " not in name:
            known = is_place(name.rstrip("/")) or is_program(name) or (ROOT / name.split("/")[0]).exists()
        else:
            continue
        if not known:
            missing.append(span)
    assert not missing


def module_at(name: str) -> Path:
    (path,) = (top / name for top in (PACKAGE, ROOT) if (top / name).is_file())
    return path


def misplaced(text: str) -> list[str]:
    """Return the names that a page finds in a module that does not define them: "`RULES` of `rules.py`"."""
    found = []
    prose = re.sub(r"\s+", " ", text)
    places = r"`([\w/]+/\w+\.py)`(?: and of `([\w/]+/\w+\.py)`)?"
    for first, second, *modules in re.findall(rf"`(\w+)`(?: or `(\w+)`)? (?:of|in) {places}", prose):
        for module in filter(None, modules):
            found += [
                f"{name} of {module}"
                for name in (first, second)
                if name and name not in defined_in(ast.parse(module_at(module).read_text()))
            ]
    return found


def test_names_are_in_the_modules_that_the_page_names() -> None:
    text = ARCHITECTURE.read_text()
    assert not misplaced(text)
    assert misplaced("`RULES` or `NOTHING` of\n  `writing/files/rolling_rules.py`") == [
        "NOTHING of writing/files/rolling_rules.py"
    ]


def test_the_page_lists_all_modules() -> None:
    text = ARCHITECTURE.read_text()
    listed = MODULE_LIST["to_markdown"](text)
    assert listed == text, "run `make tables`"
    assert len(re.findall(r"^\| `\w+\.py` \| .+ \|$", listed, re.MULTILINE)) > 400
    assert not re.findall(r"^\| .* \|  \|$", listed, re.MULTILINE), "give these modules docstrings"
