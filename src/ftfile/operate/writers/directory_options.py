"""Options of a write of Python: the caller's, and those of stored files from the log of the directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError, KeysRequired
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.log.directory import check_is_files, directory_url, file_as_config_error, has_log
from ftfile.log.format.model import BatchWriteAuthor
from ftfile.log.opening import open_log
from ftfile.log.policy import find_record
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.sealed import KEY_PROVIDER_VARIABLE
from ftfile.operate.writers.named_options import option_texts
from ftfile.rows.spark_types import recorded_schema
from ftfile.storage.registry import normalise, open_filesystem
from ftfile.writing.files.recorded_options import RecordedOptions
from ftfile.writing.options import CommonSettings, Encryption, client_settings, transaction_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Transaction
    from ftfile.log.state import LogState


class GivenOptions(NamedTuple):
    """The options of a write."""

    texts: dict[str, str]  # by the names of the sink, with the path
    recorded: RecordedOptions  # the options among them that are compared with the directory at each commit


def common_settings(texts: Mapping[str, str], *, stream: bool) -> CommonSettings:
    """Return the settings that do not depend on columns; a ConfigError if an option is wrong."""
    options = parse_options(texts, SinkOptions)
    return CommonSettings.from_options(
        options, Encryption.from_options(options), client_settings(options), stream=stream
    )


def writer_options(
    path: str,
    options: Mapping[str, object],
    storage: Mapping[str, str] | None,
    elsewhere: Mapping[str, str],
    context: Context,
    **more: str,
) -> GivenOptions:
    """Return the caller's options, completed by the options of the directory's newest rows.

    If the log contains the write, they are completed by the options of its rows: other programs can have changed the
    directory since.

    Args:
        path: of the directory, which need not exist.
        options: see `option_texts`; they have priority.
        storage: see `option_texts`.
        elsewhere: see `option_texts`.
        context: of the caller.
        **more: further options of the caller by the names of the sink, such as the identity of a write.

    Raises:
        ArgumentError: see `option_texts`.
        ConfigError: an option has a wrong value, the path is a file or a store, keys are missing, or the caller must
            name an encoder.
        CorruptData, RolledBack, StorageError: the log cannot be read.
    """
    texts = option_texts(options, storage, elsewhere) | {"path": path} | more
    checked = parse_options(texts, SinkOptions)
    chosen = frozenset(name for name, value in options.items() if value is not None)
    recorded = RecordedOptions(chosen, checked)
    access = Access(checked.key_provider, storage, checked.at_least_version, context)
    log = _log_at(path, texts, checked, access)
    if log is None:
        return GivenOptions(texts, recorded)
    with file_as_config_error(log, path):
        head = log.refresh()
    check_is_files(head, path)
    encoding = stored_rows(log, head, transaction_of(checked, stream=False)).encoding
    if encoding is None:
        return GivenOptions(texts, recorded)
    taken = option_texts(recorded.of(encoding), None, {})
    return GivenOptions(taken | texts, recorded)


def _log_at(path: str, texts: Mapping[str, str], checked: SinkOptions, access: Access) -> CommitLog | None:
    has_keys = checked.encryption != "none" or access.key_provider or os.environ.get(KEY_PROVIDER_VARIABLE)
    if has_keys and not (checked.is_given("encryption") and checked.is_given("encryptionKeyId")):
        # A writer's settings would require the encryption and the id of the key, which the log contains.
        return existing_log(path, access)
    return common_settings(texts, stream=False).log_at(directory_url(path), access.context)  # is kept for the write


class StoredRows(NamedTuple):
    """The columns and the encoding of rows of a directory, as recorded."""

    definitions: Mapping[str, Any]
    schema_key: str | None  # None before the first rows
    encoding_key: str | None  # likewise

    @property
    def schema(self) -> pa.Schema | None:
        """Return the columns; None before the first rows."""
        if self.schema_key is None:
            return None
        return recorded_schema(self.definitions[self.schema_key])

    @property
    def encoding(self) -> Mapping[str, Any] | None:
        """Return how the rows are encoded; None before the first rows."""
        if self.encoding_key is None:
            return None
        return cast("Mapping[str, Any]", self.definitions[self.encoding_key])


def stored_rows(log: CommitLog, head: LogState, transaction: Transaction | None) -> StoredRows:
    """Return the newest rows of a directory or, if the log contains a write, the rows of this write.

    If the record of the write is deleted, these are the newest rows, too.
    """
    record = None
    if transaction is not None:
        record = find_record(log, head, BatchWriteAuthor("", transaction))
    if record is None:
        return StoredRows(head.definitions, head.schema, head.encoding)
    return StoredRows(take_snapshot(log, record.version).definitions, record.schema, record.encoding)


def existing_log(path: str, access: Access) -> CommitLog | None:
    """Return the log of a directory; None if the path has no log."""
    try:
        return open_log(path, access)
    except KeysRequired:
        raise
    except ConfigError:
        if has_log(open_filesystem(normalise(path), access.context, access.settings)):
            raise
        return None
