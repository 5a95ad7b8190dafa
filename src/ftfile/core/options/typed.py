"""The options of each use as attributes with types; a test compares them with the option table."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from ftfile.core.errors import ConfigError
from ftfile.core.options.kinds import FORMATS
from ftfile.core.options.table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ftfile.core.options.kinds import FileRange, Option

Use: TypeAlias = Literal["write", "read", "follow", "files", "ftkv-write", "ftkv-read", "ftkv-follow"]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _by_key() -> dict[str, list[Option]]:
    """Return the options by name in lower case; files and stores can have options of the same name."""
    options: dict[str, list[Option]] = {}
    for option in OPTIONS:
        options.setdefault(option.name.lower(), []).append(option)
    return options


_BY_KEY = _by_key()


def option_named(name: str, uses: Iterable[Use]) -> Option | None:
    """Return the option with a name that is for one of the uses, else any option with this name."""
    options = _BY_KEY.get(name.lower(), [])
    for option in options:
        if not option.used_by.isdisjoint(uses):
            return option
    return options[0] if options else None


def attribute_name(name: str) -> str:
    """Return the name of an option in snake case."""
    return _WORD.sub("_", name).lower()


@functools.cache
def _defaults(use: Use) -> dict[str, Any]:
    """Return the defaults of all options of a use, by attribute."""
    defaults: dict[str, Any] = {}
    for option in OPTIONS:
        if use in option.used_by:
            defaults[attribute_name(option.name)] = option.default
    return defaults


class Options:
    """Checked options of one use: the given ones, and defaults for the others.

    A subclass has an attribute for each option of its use, with the option's name in snake case.

    Attributes:
        given: the values of the given options by name, without defaults.
        texts: the texts of the given options.
        spark: Spark's own keys, in lower case.
        own: the options `prefix.<name>` in lower case, for code of the user and for the file system.
    """

    USE: ClassVar[Use]

    path: str | None
    key_provider: str | None

    def __init__(self, raw: Mapping[str, str] | None = None) -> None:
        self._raw = tuple((raw or {}).items())
        self.given: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.spark: dict[str, str] = {}
        self.own: dict[str, str] = {}
        vars(self).update(_defaults(self.USE))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and type(self) is type(other) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash(self._raw)

    def set(self, name: str, value: object, text: str) -> None:
        """Set an option of the table; options of other uses have no attribute."""
        self.given[name] = value
        self.texts[name] = text
        attribute = attribute_name(name)
        if attribute in _defaults(self.USE):
            setattr(self, attribute, value)

    def is_given(self, name: str) -> bool:
        """Return True if an option of the table was given. A KeyError for a name that the table does not have."""
        if name.lower() not in _BY_KEY:
            raise KeyError(name)
        return name in self.given

    def required_path(self, message: str = "the option `path` is missing") -> str:
        """Return the path; a ConfigError with the message if it was not given."""
        if self.path is None:
            raise ConfigError(message)
        return self.path

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the options `prefix.<name>` by `<name>`, in lower case."""
        start = f"{prefix.lower()}."
        return {key.removeprefix(start): text for key, text in self.own.items() if key.startswith(start)}

    def for_format(self, format_name: str) -> dict[str, Any]:
        """Return the given options of a format; a ConfigError for an option of other formats."""
        values = {}
        for name, value in self.given.items():
            option = option_named(name, [self.USE])
            formats = () if option is None else option.formats
            if formats not in {(), FORMATS} and format_name not in formats:
                elsewhere = ""
                if (name, format_name) == ("delimiter", "csv"):
                    elsewhere = "; use sep to separate fields"
                raise ConfigError(
                    f"option {name!r} is for fileFormat={'|'.join(formats)}, but fileFormat is {format_name}{elsewhere}"
                )
            if formats:
                values[name] = value
        return values


class WriterOptions(Options):
    """The options of writers of files and of stores."""

    max_open_bytes: int
    durability: Literal["auto", "hsync", "close"]
    file_permission: int | None
    directory_permission: int | None
    replication: int | None
    block_size: int | None
    encryption: Literal["none", "aes-gcm", "parquet"]
    encryption_key_id: str | None
    on_new_query: Literal["fail", "continue"]
    on_gap: Literal["fail", "accept"]
    on_replay_mismatch: Literal["fail", "keep"]
    on_schema_change: Literal["fail", "widen", "any"]
    fingerprint: Literal["content", "strong"] | None
    bad_records: Literal["fail", "deadLetter", "drop"]
    max_record_bytes: int | None
    txn_app_id: str | None
    txn_version: int | None
    user_metadata: str | None
    at_least_version: int | None


