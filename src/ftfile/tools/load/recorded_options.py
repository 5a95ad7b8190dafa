"""The options that each write to a directory must repeat, as the log of the directory contains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.codecs import CODECS, ENCRYPTION_FILTER
from ftfile.core.options.table import DEFAULTS, OPTIONS
from ftfile.core.options.typed import attribute_name

if TYPE_CHECKING:
    from collections.abc import Mapping


# Formats whose other settings are code of the user.
_ONLY_NAMED = frozenset({"binary"})


def with_recorded(options: Mapping[str, object], encoding: Mapping[str, Any]) -> dict[str, object]:
    """Return options, by names in snake case, and the options of the newest rows that they do not set.

    Options of the recorded format are omitted for another format, and a recorded level of compression for another
    codec.
    """
    recorded = _of_directory(encoding)
    if options.get("file_format", recorded["file_format"]) == recorded["file_format"]:
        recorded |= _of_format(encoding)
    if "compression" in options:
        recorded.pop("compression_level", None)
    return recorded | dict(options)


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
