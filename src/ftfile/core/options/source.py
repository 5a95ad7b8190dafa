"""The options of streams: those that follow an ftfile directory, and those of foreign files."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of

FOLLOWING: tuple[Option, ...] = (
    Option(
        "startingVersion",
        kinds.LATEST_OR_VERSION,
        "The first version whose new rows, or changes, a new query reads; `latest` begins behind the newest. It counts "
        "until the first batch; see [following](following.md#where-to-begin).",
        used_by=kinds.FOLLOW | kinds.STORE_FOLLOW,
        default_text="all rows of the newest version, and then what follows",
    ),
    Option(
        "startingTimestamp",
        kinds.TIME,
        "Begin with the first version that was created at or after this time, as the store's clock tells.",
        used_by=kinds.FOLLOW | kinds.STORE_FOLLOW,
    ),
    Option(
        "maxFilesPerTrigger",
        kinds.COUNT,
        "A batch reads at most this many files; the rows that one task added to one open file count as a file.",
        used_by=kinds.FOLLOW | kinds.FILES | kinds.STORE_FOLLOW,
    ),
    Option(
        "maxBytesPerTrigger",
        kinds.SIZE,
        "A batch reads at most this much of files as they are stored, and one file at least; of a growing foreign "
        "file, one line at least.",
        used_by=kinds.FOLLOW | kinds.FILES | kinds.STORE_FOLLOW,
    ),
    Option(
        "maxRowsPerTrigger",
        kinds.COUNT,
        "A batch reads at most this many rows, and one file at least.",
        used_by=kinds.FOLLOW | kinds.STORE_FOLLOW,
    ),
    Option(
        "skipChangeCommits",
        kinds.BOOLEAN,
        "Pass over versions that replace or remove rows, with the rows that they add, instead of failing.",
        default=False,
        used_by=kinds.FOLLOW,
    ),
)

FILES: tuple[Option, ...] = (
    Option(
        "stateLocation",
        kinds.TEXT,
        "The directory in which the stream keeps its plans, below a name of its own; streams may share it. It lives "
        "and dies with the checkpoint: without the one the other is of no use.",
        default_text="`ftfile-source` below `checkpointLocation`, if the reader has that option",
        used_by=kinds.FILES,
    ),
    Option(
        "startingOffsets",
        one_of("earliest", "latest"),
        "The part of the files that a new query reads: all of it, or only what comes later. It counts until the first "
        "batch.",
        default="earliest",
        used_by=kinds.FILES,
    ),
    Option(
        "pathGlobFilter",
        kinds.TEXT,
        "Read only files whose names match this pattern, such as `*.log`, as in Spark.",
        used_by=kinds.FILES,
    ),
    Option(
        "filePattern",
        kinds.PATTERN,
        "Read only files whose whole name matches this; with a slash in it, their whole path.",
        used_by=kinds.FILES,
    ),
    Option(
        "ignoreFilePattern",
        kinds.PATTERN,
        "Leave out files whose whole name matches this; with a slash in it, their whole path.",
        used_by=kinds.FILES,
    ),
    Option(
        "recursiveFileLookup",
        kinds.BOOLEAN,
        "Read files in all directories below, not only in those named as in `day=2024-07-01`.",
        default=False,
        used_by=kinds.FILES,
    ),
    Option(
        "scanInterval",
        kinds.DURATION,
        "The time between two listings of the directory, or four times as long as one takes if that is more.",
        default=1.0,
        used_by=kinds.FILES,
    ),
    Option(
        "maxFileAge",
        kinds.DURATION,
        "A file is forgotten when its time is this much before that of the newest one read. One that appears with "
        "such a time is not read, and a warning names it.",
        default=7 * 86_400.0,
        used_by=kinds.FILES,
    ),
    Option(
        "maxTrackedFiles",
        kinds.COUNT,
        "The number of files that are remembered, at 64 bytes each; beyond it, the oldest are forgotten.",
        default=1_000_000,
        used_by=kinds.FILES,
    ),
    Option(
        "tail",
        kinds.BOOLEAN,
        "Files may grow: whole lines are read as they appear. `false` reads a file once, when it is complete.",
        default_text="`true` for text, json and csv without `multiLine`",
        used_by=kinds.FILES,
    ),
    Option(
        "multiLine",
        kinds.BOOLEAN,
        "A record may span lines: files are read as a whole, as in Spark.",
        default=False,
        formats=("json", "csv"),
        used_by=kinds.FILES,
    ),
    Option(
        "encoding",
        kinds.TEXT,
        "The encoding of text. Growing files take any in which the byte 0x0A is a line feed and nothing else.",
        default="UTF-8",
        formats=("json", "csv", "text"),
        used_by=kinds.FILES,
    ),
    Option(
        "closeInactive",
        kinds.DURATION,
        "A last line without a line end counts when its file has not changed for this time.",
        default=300.0,
        used_by=kinds.FILES,
    ),
    Option(
        "minFileAge",
        kinds.DURATION,
        "A file that is read as a whole, and whose format has no mark at its end, is complete when it has not changed "
        "for this time.",
        default=10.0,
        used_by=kinds.FILES,
    ),
    Option(
        "fileIdentity",
        one_of("native", "content"),
        "The way to find a file again that was rotated: `native` by the name that the store gives it, such as its "
        "inode; `content` also a copy of it, or a compressed one, by its content.",
        default="native",
        used_by=kinds.FILES,
    ),
    Option(
        "allowOverwrites",
        kinds.BOOLEAN,
        "Read a file again that was read as a whole and has other content now, instead of a warning.",
        default=False,
        used_by=kinds.FILES,
    ),
    Option(
        "failOnDataLoss",
        kinds.BOOLEAN,
        "Fail when a file is gone that was not read to its end, instead of a warning.",
        default=False,
        used_by=kinds.FILES,
    ),
    Option(
        "maxRetries",
        kinds.VERSION,
        "A file that cannot be opened is tried again this many times, in growing intervals; after that, once it has "
        "changed.",
        default=5,
        used_by=kinds.FILES,
    ),
    Option(
        "maxPartitionBytes",
        kinds.SIZE,
        "A task reads about this much: small files are read together, large ones by several tasks. Of foreign files, "
        "those of lines are cut, at line ends; of an ftfile directory, Parquet and ORC between their groups of rows.",
        default=32 << 20,
        used_by=kinds.FILES | kinds.READ,
    ),
    Option(
        "comment",
        kinds.CHARACTER,
        "Lines that begin with it are left out.",
        formats=("csv",),
        used_by=kinds.FILES,
    ),
    Option(
        "columnNameOfCorruptRecord",
        kinds.TEXT,
        "The column that gets the text of a record that cannot be read, if the schema has it; the others are then "
        "null.",
        default="_corrupt_record",
        formats=("json", "csv"),
        used_by=kinds.FILES,
    ),
    Option(
        "ignoreMissingFiles",
        kinds.BOOLEAN,
        "Pass over files that are gone when their rows are to be read, with a warning, instead of failing.",
        default=False,
        used_by=kinds.FILES,
    ),
    Option(
        "ignoreCorruptFiles",
        kinds.BOOLEAN,
        "Keep the rows before the damage of a file, with a warning, instead of failing.",
        default=False,
        used_by=kinds.FILES,
    ),
    Option(
        "cleanSource",
        one_of("off", "archive", "delete"),
        "What happens to a file that was read to its end, once the next batch begins, if nobody has changed it since.",
        default="off",
        used_by=kinds.FILES,
    ),
    Option(
        "sourceArchiveDir",
        kinds.TEXT,
        "The directory to which `cleanSource=archive` moves files; of the same store, and not within what is read.",
        used_by=kinds.FILES,
    ),
)

_BEGINNING = "where a stream begins is startingVersion or startingTimestamp"
_CHANGES = "versions that replace or remove rows are passed over with skipChangeCommits=true"
FOLLOWING_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("startingoffset", "stream-from-timestamp"), _BEGINNING),
    **dict.fromkeys(("ignorechanges", "ignoredeletes", "ignorefiledeletion"), _CHANGES),
    **dict.fromkeys(
        (
            "schematrackinglocation",
            "schemalocation",
            "allowsourcecolumndrop",
            "allowsourcecolumnrename",
            "allowsourcecolumntypechange",
        ),
        "a stream reads the columns of the newest version when it starts, or those of .schema(…); once others come, it "
        "ends, and goes on with these when it is loaded and started again",
    ),
    **dict.fromkeys(("streaming-skip-overwrite-snapshots", "streaming-skip-delete-snapshots"), _CHANGES),
    "streaming-max-files-per-micro-batch": "the limit of files is maxFilesPerTrigger",
    **dict.fromkeys(
        ("streaming-max-rows-per-micro-batch", "maxoffsetspertrigger", "maxrecordspertrigger"),
        "the limit of rows is maxRowsPerTrigger",
    ),
    "scanintervalmillis": "the time between listings is scanInterval",
    **dict.fromkeys(("filepatternregexp", "filepatternregularexp"), "the pattern of names is filePattern"),
    "ignorefilepatternregularexp": "the pattern of names to leave out is ignoreFilePattern",
    "maxretrycount": "the limit of tries is maxRetries",
    "maxcachedfiles": "the number of files remembered is maxTrackedFiles",
}
