"""The options of streams: those that follow an ftfile directory, and those of foreign files."""

from __future__ import annotations

import functools

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of

_limit = functools.partial(Option, used_by=kinds.FOLLOW | kinds.FILES | kinds.STORE_FOLLOW)
_files_option = functools.partial(Option, used_by=kinds.FILES)

FOLLOWING: tuple[Option, ...] = (
    Option("startingVersion", kinds.LATEST_OR_VERSION, used_by=kinds.FOLLOW | kinds.STORE_FOLLOW),
    Option("startingTimestamp", kinds.TIME, used_by=kinds.FOLLOW | kinds.STORE_FOLLOW),
    _limit("maxFilesPerTrigger", kinds.COUNT),
    _limit("maxBytesPerTrigger", kinds.SIZE),
    Option("maxRowsPerTrigger", kinds.COUNT, used_by=kinds.FOLLOW | kinds.STORE_FOLLOW),
    Option("skipChangeCommits", kinds.BOOLEAN, default=False, used_by=kinds.FOLLOW),
)

FILES: tuple[Option, ...] = (
    _files_option("stateLocation", kinds.TEXT),
    _files_option("startingOffsets", one_of("earliest", "latest"), default="earliest"),
    _files_option("pathGlobFilter", kinds.TEXT),
    _files_option("filePattern", kinds.PATTERN),
    _files_option("ignoreFilePattern", kinds.PATTERN),
    _files_option("recursiveFileLookup", kinds.BOOLEAN, default=False),
    _files_option("scanInterval", kinds.DURATION, default=1.0),
    _files_option("maxFileAge", kinds.DURATION, default=7 * 86_400.0),
    _files_option("maxTrackedFiles", kinds.COUNT, default=1_000_000),
    _files_option("tail", kinds.BOOLEAN),
    _files_option("multiLine", kinds.BOOLEAN, default=False, formats=("json", "csv")),
    _files_option("encoding", kinds.TEXT, default="UTF-8", formats=("json", "csv", "text")),
    _files_option("closeInactive", kinds.DURATION, default=300.0),
    _files_option("minFileAge", kinds.DURATION, default=10.0),
    _files_option("fileIdentity", one_of("native", "content"), default="native"),
    _files_option("allowOverwrites", kinds.BOOLEAN, default=False),
    _files_option("failOnDataLoss", kinds.BOOLEAN, default=False),
    _files_option("maxRetries", kinds.VERSION, default=5),
    Option("maxPartitionBytes", kinds.SIZE, default=32 << 20, used_by=kinds.FILES | kinds.READ),
    _files_option("comment", kinds.CHARACTER, formats=("csv",)),
    _files_option("columnNameOfCorruptRecord", kinds.TEXT, default="_corrupt_record", formats=("json", "csv")),
    _files_option("ignoreMissingFiles", kinds.BOOLEAN, default=False),
    _files_option("ignoreCorruptFiles", kinds.BOOLEAN, default=False),
    _files_option("cleanSource", one_of("off", "archive", "delete"), default="off"),
    _files_option("sourceArchiveDir", kinds.TEXT),
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
