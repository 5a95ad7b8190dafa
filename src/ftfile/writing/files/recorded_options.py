"""Options that describe stored files, as the log records them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.codecs import CODECS, ENCRYPTION_FILTER
from ftfile.core.errors import ConfigError
from ftfile.core.options.table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ftfile.core.options.typed import SinkOptions


# The framing of records in binary files: one of them is recorded.
_FRAMING = frozenset({"delimiter", "length_prefix"})


@dataclass(frozen=True)
class RecordedOptions:
    """The options that a writer of Python takes from the newest rows of the directory.

    Other programs can change them until the writer commits.
    """

    chosen: frozenset[str]  # the options that the caller chose instead, by names in snake case
    checked: SinkOptions  # these options

    def of(self, encoding: Mapping[str, Any]) -> dict[str, object]:
        """Return the options of a recorded encoding; see `recorded_options`."""
        return recorded_options(self.chosen, self.checked, encoding)

    def check(self, own: Mapping[str, Any], newest: Mapping[str, Any]) -> None:
        """Raise a ConfigError if an option of the newest rows differs from the encoding of the writer's own rows."""
        mine, recorded = self.of(own), self.of(newest)
        if "file_format" in self.chosen and own["format"]["name"] != newest["format"]["name"]:
            # The settings of the caller's format were not taken from the directory.
            mine = {name: value for name, value in mine.items() if name in recorded}
        differences = []
        for name in sorted(mine.keys() | recorded.keys()):
            if mine.get(name) != recorded.get(name):
                differences.append(f"{name} was {mine.get(name)!r:.80} and is {recorded.get(name)!r:.80}")
        if differences:
            raise ConfigError(
                "another program has changed how the rows of the directory are stored, after this writer took these "
                f"options from the directory: {'; '.join(differences)}. Nothing was committed. Close the writer and "
                "open it again, or repeat the call: it then takes the new options"
            )


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
            options[option.attribute] = value
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
