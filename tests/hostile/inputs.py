"""Foreign files that are made to hang, fill or crash who reads them, each with what must come of it instead."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("CORRUPT", "INPUTS", "READ", "Input")

CORRUPT, BAD_RECORD, READ = "CorruptData", "SourceError", "rows"
MIB = 1 << 20
TEXT = pa.schema([("a", pa.string())])
OTHER = pa.schema([("b", pa.string())])
DEEP = 130_000  # levels: more than the stack of a thread holds


@dataclass(frozen=True)
class Input:
    """A file, how it is read, and what must come of it, in how much memory.

    Attributes:
        name: of the file, whose ending tells its codec.
        outcome: the error of ftfile's, or `READ`.
        memory_bytes: beyond what the process takes before.
    """

    name: str
    file_format: str
    content: Callable[[], bytes]
    outcome: str
    memory_bytes: int = 256 * MIB
    schema: pa.Schema = TEXT
    options: dict[str, Any] = field(default_factory=dict)


def nested(start: bytes, middle: bytes, end: bytes, levels: int = DEEP) -> bytes:
    return start * levels + middle + end * levels


def json_lines(line: Callable[[], bytes], schema: pa.Schema = TEXT) -> Input:
    return Input("a.json", "json", lambda: line() + b"\n", BAD_RECORD, schema=schema)


def json_file(text: Callable[[], bytes]) -> Input:
    return Input("a.json", "json", text, BAD_RECORD, options={"multi_line": True})


def deep_column(start: bytes, middle: bytes, end: bytes) -> bytes:
    return b'{"a":' + nested(start, middle, end) + b"}"


INPUTS = {
    "a line of JSON of nested arrays": json_lines(lambda: deep_column(b"[", b"", b"]")),
    "a line of JSON of nested objects": json_lines(lambda: nested(b'{"a":', b"1", b"}")),
    "a line of JSON of nested arrays in another column": json_lines(lambda: deep_column(b"[", b"", b"]"), OTHER),
    "a line of JSON with brackets in strings": json_lines(lambda: deep_column(b'["]]]",', b"1", b"]")),
    "a line of JSON that is nested arrays": json_lines(lambda: nested(b"[", b"", b"]")),
    "a file of JSON that is nested arrays": json_file(lambda: nested(b"[", b"", b"]")),
    "a file of JSON of nested objects": json_file(lambda: nested(b'{"a":', b"1", b"}")),
}
