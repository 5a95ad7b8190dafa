from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    *(".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "conftest.py"),
    *("benchmarks", "docs", "pyproject.toml", "src", "tests"),
}
MODULE_LINES_MAX = 450
MODULES_MAX = 16  # of a folder, without its __init__
TEST_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
# Functions with seven parameters or more: public functions, by name, and steps of the protocol. The number only falls.
MANY_PARAMETERS = 7
MANY_PARAMETERS_MAX = 14
# Functions that return a function, such as decorators. Other code returns a value with methods. The number only falls.
FUNCTION_MAKERS_MAX = 9
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b|# *XX" + "X")  # split, because otherwise this line would match
# A home directory, or this checkout: text that names them works on one machine only.
HOMES = ("/home/", "/Users/", f"{Path.home()}/", f"{ROOT}/")
MACHINE = re.compile(rf"(?<![\w.}}])({'|'.join(map(re.escape, HOMES))})\w")

# Habitual riddles and their replacements: name the thing and the actor.
HABITS = {
    r"\b(?:say|says|said|tell|tells|told) whether\b": "Return True if …",
    r"\b(?-i:Returns?) whether\b": "Return True if …",
    r"\b(?-i:Returns?) (?:(?:by|with|for|in|from|to|of) )?what\b": "Return the …, with a noun",
    r"\b(?-i:Returns?) (?:that|those) (?:of|which|with)\b": "Return the …, with a noun",
    r'"""(?:What|Whether|That|Who)\b': "a noun, or Return the …",
    r"\bwhat (?:becomes|became|comes|came) of\b": "the fate, the result",
    r"\bwhat (?:is|was) known\b": "the known files, the head",
    r"\bso many\b": "a number of",
    r"\bfor so long\b": "for … seconds",
    r"\bwho(?:so)?ever\b": "a process that",
    r"\btold of\b": "reported",
    r"\blook(?:s|ed|ing)? after\b": "checks, repairs",
}
# A value is named after its content (record, matches, row), not after its history. The number only falls.
HABIT_NAMES = {"found", "each", "known", "own", "wanted", "given", "kept", "others", "made", "left", "told"}
HABIT_NAMES_MAX = 47


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
    long: list[str]  # functions
    broad: list[str]  # functions with many parameters
    makers: list[str]  # functions that return a function
    imported: list[tuple[str, str]]  # modules and the names imported from them
    bound: list[str]  # variables and parameters, once for each binding


