"""Repair of a directory in rounds of verification and repair, until no finding can be repaired."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger, log_context
from ftfile.core.progress import Tracker
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.opening import open_log, open_with_written_settings
from ftfile.operate.export.after_commit import renew
from ftfile.operate.findings import STRANGERS, Action, CheckReport, Finding, is_well
from ftfile.operate.repair_actions import OPERATION, Repairer
from ftfile.operate.verify.verify_directory import verify

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator

    from typing_extensions import Unpack

    from ftfile.core.arguments import OperationArguments
    from ftfile.core.progress import OnProgress
    from ftfile.operate.verify.verify_directory import VerifyReport


# A repair can reveal further findings: after the log is repaired, files can be checked.
ROUNDS = 8

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """A completed step of a repair, or in a dry run, a planned step."""

    code: str  # of the finding
    path: str
    action: str  # text of the action
    error: str = ""  # why it failed; empty if it succeeded, and in a dry run


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport(CheckReport):
    """The result of a repair; its findings are the remaining faults."""

    version: int  # the newest version after the repair
    dry_run: bool  # True if nothing was changed
    steps: tuple[RepairStep, ...]  # a dry run omits steps that are only found after the log is repaired

    @property
    def ok(self) -> bool:
        """Return True if no remaining finding is an error or a warning, and every step succeeded."""
        return is_well(self.findings) and not any(step.error for step in self.steps)

    def facts(self) -> Iterator[str]:
        """Yield the completed or planned steps."""
        yield f"version {self.version}"
        prefix = ""
        if self.dry_run:
            prefix = "would "
        for step in self.steps:
            yield f"{prefix}{step.action}"


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    full: bool = False,
    give_up: Collection[str] = (),
    quarantine: Collection[str] = (),
    accept_lost_records: bool = False,
    **access: Unpack[OperationArguments],
) -> RepairReport:
    """Repair the findings of `OpenedDirectory.verify()`; return the steps and the remaining findings.

    By default, only repairs that lose no rows are carried out; other repairs must be requested. A dry run, the default,
    changes nothing and returns the planned steps. No file is deleted: obstructing files are moved to
    `_ftfile/quarantine`, each with a note of its original path. An interrupted repair can be run again; a second repair
    finds nothing to do. Safe while queries run, except for `accept_lost_records`: stop the queries before it.

    With `full`, the call also reads every file and compares its content. `give_up` contains paths of lost committed
    files, as `verify` names them: a record removes them, readers continue without their rows, and damaged files are
    quarantined. `quarantine` contains paths of foreign files to quarantine. Both also accept shell patterns, in which
    `*` matches `/`. `accept_lost_records` is for lost or damaged records without a copy: the log then ends at its last
    readable record, and later records and their files are quarantined. `progress` is called in this thread with a
    `Progress` after each step, and with `full`, after each file that is read. An error that it raises ends the repair.
    For the rest of `access` see `ftfile.open`.

    Raises:
        ConfigError: the path is not an ftfile directory, its keys are missing, or an argument names a file that is not
            lost, or not foreign.
        StorageError: the storage failed during the verification. The report's steps contain later failures.
    """
    place = Access.of(access)
    progress = access.get("progress")
    # A damaged log cannot be compared with `at_least_version`; `verify` compares the version after it has read the log.
    fs = open_log(path, place._replace(at_least_version=None), repairs=True).fs
    asked = _Asked(frozenset(give_up), frozenset(quarantine), accept_lost_records)
    author = MaintenanceAuthor(OPERATION, fs.context.ids.unique())
    with log_context(operation=author.operation_id):
        report = verify(fs, full=full, progress=progress, at_least_version=place.at_least_version)
        asked.check(report)
        if dry_run:
            return _plan(report, asked)
        reopen = partial(open_with_written_settings, path, place)
        repaired = _repair(report, asked, Repairer(fs, reopen, author), progress, full=full)
        if repaired.version != report.version:
            renew(path, fs, place.storage)
        return repaired


def _plan(report: VerifyReport, asked: _Asked) -> RepairReport:
    chosen = list(asked.chosen(report))
    steps = []
    step_counts: Counter[int] = Counter()
    for finding, action in chosen:
        steps.append(_step(finding, action))
        step_counts[id(finding)] += 1

    def remains(finding: Finding) -> bool:
        return not finding.actions or step_counts[id(finding)] < len(finding.actions)

    remaining = tuple(filter(remains, report.findings))
    return RepairReport(version=report.version, dry_run=True, steps=tuple(steps), findings=remaining)


def _repair(
    report: VerifyReport, asked: _Asked, repairer: Repairer, progress: OnProgress | None, *, full: bool
) -> RepairReport:
    steps: list[RepairStep] = []
    tried: set[str] = set()
    for _ in range(ROUNDS):
        findings: list[Finding] = []
        actions: list[Action] = []
        for finding, action in asked.chosen(report):
            if repr(action) not in tried:  # a failed action is not tried again
                findings.append(finding)
                actions.append(action)
        if not actions:
            break
        tried.update(map(repr, actions))
        tracker = Tracker(OPERATION, repairer.fs.context.clock, progress, len(actions), unit="steps")
        errors = repairer.carry_out(actions, tracker)
        for finding, action, error in zip(findings, actions, errors, strict=True):
            steps.append(_step(finding, action, error))
            _log.info("repair: %s", steps[-1])
        report = verify(repairer.fs, full=full, progress=progress)
    repairer.save_published(report)
    return RepairReport(version=report.version, dry_run=False, steps=tuple(steps), findings=report.findings)


def _step(finding: Finding, action: Action, error: str = "") -> RepairStep:
    return RepairStep(code=finding.code, path=finding.path or action.path, action=str(action), error=error)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The repairs that the caller requested, in addition to repairs without loss."""

    give_up: frozenset[str]
    quarantine: frozenset[str]
    accept_lost_records: bool

    def chosen(self, report: VerifyReport) -> Iterator[tuple[Finding, Action]]:
        """Yield the actions to carry out, each with its finding."""
        for finding in report.findings:
            for action in finding.actions:
                if finding.repair == "yes" or self._wants(finding, action):
                    yield finding, action

    def _wants(self, finding: Finding, action: Action) -> bool:
        if action.kind == "give-up":
            return _is_named(finding.path, self.give_up)
        if finding.code in STRANGERS:
            return _is_named(action.path, self.quarantine)
        return self.accept_lost_records

    def check(self, report: VerifyReport) -> None:
        """Raise a ConfigError if `give_up` names a file that is not lost, or `quarantine` one that is not foreign."""
        lost: set[str] = set()
        foreign: list[str] = []
        for finding in report.findings:
            if any(action.kind == "give-up" for action in finding.actions):
                lost.add(finding.path)
            if finding.code in STRANGERS:
                foreign += map(attrgetter("path"), finding.actions)
        for name in sorted(self.give_up):
            if not any(_is_named(path, {name}) for path in lost):
                raise ConfigError(
                    Advice(
                        Argument("give_up"),
                        f": {name!r} is not known to be lost. Give paths that ",
                        Remedy("verify"),
                        " names; damage that only the content shows is found with ",
                        Argument("full", value=True),
                    )
                )
        if not self.quarantine:
            return
        if not report.complete:
            raise ConfigError(
                Advice(
                    Argument("quarantine"),
                    ": foreign files cannot be determined while the log is damaged: repair the log first",
                )
            )
        for name in sorted(self.quarantine):
            if not any(_is_named(path, {name}) for path in foreign):
                raise ConfigError(f"quarantine: {name!r} is not a foreign file in the directory")


def _is_named(path: str, names: Collection[str]) -> bool:
    """Return True if the path equals a name, or matches a name as a shell pattern, in which `*` matches `/`."""
    return path in names or any(fnmatchcase(path, name) for name in names)
