"""Imports of the modules that writers use later, in a thread.

Python runs signal handlers in the main thread. If Ctrl-C ends an import there, a lock of Python's import system can
stay locked for ever, and all threads of the writer wait for it. So a writer imports its modules in another thread, when
it is opened.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ftfile.core.per_process import PerProcess
from ftfile.formats.api import FORMATS
from ftfile.storage.calls import NoThreadError, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The modules that other modules import during calls of a writer.
MODULES = (
    "ftfile.rows.messages",
    "ftfile.rows.statistics.bounds",
    "ftfile.rows.statistics.collector",
    "ftfile.rows.statistics.merging",
    "ftfile.writing.files.assembler",
    "ftfile.writing.files.part_writer",
    "ftfile.writing.files.rolling_plan",
    "ftfile.writing.files.spool",
    "ftfile.writing.files.task",
    "ftfile.writing.fingerprint",
)
# The packages of values of options, which are imported when a file is created.
PACKAGES = {
    ("compression", "lz4"): ("ftfile.filters.codecs", "lz4.frame", "lz4.block"),
    ("compression", "zstd"): ("ftfile.filters.codecs", "zstandard.backend_c"),
    ("encryption", "aes-gcm"): ("ftfile.filters.aes_gcm", "cryptography.hazmat.primitives.ciphers.aead"),
}
_imported: PerProcess[set[str]] = PerProcess(set)


def import_early(texts: Mapping[str, str]) -> None:
    """Import the modules for options of the sink that this process has not imported by an earlier call.

    Errors are ignored, also if there is no thread: the call that needs the module imports it, and raises them.
    """
    modules = [*MODULES]
    if texts.get("fileFormat") in FORMATS:
        modules.append(FORMATS[texts["fileFormat"]])
    for (option, value), packages in PACKAGES.items():
        if texts.get(option) == value:
            modules += packages
    missing = [module for module in modules if module not in _imported.here]
    if missing:
        with suppress(NoThreadError):
            start(partial(_import, missing)).error()


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        with suppress(Exception):
            resolve_name(module)
        _imported.here.add(module)