class SinkOptions(WriterOptions):
    """The options of `format("ftfile")` for writing."""

    USE = "write"

    file_format: str
    partition_by: tuple[str, ...]
    directory_pattern: str | None
    file_name_column: str | None
    directory_assigner: str | None
    part_prefix: str
    part_suffix: str
    part_file_name: str | None
    if_exists: Literal["newName", "fail"]
    directory_state_ttl: float
    max_bytes_per_file: int | None
    max_records_per_file: int | None
    statistics_columns: Literal["auto", "none"] | tuple[tuple[str, ...], ...]
    rolling: Literal["batch", "policy"]
    max_batches_per_file: int | None
    rollover_interval: float | None
    inactivity_interval: float | None
    rollover_schedule: float | None
    event_time_interval: tuple[str, float] | None
    finalize_column: str | None
    rolling_policy: str | None
    strict_file_size: bool
    max_segments_per_part: int
    max_open_segments: int
    success_file: str | None
    success_delay: float
    on_publish: str | None
    export_to: tuple[str, ...]
    publish: Literal["auto", "rename", "copy", "direct"]
    partition_overwrite_mode: Literal["static", "dynamic"] | None
    replace_where: str | None
    compression: str | None  # a codec
    compression_level: int | None
    filters: tuple[str, ...]
    time_zone: str
    timestamp_format: str
    timestamp_ntz_format: str
    date_format: str
    ignore_null_fields: bool
    line_sep: str
    header: bool
    sep: str
    quote: str
    escape: str
    quote_all: bool
    null_value: str
    delimiter: bytes
    length_prefix: Literal["int32", "int32le", "varint"] | None
    encoder: str | None
    record_name: str
    record_namespace: str
    on_missing_part: Literal["warn", "fail"]
    on_format_change: Literal["fail", "accept"]
    publish_timeout: float

    def format_options(self) -> dict[str, Any]:
        """Return the options of the chosen format; for a class of the user, also those of its encoder or format."""
        options = self.for_format(self.file_format)
        encoder_options = self.prefixed("encoder")
        own_options = self.prefixed("format")
        if own_options and self.file_format in FORMATS:
            name = next(iter(own_options))
            raise ConfigError(f"format.{name} is an option for your format, but fileFormat is {self.file_format}")
        if encoder_options and "encoder" not in options:
            name = next(iter(encoder_options))
            raise ConfigError(f"encoder.{name} is an option for your class, but the option encoder names no class")
        options |= own_options
        if encoder_options:
            options["encoder."] = encoder_options
        return options


class StoreSinkOptions(WriterOptions):
    """The options of `format("ftkv")` for writing."""

    USE = "ftkv-write"

    key_columns: tuple[str, ...] | None
    bucket_by: tuple[str, ...]
    buckets: int
    merge: str
    delete_column: str | None
    sequence_column: str | None
    tombstone_ttl: float
    compression: Literal["none", "lz4", "zstd"]
    block_bytes: int
    flush_interval_count: int
    flush_bytes: int
    flush_size: int
    max_file_size: int
    grace: float
    vacuum_interval: float


class VersionOptions(Options):
    """The options of reads of one version of files or of a store."""

    version_as_of: int | None
    timestamp_as_of: datetime | None
    at_least_version: int | None
    filter_pushdown: bool


class ReadOptions(VersionOptions):
    """The options of `format("ftfile")` for batch reads."""

    USE = "read"

    max_partition_bytes: int


class StoreReadOptions(VersionOptions):
    """The options of `format("ftkv")` for batch reads."""

    USE = "ftkv-read"

    merge: str
    cache_bytes: int


class LimitOptions(Options):
    """The limits of the batches of a stream."""

    max_files_per_trigger: int | None
    max_bytes_per_trigger: int | None


class FollowOptions(LimitOptions):
    """The options of streams that follow a directory or a store."""

    starting_version: int | Literal["latest"] | None
    starting_timestamp: datetime | None
    max_rows_per_trigger: int | None


class DirectoryFollowOptions(FollowOptions):
    """The options of streams of an ftfile directory."""

    USE = "follow"

    skip_change_commits: bool


class StoreFollowOptions(FollowOptions):
    """The options of streams of the changes of a store."""

    USE = "ftkv-follow"

    merge: str
    read_change_feed: bool


class FilesOptions(LimitOptions):
    """The options of streams of files that other programs write."""

    USE = "files"

    file_format: str
    time_zone: str
    timestamp_format: str
    timestamp_ntz_format: str
    date_format: str
    line_sep: str
    header: bool
    sep: str
    quote: str
    escape: str
    null_value: str
    delimiter: bytes
    length_prefix: Literal["int32", "int32le", "varint"] | None
    bad_records: Literal["fail", "deadLetter", "drop"]
    state_location: str | None
    starting_offsets: Literal["earliest", "latest"]
    path_glob_filter: str | None
    file_pattern: str | None
    ignore_file_pattern: str | None
    recursive_file_lookup: bool
    follow_links: bool
    scan_interval: float
    max_file_age: float
    max_tracked_files: int
    tail: bool | None
    multi_line: bool
    encoding: str
    close_inactive: float
    min_file_age: float
    file_identity: Literal["native", "content"]
    allow_overwrites: bool
    fail_on_data_loss: bool
    max_retries: int
    max_partition_bytes: int
    comment: str | None
    column_name_of_corrupt_record: str
    ignore_missing_files: bool
    ignore_corrupt_files: bool
    allow_clear_files: bool
    skip_ranges: tuple[FileRange, ...]
    clean_source: Literal["off", "archive", "delete"]
    source_archive_dir: str | None
