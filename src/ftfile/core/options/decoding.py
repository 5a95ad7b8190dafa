"""The options that say how foreign files are read, beside those of the formats."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of

DECODING: tuple[Option, ...] = (
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
