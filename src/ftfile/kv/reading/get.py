"""The way of a `get`: from a key as users write it to its row as users have it.

The key is stored as integers and bytes, and hashed; its hash names the bucket (`getter`). In each level of the bucket,
new to old, one part at most can have the key (`find`). There the hash names a page, and a slot of it, which has the
place of a row: the block, and the row in it; where that has the key its values are read (`RunReader.getter`). They get
the columns of the store (`Opened.split`). The rows up to the first one that is no merge are folded to one, which
becomes a value or a named tuple.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import EncodingError, UserCodeError
from ftfile.kv.definition import MERGE
from ftfile.kv.fold import fold_values
from ftfile.kv.key_columns import overlap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.kv.key_columns import Key
    from ftfile.kv.reading.bucket import Bucket

    Values = tuple[Any, ...]


def getter(
    buckets: Mapping[int, Bucket],
    to_stored: Callable[[Any], Key],
    hash_key: Callable[[Key], int],
    bucket_of: Callable[[Key, int], int],
    to_row: Callable[[Values], Any],
) -> Callable[[Any, Any], Any]:
    """Return the function from a key of a user, and a default, to its row; it need not look attributes up.

    Args:
        buckets: by number, those with runs.
        to_stored: turns a key of a user into a stored one.
        hash_key: returns the hash of a stored key.
        bucket_of: returns the number of the bucket of a stored key, given its hash, too.
        to_row: turns values into what users get.
    """

    def get(key: Any, default: Any) -> Any:  # noqa: ANN401 - values of the user
        stored = to_stored(key)
        hashed = hash_key(stored)
        bucket = buckets.get(bucket_of(stored, hashed))
        if bucket is None:
            return default
        values = find(bucket, stored, hashed)
        return default if values is None else to_row(values)

    return get


def find(bucket: Bucket, key: Key, hashed: int) -> Values | None:
    """Return the values of a stored key, given its hash; None if it has none. It raises as `fold` and `Part.opened`."""
    rows: list[tuple[int, Values]] = []
    all_count = bucket.definition.sequence is not None  # and not just the newest row
    try:
        for begins, parts, _ in bucket.levels:
            part = parts[bisect_right(begins, key) - 1]
            if part.low <= key <= part.high:
                opened = part.held or part.opened()
                row = opened.get(key, hashed)
                if row is not None:
                    if opened.is_plain and not rows and not all_count:
                        return row
                    op, values = opened.split(row)
                    rows.append((op, values))
                    if op != MERGE and not all_count:
                        break
            if part.purges and overlap(part.purges, key, key):
                break
        return fold_values(rows, key, bucket.definition) if rows else None
    except (EncodingError, UserCodeError):
        if bucket.memtable is None:
            raise
        return find(bucket.without_memtable(), key, hashed)  # another key of it may be the one without a value
