"""A directory as `ftfile.open` returns it: rows, status, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.arguments import Access, checked
from ftfile.core.context import SYSTEM, absolute_path
from ftfile.operate.details import diff, file_details, version_details, version_schema
from ftfile.operate.lag import Lag
from ftfile.operate.status import directory_status
from ftfile.operate.verify.verify_directory import verify as compare
from ftfile.read.directory import Directory
from ftfile.write.workers import Threads

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments, OperationArguments
    from ftfile.core.context import Context, OnProgress
    from ftfile.operate.details import Changes, FileDetails, VersionDetails, VersionSchema
    from ftfile.operate.status import DirectoryStatus
    from ftfile.operate.verify.verify_directory import VerifyReport


__all__ = ("OpenedDirectory", "open_directory", "status", "verify")


class OpenedDirectory(Directory):
    """A directory to read, to ask for its status, and to verify. Needs no Spark."""

    @checked
    def status(
        self,
        *,
        staged: bool = False,
        lag: bool = True,
        checkpoints: Collection[str] = (),
        sources: Collection[str] = (),
    ) -> DirectoryStatus:
        """Return queries, open files, and files that are not published, with the reasons; within a second or so.

        Writes nothing. It reads the newest log checkpoint and the records after it, however large the directory is. It
        also looks at the checkpoints of queries, and at what their sources have left to read where ftfile reads them:
        together for 5 s at most. What cannot be read, or does not answer in time, says so in the result.

        Args:
            staged: also count staged files that nothing needs, which lists the stage, and takes longer.
            lag: look at checkpoints and sources.
            checkpoints: paths of those of queries whose records do not have them, as where the writer was not given
                `checkpointLocation`; or of those that are elsewhere, as seen from here.
            sources: paths of ftfile directories and stores that queries follow: checkpoints do not name them.

        Raises:
            ConfigError: a checkpoint that is given is of no query that wrote here, or a source no ftfile directory.
            CorruptData: the log is damaged; `verify` says how.
            StorageError: the store failed, or a checkpoint or source that is given does not answer.
        """
        look = Lag(self.path, [*map(absolute_path, checkpoints)], [*map(absolute_path, sources)], self._access.settings)
        return directory_status(self._log, self.path, staged=staged, lag=look if lag else None)

    @checked
    def version_details(self, version: int) -> VersionDetails:
        """Return the files that a version adds and removes, its writer, and its offsets. Writes nothing.

        Raises:
            ConfigError: there is no such version, or it is no longer kept.
            CorruptData: the log is damaged.
        """
        return version_details(self._log, version)

    @checked
    def schema(self, version: int | None = None) -> VersionSchema:
        """Return the columns of a version with their types, and all of them as text of SQL, from the log alone.

        `spark_schema` has them as Spark's JSON, and the `schema` of `dataset` and `to_arrow` as Arrow's.

        Args:
            version: by default the newest one.

        Raises:
            ConfigError: nothing has been committed, so that there is none, or there is no such version.
            CorruptData: the log is damaged.
        """
        return version_schema(self._log, version)

    @checked
    def diff(self, old: int | str | datetime, new: int | str | datetime | None = None) -> Changes:
        """Return the files, rows and columns in which one version differs from another, from the log alone.

        Rows that a compaction, a flush or a delete wrote into other files are neither added nor removed.

        Args:
            old: a version, or a time, for the newest version then; see `version_at`.
            new: likewise; by default the newest version. It may be the older one of both.

        Raises:
            ConfigError: there is no such version, or it is no longer kept.
            CorruptData: the log is damaged.
        """
        return diff(self._log, old, new)

    @checked
    def file_details(self, path: str, version: int | None = None) -> FileDetails:
        """Return a finished file's batches, the offsets of their sources, and how it was written. Writes nothing.

        Args:
            path: of the file, relative to the directory, as `files` has it.
            version: in which it is; by default the newest one.

        Raises:
            ConfigError: there is no such file, or no such version.
            CorruptData: the log is damaged.
        """
        return file_details(self._log, path, version)

    @checked
    def verify(
        self, *, full: bool = False, threads: int | None = None, progress: OnProgress | None = None
    ) -> VerifyReport:
        """Return the differences between storage and the log, worst first. Writes nothing; safe beside running queries.

        It compares the records that are kept with checkpoints, ranges and hints, looks for each committed file where it
        belongs, with the length recorded, and for files that no record knows. It takes some 10 s and 90 MB for 100,000
        records. With `full`, it also reads every file, compares its checksum, and counts its rows.

        Args:
            full: read the content, too.
            threads: that read it, each with memory for some row groups; by default one for each core.
            progress: called in this thread with a `Progress` after each file that is read; what it raises ends it.

        Raises:
            ConfigError: a key of an encrypted directory is not known, or `threads` is below 1.
            RolledBack: the directory is older than `at_least_version` of `ftfile.open`.
            StorageError: the store failed.
        """
        workers = Threads.of("verify", threads, self.file_system.context)
        at_least = self._access.at_least_version
        return compare(self.file_system, full=full, workers=workers, progress=progress, at_least_version=at_least)


def open_directory(
    path: str | os.PathLike[str],
    key_provider: str | None = None,
    *,
    storage: Mapping[str, str] | None = None,
    at_least_version: int | None = None,
    context: Context = SYSTEM,
) -> OpenedDirectory:
    """Return a directory that the sink wrote, to be read; nothing is written, and nothing stays open.

    Args:
        path: a URL or a local path; `~` is the home directory, and a relative one begins in the working directory.
        key_provider: where the keys of an encrypted directory are, as in the option `keyProvider`. By default, what the
            environment variable FTFILE_KEY_PROVIDER names, or else the directory itself. A directory that is not
            encrypted is refused when it is given.
        storage: settings of the file system, as the options `storage.<name>` of the sink.
        at_least_version: a version that the directory is known to have had, such as the newest of the last time: this
            call, and each look at the log by what it returns, refuses a directory whose newest version is older.
        context: clock, ids and retries; the machine's by default.

    Raises:
        RolledBack: the directory was put back to before `at_least_version`, or its store lists what is old.
        ConfigError: the path is no ftfile directory, or its keys are not known, or it is a store: see `ftfile.kv.open`.
        StorageError: the store failed.
    """
    opened = OpenedDirectory(path, Access(key_provider, storage, at_least_version, context))
    opened.require_files()
    return opened


@checked
def status(
    path: str | os.PathLike[str],
    *,
    staged: bool = False,
    lag: bool = True,
    checkpoints: Collection[str] = (),
    sources: Collection[str] = (),
    **access: Unpack[AccessArguments],
) -> DirectoryStatus:
    """Return how a directory or a store is: `verdict` says it in a sentence. Within a second or so; it writes nothing.

    Args:
        path: of the directory or the store.
        staged: see `Directory.status()`.
        lag: likewise.
        checkpoints: likewise.
        sources: likewise.
        **access: how the directory is opened, see `ftfile.open`.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path has no log, or its keys are not known; or see `Directory.status()`.
        CorruptData, StorageError: see `Directory.status()`.
    """
    opened = OpenedDirectory(path, Access.of(access))
    return opened.status(staged=staged, lag=lag, checkpoints=checkpoints, sources=sources)


@checked
def verify(
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    threads: int | None = None,
    **access: Unpack[OperationArguments],
) -> VerifyReport:
    """Return the differences between storage and the log of a directory or a store, worst first. Writes nothing.

    Args:
        path: of the directory or the store.
        full: read the content, too; of runs of a store it compares bytes, and `ftfile.kv.verify` also their rows.
        threads: see `Directory.verify()`.
        **access: how the directory is opened, as `ftfile.open` does; for `progress` see `Directory.verify()`.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path has no log, or its keys are not known, or `threads` is below 1.
        StorageError: the store failed.
    """
    opened = OpenedDirectory(path, Access.of(access))
    return opened.verify(full=full, threads=threads, progress=access.get("progress"))
