"""Options of stored files that a write of Python takes from the log of the directory."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ftfile.core.arguments import Access
from ftfile.core.codecs import CODECS, ENCRYPTION_FILTER
from ftfile.core.errors import ConfigError, KeysRequired
from ftfile.core.options import SinkOptions, parse_options
from ftfile.core.options.table import OPTIONS
from ftfile.core.options.typed import attribute_name
from ftfile.log.directory import check_is_files, directory_url, file_as_config_error, has_log
from ftfile.log.opening import open_log
from ftfile.log.sealed import KEY_PROVIDER_VARIABLE
from ftfile.operate.writers.named_options import option_texts
from ftfile.operate.writers.row_columns import common_settings
from ftfile.storage.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState


# The framing of records in binary files: one of them is recorded.
_FRAMING = frozenset({"delimiter", "length_prefix"})


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
        ConfigError: an option has a wrong value, the path is a file or a store, keys are missing, or the caller must
            name an encoder.
        CorruptData, RolledBack, StorageError: the log cannot be read.
    """
    texts = option_texts(options, storage, elsewhere) | {"path": path}
    checked = parse_options(texts, SinkOptions)
    access = Access(checked.key_provider, storage, checked.at_least_version, context)
    head = _head_at(path, texts, checked, access, stream=stream)
    if head is None:
        return texts
    check_is_files(head, path)
    if head.encoding is None:
        return texts
    chosen = frozenset(name for name, value in options.items() if value is not None)
    return option_texts(recorded_options(chosen, checked, head.definitions[head.encoding]), None, {}) | texts


def _head_at(
    path: str, texts: Mapping[str, str], checked: SinkOptions, access: Access, *, stream: bool
) -> LogState | None:
    has_keys = checked.encryption != "none" or access.key_provider or os.environ.get(KEY_PROVIDER_VARIABLE)
    if has_keys and not (checked.is_given("encryption") and checked.is_given("encryptionKeyId")):
        # A writer's settings would require the encryption and the id of the key, which the log contains.
        log = existing_log(path, access)
        return log.refresh() if log is not None else None
    log = common_settings(texts, stream=stream).log_at(directory_url(path), access.context)  # is kept for the write
    with file_as_config_error(log, path):
        return log.refresh()


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


def recorded_options(chosen: Collection[str], checked: SinkOptions, encoding: Mapping[str, Any]) -> dict[str, object]:
    """Return the options of the newest rows that the caller does not choose, by names in snake case.

    Options of the recorded format are omitted for another format, the level of compression for another codec, and the
    id of the key for another encryption.

    Args:
        chosen: the names of the options that the caller chooses, in snake case.
        checked: these options.
        encoding: of the newest rows, as recorded.

    Raises:
        ConfigError: the rows were encoded by a class, which the caller must name, since it is code.
    """
    recorded = _of_directory(encoding)
    if "file_format" not in chosen or checked.file_format == recorded["file_format"]:
        recorded |= _of_format(encoding)
        _check_encoder(encoding["format"], chosen)
    if "compression" in chosen and checked.compression != recorded.get("compression"):
        recorded.pop("compression_level", None)
    if "encryption" in chosen and checked.encryption != recorded.get("encryption"):
        recorded.pop("encryption_key_id", None)
    omitted = {*chosen}
    if not omitted.isdisjoint(_FRAMING):
        omitted |= _FRAMING
    return {name: value for name, value in recorded.items() if name not in omitted}


def _check_encoder(file_format: Mapping[str, Any], chosen: Collection[str]) -> None:
    if "encoder" in file_format and "encoder" not in chosen:
        raise ConfigError(
            f"the rows of the directory were encoded by the class {file_format['encoder']['name']!r}, which this call "
            "does not name: set encoder"
        )


def _of_directory(encoding: Mapping[str, Any]) -> dict[str, object]:
    """Return the format, the partition columns, the encryption, and the column with file names.

    The time zone of directory names is not among them: the sink uses the recorded one.
    """
    options: dict[str, object] = {"file_format": encoding["format"]["name"]}
    if encoding["partitionBy"]:
        options["partition_by"] = encoding["partitionBy"]
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
    """Return the settings of the format, its time zone and compression, and filters of the user."""
    file_format = encoding["format"]
    options: dict[str, object] = {}
    if "timeZone" in file_format:
        options["time_zone"] = file_format["timeZone"]
    for option in OPTIONS:
        value = file_format.get(option.name)
        if file_format["name"] in option.formats and option.name != "encoder" and value not in (None, option.default):
            options[attribute_name(option.name)] = value
    if "delimiter" in options and file_format["name"] == "binary":
        options["delimiter"] = re.sub("..", r"\\x\g<0>", str(options["delimiter"]))  # from hexadecimal digits
    filters = []
    for definition in encoding["filters"]:
        if definition["name"] in CODECS:
            options |= {"compression": definition["name"], "compression_level": definition.get("level")}
        elif definition["name"] != ENCRYPTION_FILTER:
            filters.append(definition["name"])
    if filters:
        options["filters"] = filters
    return options
