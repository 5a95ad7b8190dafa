"""The checks of the position that an application commits with its rows."""

from __future__ import annotations

import json
from typing import Any

from ftfile.core.errors import ArgumentError
from ftfile.log.format.record import check_json, compact_json, decode_json

# The log's state contains the position of each application, and each commit contains one.
POSITION_BYTES_MAX = 64 << 10
# JSON in the log has at most 100 nested levels.
_OTHER_LEVELS = 20


class _LastPosition:
    """The default of `commit`: the position of the last commit. None is a position, too."""

    def __repr__(self) -> str:
        return "<unchanged>"


UNCHANGED = _LastPosition()

_TAKEN = "it takes a JSON value: dictionaries with texts as keys, lists, texts, finite numbers, True, False and None"


def check_position(position: Any) -> Any:  # noqa: ANN401 - of the user
    """Return a copy of a position; an ArgumentError unless it is read back as the same value, within the limit."""
    nested = position
    for _ in range(_OTHER_LEVELS):
        nested = [nested]
    try:
        size_bytes = len(json.dumps(position, ensure_ascii=False, allow_nan=False).encode())
        copy = decode_json(compact_json(position), object)
        check_json(compact_json(nested))
    except RecursionError as error:
        raise ArgumentError("position: it is nested too deeply") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"position={position!r:.200}: {_TAKEN}. {error}") from error
    if copy != position:  # such as a tuple, which is read back as a list
        raise ArgumentError(f"position={position!r:.200}: {_TAKEN}. It would be read back as {copy!r:.200}")
    if size_bytes > POSITION_BYTES_MAX:
        raise ArgumentError(
            f"position: it has {size_bytes:,} bytes as JSON, and at most {POSITION_BYTES_MAX:,} are allowed. Store a "
            "larger state in a file or a store, and its name in the position"
        )
    return copy


def is_same_position(one: Any, other: Any) -> bool:  # noqa: ANN401 - JSON
    """Return True if two positions are the same JSON, also with the keys of an object in another order.

    For Python, True equals 1.
    """
    return _sorted_text(one) == _sorted_text(other)


def _sorted_text(position: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(position, ensure_ascii=False, allow_nan=False, sort_keys=True)
