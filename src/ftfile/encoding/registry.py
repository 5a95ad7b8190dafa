"""Formats by name. A format's module, and what it needs, is imported when that format is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.encoding.api import Format
    from ftfile.keys.keys import Keys

__all__ = ("FORMATS", "format_from_definition", "format_from_options")

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
    """Return the format called `name` with parsed option values by their names in the option table.

    Raises:
        ConfigError: the format is unknown, or values contradict each other.
    """
    return _load(name).from_options(options)


def format_from_definition(definition: Mapping[str, Any], keys: Keys | None = None) -> Format:
    """Return the format that the log describes: its `name`, and what its `definition()` gave.

    Args:
        definition: of the format.
        keys: for one that encrypts.

    Raises:
        ConfigError: this version does not know the format.
    """
    return _load(definition["name"]).from_definition(definition).with_keys(keys)


def _load(name: str) -> type[Format]:
    if name not in FORMATS:
        raise ConfigError(f"fileFormat={name!r} is not known; known are {', '.join(FORMATS)}")
    module, _, attribute = FORMATS[name].partition(":")
    return cast("type[Format]", getattr(importlib.import_module(module), attribute))
