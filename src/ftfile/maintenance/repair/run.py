"""Repair a directory: verify it, mend what was found, and verify again until nothing more can be mended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.log.log import CommitLog
from ftfile.commit.read.snapshot import take_snapshot
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger, log_context
from ftfile.maintenance.repair.mending import Mender, Opening
from ftfile.maintenance.verify.findings import Finding, GiveUp, MoveAside
from ftfile.maintenance.verify.run import verify
from ftfile.source.directory import Directory

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.findings import Action, VerifyReport

__all__ = ("RepairReport", "RepairStep", "repair")

# What is mended may uncover what was hidden by it: the log first, then files.
ROUNDS = 8

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing that was mended, or in a dry run, would be.

    Attributes:
        code: of the finding; see `Finding`.
        path: of the finding.
        action: what is done, in words.
        error: why it failed; empty where it did not, and in a dry run.
    """

    code: str
    path: str
    action: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did.

    Attributes:
        dry_run: whether nothing was done.
        steps: what was done, or would be; more may turn up once the log can be read.
        left: what is not mended, each with its remedy.
        version: the newest version afterwards.
    """

    dry_run: bool
    steps: tuple[RepairStep, ...]
    left: tuple[Finding, ...]
    version: int

    @property
    def ok(self) -> bool:
        """Return True if nothing is left that is an error or a warning, and every step succeeded."""
        return all(finding.severity == "info" for finding in self.left) and not any(step.error for step in self.steps)


def repair(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    full: bool = False,
    give_up: Collection[str] = (),
    quarantine: Collection[str] = (),
    accept_lost_records: bool = False,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> RepairReport:
    """Mend what `Directory.verify()` finds, as far as that loses nothing; and what you ask for by name.

    Nothing is deleted: what is in the way goes to `_ftfile/quarantine`, with a note of where it was. Every step may be
    repeated. Safe beside running queries, but for `accept_lost_records`: stop them before that.

    Args:
        path: of the directory.
        dry_run: only tell what would be done.
        full: also look at the content of every file.
        give_up: paths of committed files, as `verify` names them, that are lost for good: a record says so, and readers
            go on without their rows. What is left of a damaged one goes to quarantine.
        quarantine: paths of foreign files that are to go to quarantine.
        accept_lost_records: where records are lost or damaged and there is no copy of them, go on with the log as far
            as it can be read. What came later goes to quarantine.
        key_provider: of an encrypted directory; see `ftfile.open`.
        storage: settings of its file system: what the options `storage.<name>` are to the sink.
        context: clock, ids and retries; the machine's by default.

    Raises:
        ConfigError: the path is no ftfile directory, or an argument names a file that is not lost, or not foreign.
        CommitError: a record could not be created.
    """
    fs = Directory(path, key_provider, storage, context).file_system
    asked = _Asked(frozenset(give_up), frozenset(quarantine), accept_lost_records)
    job_id = context.ids.unique()
    with log_context(job=job_id):
        report = verify(fs, full=full)
        asked.check(fs, report)
        if dry_run:
            steps = [RepairStep(found.code, found.path, str(action)) for found, action in asked.chosen(report)]
            return RepairReport(True, tuple(steps), _left(report, asked), report.version)  # noqa: FBT003 - a field
        return _repair(fs, report, asked, Mender(Opening(path, key_provider, storage), fs, job_id), full=full)


def _repair(fs: FileSystem, report: VerifyReport, asked: _Asked, mender: Mender, *, full: bool) -> RepairReport:
    steps: list[RepairStep] = []
    tried: set[str] = set()
    for _ in range(ROUNDS):
        chosen = [(found, action) for found, action in asked.chosen(report) if repr(action) not in tried]
        if not chosen:
            break
        tried |= {repr(action) for _, action in chosen}
        errors = mender.mend([action for _, action in chosen])
        for (found, action), error in zip(chosen, errors, strict=True):
            steps.append(RepairStep(found.code, found.path, str(action), error))
            _log.info("repair: %s", steps[-1])
        report = verify(fs, full=full)
    mender.settle(report)
    return RepairReport(False, tuple(steps), report.findings, report.version)  # noqa: FBT003 - a field


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the caller asks for beyond what loses nothing."""

    give_up: frozenset[str]
    quarantine: frozenset[str]
    accept_lost_records: bool

    def chosen(self, report: VerifyReport) -> Iterator[tuple[Finding, Action]]:
        """Yield what is to be done, with the finding that asks for it."""
        for finding in report.findings:
            for action in finding.actions:
                if finding.repair == "yes" or self._wants(finding, action):
                    yield finding, action
        for path in sorted(self.quarantine):
            yield _named(path), MoveAside(path)

    def check(self, fs: FileSystem, report: VerifyReport) -> None:
        """Refuse to give up what is there, and to put aside what is not foreign.

        Raises:
            ConfigError: names the argument and the path.
        """
        lost = {found.path for found in report.findings if any(isinstance(action, GiveUp) for action in found.actions)}
        for path in sorted(self.give_up - lost):
            raise ConfigError(
                f"give_up: {path!r} is not known to be lost. Paths are those that verify() names; what only "
                "its content shows is found with full=True"
            )
        if not self.quarantine:
            return
        if not report.complete:
            raise ConfigError(
                "quarantine: which files are foreign cannot be told while the log is damaged: repair that first"
            )
        live = {add.final_path for add in take_snapshot(CommitLog(fs)).adds.values()}
        for path in sorted(self.quarantine):
            if path in live or path.startswith(f"{layout.META}/") or not fs.exists(path):
                raise ConfigError(f"quarantine: {path!r} is no foreign file in the directory")

    def _wants(self, finding: Finding, action: Action) -> bool:
        if isinstance(action, GiveUp):
            return finding.path in self.give_up
        return self.accept_lost_records


def _named(path: str) -> Finding:
    return Finding("foreign-file", path, "no file that no record knows", "one", "info", "", "on request")


def _left(report: VerifyReport, asked: _Asked) -> tuple[Finding, ...]:
    """Return the findings that a repair would not mend."""
    mended = {id(found) for found, _ in asked.chosen(report)}
    return tuple(found for found in report.findings if id(found) not in mended)
