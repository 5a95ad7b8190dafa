"""The options that each write to a directory must repeat, as the log of the directory contains them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ftfile.core.arguments import Access
from ftfile.core.codecs import CODECS, ENCRYPTION_FILTER
from ftfile.core.options import SinkOptions, parse_options
from ftfile.core.options.table import DEFAULTS, OPTIONS
from ftfile.core.options.typed import attribute_name
from ftfile.log.directory import directory_url, file_as_config_error, has_log
from ftfile.log.opening import open_log
from ftfile.log.sealed import KEY_PROVIDER_VARIABLE
from ftfile.operate.writers.named_options import option_texts
from ftfile.operate.writers.row_columns import common_settings
from ftfile.storage.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState


# Formats whose other settings are code of the user.
_ONLY_NAMED = frozenset({"binary"})


def texts_with_recorded(
    path: str,
    options: Mapping[str, object],
    storage: Mapping[str, str] | None,
    elsewhere: Mapping[str, str],
    context: Context,
    *,
    stream: bool,
) -> dict[str, str]:
    """Return options by the names of the sink, with the path and the options of the directory's newest rows.

    Args:
        path: of the directory, which need not exist.
        options: see `option_texts`; they have priority.
        storage: see `option_texts`.
        elsewhere: see `option_texts`.
        context: of the caller.
        stream: True for options of streams.

    Raises:
        ArgumentError: see `option_texts`.
        ConfigError: an option has a wrong value, the path is a file, or keys are missing.
        CorruptData, RolledBack, StorageError: the log cannot be read.
    """
    texts = option_texts(options, storage, elsewhere) | {"path": path}
    head = _head_at(path, texts, storage, context, stream=stream)
    if head is None or head.encoding is None:
        return texts
    return option_texts(with_recorded(options, head.definitions[head.encoding]), storage, elsewhere) | {"path": path}


def _head_at(
    path: str, texts: Mapping[str, str], storage: Mapping[str, str] | None, context: Context, *, stream: bool
) -> LogState | None:
    checked = parse_options(texts, SinkOptions)
    if checked.encryption == "none" and (checked.key_provider or os.environ.get(KEY_PROVIDER_VARIABLE)):
        # The keys are only for the log: the settings of a writer would require the encryption.
        log = existing_log(path, Access(checked.key_provider, storage, checked.at_least_version, context))
        return log.refresh() if log is not None else None
    log = common_settings(texts, stream=stream).log_at(directory_url(path), context)  # is kept for the write
    with file_as_config_error(log, path):
        return log.refresh()


def existing_log(path: str, access: Access) -> CommitLog | None:
    """Return the log of a directory; None if the path has no log."""
    if not has_log(open_filesystem(normalise(path), access.context, access.settings)):
        return None
    return open_log(path, access)


def with_recorded(options: Mapping[str, object], encoding: Mapping[str, Any]) -> dict[str, object]:
    """Return options, by names in snake case, and the options of the newest rows that they do not set; None sets none.

    Options of the recorded format are omitted for another format, and a recorded level of compression for another
    codec.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    recorded = _of_directory(encoding)
    if chosen.get("file_format", recorded["file_format"]) == recorded["file_format"]:
        recorded |= _of_format(encoding)
    if "compression" in chosen:
        recorded.pop("compression_level", None)
    return recorded | chosen


def _of_directory(encoding: Mapping[str, Any]) -> dict[str, object]:
    """Return the format, the partition columns, the time zone and the encryption."""
    options: dict[str, object] = {"file_format": encoding["format"]["name"]}
    if encoding["partitionBy"]:
        options["partition_by"] = encoding["partitionBy"]
    if encoding.get("timeZone", DEFAULTS["timeZone"]) != DEFAULTS["timeZone"]:
        options["time_zone"] = encoding["timeZone"]
    if "fileName" in encoding:
        options["file_name_column"] = encoding["fileName"]["column"]
    parquet_key = encoding["format"].get("encryptionKeyId")
    if parquet_key is not None:
        options |= {"encryption": "parquet", "encryption_key_id": parquet_key}
    for definition in encoding["filters"]:
        if definition["name"] == ENCRYPTION_FILTER:
            options |= {"encryption": ENCRYPTION_FILTER, "encryption_key_id": definition["keyId"]}
    return options


def _of_format(encoding: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings of the format, its compression, and filters of the user."""
    options: dict[str, object] = {}
    file_format = encoding["format"]["name"]
    for option in OPTIONS:
        value = encoding["format"].get(option.name)
        is_own = file_format in option.formats and file_format not in _ONLY_NAMED
        if is_own and value not in (None, option.default):
            options[attribute_name(option.name)] = value
    filters = []
    for definition in encoding["filters"]:
        if definition["name"] in CODECS:
            options |= {"compression": definition["name"], "compression_level": definition.get("level")}
        elif definition["name"] != ENCRYPTION_FILTER:
            filters.append(definition["name"])
    if filters:
        options["filters"] = filters
    return options