@functools.cache
def parsed(path: Path) -> Module:
    tree = ast.parse(path.read_text())
    everywhere = [*statements(tree)]
    return Module(
        {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"},
        [node.name for node in everywhere if isinstance(node, ast.FunctionDef) and is_long(node)],
        [node.name for node in everywhere if isinstance(node, ast.FunctionDef) and is_broad(node)],
        [*functions_that_make_functions(everywhere)],
        [
            (node.module, alias.name)
            for node in everywhere
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        ],
        [*bound_names(tree)] if path in SOURCES else [],
    )


def functions_that_make_functions(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield functions whose annotation is `Callable` or an alias of it, and functions that return an inner function."""
    names = {"Callable"}
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value and "Callable[" in ast.unparse(node.value):
            names.add(ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            kind = ast.unparse(node.returns) if node.returns else ""
            inner = [*statements(node)]
            own = {each.name for each in inner if isinstance(each, ast.FunctionDef) and each is not node}
            results = [each.value for each in inner if isinstance(each, ast.Return)]
            is_own = any(isinstance(it, ast.Lambda) or (isinstance(it, ast.Name) and it.id in own) for it in results)
            if kind.strip('"').partition("[")[0] in names or is_own:
                yield node.name


def bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def statements(tree: ast.Module | ast.FunctionDef) -> Iterator[ast.stmt]:
    """Yield each statement at any depth. Expressions are skipped: they are most of a tree and contain no statements."""
    left: list[ast.stmt] = [*tree.body]
    while left:
        node = left.pop()
        yield node
        for block in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for name in ("body", "orelse", "finalbody"):
                left += getattr(block, name, ())


def is_long(node: ast.FunctionDef) -> bool:
    return (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX


def is_broad(node: ast.FunctionDef) -> bool:
    if any(ast.unparse(decorator).startswith("command(") for decorator in node.decorator_list):
        return False  # the parameters of a command are its options
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([each for each in parameters if each.arg not in {"self", "cls"}]) >= MANY_PARAMETERS


def test_functions_take_few_values() -> None:
    broad = [f"{short(path)}: {name}" for path in SOURCES for name in parsed(path).broad]
    assert len(broad) == MANY_PARAMETERS_MAX, (
        "Values that go together are one: see `Access` of core/arguments.py. Fewer than "
        f"{MANY_PARAMETERS_MAX}? Lower MANY_PARAMETERS_MAX. There are: {broad}"
    )


def test_functions_that_return_functions_are_few() -> None:
    makers = [f"{short(path)}: {name}" for path in SOURCES for name in parsed(path).makers]
    assert len(makers) == FUNCTION_MAKERS_MAX, (
        "Return a value with methods, as `KeyHasher` of kv/hashing.py. Fewer than "
        f"{FUNCTION_MAKERS_MAX}? Lower FUNCTION_MAKERS_MAX. There are: {makers}"
    )


def test_modules_and_functions_are_short() -> None:
    long = []
    for path in PYTHON:
        lines_max = TEST_LINES_MAX if path.is_relative_to(ROOT / "tests") else MODULE_LINES_MAX
        lines = len(path.read_text().splitlines())
        if lines > lines_max:
            long.append(f"{short(path)}: {lines} lines, at most {lines_max}; move a subject to another module")
        for name in parsed(path).long:
            long.append(f"{short(path)}: {name} has more than {FUNCTION_LINES_MAX} lines; split it")
    assert not long, "\n".join(("too long:", *long))


def test_folders_are_small() -> None:
    modules = Counter(path.parent for path in PYTHON if ROOT / "src" in path.parents and path.name != "__init__.py")
    assert not {short(folder): number for folder, number in modules.items() if number > MODULES_MAX}


def test_no_folder_is_for_one_module() -> None:
    package = ROOT / "src/ftfile"
    modules = [path for path in PYTHON if path.is_relative_to(package)]
    # A folder has modules, without its __init__, and folders.
    named = {path.parent if path.name == "__init__.py" else path for path in modules} - {package}
    numbers = Counter(path.parent for path in named)
    folders = {path.parent for path in modules}
    assert not [short(folder) for folder in folders if numbers[folder] < 2]


def test_text_is_finished_and_at_home_everywhere() -> None:
    found = [
        f"{short(path)}, line {number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), start=1)
        if UNFINISHED.search(line) or MACHINE.search(line)
    ]
    assert not found


def test_words_are_plain() -> None:
    written = [
        path for path in FILES if path.suffix == ".md" or path in SOURCES or path.parent.name in {".ci", "benchmarks"}
    ]
    found = [
        f"{short(path)}, line {number}: {match[0]!r}: write instead: {instead}"
        for path in written
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for phrase, instead in HABITS.items()
        if (match := re.search(phrase, line, re.IGNORECASE))
    ]
    assert not found


def test_values_are_named_after_what_they_are() -> None:
    numbers = Counter({short(path): sum(name in HABIT_NAMES for name in parsed(path).bound) for path in SOURCES})
    assert numbers.total() == HABIT_NAMES_MAX, (
        f"{', '.join(sorted(HABIT_NAMES))} name values that have a noun: record, matches, row. Fewer than "
        f"{HABIT_NAMES_MAX}? Lower HABIT_NAMES_MAX. By module: {numbers.most_common()}"
    )


def test_rows_lie_in_directories_and_keys_in_buckets() -> None:
    """`partition` means columns, as in Spark and Hive; `bucket` means stores, S3 and histograms."""
    below = [
        ROOT / "src/ftfile" / room
        for room in ("core", "rows", "filters", "log", "formats", "read", "writing", "operate")
    ]
    wrong = [
        f"{short(path)}: {name}: say directory"
        for path in SOURCES
        if any(path.is_relative_to(room) for room in below) and path.name != "typed.py"  # has the options of stores
        for name in (*parsed(path).bound, *parsed(path).defined)
        if "bucket" in name.lower()
    ]
    assert not wrong


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
