"""Dense code: the numbers of expressions and modules that take two readings may only fall."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "ftfile"
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
    "class names that live in several modules": "give each concept its own name",
}
# The numbers only fall: lower them with the code.
MAXIMA = {
    "conditional expressions": 600,
    "nested conditional expressions": 0,
    "comprehensions": 1153,
    "comprehensions with two loops": 0,
    "lambdas": 80,
    "calls with five positional arguments or more": 48,
    "calls with splatted literals": 0,
    "module docstrings that join subjects": 10,
    "modules with two or more blocks of constants after definitions": 0,
    "class names that live in several modules": 0,
}
# A limit this much above the count is out of date.
SLACK = 30


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


@pytest.mark.parametrize("rule", RULES)
def test_dense_code_only_becomes_less(rule: str) -> None:
    broken, maximum = places()[rule], MAXIMA[rule]
    by_module = Counter(place.partition(":")[0] for place in broken).most_common(20)
    assert len(broken) <= maximum, f"{len(broken)} {rule}, and at most {maximum}: {RULES[rule]}. By module: {by_module}"
    assert len(broken) > maximum - SLACK, f"{len(broken)} {rule}: lower the limit in MAXIMA"
