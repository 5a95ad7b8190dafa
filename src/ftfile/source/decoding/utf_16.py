"""Text in UTF-16 as UTF-8, piece by piece, with the replacements of Java's decoder."""

from __future__ import annotations

import codecs
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.source.settings import FileDecoding


_LITTLE, _BIG = "utf-16-le", "utf-16-be"
_MARKS = {_LITTLE: codecs.BOM_UTF16_LE, _BIG: codecs.BOM_UTF16_BE}
_UNIT_BYTES = 2  # of a character, or half a surrogate pair
_REPLACEMENT = "\ufffd"
# Within a JSON string, it makes the record bad.
_CONTROL_CHARACTER = "\0"


def utf_8_pieces(pieces: Iterable[bytes], decoding: FileDecoding, path: str) -> Iterator[bytes]:
    """Yield the plain content of a UTF-16 file as UTF-8. A byte order mark is kept; readers drop it.

    With the encoding UTF-16, a mark decides the byte order. The default is big-endian.

    Raises:
        CorruptData: the file begins with the mark of another byte order than the encoding.
    """
    rest = iter(pieces)
    first = b""
    for piece in rest:
        first += piece
        if len(first) >= _UNIT_BYTES:
            break
    encoding = _with_order(decoding.encoding, first, path)
    if _is_text_with_mark(first, decoding):
        yield codecs.BOM_UTF8
    decoder = codecs.getincrementaldecoder(encoding)(_error_handler(encoding, decoding))
    for piece in chain([first], rest):
        if text := decoder.decode(piece):
            yield text.encode()
    if text := decoder.decode(b"", final=True):
        yield text.encode()


def _with_order(encoding: str, first: bytes, path: str) -> str:
    marked = None
    for order, mark in _MARKS.items():
        if first.startswith(mark):
            marked = order
            break
    if encoding not in _MARKS:
        return marked or _BIG
    if marked not in {None, encoding}:
        # Spark swaps the bytes of each character, and splits such lines within characters.
        advice = "encoding=UTF-16 reads files with the mark of either order"
        raise CorruptData(path, f"text in {encoding}", f"the byte order mark of {marked}", advice)
    return encoding


def _is_text_with_mark(first: bytes, decoding: FileDecoding) -> bool:
    """Return True if Spark reads the mark as text: in JSON, if the encoding includes the byte order.

    A second mark then remains after the mark that readers drop, and makes the record bad.
    """
    mark = _MARKS.get(decoding.encoding)
    return decoding.file_format == "json" and mark is not None and first.startswith(mark)


def _error_handler(encoding: str, decoding: FileDecoding) -> str:
    """Register the handler of malformed text, and return its name."""
    if decoding.multi_line:
        line_end = ""
    else:
        line_end = decoding.line_sep[0]
    # Spark replaces malformed text, except in a JSON line, which is a bad record.
    is_bad_record = decoding.file_format == "json" and not decoding.multi_line
    replacement = _REPLACEMENT
    if is_bad_record:
        replacement = _CONTROL_CHARACTER
    name = f"ftfile.{encoding}.{line_end!r}.{replacement!r}"
    codecs.register_error(name, partial(_replace_line_end, line_end.encode(encoding), replacement))
    return name


def _replace_line_end(line_end: bytes, replacement: str, error: UnicodeError) -> tuple[str, int]:
    """Return the replacement of malformed text, and the offset at which decoding continues, as in Java.

    The first half of a surrogate pair also replaces the next character. Spark splits lines before it decodes them, so a
    line end is always kept.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    unit = error.object[error.start : error.start + _UNIT_BYTES]
    following = error.object[error.end : error.end + _UNIT_BYTES]
    if error.encoding == _LITTLE:
        unit = unit[::-1]
    # The last byte of a file may be half a unit.
    is_first_half = len(unit) == _UNIT_BYTES and unit[0] & 0xFC == 0xD8  # noqa: PLR2004 - the first of 0xD800 to 0xDBFF
    if not is_first_half or (line_end and following == line_end):
        return replacement, error.end
    return replacement, error.end + len(following)
