"""A mistake: an expression or statements of one function, found by structure and replaced.

The files `*.txt` contain mistakes, each in these lines:

    name | function
        - right
        + wrong
        test

`function` is a qualified name, such as `CommitLog.create`. If several modules have this code, `module:` precedes it.
`module:` without a name is the code outside all functions and classes. Several lines are several lines of code.
`...` as an expression, as all arguments, or as a body matches any code. Without wrong code, the right code is removed.
Tests are below `tests`. One of them must fail.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


@dataclass(frozen=True)
class Mutant:
    """One mistake."""

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]


class NotMadeError(Exception):
    """The function does not contain the code to change, or contains it more than once."""


def mutants() -> list[Mutant]:
    """Return all mistakes, in the order of their files."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        for block in re.split(r"\n(?=\S)", path.read_text().strip("\n")):
            head, *lines = block.split("\n")
            name, function = head.split(" | ")
            code = {sign: "\n".join(line[6:] for line in lines if line.startswith(f"    {sign} ")) for sign in "-+"}
            tests = tuple(f"tests/{line.strip()}" for line in lines if line[4] not in code)
            found.append(Mutant(name, function, code["-"], code["+"] or "pass", tests))
    return found


def change(mutant: Mutant) -> tuple[Path, str]:
    """Return the file with the code of a mistake, relative to the sources, and its text with the mistake.

    Raises:
        NotMadeError: the code of the mistake was not found exactly once.
    """
    module, _, name = mutant.function.rpartition(":")
    scopes = [(file, node) for file, node in _definitions().get(name, []) if not module or file.stem == module]
    found = [(file, start, end) for file, node in scopes for start, end in _places(file, node, mutant.old)]
    if len(found) != 1:
        raise NotMadeError(f"{mutant.function} has {len(found)} times: {mutant.old}")
    file, start, end = found[0]
    text = (SOURCES / file).read_bytes()
    margin = " " * (start - text.rfind(b"\n", 0, start) - 1)
    new = textwrap.indent(mutant.new, margin).strip()
    return file, (text[:start] + new.encode() + text[end:]).decode()


@functools.cache
def _definitions() -> dict[str, list[tuple[Path, ast.AST]]]:
    """Return all functions and classes of the sources by qualified name. The name of a module is empty."""
    found: dict[str, list[tuple[Path, ast.AST]]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        waiting: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text()))]
        while waiting:
            name, node = waiting.pop()
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                name = f"{name}.{node.name}".removeprefix(".")
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                found.setdefault(name, []).append((path.relative_to(SOURCES), node))
            waiting += [(name, child) for child in ast.iter_child_nodes(node)]
    return found


def _places(file: Path, scope: ast.AST, code: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the code in a file: the byte offsets of its start and its end."""
    lines = (SOURCES / file).read_bytes().splitlines(keepends=True)
    wanted = _parsed(code)
    shapes = [_pattern(node) for node in wanted]
    outside = [node for node in ast.iter_child_nodes(scope) if not isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for node in (node for part in (outside if isinstance(scope, ast.Module) else [scope]) for node in ast.walk(part)):
        bodies = [[node]] if isinstance(node, ast.expr) else []
        if isinstance(wanted[0], ast.stmt):
            found = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
            bodies = [body for body in found if isinstance(body, list)]
        for body in bodies:
            for first, *others in zip(*(body[at:] for at in range(len(shapes))), strict=False):
                if all(shape.fullmatch(_shape(each)) for shape, each in zip(shapes, (first, *others), strict=True)):
                    last = others[-1] if others else first
                    start, end = (sum(map(len, lines[: number - 1])) for number in (first.lineno, last.end_lineno))
                    yield start + first.col_offset, end + last.end_col_offset


def _parsed(code: str) -> list[ast.expr] | list[ast.stmt]:
    try:
        return [ast.parse(code, mode="eval").body]
    except SyntaxError:
        return ast.parse(code).body


def _pattern(node: ast.AST) -> re.Pattern[str]:
    """Return a pattern for the shape of code."""
    shape, anything = _shape(node), "Constant(value=Ellipsis)"
    for each in (f"args=[{anything}], keywords=[]", f"Expr(value={anything})", anything):
        shape = shape.replace(each, "\0")
    return re.compile(".*".join(map(re.escape, shape.split("\0"))))


def _shape(node: ast.AST) -> str:
    """Return the shape of code, which does not depend on its layout."""
    return re.sub(r"ctx=(Store|Del)\(\)", "ctx=Load()", ast.dump(node))
