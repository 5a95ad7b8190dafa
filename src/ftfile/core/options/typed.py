"""The options of each use: each option is declared once, with its kind, default and type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from ftfile.core.codecs import CODECS
from ftfile.core.errors import ConfigError
from ftfile.core.options import kinds
from ftfile.core.options.declaration import Option, option, words
from ftfile.core.options.kinds import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping

Use: TypeAlias = Literal["write", "read", "follow", "files", "ftkv-write", "ftkv-read", "ftkv-follow"]

# Codecs of line formats, and codecs within the files of columnar formats.
_CODECS = dict.fromkeys(("none", *CODECS, "brotli", "deflate", "zlib"))


def _declared_options_of(use: type[Options]) -> dict[str, Option[Any]]:
    """Return the options of a class by name: first those that it declares, then those of its base classes."""
    options: dict[str, Option[Any]] = {}
    for owner in use.__mro__:
        for value in vars(owner).values():
            if isinstance(value, Option):
                options.setdefault(value.name, value)
    return options


class Options:
    """Checked options of one use: the given ones, and defaults for the others.

    A subclass has an attribute for each option of its use, with the option's name in snake case.

    Attributes:
        USE: the use of the class; base classes of several uses have none.
        BY_NAME: the declarations of the options.
        given: the values of the given options by name, without defaults.
        texts: the texts of the given options.
        spark: Spark's own keys, in lower case.
        own: the options `prefix.<name>` in lower case, for code of the user and for the file system.
    """

    USE: ClassVar[Use]
    BY_NAME: ClassVar[dict[str, Option[Any]]]
    _DEFAULTS: ClassVar[dict[str, Any]]  # by attribute

    path = option(kinds.LOCATION)
    key_provider = option(kinds.LOCATION)

    def __init_subclass__(cls) -> None:
        cls.BY_NAME = _declared_options_of(cls)
        cls._DEFAULTS = {declared.attribute: declared.default for declared in cls.BY_NAME.values()}
        if "USE" in vars(cls):
            for declared in cls.BY_NAME.values():
                declared.used_by |= {cls.USE}

    def __init__(self, raw: Mapping[str, str] | None = None) -> None:
        self._raw = tuple((raw or {}).items())
        self.given: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.spark: dict[str, str] = {}
        self.own: dict[str, str] = {}
        vars(self).update(self._DEFAULTS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and type(self) is type(other) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash(self._raw)

    def set(self, declared: Option[Any], value: object, text: str) -> None:
        """Set an option; options of other uses have no attribute."""
        self.given[declared.name] = value
        self.texts[declared.name] = text
        if self.USE in declared.used_by:
            setattr(self, declared.attribute, value)

    def is_given(self, name: str) -> bool:
        """Return True if an option was given. A KeyError for a name that is not an option of the use."""
        if name not in self.BY_NAME:
            raise KeyError(name)
        return name in self.given

    def required_path(self, message: str = "the option `path` is missing") -> str:
        """Return the path; a ConfigError with the message if it was not given."""
        if self.path is None:
            raise ConfigError(message)
        return self.path

    def options_with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options `prefix.<name>` by `<name>`, in lower case."""
        start = f"{prefix.lower()}."
        return {key.removeprefix(start): text for key, text in self.own.items() if key.startswith(start)}

    def for_format(self, format_name: str) -> dict[str, Any]:
        """Return the given options of a format; a ConfigError for an option of other formats."""
        values = {}
        for name, value in self.given.items():
            formats = self.BY_NAME[name].formats
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

    max_open_bytes = option(kinds.SIZE, default=64 << 20)
    durability: Literal["auto", "hsync", "close"] = words("auto")
    file_permission = option(kinds.PERMISSION)
    directory_permission = option(kinds.PERMISSION)
    encryption: Literal["none", "aes-gcm", "parquet"] = words("none")
    encryption_key_id = option(kinds.TEXT)
    on_new_query: Literal["fail", "continue"] = words("fail")
    on_gap: Literal["fail", "accept"] = words("fail")
    on_replay_mismatch: Literal["fail", "keep"] = words("fail")
    on_schema_change: Literal["fail", "widen", "any"] = words("fail")
    bad_records: Literal["fail", "deadLetter", "drop"] = words("fail")
    max_record_bytes = option(kinds.SIZE)
    txn_app_id = option(kinds.TEXT)
    txn_version = option(kinds.VERSION)
    user_metadata = option(kinds.NOTE)
    at_least_version = option(kinds.VERSION)


