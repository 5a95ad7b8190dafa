"""The options that say when files end that stay open over batches."""

from __future__ import annotations

from ftfile.core.options.kinds import BOOLEAN, CLOCK, COLUMN_AND_DURATION, COUNT, DURATION, TEXT, one_of
from ftfile.core.options.option import Option

__all__ = ("ROLLED_BYTES", "ROLLED_INACTIVITY_S", "ROLLING")

# Defaults of maxBytesPerFile and inactivityInterval for files that stay open over batches; others have none.
ROLLED_BYTES = 128 << 20
ROLLED_INACTIVITY_S = 3600.0

ROLLING: tuple[Option, ...] = (
    Option(
        "rolling",
        one_of("batch", "policy"),
        "batch",
        "When files end: `batch` finishes every file in the micro-batch that wrote it, so that each batch is visible "
        "at once; `policy` keeps files open over batches until one of the rules below fires.",
        "rolling",
        default_text="`batch`; `policy` with any rule below",
    ),
    Option(
        "maxBatchesPerFile",
        COUNT,
        None,
        "A file ends when this many batches have put records into it.",
        "rolling",
    ),
    Option(
        "rolloverInterval",
        DURATION,
        None,
        "A file ends this long after its first records were committed, before it takes in more.",
        "rolling",
    ),
    Option(
        "inactivityInterval",
        DURATION,
        None,
        "A file ends this long after its last records were committed, before it takes in more.",
        "rolling",
        default_text="`1h`",
    ),
    Option(
        "rolloverSchedule",
        CLOCK,
        None,
        "Files end when the clocks of `timeZone` have passed a multiple of this since midnight: `1h` is every full "
        "hour.",
        "rolling",
    ),
    Option(
        "eventTimeInterval",
        COLUMN_AND_DURATION,
        None,
        "A file has records of one interval of the time in a column, such as one full hour of UTC, and ends when there "
        "are records of a later one.",
        "rolling",
    ),
    Option(
        "finalizeColumn",
        TEXT,
        None,
        "A boolean column, which does not go into the files: a file ends after a record in which it is true.",
        "rolling",
    ),
    Option(
        "rollingPolicy",
        TEXT,
        None,
        "A class of your own that ends files, as `module:Class`; see docs/rolling.md.",
        "rolling",
    ),
    Option(
        "strictFileSize",
        BOOLEAN,
        False,  # noqa: FBT003 - a default
        "Close a file before the record with which it would pass `maxBytesPerFile`, not after.",
        "rolling",
    ),
)
