from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
# Slow to import, or not there at all: `import ftfile` is the start of every Spark worker.
HEAVY = {
    *("arro3", "cryptography", "fsspec", "hdfs", "lz4", "numpy", "pandas", "polars", "pyarrow", "pyspark"),
    "zstandard",
}


def broken_contracts(checkout: Path) -> list[str]:
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "COLUMNS": "200"}
    command = [sys.executable, "-c", LINT]
    run = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    broken = [line.split(" BROKEN")[0] for line in run.stdout.splitlines() if " BROKEN" in line]
    assert run.returncode == bool(broken), run.stdout + run.stderr
    return broken


def test_contracts_are_kept() -> None:
    assert broken_contracts(ROOT) == []


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("core/planted", "import ftfile.fs.api", "Imports point down"),
        ("core/planted", "def late() -> None:\n    import ftfile.commit.log", "Imports point down"),
        ("fs/planted", "import ftfile.encoding.api", "Imports point down"),
        ("filters/planted", "import ftfile.fs.streams", "Filters do no I/O and know no files"),
        ("sink/planted", "import ftfile.upkeep.where", "Imports point down"),
        ("undeclared/__init__", "", "Imports point down"),
        ("commit/planted", "import pyarrow", "Rows and Arrow stay in encoding, sink, source, upkeep, spark, testing"),
        ("commit/planted", "import ftfile.encoding.api", "The log and the protocol know no rows"),
        ("sink/planted", "import pyspark.sql", "Only ftfile.spark and pyspark_ftfile know pyspark"),
        ("sink/planted", "import fsspec", "Storage SDKs stay in the file systems"),
        ("fs/memory", "import ftfile.fs.local", "File systems do not know each other"),
        ("spark/planted", "import ftfile.testing", "Nothing in the product uses the test kit"),
        ("testing/planted", "import ftfile.spark", "The test kit runs without Spark"),
        ("commit/model", "import ftfile.commit.log", "No cycles inside a layer"),
    ],
)
def test_contracts_catch(tmp_path: Path, module: str, line: str, contract: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / f"src/ftfile/{module}.py"
    planted.parent.mkdir(exist_ok=True)
    with planted.open("a") as file:
        file.write(f"\n{line}\n")
    assert contract in broken_contracts(tmp_path)


def test_core_imports_only_the_standard_library_and_a_checksum() -> None:
    imports = {
        (path.name, name.split(".")[0])
        for path in (ROOT / "src/ftfile/core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    foreign = {(path, top) for path, top in imports if top not in sys.stdlib_module_names | {"ftfile"}}
    assert foreign == {("checksum.py", "isal")}


@pytest.mark.parametrize(("package", "needed"), [("ftfile", set()), ("pyspark_ftfile", {"pyspark"})])
def test_root_packages_import_nothing_heavy(package: str, needed: set[str]) -> None:
    code = f"import sys, {package}; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(run.stdout.split()) == needed