class RecordOptions(Options):
    """The options of the lines or binary records of files."""

    time_zone = option(kinds.TEXT, default="UTC")
    timestamp_format = option(kinds.TEXT, default="yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", formats=("json", "csv"))
    timestamp_ntz_format = option(
        kinds.TEXT, default="yyyy-MM-dd'T'HH:mm:ss.SSSSSS", formats=("json", "csv"), name="timestampNTZFormat"
    )
    date_format = option(kinds.TEXT, default="yyyy-MM-dd", formats=("json", "csv"))
    line_sep = option(kinds.TEXT, default="\n", formats=("json", "csv", "text"))
    header = option(kinds.BOOLEAN, default=False, formats=("csv",))
    sep = option(kinds.CHARACTER, default=",", formats=("csv",))
    quote = option(kinds.CHARACTER, default='"', formats=("csv",))
    escape = option(kinds.CHARACTER, default="\\", formats=("csv",))
    null_value = option(kinds.TEXT, default="", formats=("csv",))
    delimiter = option(kinds.BYTES, default=b"\n", formats=("binary",))
    length_prefix: Literal["int32", "int32le", "varint"] | None = words(None, formats=("binary",))


class SinkOptions(WriterOptions, RecordOptions):
    """The options of `format("ftfile")` for writing."""

    USE = "write"

    # Content and directories.
    file_format = option(kinds.FORMAT, default="parquet")
    partition_by = option(kinds.COLUMNS, default=())
    directory_pattern = option(kinds.TEXT)
    file_name_column = option(kinds.TEXT)
    directory_assigner = option(kinds.TEXT)
    # File names.
    part_prefix = option(kinds.TEXT, default="part")
    part_suffix = option(kinds.TEXT, default="")
    part_file_name = option(kinds.TEXT)
    if_exists: Literal["newName", "fail"] = words("newName")
    directory_state_ttl = option(kinds.DURATION, default=7 * 86_400.0)
    # Files.
    max_bytes_per_file = option(kinds.SIZE)
    max_records_per_file = option(kinds.COUNT)
    statistics_columns = option(kinds.STATISTICS_COLUMNS, default="auto")
    # Rolling over micro-batches.
    rolling: Literal["batch", "policy"] = words("batch")
    max_batches_per_file = option(kinds.COUNT)
    rollover_interval = option(kinds.DURATION)
    inactivity_interval = option(kinds.DURATION)
    rollover_schedule = option(kinds.CLOCK)
    event_time_interval = option(kinds.COLUMN_AND_DURATION)
    finalize_column = option(kinds.TEXT)
    rolling_policy = option(kinds.TEXT)
    strict_file_size = option(kinds.BOOLEAN, default=False)
    max_segments_per_part = option(kinds.COUNT, default=1_000)
    max_open_segments = option(kinds.COUNT, default=100_000)
    # Publishing.
    success_file = option(kinds.TEXT)
    success_delay = option(kinds.DURATION, default=3600.0)
    on_publish = option(kinds.TEXT)
    export_to = option(kinds.TABLES, default=())
    publish: Literal["auto", "rename", "copy", "direct"] = words("auto")
    # Overwrites.
    partition_overwrite_mode: Literal["static", "dynamic"] | None = words(None)
    replace_where = option(kinds.TEXT)
    # Formats.
    compression = option(kinds.one_of(*_CODECS, uncompressed="none"), formats=FORMATS)
    compression_level = option(kinds.INTEGER, formats=FORMATS)
    filters = option(kinds.NAMES, default=())
    ignore_null_fields = option(kinds.BOOLEAN, default=True, formats=("json",))
    quote_all = option(kinds.BOOLEAN, default=False, formats=("csv",))
    encoder = option(kinds.TEXT, formats=("binary",))
    record_name = option(kinds.TEXT, default="topLevelRecord", formats=("avro",))
    # Guarantees.
    on_missing_part: Literal["warn", "fail"] = words("warn")
    on_format_change: Literal["fail", "accept"] = words("fail")

    def format_options(self) -> dict[str, Any]:
        """Return the options of the chosen format; for a class of the user, also those of its encoder or format."""
        options = self.for_format(self.file_format)
        encoder_options = self.options_with_prefix("encoder")
        own_options = self.options_with_prefix("format")
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

    key_columns = option(kinds.COLUMNS)
    bucket_by = option(kinds.COLUMNS, default=())
    buckets = option(kinds.COUNT, default=16)
    merge = option(kinds.TEXT, default="last")
    delete_column = option(kinds.TEXT)
    sequence_column = option(kinds.TEXT)
    tombstone_ttl = option(kinds.DURATION, default=7 * 86_400.0)
    compression: Literal["none", "lz4", "zstd"] = words("lz4", uncompressed="none")
    flush_interval_count = option(kinds.COUNT, default=16)
    flush_bytes = option(kinds.SIZE, default=2 << 20)
    flush_size = option(kinds.COUNT, default=1_000_000)
    max_file_size = option(kinds.SIZE, default=128 << 20)
    grace = option(kinds.DURATION, default=7200.0)
    vacuum_interval = option(kinds.DURATION, default=3600.0)


