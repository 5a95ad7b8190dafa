"""The options of a stream that follows an ftfile directory."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option

__all__ = ("FOLLOWING", "FOLLOWING_ELSEWHERE")

FOLLOWING: tuple[Option, ...] = (
    Option(
        "startingVersion",
        kinds.LATEST_OR_VERSION,
        "The first version whose new rows a new query reads; `latest` begins behind the newest. It counts until the "
        "first batch; see [following](following.md#where-to-begin).",
        used_by=kinds.FOLLOW,
        default_text="all rows of the newest version, and then what follows",
    ),
    Option(
        "startingTimestamp",
        kinds.TIME,
        "Begin with the first version that was created at or after this time, as the store's clock tells.",
        used_by=kinds.FOLLOW,
    ),
    Option(
        "maxFilesPerTrigger",
        kinds.COUNT,
        "A batch reads at most this many files; the rows that one task added to one open file count as a file.",
        used_by=kinds.FOLLOW,
    ),
    Option(
        "maxBytesPerTrigger",
        kinds.SIZE,
        "A batch reads at most this much of files as they are stored, and one file at least.",
        used_by=kinds.FOLLOW,
    ),
    Option(
        "maxRowsPerTrigger",
        kinds.COUNT,
        "A batch reads at most this many rows, and one file at least.",
        used_by=kinds.FOLLOW,
    ),
    Option(
        "skipChangeCommits",
        kinds.BOOLEAN,
        "Pass over versions that replace or remove rows, with the rows that they add, instead of failing.",
        default=False,
        used_by=kinds.FOLLOW,
    ),
)

_BEGINNING = "where a stream begins is startingVersion or startingTimestamp"
_CHANGES = "versions that replace or remove rows are passed over with skipChangeCommits=true"
FOLLOWING_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("startingoffsets", "startingoffset", "stream-from-timestamp"), _BEGINNING),
    **dict.fromkeys(("ignorechanges", "ignoredeletes"), _CHANGES),
    **dict.fromkeys(("streaming-skip-overwrite-snapshots", "streaming-skip-delete-snapshots"), _CHANGES),
    "streaming-max-files-per-micro-batch": "the limit of files is maxFilesPerTrigger",
    **dict.fromkeys(
        ("streaming-max-rows-per-micro-batch", "maxoffsetspertrigger", "maxrecordspertrigger"),
        "the limit of rows is maxRowsPerTrigger",
    ),
}
