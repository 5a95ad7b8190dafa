"""Expressions that take two readings are statements, which ruff does not check."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def faults_of(tree: ast.AST) -> list[str]:
    """Return the nested conditional expressions and the splatted literals of a module, by line."""
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp) and sum(isinstance(inner, ast.IfExp) for inner in ast.walk(node)) > 1:
            faults.append(f"line {node.lineno}: a nested conditional expression: write if statements, or a function")
        if isinstance(node, ast.Call):
            stars = [item.value for item in node.args if isinstance(item, ast.Starred)]
            stars += [item.value for item in node.keywords if item.arg is None]
            if any(isinstance(value, ast.Tuple | ast.List | ast.Set) or is_plain(value) for value in stars):
                faults.append(f"line {node.lineno}: a call with a splatted literal: write the arguments")
    return faults


def is_plain(value: ast.expr) -> bool:
    """Return True for a dict literal without `**`."""
    return isinstance(value, ast.Dict) and None not in value.keys


def test_expressions_are_simple() -> None:
    faults = [
        f"{path.relative_to(SOURCE)}, {fault}"
        for path in sorted(SOURCE.rglob("*.py"))
        for fault in faults_of(ast.parse(path.read_text()))
    ]
    assert not faults


@pytest.mark.parametrize("code", ["x = 1 if a else 2 if b else 3", "f(*(1, 2))", "f(0, *[1])", "f(**{'a': 1})"])
def test_a_planted_fault_is_found(code: str) -> None:
    assert len(faults_of(ast.parse(code))) == 1
