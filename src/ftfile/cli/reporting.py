"""`report`: a directory or a store as one page."""

import os
from typing import Annotated

import typer

import ftfile
from ftfile.cli.display.output import heading, print_json, say, write_utf8
from ftfile.cli.display.progress_bar import waiting
from ftfile.cli.parameters import Json, KeyProvider, Path, Storage, settings_of
from ftfile.core.errors import ConfigError
from ftfile.core.human_text import bytes_text

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def report(
    path: Path,
    *,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page, in the place of one that is there; - is stdout."
        ),
    ] = "report.html",
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare the storage with the log, too, which takes longest.")
    ] = True,
    json: Json = False,
    key_provider: KeyProvider = None,
    storage: Storage = None,
) -> None:
    """Write one page with plots, tables and warnings of a directory or a store; it opens offline in any browser.

    It prints the warnings, too, unless the page goes to stdout.
    """
    if output == "-" and json:
        raise ConfigError("--output=- and --json both print on stdout: take one of them")
    with waiting("report"):
        found = ftfile.report(path, verify=verify, key_provider=key_provider, storage=settings_of(storage))
        if output != "-":
            found.save(output)
    if output == "-":
        # Names of files on a disk need not be text.
        write_utf8(found.html.encode(errors="backslashreplace"))
        return
    say(f"Wrote {output}: {bytes_text(os.path.getsize(output))}")
    if json:
        print_json({"path": found.path, "version": found.version, "warnings": found.warnings})
        return
    if not found.warnings:
        print("Nothing needs attention")
    for warning in found.warnings:
        heading(f"{warning.severity}: {warning.title}", _STYLES[warning.severity])
        print(warning.found)
        if warning.remedy:
            print(warning.remedy)
