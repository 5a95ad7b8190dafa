"""A directory as `ftfile.open` returns it: rows, status, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.arguments import Access, check_arguments
from ftfile.core.context import SYSTEM, absolute_path
from ftfile.operate.details import diff, file_details, version_details, version_schema
from ftfile.operate.lag import Lag
from ftfile.operate.requests import RequestPrices
from ftfile.operate.status import directory_status
from ftfile.operate.verify.verify_directory import verify as compare
from ftfile.read.directory import Directory
from ftfile.writing.workers import Threads

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments, OperationArguments
    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.operate.details import FileDetails, VersionDetails, VersionDifference, VersionSchema
    from ftfile.operate.status import DirectoryStatus
    from ftfile.operate.verify.verify_directory import VerifyReport


__all__ = ("OpenedDirectory", "open_directory", "status", "verify")


class OpenedDirectory(Directory):
    """A directory with its rows, its status and its verification. Spark is not needed."""

    @check_arguments
    def status(
        self,
        *,
        staged: bool = False,
        lag: bool = True,
        checkpoints: Collection[str] = (),
        sources: Collection[str] = (),
        request_prices: tuple[float, float] | None = None,
    ) -> DirectoryStatus:
        """Return queries, open files, and unpublished files with the reasons, typically within a second.

        Writes nothing. The call reads only the newest log checkpoint and the records after it, independent of the size
        of the directory. It also reads the checkpoints of queries, and the backlog of the sources that ftfile can read,
        within 5 s in total. If a checkpoint or source cannot be read or does not respond in time, the result contains
        the reason.

        Args:
            staged: also count unneeded staged files. This lists the stage and takes longer.
            lag: read checkpoints and sources.
            checkpoints: paths of checkpoints that records do not contain, because the writer had no
                `checkpointLocation`, or that have another path on this host.
            sources: paths of ftfile directories and stores that queries follow, because checkpoints do not name them.
            request_prices: also compute the requests of recent batches on an object store, and their cost by these
                prices of 1,000 PUT and of 1,000 GET requests. The call then also reads up to 100 records.

        Raises:
            ConfigError: a given checkpoint belongs to no query that wrote here, or a given source is not an ftfile
                directory.
            CorruptData: the log is damaged; `verify` reports the damage.
            StorageError: the storage failed, or a given checkpoint or source does not respond.
        """
        backlog = None
        if lag:
            checkpoint_paths, source_paths = [*map(absolute_path, checkpoints)], [*map(absolute_path, sources)]
            backlog = Lag(
                url=self.path, checkpoints=checkpoint_paths, sources=source_paths, storage=self._access.settings
            )
        prices = None
        if request_prices is not None:
            prices = RequestPrices(*request_prices)
        return directory_status(self._log, self.path, staged=staged, lag=backlog, request_prices=prices)

    @check_arguments
    def version_details(self, version: int) -> VersionDetails:
        """Return the files that a version adds and removes, its writer, and its offsets. Writes nothing.

        Raises:
            ConfigError: the version does not exist, or is no longer kept.
            CorruptData: the log is damaged.
        """
        return version_details(self._log, version)

    @check_arguments
    def schema(self, version: int | None = None) -> VersionSchema:
        """Return the columns of a version with their types, and the SQL text of the schema. Reads only the log.

        `spark_schema` returns the schema as Spark's JSON; the `schema` of `dataset` and `to_arrow` is an Arrow schema.

        Args:
            version: by default the newest version.

        Raises:
            ConfigError: nothing has been committed, so there is no schema, or the version does not exist.
            CorruptData: the log is damaged.
        """
        return version_schema(self._log, version)

    @check_arguments
    def diff(self, old: int | str | datetime, new: int | str | datetime | None = None) -> VersionDifference:
        """Return the files, rows and columns in which two versions differ. Reads only the log.

        Rows that a compaction, a flush or a delete wrote into other files are neither added nor removed.

        Args:
            old: a version, or a time, which selects the newest version at that time; see `version_at`.
            new: a version or a time, as for `old`; by default the newest version. It can be older than `old`.

        Raises:
            ConfigError: a version does not exist, or is no longer kept.
            CorruptData: the log is damaged.
        """
        return diff(self._log, old, new)

    @check_arguments
    def file_details(self, path: str, version: int | None = None) -> FileDetails:
        """Return the batches of a finished file, the offsets of their sources, and its settings. Writes nothing.

        Args:
            path: of the file, relative to the directory, as in `files`.
            version: a version that contains the file; by default the newest one.

        Raises:
            ConfigError: the file or the version does not exist.
            CorruptData: the log is damaged.
        """
        return file_details(self._log, path, version)

    @check_arguments
    def verify(
        self, *, full: bool = False, threads: int | None = None, progress: OnProgress | None = None
    ) -> VerifyReport:
        """Return the differences between storage and the log, worst first. Writes nothing; safe while queries run.

        The call compares the existing records with checkpoints, compacted logs and hints. It checks the path and the
        length of each committed file, and lists files that no record names. With `full`, it also reads every file,
        compares its checksum, counts its rows, and compares them with the file's statistics in the log. Without `full`,
        it takes about 10 s and 90 MB for 100,000 records.

        Args:
            full: also read the content.
            threads: threads that read the content, each with memory for some row groups; by default one for each core.
            progress: called in this thread with a `Progress` after each file that is read. An error that it raises ends
                the call.

        Raises:
            ConfigError: a key of an encrypted directory is missing, or `threads` is below 1.
            RolledBack: the directory is older than `at_least_version` of `ftfile.open`.
            StorageError: the storage failed.
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
    statistics: bool = True,
    context: Context = SYSTEM,
) -> OpenedDirectory:
    """Return a directory that the sink wrote, for reading. Writes nothing and keeps nothing open.

    Args:
        path: a URL or a local path; `~` is the home directory, and a relative path begins in the working directory.
        key_provider: the provider of the keys of an encrypted directory, as in the option `keyProvider`. By default,
            the environment variable FTFILE_KEY_PROVIDER names it, or else the directory itself. If it is given, a
            directory without encryption is refused.
        storage: settings of the file system, as the options `storage.<name>` of the sink.
        at_least_version: a version that the directory is known to have had, such as the newest version of the last
            call. This call, and each later read of the log by the result, refuses a directory whose newest version is
            older.
        statistics: skip files that cannot contain matching rows, by the statistics in the log. If False, reads with a
            condition open all files in the matching partitions.
        context: clock, ids and retries; by default those of the machine.

    Raises:
        RolledBack: the directory was restored to a version before `at_least_version`, or its storage returns an old
            listing.
        ConfigError: the path is not an ftfile directory, or its keys are missing, or it is a store: see
            `ftfile.kv.open`.
        StorageError: the storage failed.
    """
    access = Access(key_provider, storage, at_least_version, context)
    opened = OpenedDirectory(path, access, statistics=statistics)
    opened.require_files()
    return opened


