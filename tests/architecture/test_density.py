"""Dense code: expressions and modules that take two readings are rare."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ftfile"
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
RULES = {
    "conditional expressions": "only for short values: write an if statement",
    "nested conditional expressions": "write if statements, or a function with a name",
    "comprehensions": "only for short ones: write a loop, or a function with a name",
    "comprehensions with two loops": "write loops, or a function with a name",
    "lambdas": "name the function, or use operator.attrgetter or itemgetter",
    "calls with five positional arguments or more": "give all but the first two by keyword",
    "calls with splatted literals": "write the arguments",
    "module docstrings that join subjects": "one sentence of one subject; split a module with two subjects",
    "modules with two or more blocks of constants after definitions": "constants first, or split the module",
    "class names that live in several modules": "give each concept a separate name",
}
# Numbers per 1,000 lines of the package, so that a new module needs no new limit.
RATES_MAX = {
    "conditional expressions": 8.0,
    "nested conditional expressions": 0.0,
    "comprehensions": 15.0,
    "comprehensions with two loops": 0.1,
    "lambdas": 1.1,
    "calls with five positional arguments or more": 0.65,
}
# Numbers in the whole package.
COUNTS_MAX = {
    "calls with splatted literals": 0,
    "module docstrings that join subjects": 10,
    "modules with two or more blocks of constants after definitions": 2,
    "class names that live in several modules": 4,
}
# A message names this many places, or modules.
NAMED_MAX = 20


def facts_of(module: str, tree: ast.Module) -> list[tuple[str, str]]:
    """Return the rules that a module breaks, each with a place."""
    facts = []
    summary = (ast.get_docstring(tree) or "").split("\n\n")[0]
    if ";" in summary or (":" in summary.rstrip(":") and " and " in summary):
        facts.append(("module docstrings that join subjects", module))
    if blocks_of_constants(tree) >= 2:
        facts.append(("modules with two or more blocks of constants after definitions", module))
    for node in ast.walk(tree):
        facts += [(rule, f"{module}:{getattr(node, 'lineno', 0)}") for rule in rules_of(node)]
    return facts


def blocks_of_constants(tree: ast.Module) -> int:
    """Return how often constants follow a function or a class."""
    blocks, is_after_definition = 0, False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            is_after_definition = True
        elif isinstance(node, ast.Assign | ast.AnnAssign) and is_after_definition:
            blocks, is_after_definition = blocks + 1, False
    return blocks


def rules_of(node: ast.AST) -> list[str]:
    """Return the rules that an expression breaks."""
    rules = []
    if isinstance(node, ast.IfExp):
        rules.append("conditional expressions")
        if sum(isinstance(inner, ast.IfExp) for inner in ast.walk(node)) > 1:
            rules.append("nested conditional expressions")
    elif isinstance(node, COMPREHENSIONS):
        rules.append("comprehensions")
        if len(node.generators) > 1:
            rules.append("comprehensions with two loops")
    elif isinstance(node, ast.Lambda):
        rules.append("lambdas")
    elif isinstance(node, ast.Call):
        if len(node.args) > 4:
            rules.append("calls with five positional arguments or more")
        if any(isinstance(item, ast.Starred) and isinstance(item.value, ast.Tuple | ast.List) for item in node.args):
            rules.append("calls with splatted literals")
    return rules


@cache
def places() -> dict[str, list[str]]:
    """Return the places by rule."""
    broken: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        module, tree = str(path.relative_to(SOURCE)), ast.parse(path.read_text())
        for rule, place in facts_of(module, tree):
            broken[rule].append(place)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules[node.name.lstrip("_")].add(module)
    for name, where in modules.items():
        if len(where) > 1:
            broken["class names that live in several modules"].append(f"{name}: {', '.join(sorted(where))}")
    return broken


@cache
def lines() -> int:
    """Return the number of lines of the package."""
    return sum(len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py"))


def limit_of(rule: str) -> int:
    """Return the number of places that may break a rule."""
    if rule in COUNTS_MAX:
        return COUNTS_MAX[rule]
    return int(RATES_MAX[rule] * lines() / 1000)


def git(*words: str) -> str:
    """Return the output of git in this checkout; empty if git fails, as outside of a repository."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout.strip()


def changed_modules() -> set[str]:
    """Return the modules that differ from `main` or, on `main`, from the commit before; empty without git."""
    if shutil.which("git") is None:
        return set()
    base = git("merge-base", "HEAD", "main")
    if git("rev-parse", "--abbrev-ref", "HEAD") == "main":
        base = "HEAD~1"
    if not base:
        return set()
    folder = str(SOURCE.relative_to(ROOT))
    changed = git("diff", "--name-only", base, "--", folder).splitlines()
    new = git("ls-files", "--others", "--exclude-standard", "--", folder).splitlines()
    return {name.removeprefix(f"{folder}/") for name in (*changed, *new)}


def advice(broken: list[str], changed: set[str]) -> str:
    """Return the places in changed modules; if there are none, all class names, or the modules with most places."""
    places_of_change = [place for place in broken if changed.intersection(re.findall(r"[\w/]+\.py", place))]
    if places_of_change:
        return f"In modules that differ from main: {'; '.join(places_of_change[:NAMED_MAX])}"
    if any(": " in place for place in broken):
        return "; ".join(broken[:NAMED_MAX])
    modules = Counter(place.partition(":")[0] for place in broken).most_common(NAMED_MAX)
    return f"By module: {'; '.join(f'{module} has {number}' for module, number in modules)}"


@pytest.mark.parametrize("rule", RULES)
def test_dense_code_is_rare(rule: str) -> None:
    broken, limit = places()[rule], limit_of(rule)
    if len(broken) > limit:
        pytest.fail(f"{len(broken)} {rule}, and at most {limit}: {RULES[rule]}. {advice(broken, changed_modules())}")


def test_the_advice_names_the_changed_modules_first() -> None:
    broken = ["a.py:1", "b.py:2", "b.py:3"]
    assert advice(broken, {"a.py"}) == "In modules that differ from main: a.py:1"
    assert advice(broken, set()) == "By module: b.py has 2; a.py has 1"
    assert advice(["Name: a.py, b.py"], set()) == "Name: a.py, b.py"
    assert RULES.keys() == RATES_MAX.keys() | COUNTS_MAX.keys()
