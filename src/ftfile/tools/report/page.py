"""The page: its contents, put into a template with its style and its script."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.remedies import in_commands
from ftfile.core.units import ago, bytes_text, count_text, names_text, time_text
from ftfile.core.version import __version__
from ftfile.tools.report.bars import directory_bars, operation_bars, reason_bars, size_bars, stage_bars
from ftfile.tools.report.charts import HEIGHT, timeline_of
from ftfile.tools.report.views import view_of_machine, view_of_open, view_of_queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.log.format.model import AssemblyTask
    from ftfile.operate.findings import Finding
    from ftfile.operate.status import DirectoryStatus
    from ftfile.tools.report.history import Commits, LiveFiles
    from ftfile.tools.report.views import View


__all__ = ("OPEN_SHOWN", "Contents", "render")


OPEN_SHOWN = 50
_FOLDER = "ftfile.tools.report"
_NOUNS = {"error": "error", "warning": "warning", "info": "note"}


@dataclass(frozen=True)
class Contents:
    """All that a page tells."""

    path: str
    made_ms: int
    is_store: bool
    is_verified: bool
    commits: Commits
    files: LiveFiles
    status: DirectoryStatus
    machine: Sequence[Finding]
    jobs: Sequence[AssemblyTask]
    findings: tuple[Finding, ...] = ()


def render(contents: Contents) -> str:
    """Return the page: all its text is escaped, it runs only its own script; ConfigError without jinja2."""
    try:
        import jinja2  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(
            f"a report needs a package that is not there ({error}): pip install 'ftfile[report]'"
        ) from error
    style, script, template = (
        resources(_FOLDER).joinpath(f"report.{end}").read_text("utf-8") for end in ("css", "js", "html")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    texts = {"style": style, "script": script, "digest": digest}
    return environment.from_string(template).render(_values(contents), **texts)


def _values(contents: Contents) -> dict[str, Any]:
    commits, files, is_store = contents.commits, contents.files, contents.is_store
    attention = _attention(contents.findings, contents.path)
    bars = [size_bars(files, is_store=is_store), operation_bars(commits)]
    bars += [] if is_store else [reason_bars(commits)]
    bars += [directory_bars(files, is_store=is_store), stage_bars(commits)]
    return {
        "contents": contents,
        "made": f"{time_text(contents.made_ms)} UTC",
        "release": __version__,
        "verdict": _verdict(attention),
        "attention": attention,
        "nouns": _NOUNS,
        "tiles": [*_tiles(contents)],
        "timeline": timeline_of(commits, is_store=is_store),
        "height": HEIGHT,
        "bars": bars,
        "open": _open(contents),
        "queries": view_of_queries(contents.status.queries, contents.made_ms),
        "machine": view_of_machine(contents.machine),
    }


def _attention(findings: Sequence[Finding], path: str) -> list[tuple[str, ...]]:
    """Return severity, title, text and remedy of each kind of finding."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.code, finding.severity), []).append(finding)
    rows: list[tuple[str, ...]] = []
    for first, *others in kinds.values():
        names = names_text([finding.path for finding in (first, *others) if finding.path])
        # Of the directory as a whole, nothing else tells one from another.
        actual = "; ".join([first.actual, *(finding.actual for finding in others if not finding.path)])
        text = f"expected {first.expected}, found {actual}" if first.expected else actual
        text = f"{count_text(len(others) + 1, 'finding')}: {names}: {text}" if names else text
        rows.append((first.severity, first.title, in_commands(text, path), in_commands(first.remedy, path)))
    return rows


def _verdict(attention: Sequence[tuple[str, ...]]) -> str:
    counts = {noun: sum(_NOUNS[severity] == noun for severity, *_ in attention) for noun in _NOUNS.values()}
    texts = [count_text(count, noun) for noun, count in counts.items() if count]
    return ", ".join(texts) if texts else "nothing needs attention"


def _tiles(contents: Contents) -> Iterator[tuple[str, str, str]]:
    """Yield names, values and what is beside them."""
    commits, files, status, is_store = contents.commits, contents.files, contents.status, contents.is_store
    nothing = "nothing was committed yet"
    age = nothing if status.time_ms is None else ago(status.time_ms, contents.made_ms)
    yield "Newest version", "none" if status.version < 0 else f"{status.version:,}", age
    yield "Versions kept", f"{len(commits) + commits.unreadable:,}", f"from {status.oldest_version:,} on"
    noun, home = ("runs", ("bucket", "buckets")) if is_store else ("files", ("directory", "directories"))
    open_rows = sum(file.rows for file in status.open)
    in_open = f", {open_rows:,} of them in open files" if open_rows else ""
    yield "Rows", f"{files.rows + open_rows:,}", f"in live {noun}" if is_store else f"committed{in_open}"
    yield f"Live {noun}", f"{len(files.sizes):,}", f"in {count_text(len(files.directories), *home)}"
    mean = bytes_text(files.size_bytes // max(len(files.sizes), 1))
    yield "Size on storage", bytes_text(files.size_bytes), f"{mean} each, on average"
    if is_store:
        yield "Merges due", f"{len(contents.jobs):,}", "the next batches do them"
        return
    due = sum(bool(file.reason) for file in status.open)
    yield "Open files", f"{len(status.open):,}", f"{due or 'none'} of them due"
    stuck = sum(bool(file.problem) for file in status.unpublished)
    yield "Not published", f"{len(status.unpublished):,}", f"{stuck or 'none'} of them stuck"


def _open(contents: Contents) -> View:
    """Return the view of open files, those that are due soonest first."""
    never_ms = 1 << 62
    ordered = sorted(
        contents.status.open, key=lambda file: (not file.reason, file.deadline_ms or never_ms, file.first_ms)
    )
    return view_of_open(ordered[:OPEN_SHOWN], contents.made_ms, contents.path)
