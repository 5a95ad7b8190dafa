"""The options that say where records go, what files are called, and what happens around publishing them."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of

BUCKETS: tuple[Option, ...] = (
    Option(
        "partitionBy",
        kinds.COLUMNS,
        "Columns that become directories `column=value`, named as Spark names them. "
        "Spark's own `.partitionBy()` never reaches a Python sink: use this option.",
        default=(),
    ),
    Option(
        "bucketPattern",
        kinds.TEXT,
        "Directories by date and time, `/` between them: of the batch, as in `yyyy-MM-dd--HH`, or of a date or "
        "timestamp column, as in `ts:yyyy/MM/dd/HH`. Letters as in `timestampFormat`, clocks of `timeZone`; "
        "see [buckets](buckets-and-names.md).",
    ),
    Option(
        "fileNameColumn",
        kinds.TEXT,
        "A string column with the path of the file that each record goes to, such as `eu/orders`; the column is not "
        "in the files.",
    ),
    Option(
        "bucketer",
        kinds.TEXT,
        "A class of your own that gives each record its directory, as `module:Class`; its constructor gets the "
        "options `bucketer.<name>`.",
    ),
)

NAMES: tuple[Option, ...] = (
    Option("partPrefix", kinds.TEXT, "The beginning of file names, unless `fileNameColumn` gives it.", default="part"),
    Option("partSuffix", kinds.TEXT, "The text before the ending of file names.", default="", default_text="nothing"),
    Option(
        "partFileName",
        kinds.TEXT,
        "File names as a template with `{name}`, `{bucket}`, `{batch}`, `{index}`, `{number}`, `{unique}`, "
        "`{time:yyyyMMdd}` and `{ext}`, or made by a function of your own, as `module:function`; see "
        "[names](buckets-and-names.md#names).",
        default_text="`{name}-{batch}-{index}-{unique}{ext}`",
    ),
    Option(
        "ifExists",
        one_of("newName", "fail"),
        "`newName` makes every file name unique, by `-{unique}` where `partFileName` lacks it; `fail` leaves names as "
        "they are, and refuses a batch with a name that is taken.",
        default="newName",
    ),
    Option(
        "bucketStateTtl",
        kinds.DURATION,
        "The time for which `{number}` goes on counting after a bucket's last file; then it begins at 0 again, "
        "or with `ifExists=fail` at the next free one.",
        default=7 * 86_400.0,
    ),
)

PUBLISHING: tuple[Option, ...] = (
    Option(
        "successFile",
        kinds.TEXT,
        "Name of a marker such as `_SUCCESS`: a batch write puts it into the directory itself, a stream into each "
        "directory once it is done; see [markers](buckets-and-names.md#markers).",
    ),
    Option(
        "successDelay",
        kinds.DURATION,
        "A stream's directory is done when this has passed since the last commit into it and, with `bucketPattern`, "
        "since the end of its time.",
        default=3600.0,
    ),
    Option(
        "onPublish",
        kinds.TEXT,
        "A function of your own, as `module:function`, that the driver calls after each commit with path, rows, bytes, "
        "bucket and batch of every file that can now be seen: at least once for each.",
    ),
    Option(
        "exportTo",
        kinds.TABLES,
        "After each commit the driver exports the directory to these formats of tables, for readers that know them; "
        "no batch waits for it, or fails with it. See [exports](export.md).",
        default=(),
    ),
    Option(
        "durability",
        one_of("auto", "hsync", "close"),
        "The treatment of every file of rows before its batch is committed: `hsync` syncs it; `close` only closes it, "
        "which is faster, and on local disks and `hdfs://` a power cut may then tear what is committed; `auto` does "
        "the most that the store can. The log itself always gets the most.",
        default="auto",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "publish",
        one_of("auto", "rename", "copy", "direct"),
        "The way in which files get their names after the commit: `rename`, in one step; `copy`, within an object "
        "store, which cannot rename; `auto` is the one of the file system. `direct` writes files under their names at "
        "once, before the commit: for readers by ftfile alone; see [object stores](object-stores.md#direct).",
        default="auto",
    ),
    Option(
        "filePermission",
        kinds.PERMISSION,
        "Permissions of new files, where the file system has them; on local disks less what the umask takes away.",
        default_text="`666` less the umask; `644` on HDFS",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "directoryPermission",
        kinds.PERMISSION,
        "Permissions of new directories, in the same way.",
        default_text="`777` less the umask; `755` on HDFS",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "replication",
        kinds.COUNT,
        "The number of machines on which HDFS keeps each block of new files.",
        default_text="that of HDFS",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "blockSize",
        kinds.SIZE,
        "The length of the blocks of new files in HDFS: a multiple of 512 bytes.",
        default_text="that of HDFS",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
)
