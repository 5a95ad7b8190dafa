"""The feed of a log: which rows of a record are new, and which records change rows that were there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format.model import MaintenanceAuthor, Origin, StreamAuthor

if TYPE_CHECKING:
    from ftfile.commit.format.model import Add, Record

# Maintenance that replaces adds by others of the same rows.
_REWRITES = frozenset({"compact", "flush"})


def new_rows_of(record: Record) -> tuple[Add, ...]:
    """Return the adds of a record whose rows no earlier record has, in the record's order; none of a change.

    What a batch made of earlier rows, parts and the rest of segments, is of an older origin.
    """
    author = record.author
    if isinstance(author, MaintenanceAuthor) or is_change(record):
        return ()
    if isinstance(author, StreamAuthor):
        own = Origin(author.query_id, author.batch_id, author.batch_id)
    else:
        own = Origin(author.job_id, 0, 0)
    return tuple(add for add in record.adds if add.origin == own)


def is_change(record: Record) -> bool:
    """Return True if the record ends rows that were live, or brings others back: an overwrite, a drop, a restore."""
    if record.restored is not None:
        return True
    if isinstance(record.author, MaintenanceAuthor):
        return record.author.operation not in _REWRITES and len(record.removes) > len(record.adds)
    return (record.overwrite or record.replaces is not None) and bool(record.removes)


def describe(record: Record) -> str:
    """Return the effect of a record that removes rows, for messages."""
    author = record.author
    if record.restored is not None:
        changes = f"removes {len(record.removes)} files, and brings {len(record.adds)} back,"
        return f"version {record.version}, a restore of version {record.restored}, {changes}"
    if isinstance(author, MaintenanceAuthor):
        return f"version {record.version}, a {author.operation}, removes {len(record.removes)} files"
    return f"version {record.version}, an overwrite, replaces {len(record.removes)} files"
