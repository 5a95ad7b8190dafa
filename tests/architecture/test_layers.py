from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
# Slow to import or possibly missing: every Spark worker starts with `import ftfile`.
HEAVY = {
    *("arro3", "cryptography", "fsspec", "hdfs", "lz4", "numpy", "pandas", "polars", "pyarrow", "pyspark"),
    "zstandard",
}
LAYERS = (ROOT / "pyproject.toml").read_text().partition("\nlayers = [")[2].partition("\n]")[0].splitlines()
RANKS = {name: rank for rank, line in enumerate(LAYERS) for name in re.findall(r"\w+", line)}


def lint_report(checkout: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "COLUMNS": "200"}
    command = [sys.executable, "-c", LINT]
    run = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == bool(broken_in(run.stdout)), run.stdout + run.stderr
    return run.stdout


def broken_in(report: str) -> list[str]:
    return [line.split(" BROKEN")[0] for line in report.splitlines() if " BROKEN" in line]


def broken_contracts(checkout: Path) -> list[str]:
    return broken_in(lint_report(checkout))


def test_contracts_are_kept() -> None:
    assert broken_contracts(ROOT) == []


def with_planted(checkout: Path, *planted: tuple[str, str]) -> Path:
    """Return a copy of the checkout in which these lines are added to modules, given by path below the package."""
    checkout.mkdir(exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for module, line in planted:
        path = checkout / f"src/ftfile/{module}.py"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n{line}\n")
    return checkout


def test_imports_that_do_not_point_down_are_caught(tmp_path: Path) -> None:
    """For each folder, one import from a folder above or next to it."""
    upwards = {
        "core": "storage.api",
        "storage": "filters.api",
        "rows": "storage.api",
        "filters": "log.wal",
        "log": "formats.api",
        "formats": "writing.messages",
        "writing": "read.selection",
        "read": "writing.messages",
        "source": "read.selection",
        "operate": "kv.definition",
        "kv": "tools.migrate.table",
        "tools": "spark.settings",
        "spark": "testing.context",
    }
    assert {*upwards, "testing", "errors"} == RANKS.keys()
    report = lint_report(
        with_planted(tmp_path, *((f"{room}/planted", f"import ftfile.{above}") for room, above in upwards.items()))
    )
    assert "Imports point down" in broken_in(report)
    assert not [room for room, above in upwards.items() if f"ftfile.{room}.planted -> ftfile.{above}" not in report]


@pytest.mark.parametrize(
    ("module", "line"),
    [("core/planted", "def late() -> None:\n    import ftfile.log.commit_log"), ("undeclared/__init__", "")],
)
def test_late_imports_and_undeclared_rooms_are_caught(tmp_path: Path, module: str, line: str) -> None:
    assert "Imports point down" in broken_contracts(with_planted(tmp_path, (module, line)))


def test_every_other_contract_catches_what_it_is_for(tmp_path: Path) -> None:
    planted = {
        "Filters do no I/O and know no files": ("filters/planted", "import ftfile.storage.api"),
        "Rows and Arrow stay out of core, filters, file systems and the log": ("log/planted", "import pyarrow"),
        "The log and the protocol know no rows": ("log/again", "import ftfile.rows.buffers"),
        "Only ftfile.spark, pyspark_ftfile and pyspark_ftkv know pyspark": ("writing/planted", "import pyspark.sql"),
        "Storage SDKs stay in the file systems": ("writing/again", "import fsspec"),
        "File systems do not know each other": ("storage/s3/planted", "import ftfile.storage.local"),
        "Nothing in the product uses the test kit": ("spark/planted", "import ftfile.testing"),
        "The test kit runs without Spark": ("testing/planted", "import ftfile.spark"),
        "No cycles inside a layer": ("log/format/model", "import ftfile.log.commit_log"),
        "The keyed store does not know the file sink": ("kv/planted", "import ftfile.writing.files.naming"),
        "Formats do not know each other": ("formats/csv_lines", "import ftfile.formats.json_lines"),
        "Tools import those below them": ("tools/migrate/planted", "import ftfile.tools.report.bars"),
    }
    broken = set(broken_contracts(with_planted(tmp_path, *planted.values())))
    assert broken == {*planted, "Imports point down"}


def loaded_from_above(module: Path, text: str) -> list[str]:
    """Return the strings by which a module, given by its path below the package, loads code that it must not import."""
    found = [] if module.name == "__init__.py" else re.findall(r"\bimport_module\b|\b__import__\b", text)
    own, *below = module.parts
    for name, folder in re.findall(r"\"(ftfile\.(\w+)[\w.]*(?::\w+)?)\"", text) if below else ():
        if folder != own and RANKS.get(folder, len(RANKS)) <= RANKS[own]:
            found.append(name)
    return found


def test_modules_loaded_by_name_lie_below_as_well() -> None:
    package = ROOT / "src/ftfile"
    modules = {path.relative_to(package): path.read_text() for path in package.rglob("*.py")}
    found = {str(module): names for module, text in modules.items() if (names := loaded_from_above(module, text))}
    # The scheme is for tests of users, who import it explicitly.
    assert found == {"storage/registry.py": ["ftfile.testing.fs.memory:open_location"]}
    planted = [
        ("kv/upkeep/planted.py", 'vacuum = import_module("ftfile.log.vacuum").vacuum'),
        ("kv/upkeep/planted.py", 'vacuum = resolve_name("ftfile.tools.migrate.migrate:migrate")'),
        ("kv/__init__.py", '_HOMES = {"migrate": ("ftfile.tools.migrate.migrate", "migrate")}'),
        ("writing/files/planted.py", 'open_store = resolve_name("ftfile.kv.reading.reader:open_store")'),
    ]
    assert all(loaded_from_above(Path(module), line) for module, line in planted)


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


@pytest.mark.parametrize(
    ("package", "needed"),
    [("ftfile", set()), ("ftfile.kv", set()), ("pyspark_ftfile", {"pyspark"}), ("pyspark_ftkv", {"pyspark"})],
)
def test_root_packages_import_nothing_heavy(package: str, needed: set[str]) -> None:
    code = f"import sys, {package}; print(*{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(run.stdout.split()) == needed


def imports_of_own_modules(path: Path) -> list[str]:
    """Return the modules of a package that its `__init__` imports during its own import."""
    package = ".".join(path.relative_to(ROOT / "src").parts[:-1])
    found = []
    for statement in ast.parse(path.read_text()).body:
        modules = []
        if isinstance(statement, ast.ImportFrom):
            modules = [statement.module]
        elif isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        found += [f"{package}: {module}" for module in modules if f"{module}.".startswith(f"{package}.")]
    return found


def test_packages_do_not_import_their_own_modules() -> None:
    """If one thread imported the package and another one the module, each could wait for the other.

    Every other import of a module of ftfile first waits for the import of ftfile itself.
    """
    found = []
    for path in (ROOT / "src").rglob("__init__.py"):
        if path.parent.name != "ftfile":
            found += imports_of_own_modules(path)
    assert not found


def test_an_import_of_an_own_module_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "src/ftfile/core/__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from ftfile.core.errors import FtfileError\nfrom ftfile.log import places\nimport ftfile.core.ids\n"
    )
    assert imports_of_own_modules(path) == ["ftfile.core: ftfile.core.errors", "ftfile.core: ftfile.core.ids"]