@check_arguments
def status(
    path: str | os.PathLike[str],
    *,
    staged: bool = False,
    lag: bool = True,
    checkpoints: Collection[str] = (),
    sources: Collection[str] = (),
    request_prices: tuple[float, float] | None = None,
    **access: Unpack[AccessArguments],
) -> DirectoryStatus:
    """Return the status of a directory or a store, typically within a second; `verdict` is its summary. Writes nothing.

    Args:
        path: of the directory or the store.
        staged: see `OpenedDirectory.status()`.
        lag: see `OpenedDirectory.status()`.
        checkpoints: see `OpenedDirectory.status()`.
        sources: see `OpenedDirectory.status()`.
        request_prices: see `OpenedDirectory.status()`.
        **access: how the directory is opened, see `ftfile.open`.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path has no log, or its keys are missing; or see `OpenedDirectory.status()`.
        CorruptData, StorageError: see `OpenedDirectory.status()`.
    """
    opened = OpenedDirectory(path, Access.of(access))
    return opened.status(
        staged=staged, lag=lag, checkpoints=checkpoints, sources=sources, request_prices=request_prices
    )


@check_arguments
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
        full: also read the content. For runs of a store the call compares bytes; `ftfile.kv.verify` also checks their
            rows.
        threads: see `OpenedDirectory.verify()`.
        **access: how the directory is opened, as in `ftfile.open`; for `progress` see `OpenedDirectory.verify()`.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path has no log, or its keys are missing, or `threads` is below 1.
        StorageError: the storage failed.
    """
    opened = OpenedDirectory(path, Access.of(access))
    return opened.verify(full=full, threads=threads, progress=access.get("progress"))
