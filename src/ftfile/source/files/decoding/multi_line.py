"""JSON and CSV whose records may have line ends within: whole files, each record made a line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ftfile.source.files.decoding.csv_lines import CsvRows, fields_of, has_fields
from ftfile.source.files.decoding.json_lines import JsonRows
from ftfile.source.files.decoding.lines import as_utf_8
from ftfile.source.files.decoding.records import Lines, finished_rows, joined_lines
from ftfile.source.files.decoding.settings import own_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ftfile.source.files.decoding.lines import OpenedFile
    from ftfile.source.files.decoding.settings import FileDecoding
    from ftfile.source.files.plan import Cut

_MARK = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")


def multi_line_json(
    opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of JSON objects, or of arrays of them; a file that is no JSON is one bad record."""
    del cut
    text = _text(opened, decoding)
    try:
        records = list(_objects(text))
    except (ValueError, RecursionError):
        records = [text]
    if records:
        # Valid JSON has line feeds between its tokens alone.
        lines = Lines("".join(record.replace("\n", " ") + "\n" for record in records).encode())
        yield from finished_rows(JsonRows(schema, decoding).rows(lines), lines, schema, decoding, opened.planned.path)


def _objects(text: str) -> Iterator[str]:
    """Yield the text of each value, and of each value in an array; `ValueError` if it is no JSON."""
    scan = json.JSONDecoder().raw_decode
    position = _behind_space(text, 0)
    while position < len(text):
        if text[position] != "[":
            _, end = scan(text, position)
            yield text[position:end]
            position = _behind_space(text, end)
            continue
        position = _behind_space(text, position + 1)
        while text[position : position + 1] != "]":
            _, end = scan(text, position)
            yield text[position:end]
            position = _behind_space(text, end)
            if text[position : position + 1] == ",":
                position = _behind_space(text, position + 1)
            elif text[position : position + 1] != "]":
                raise ValueError(f"no end of an array at {position}")
        position = _behind_space(text, position + 1)


def _behind_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None, "it matches nothing, too"
    return match.end()


def multi_line_csv(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of CSV whose quoted fields may have line ends."""
    del cut
    text = _text(opened, decoding).replace("\r\n", "\n")
    records = list(_records(text, decoding))
    names = own_columns(schema, decoding).names
    if decoding.header:
        header = next((place for place, record in enumerate(records) if has_fields(record, decoding)), len(records))
        names = [name or "" for record in records[header : header + 1] for name in fields_of(record, decoding)]
        records = records[header + 1 :]
    if records:
        lines = joined_lines([record.encode() for record in records])
        reader = CsvRows(schema, names, decoding)
        yield from finished_rows(reader.rows(lines), lines, schema, decoding, opened.planned.path)


def _records(text: str, decoding: FileDecoding) -> Iterator[str]:
    """Yield records without their ends; a line feed ends none between the quotes around a field."""
    quote, sep, escape = (re.escape(character) for character in (decoding.quote, decoding.sep, decoding.escape))
    escaped = f"{quote}{quote}" if quote == escape else f"{escape}."
    other = f"[^{quote}]" if quote == escape else f"[^{quote}{escape}]"
    field = rf"(?:{quote}{other}*(?:{escaped}{other}*)*{quote}(?=[{sep}\n])|[^{sep}\n]*)"
    comment = f"{re.escape(decoding.comment)}[^\\n]*\\n|" if decoding.comment else ""
    if text and not text.endswith("\n"):
        text += "\n"
    for match in re.finditer(rf"{comment}{field}(?:{sep}{field})*\n", text, re.DOTALL):
        yield match[0][:-1]


def _text(opened: OpenedFile, decoding: FileDecoding) -> str:
    content = b"".join(opened.plain_pieces())
    return as_utf_8(content, decoding).decode().removeprefix(_MARK)
