"""Print docs/internals/architecture.md with the generated list of modules, from the first lines of their docstrings."""

from __future__ import annotations

import ast
import re
import sys
from itertools import groupby
from operator import attrgetter
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SOURCE = _ROOT / "src"
PAGE = _ROOT / "docs/internals/architecture.md"

_LIST = re.compile(r"(?<=<!-- modules -->\n)(?:(?:\|.*)?\n)*")


def to_markdown(page: str) -> str:
    """Return the page with a table for each folder, whose head is the folder, and a row for each of its modules."""
    tables = []
    for folder, paths in groupby(sorted(_SOURCE.rglob("*.py"), key=_place), key=attrgetter("parent")):
        package, *modules = paths
        name = folder.relative_to(_SOURCE).as_posix().removeprefix("ftfile/")
        rows = [_row(name, package), "|---|---|\n", *(_row(module.name, module) for module in modules)]
        tables.append("".join(rows))
    return _LIST.sub(lambda _: "\n" + "\n".join(tables), page)


def _place(path: Path) -> tuple[Path, bool, str]:
    """Return the sort key of a module: its folder, the package first."""
    return path.parent, path.name != "__init__.py", path.name


def _row(name: str, path: Path) -> str:
    first_line = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
    text = first_line.replace("|", "\\|")
    return f"| `{name}` | {text} |\n"


if __name__ == "__main__":
    sys.stdout.write(to_markdown(PAGE.read_text()))
