"""`make try` runs the tests that cover a file, and `make contexts` records the coverage: on a small project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\nmarkers = ["slow: takes long"]\n',
    "src/shop/__init__.py": "",
    "src/shop/price.py": """RATE = 2
def price(amount):
    return RATE * amount
def label(amount):
    if amount > 9:
        return "dear"
    return "cheap"
""",
    "src/shop/rates.py": "from shop.price import RATE\nHALF = RATE / 2\n",
    "src/shop/wait.py": "import time\ndef wait(seconds):\n    time.sleep(seconds)\n",
    "tests/unit/test_price.py": """import pytest
from shop import price
@pytest.mark.parametrize("amount", [1, 2])
def test_price(amount): assert price.price(amount) == 2 * amount
def test_rate(): assert price.RATE == 2
@pytest.mark.slow
def test_slow(): assert price.price(9) == 18
""",
    "tests/unit/test_label.py": "from shop.price import label\ndef test_label(): assert label(3) == 'cheap'\n",
    "tests/unit/test_rates.py": "def test_half():\n    from shop.rates import HALF\n    assert HALF == 1\n",
    "tests/unit/test_wait.py": """import pytest
from shop.wait import wait
@pytest.fixture
def waited(): wait(0.01)
def test_waited(waited): pass
@pytest.mark.parametrize("number", range(3))
def test_wait(number): wait(0.2)
""",
}


class Project:
    """A checkout of a few files, whose scripts have shorter limits."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)
        (root / ".ci").mkdir()
        for script in ("contexts.py", "try.py"):
            shutil.copy(ROOT / ".ci" / script, root / ".ci")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def limit(self, name: str, seconds: float) -> None:
        script = self.root / ".ci/try.py"
        lines = script.read_text().splitlines()
        changed = [f"{name} = {seconds}" if line.startswith(f"{name} = ") else line for line in lines]
        assert lines != changed
        script.write_text("\n".join(changed))

    def make_contexts(self) -> None:
        for half in (
            "tests/unit/test_price.py tests/unit/test_label.py",
            "tests/unit/test_rates.py tests/unit/test_wait.py",
        ):
            command = [
                "env",
                "COVERAGE_CORE=ctrace",
                "PYTHONPATH=.ci",
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "contexts",
            ]
            subprocess.run([*command, "-m", "not slow", *half.split()], cwd=self.root, check=True)
        subprocess.run([sys.executable, ".ci/contexts.py"], cwd=self.root, check=True)

    def try_files(self, *files: str) -> tuple[int, str]:
        without = ["-pno:hypothesispytest", "-pno:xdist"]  # to start faster
        command = [sys.executable, ".ci/try.py", "-v", "--color=no", *without, *files]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = Project(tmp_path_factory.mktemp("measured"))
    project.make_contexts()
    return project.root / "build/contexts.json"


@pytest.fixture
def project(tmp_path: Path, measured: Path) -> Project:
    project = Project(tmp_path)
    (tmp_path / "build").mkdir()
    shutil.copy(measured, tmp_path / "build")
    return project


def passed(output: str) -> list[str]:
    return sorted(line.split()[0].rpartition("::")[2] for line in output.splitlines() if " PASSED" in line)


def test_tests_that_run_its_functions_run(project: Project) -> None:
    code, output = project.try_files("src/shop/price.py")
    assert code == 0
    assert passed(output) == ["test_label", "test_price[1]", "test_price[2]"]


def test_several_files_and_modules_of_tests(project: Project) -> None:
    code, output = project.try_files("src/shop/wait.py", "tests/unit/test_price.py")
    assert code == 0
    slow_and_all = ["test_price[1]", "test_price[2]", "test_rate", "test_slow"]
    assert passed(output) == [*slow_and_all, *(f"test_wait[{number}]" for number in range(3)), "test_waited"]


def test_the_quickest_run(project: Project) -> None:
    project.limit("TESTS_S", 0.3)
    code, output = project.try_files("src/shop/wait.py")
    assert code == 0
    assert "2 of 4 tests" in output
    assert passed(output)[1] == "test_waited"
    assert len(passed(output)) == 2


def test_tests_after_the_deadline_are_left_out(project: Project) -> None:
    project.limit("DEADLINE_S", 0.0)
    code, output = project.try_files("tests/unit/test_wait.py")
    assert code == 0
    assert passed(output) == []
    assert "the time is over: 4 tests were left out" in output


def test_what_fails_fails(project: Project) -> None:
    project.write("src/shop/price.py", FILES["src/shop/price.py"].replace("RATE * amount", "amount"))
    code, output = project.try_files("src/shop/price.py")
    assert code == 1
    assert passed(output) == ["test_label"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["src/shop/rates.py"], "no quick test runs a function of src/shop/rates.py"),
        (["src/shop/price.py", "src/shop/rates.py"], "no quick test runs a function of src/shop/rates.py"),
        (["src/shop/new.py"], "src/shop/new.py is new since the contexts were made"),
        (["src/shop/gone.py"], "there is no file"),
        ([], "name a file"),
    ],
)
def test_a_file_without_tests_is_named(project: Project, files: list[str], message: str) -> None:
    project.write("src/shop/new.py", "")
    code, output = project.try_files(*files)
    assert code == 1
    assert message in output
    assert passed(output) == []


def test_without_contexts_the_quick_tests_of_the_folder_run(project: Project) -> None:
    (project.root / "build/contexts.json").unlink()
    project.write("src/shop/till/open.py", "")
    project.write("tests/unit/till/test_open.py", "def test_open(): pass\n")
    code, output = project.try_files("src/shop/till/open.py")
    assert (code, passed(output)) == (0, ["test_open"])
    assert "`make contexts`" in output
    code, output = project.try_files("src/shop/price.py")
    assert code == 0
    assert {"test_label", "test_rate", "test_half", "test_waited"} <= {*passed(output)}
    assert "test_slow" not in passed(output)
    project.write("src/shop/attic/old.py", "")
    code, output = project.try_files("src/shop/attic/old.py")
    assert (code, "test_label" in passed(output)) == (0, True)
    code, output = project.try_files("pyproject.toml")
    assert (code, passed(output)) == (1, [])


def test_tests_that_changed_since(project: Project) -> None:
    (project.root / "tests/unit/test_label.py").rename(project.root / "tests/unit/test_labels.py")
    renamed = FILES["tests/unit/test_price.py"].replace("test_price(", "test_prices(")
    project.write("tests/unit/test_price.py", f"{renamed}def test_new(): assert price.price(0) == 0\n")
    code, output = project.try_files("src/shop/price.py")
    assert code == 0
    assert passed(output) == ["test_new", "test_prices[1]", "test_prices[2]"]
    assert "1 tests are in modules that are gone: run `make contexts`" in output
    assert "new modules of tests, not in the contexts, which you can name as FILE: tests/unit/test_labels.py" in output
    assert "2 tests are gone, such as tests/unit/test_price.py::test_price[1]: run `make contexts`" in output
    (project.root / "tests/unit/test_price.py").unlink()
    code, output = project.try_files("src/shop/price.py")
    assert code == 1
    assert "none of the tests that covered it is there any more: run `make contexts`" in output
