"""Formats by name. A format's module, and what it needs, is imported when that format is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.extensions import load_class
from ftfile.encoding.api import Format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.keys.keys import Keys

ENTRY_POINT_GROUP = "ftfile.formats"

FORMATS = {
    "parquet": "ftfile.encoding.parquet.format:ParquetFormat",
    "json": "ftfile.encoding.json.format:JsonLines",
    "csv": "ftfile.encoding.csv.format:CsvLines",
    "text": "ftfile.encoding.text_format:TextLines",
    "binary": "ftfile.encoding.binary.format:BinaryRecords",
    "avro": "ftfile.encoding.avro.format:AvroFormat",
    "orc": "ftfile.encoding.orc.format:OrcFormat",
    "arrow": "ftfile.encoding.arrow_format:ArrowFormat",
}


def format_from_options(name: str, options: Mapping[str, Any]) -> Format:
    """Return a format with parsed option values; `ConfigError` if it is unknown, or values contradict each other."""
    return _format_class(name).from_options(options)


def format_from_definition(definition: Mapping[str, Any], keys: Keys | None = None) -> Format:
    """Return the format of its `name` and `definition()` in the log; `ConfigError` if it is not installed here."""
    return _format_class(definition["name"]).from_definition(definition).with_keys(keys)


def _format_class(name: str) -> type[Format]:
    return load_class("fileFormat", name, FORMATS, ENTRY_POINT_GROUP, Format)  # type: ignore[type-abstract]
