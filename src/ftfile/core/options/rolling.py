"""The options that say when files end that stay open over batches."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of

# Defaults of maxBytesPerFile and inactivityInterval for files that stay open over batches; others have none.
ROLLED_BYTES = 128 << 20
ROLLED_INACTIVITY_S = 3600.0

ROLLING: tuple[Option, ...] = (
    Option(
        "rolling",
        one_of("batch", "policy"),
        "When files end: `batch` finishes every file in the micro-batch that wrote it, so that each batch is visible "
        "at once; `policy` keeps files open over batches until one of the rules below fires.",
        default="batch",
        default_text="`batch`; `policy` with any rule below",
    ),
    Option("maxBatchesPerFile", kinds.COUNT, "A file ends when this many batches have put records into it."),
    Option(
        "rolloverInterval",
        kinds.DURATION,
        "A file ends this long after its first records were committed, before it takes in more.",
    ),
    Option(
        "inactivityInterval",
        kinds.DURATION,
        "A file ends this long after its last records were committed, before it takes in more.",
        default_text="`1h`",
    ),
    Option(
        "rolloverSchedule",
        kinds.CLOCK,
        "Files end when the clocks of `timeZone` have passed a multiple of this since midnight: `1h` is every full "
        "hour.",
    ),
    Option(
        "eventTimeInterval",
        kinds.COLUMN_AND_DURATION,
        "A file has records of one interval of the time in a column, such as one full hour of UTC, and ends when there "
        "are records of a later one.",
    ),
    Option(
        "finalizeColumn",
        kinds.TEXT,
        "A boolean column, which does not go into the files: a file ends after a record in which it is true.",
    ),
    Option("rollingPolicy", kinds.TEXT, "A class of your own that ends files, as `module:Class`; see docs/rolling.md."),
    Option(
        "strictFileSize",
        kinds.BOOLEAN,
        "Close a file before the record with which it would pass `maxBytesPerFile`, not after.",
        default=False,
    ),
    Option(
        "maxSegmentsPerPart",
        kinds.COUNT,
        "A file ends when it consists of this many pieces: a batch and task gives each open file one.",
        default=1_000,
    ),
    Option(
        "maxOpenSegments",
        kinds.COUNT,
        "With more pieces open in the whole directory that are not due, the files that are open for longest end.",
        default=100_000,
    ),
)