class VersionOptions(Options):
    """The options of reads of one version of files or of a store."""

    version_as_of = option(kinds.VERSION)
    timestamp_as_of = option(kinds.TIME)
    at_least_version = WriterOptions.at_least_version
    filter_pushdown = option(kinds.BOOLEAN, default=False)


class ReadOptions(VersionOptions):
    """The options of `format("ftfile")` for batch reads."""

    USE = "read"

    max_partition_bytes = option(kinds.SIZE, default=32 << 20)


class StoreReadOptions(VersionOptions):
    """The options of `format("ftkv")` for batch reads."""

    USE = "ftkv-read"

    merge = StoreSinkOptions.merge
    cache_bytes = option(kinds.SIZE, default=256 << 20)


class LimitOptions(Options):
    """The limits of the batches of a stream."""

    max_files_per_trigger = option(kinds.COUNT)
    max_bytes_per_trigger = option(kinds.SIZE)


class FollowOptions(LimitOptions):
    """The options of streams that follow a directory or a store."""

    starting_version = option(kinds.LATEST_OR_VERSION)
    starting_timestamp = option(kinds.TIME)
    max_rows_per_trigger = option(kinds.COUNT)


class DirectoryFollowOptions(FollowOptions):
    """The options of streams of an ftfile directory."""

    USE = "follow"

    skip_change_commits = option(kinds.BOOLEAN, default=False)


class StoreFollowOptions(FollowOptions):
    """The options of streams of the changes of a store."""

    USE = "ftkv-follow"

    merge = StoreSinkOptions.merge
    read_change_feed = option(kinds.BOOLEAN, default=False)


class FilesOptions(LimitOptions, RecordOptions):
    """The options of streams of files that other programs write."""

    USE = "files"

    file_format = SinkOptions.file_format
    bad_records = WriterOptions.bad_records
    state_location = option(kinds.TEXT)
    starting_offsets: Literal["earliest", "latest"] = words("earliest")
    path_glob_filter = option(kinds.TEXT)
    file_pattern = option(kinds.PATTERN)
    ignore_file_pattern = option(kinds.PATTERN)
    recursive_file_lookup = option(kinds.BOOLEAN, default=False)
    follow_links = option(kinds.BOOLEAN, default=False)
    scan_interval = option(kinds.DURATION, default=1.0)
    max_file_age = option(kinds.DURATION, default=7 * 86_400.0)
    tail = option(kinds.BOOLEAN)
    multi_line = option(kinds.BOOLEAN, default=False, formats=("json", "csv"))
    encoding = option(kinds.TEXT, default="UTF-8", formats=("json", "csv", "text"))
    close_inactive = option(kinds.DURATION, default=300.0)
    min_file_age = option(kinds.DURATION, default=10.0)
    file_identity: Literal["native", "content"] = words("native")
    allow_overwrites = option(kinds.BOOLEAN, default=False)
    fail_on_data_loss = option(kinds.BOOLEAN, default=False)
    max_retries = option(kinds.VERSION, default=5)
    max_partition_bytes = ReadOptions.max_partition_bytes
    comment = option(kinds.CHARACTER, formats=("csv",))
    column_name_of_corrupt_record = option(
        kinds.TEXT, default="_corrupt_record", formats=("json", "csv", "parquet", "orc", "arrow", "avro")
    )
    ignore_missing_files = option(kinds.BOOLEAN, default=False)
    ignore_corrupt_files = option(kinds.BOOLEAN, default=False)
    allow_clear_files = option(kinds.BOOLEAN, default=False)
    skip_ranges = option(kinds.FILE_RANGES, default=())
    clean_source: Literal["off", "archive", "delete"] = words("off")
    source_archive_dir = option(kinds.TEXT)
