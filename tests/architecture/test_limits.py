"""Every numeric limit has a test that exceeds it, named in the table of docs/internals/testing.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.modules import running_query, trace_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/internals/testing.md"
ROOMS = ("log", "writing", "operate", "kv", "tools/migrate")
MODULES = [
    ROOT / "src/ftfile/core/extensions.py",
    ROOT / "src/ftfile/core/progress.py",
    ROOT / "src/ftfile/core/retries.py",
    ROOT / "src/ftfile/storage/calls.py",
    ROOT / "src/ftfile/source/plan_log.py",
    *(ROOT / "src/ftfile/read").glob("log_*.py"),
    *(path for room in ROOMS for path in (ROOT / "src/ftfile" / room).rglob("*.py")),
]
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
ROW = re.compile(r"^\| ((?:`_?[A-Z][A-Z0-9_]*`(?:, )?)+) \| (.*) \|$", re.MULTILINE)


def is_number(node: ast.expr) -> bool:
    """Return True for number expressions such as 5, 1 << 20, -3, 7 * 86_400.0 and {"a": 5}."""
    match node:
        case ast.Constant(value):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case ast.BinOp(left, _, right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(_, operand):
            return is_number(operand)
        case ast.Dict(_, values):
            return bool(values) and all(map(is_number, values))
        case _:
            return False


def assigned(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment with their values, also of `A = B = 1` and of `A, B = 1, 2`."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, "value", None)
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=True)
        elif value is not None:
            yield target, value


def numbers() -> dict[str, set[str]]:
    """Return the numeric constants of these modules, each with the modules that define it."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for target, value in (pair for node in ast.parse(path.read_text()).body for pair in assigned(node)):
            if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id) and is_number(value):
                found.setdefault(target.id, set()).add(str(path.relative_to(ROOT / "src/ftfile")))
    return found


def rows(heading: str) -> dict[str, str]:
    """Return the table below a heading: by constant, the text in its row."""
    section = PAGE.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    found: dict[str, str] = {}
    for names, text in ROW.findall(section):
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} occurs twice below {heading}"
            found[name] = text
    return found


def test_a_commit_makes_few_calls(tmp_path: Path) -> None:
    """One JSON row, the fifth batch. A commit needs 8 calls of the storage to read, sync, create and move."""
    traces = trace_batch(running_query(tmp_path))
    commit = traces["messages to a record"]
    assert commit.storage_calls <= 8
    assert commit.calls <= 650
    assert not [path for path in commit.modules if path.endswith("/json_lines.py")], "no format is built to name files"


def modules_of_files(module: str) -> list[str]:
    """Return the modules for files that the import of a module imports, in a new process."""
    files = r"ftfile\.(formats|writing\.files)\."
    code = f"import re, sys, {module}; print(*filter(re.compile({files!r}).match, sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_the_writers_of_stores_import_nothing_of_files() -> None:
    assert modules_of_files("ftfile.spark.file_writers")
    assert not modules_of_files("ftfile.spark.store_writers")


NUMBERS, TESTED, UNBOUND = numbers(), rows("## Limits"), rows("### Numbers that bound nothing")


def test_every_number_is_in_a_table() -> None:
    assert {"COMPACTED_EVERY", "PARTS_PER_RECORD", "_LONG_BYTES"} <= NUMBERS.keys()
    missing = NUMBERS.keys() - TESTED.keys() - UNBOUND.keys()
    rows = [f"`{name}` of {', '.join(sorted(NUMBERS[name]))}" for name in sorted(missing)]
    assert not rows, (
        "docs/internals/testing.md: give each number a row with a test in *Limits*, or a row with its meaning in "
        f"*Numbers that bound nothing*: {'; '.join(rows)}"
    )


def test_tables_name_numbers_that_there_are() -> None:
    assert not TESTED.keys() & UNBOUND.keys()
    assert TESTED.keys() | UNBOUND.keys() <= NUMBERS.keys()


@pytest.mark.parametrize("name", sorted(TESTED))
def test_every_limit_has_a_test(name: str) -> None:
    ids = re.findall(r"`([^`]+)`", TESTED[name])
    assert len(ids) >= len(NUMBERS[name]), f"each module of {NUMBERS[name]} has a separate {name}"
    for test_id in ids:
        file, *parts = test_id.split("::")
        body = ast.parse((ROOT / "tests" / file).read_text()).body
        for part in parts:
            found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == part]
            assert found, f"{test_id} is not a test"
            body = found[0].body
        assert parts, f"{test_id} names no test"
