"""A directory as `ftfile.open` returns it: what can be read, and whether all is well with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.maintenance.status import directory_status
from ftfile.maintenance.verify.run import verify
from ftfile.source.directory import Directory

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ftfile.core.context import Context
    from ftfile.maintenance.status import DirectoryStatus
    from ftfile.maintenance.verify.findings import VerifyReport

__all__ = ("OpenedDirectory", "open_directory")


class OpenedDirectory(Directory):
    """Reads what is committed, says what is open or waiting, and holds files against the log. Needs no Spark."""

    def status(self) -> DirectoryStatus:
        """Return what is open, due, or not published, and why; also of large directories within a second or so.

        Raises:
            CorruptData: the log is damaged; `verify` says how.
        """
        return directory_status(self._log)

    def verify(self, *, full: bool = False) -> VerifyReport:
        """Hold what is on storage against what the log says. Nothing is written; safe beside running queries.

        Looked at are: the records that are kept, and whether bases, ranges and hints say the same; whether each
        committed file is where it belongs, with the length recorded; and what is there that no record knows.

        Args:
            full: also read every file, compare its checksum, and count its rows.

        Raises:
            ConfigError: a key of an encrypted directory is not known.
        """
        return verify(self._fs, full=full)


def open_directory(
    path: str | os.PathLike[str],
    key_provider: str | None = None,
    *,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> OpenedDirectory:
    """Open a directory that the sink wrote, for reading.

    Args:
        path: an absolute local path or a URL.
        key_provider: where the keys of an encrypted directory are, as the option `keyProvider` says it. By default,
            what the environment variable FTFILE_KEY_PROVIDER names, or else the directory itself. A directory that is
            not encrypted is refused when it is given.
        storage: settings of the file system: what the options `storage.<name>` are to the sink.
        context: clock, ids and retries; the machine's by default.

    Raises:
        ConfigError: it is no ftfile directory, or its keys are not known.
    """
    return OpenedDirectory(path, key_provider, storage, context)
