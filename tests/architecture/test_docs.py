from __future__ import annotations

import importlib
import inspect
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from ftfile.operate.writers.sink_arguments import SinkArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
SOURCE = ROOT / "src/ftfile"
FOLDERS = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
CODE = {"src", "tests", "benchmarks"}
PROGRAMS = [f"/{path.relative_to(ROOT)}" for top in CODE for path in (ROOT / top).rglob("*.py")]
# Dotted names that begin like a module but are not modules: entry point groups, and names of other programs.
NO_MODULES = {
    *("ftfile.encoders", "ftfile.filesystems", "ftfile.formats", "ftfile.key_providers"),
    *("ftfile.identity", "write.format.default"),
}


def anchors(page: Path) -> set[str]:
    """The anchors of headings, as code hosts derive them."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in sorted(PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    source = ROOT / page
    prose = re.sub(r"```.*?```|`[^`]*`", "", source.read_text(), flags=re.DOTALL)
    broken = []
    for target, anchor in LINK.findall(prose):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (source.parent / target).resolve() if target else source
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert not broken


@pytest.mark.parametrize("picture", [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.svg"))])
def test_a_picture_is_small_and_says_what_it_shows(picture: str) -> None:
    """In light and in dark mode, and with a text for readers who cannot see it."""
    content = (ROOT / picture).read_text()
    drawing = ElementTree.fromstring(content)
    assert len(content.encode()) <= 10_000
    assert all(drawing.findtext(f"{{http://www.w3.org/2000/svg}}{name}") for name in ("title", "desc"))
    assert "@media (prefers-color-scheme:dark)" in content
    assert not re.search(r"<(script|image|foreignObject)\b|url\((?!#)", content)
    linked = [page for page in PAGES if re.search(rf"!\[[^\]]+\]\([^)]*{Path(picture).name}\)", page.read_text())]
    assert linked


def test_the_indexes_link_every_page() -> None:
    for index, pattern in (
        ("docs/README.md", "docs/**/*.md"),
        ("docs/internals/adr/README.md", "docs/internals/adr/*.md"),
    ):
        linked = {(ROOT / index).parent / target for target, _ in LINK.findall((ROOT / index).read_text())}
        pages = {page for page in ROOT.glob(pattern) if "adr" in index or page.parent.name != "adr"}
        assert sorted(pages - linked) == [ROOT / index]


def test_every_target_is_there() -> None:
    """Includes targets that pages, programs and other targets name."""
    makefile = (ROOT / "Makefile").read_text()
    commands = re.compile(r"(?:`|^)make ([a-z][a-z-]*)", re.MULTILINE)  # in a line of text, or in a block
    named = {name for page in PAGES for name in commands.findall(page.read_text())}
    for rule in re.findall(r"^[a-z0-9 -]+:([^=#\n]*)(?:##.*)?$", makefile, flags=re.MULTILINE):
        named |= set(re.findall(r"(?<![\w$(.-])[a-z][a-z-]+(?![\w%)-])", re.sub(r"\S*\$\(.*?\)", "", rule)))
    assert {"test", "bench", "object-store-tests", "environment"} <= named
    targets = " ".join(re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", makefile, flags=re.MULTILINE)).split()
    assert named <= {*targets}


# A directory created today has no version of that time.
FIXED_READ = r"--timestamp \d|timestampAsOf=\d|timestampAsOf\", \"\d|timestamp=\"\d|version_at\(\"\d|before=\"\d"


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in sorted(PAGES)])
def test_examples_read_as_of_a_time_that_counts_from_now(page: str) -> None:
    assert not re.findall(FIXED_READ, (ROOT / page).read_text())


def test_prose_has_one_width(tmp_path: Path) -> None:
    prose = runpy.run_path(str(ROOT / ".ci/prose.py"))
    wide = [
        f"{page.relative_to(ROOT)}: {lines[0][:60]}"
        for page in PAGES
        for is_prose, lines in prose["blocks"](page.read_text())
        if is_prose and prose["is_wide"](lines)
    ]
    assert not wide, "run `make format`"
    page = tmp_path / "page.md"
    line, code = f"- {'word ' * 30}`a b`", f"```\n{'code ' * 30}\n```"
    page.write_text(f"{line}\n\n{code}\n")
    prose["main"]([str(page)])
    assert page.read_text() == f"- {'word ' * 22}word\n  {'word ' * 7}`a b`\n\n{code}\n"


def is_program(name: str) -> bool:
    """Return True for the last part of a program's path, and a test in it, as in `test_log.py::TestBases`."""
    end, *parts = name.split("::")
    texts = [(ROOT / path[1:]).read_text() for path in PROGRAMS if path.endswith(f"/{end}")]
    return any(all(re.search(rf"\b(class|def) {part}\b", text) for part in parts) for text in texts)


