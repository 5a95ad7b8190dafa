"""Records of long ago, looked for in the log while they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format.model import JobAuthor, StreamAuthor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.commit.format.model import Author, Record, Transaction
    from ftfile.commit.log.log_reader import LogReader
    from ftfile.commit.log.state import LogState

__all__ = ("find_batch", "find_transaction")


def find_batch(log: LogReader, head: LogState, query_id: str, batch_id: int) -> Record | None:
    """Return the record of a batch, or None when there is none or it is not kept any more."""

    def number_of(author: Author) -> int | None:
        return author.batch_id if isinstance(author, StreamAuthor) and author.query_id == query_id else None

    last = head.queries.get(query_id)
    return None if last is None else _find(log, head, number_of, batch_id, last.last_batch, last.version)


def find_transaction(log: LogReader, head: LogState, transaction: Transaction) -> Record | None:
    """Return the record of a transaction, or None when there is none or it is not kept any more."""

    def number_of(author: Author) -> int | None:
        found = author.transaction if isinstance(author, JobAuthor) else None
        return found.version if found is not None and found.app_id == transaction.app_id else None

    last = head.transactions.get(transaction.app_id)
    return None if last is None else _find(log, head, number_of, transaction.version, last.last, last.version)


def _find(
    log: LogReader,
    head: LogState,
    number_of: Callable[[Author], int | None],
    wanted: int,
    last: int,
    last_version: int,
) -> Record | None:
    """Look for an author's number, which only goes up, among the records that are kept.

    Args:
        log: of the directory.
        head: its state.
        number_of: the number of an author, None for others.
        wanted: which number.
        last: the newest number.
        last_version: its version.
    """
    low, high = head.log_start, last_version
    # With one record for each number it is there; else halves are looked at.
    version = high - (last - wanted)
    while low <= high and wanted <= last:
        version = version if low <= version <= high else (low + high) // 2
        at = version
        number = None
        while at >= low:
            record = log.read_record(at)
            if record is None:
                return None
            number = number_of(record.author)
            if number is not None:
                break
            at -= 1
        if number is None or number < wanted:
            low = version + 1
        elif number > wanted:
            high = at - 1
        else:
            # Records that are not kept any more may be dead ones.
            return record if log.read_on().log_start <= at else None
        version = -1
    return None
