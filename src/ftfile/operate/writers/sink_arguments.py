"""The options of the sink as keyword arguments of Python, with their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from datetime import timedelta


# `make docs` writes the fields from the declarations of the options.
class SinkArguments(TypedDict, total=False):
    """The options of `format("ftfile")` for writing, in snake case, as described in docs/options.md.

    A size is a number of bytes, or a text such as "128MiB"; a duration is a timedelta, or a text such as "10min".
    Numbers and booleans can be texts, as in Spark. Without a value, or with None, an option has its default. But an
    option that describes stored files (the format and its settings, partition columns, compression, encryption,
    filters, time zone, file name column) has the value of the newest rows of the directory, if there are rows. An empty
    list selects nothing, such as no partition column. The arguments of `ftfile.write` and `ftfile.writer` replace the
    other options.
    """

    file_format: str | None
    partition_by: str | Sequence[str] | None
    directory_pattern: str | None
    file_name_column: str | None
    directory_assigner: str | None
    part_prefix: str | None
    part_suffix: str | None
    part_file_name: str | None
    if_exists: Literal["newName", "fail"] | None
    directory_state_ttl: str | timedelta | None
    max_bytes_per_file: int | str | None
    max_records_per_file: int | str | None
    statistics_columns: str | Sequence[str] | None
    rolling: Literal["batch", "policy"] | None
    max_batches_per_file: int | str | None
    rollover_interval: str | timedelta | None
    inactivity_interval: str | timedelta | None
    rollover_schedule: str | None
    event_time_interval: str | None
    finalize_column: str | None
    rolling_policy: str | None
    strict_file_size: bool | str | None
    max_segments_per_part: int | str | None
    max_open_segments: int | str | None
    success_file: str | None
    success_delay: str | timedelta | None
    on_publish: str | None
    export_to: str | Sequence[str] | None
    publish: Literal["auto", "rename", "copy", "direct"] | None
    compression: str | None
    compression_level: int | str | None
    filters: str | Sequence[str] | None
    ignore_null_fields: bool | str | None
    quote_all: bool | str | None
    encoder: str | None
    record_name: str | None
    on_missing_part: Literal["warn", "fail"] | None
    on_format_change: Literal["fail", "accept"] | None
    max_open_bytes: int | str | None
    durability: Literal["auto", "hsync", "close"] | None
    file_permission: str | None
    directory_permission: str | None
    encryption: Literal["none", "aes-gcm", "parquet"] | None
    encryption_key_id: str | None
    on_replay_mismatch: Literal["fail", "keep"] | None
    on_schema_change: Literal["fail", "widen", "any"] | None
    bad_records: Literal["fail", "deadLetter", "drop"] | None
    max_record_bytes: int | str | None
    user_metadata: str | None
    at_least_version: int | str | None
    time_zone: str | None
    timestamp_format: str | None
    timestamp_ntz_format: str | None
    date_format: str | None
    line_sep: str | None
    header: bool | str | None
    sep: str | None
    quote: str | None
    escape: str | None
    null_value: str | None
    delimiter: str | None
    length_prefix: Literal["int32", "int32le", "varint"] | None
    key_provider: str | os.PathLike[str] | None
