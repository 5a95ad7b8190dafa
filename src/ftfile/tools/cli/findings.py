"""Findings as text, each with its remedy."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ftfile.core.remedies import in_commands
from ftfile.tools.cli.terminal import heading, print_fields

if TYPE_CHECKING:
    from ftfile.operate.findings import Finding


SEVERITY_STYLES = {"ok": "green", "info": "dim", "warning": "yellow", "error": "bold red"}


def print_findings(findings: Iterable["Finding"], path: str) -> None:
    """Print each finding: the expected and the actual state, the remedy, and the command for it."""
    for finding in findings:
        heading(
            f"{finding.severity} {finding.code}: {finding.path or finding.title}", SEVERITY_STYLES[finding.severity]
        )
        print_fields(
            [
                ("expected", finding.expected),
                ("found", in_commands(finding.actual, path)),
                ("remedy", in_commands(finding.remedy, path)),
                ("command", finding.command(path)),
            ]
        )