def is_place(name: str) -> bool:
    """Return True for a path below the root of the checkout or of the package."""
    return any(list(top.glob(name)) for top in (ROOT, SOURCE))


def is_defined(name: str) -> bool:
    """Return True for a module below ftfile, or a name that it or a class in it offers."""
    first, *parts = name.removeprefix("ftfile.").split(".")
    found: Any = importlib.import_module("ftfile")
    for part in (first, *parts):
        if not hasattr(found, part) and part not in getattr(found, "__annotations__", ()):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
        found = getattr(found, part, None)
    return True


def unknown_names(text: str) -> Iterator[str]:
    """Yield names of missing programs, folders and modules of ftfile in code spans or in a picture."""
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        name = re.split(r"[(\[ =]", span)[0].rstrip(",;:/")
        top = re.split(r"[./]", name)[0]
        if re.fullmatch(r"[\w/-]+\.py(::\w+)*", name):
            known = is_program(name)
        elif re.fullmatch(r"\w+(/[\w.*-]+)+", name):
            known = top not in FOLDERS | CODE | {"docs"} or is_place(name)
        elif re.fullmatch(r"storage\.\w+", name):
            continue  # an option
        elif re.fullmatch(r"\w+(\.\w+)+", name) and name not in NO_MODULES:
            known = top not in FOLDERS - {"spark"} | {"ftfile"} or is_defined(name)
        else:
            continue
        if not known:
            yield span


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in sorted(PAGES)])
def test_code_that_pages_name_is_there(page: str) -> None:
    assert not list(unknown_names((ROOT / page).read_text()))


def test_names_that_are_not_there_are_noticed() -> None:
    there = ["core.checksum", "ftfile.open(path)", "log.protocol.commit", "writing/files", "tests/mutants/*.txt"]
    there += ["publish.py", "test_checkpoints.py::TestCheckpoints", "storage.api.FileInfo.identity", "storage.partSize"]
    there += ["spark.read.json", "ftfile.formats", "_ftfile/log", "eu/orders"]
    gone = [
        "core.nothing",
        "ftfile.shut(path)",
        "storage.api.FileInfo.nothing",
        "writing/nothing",
        "tests/nothing/*.txt",
    ]
    gone += ["tests/nothing/*.txt", "nothing.py", "test_checkpoints.py::TestNothing"]
    assert list(unknown_names("\n".join(f"`{name}`" for name in there + gone))) == gone


def test_the_picture_shows_the_folders_and_modules_that_there_are() -> None:
    page = (ROOT / "docs/internals/architecture.md").read_text()
    layers, way = re.findall(r"^```\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    shown = set(re.findall(r"\w+", " ".join(line[:24] for line in layers.splitlines())))
    assert shown == FOLDERS | {"errors"}
    modules = set(re.findall(rf"\b(?:{'|'.join(FOLDERS)})(?:\.\w+)+", way))
    assert len(modules) > 10
    assert not [name for name in modules if not is_defined(name)]


def named_in_code(pages: Iterable[Path]) -> set[str]:
    """Return the words in the code of pages, in blocks and in lines."""
    codes = (re.findall(r"```.*?```|`[^`]+`", page.read_text(), flags=re.DOTALL) for page in pages)
    return {word for spans in codes for span in spans for word in re.findall(r"\w+", span)}


def public_calls() -> Iterator[tuple[str, Any]]:
    for package in map(importlib.import_module, ("ftfile", "ftfile.kv", "ftfile.spark")):
        for name in dir(package):
            value = getattr(package, name)
            if inspect.isfunction(value) or name == "KeyValueStore":
                yield f"{package.__name__}.{name}", value


CALLS = dict(public_calls())
MANUAL = [page for page in (ROOT / "docs").rglob("*.md") if "internals" not in page.parts]


@pytest.mark.parametrize("name", CALLS)
def test_pages_name_every_argument(name: str) -> None:
    """The pages that name a function also name its arguments; one page names arguments that many functions have."""
    shared = (ROOT / "docs/python.md").read_text().partition("## Arguments")[2]
    shared_words = set(re.findall(r"`(\w+)`", shared))
    plain = name.removeprefix("ftfile.kv.") if name == "ftfile.kv.KeyValueStore" else name
    pages = [page for page in MANUAL if re.search(rf"(?<![\w.]){re.escape(plain)}\b", page.read_text())]
    assert pages
    parameters = inspect.signature(CALLS[name]).parameters.values()
    arguments = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    options = SinkArguments.__annotations__.keys()  # docs/options.md describes them
    assert not arguments - named_in_code(pages) - shared_words - options
