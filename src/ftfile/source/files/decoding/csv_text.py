"""One CSV record, field by field, as the parser in Spark reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfile.source.files.decoding.settings import FileDecoding


def fields_of(text: str, decoding: FileDecoding) -> list[str | None]:
    """Return the fields of a record; None for one that is empty, and not quoted unless `nullValue` is empty, too."""
    fields: list[str | None] = []
    position = 0
    while True:
        if text.startswith(decoding.quote, position):
            field, position = _quoted(text, position, decoding)
            fields.append(None if not field and not decoding.null_value else field)
        else:
            end = text.find(decoding.sep, position)
            end = len(text) if end < 0 else end
            fields.append(text[position:end] or None)
            position = end
        if position >= len(text):
            return fields
        position += 1


def _quoted(text: str, start: int, decoding: FileDecoding) -> tuple[str, int]:
    """Return the value that begins with a quote, and where it ends."""
    quote, sep, escape = decoding.quote, decoding.sep, decoding.escape
    pieces: list[str] = []
    position = start + 1
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == escape and following == quote:
            pieces.append(quote)
            position += 2
        elif character == escape != quote and following == escape:
            pieces.append(escape)
            position += 2
        elif character != quote:
            pieces.append(character)
            position += 1
        else:
            end = _behind_space(text, position + 1, sep)
            if end in {len(text), text.find(sep, end)}:
                return "".join(pieces), end
            break
    else:
        return "".join(pieces), position  # no quote closes it: it has all that follows
    # A quote within that is not escaped: then quotes are characters like others.
    end = text.find(sep, position)
    end = len(text) if end < 0 else end
    return quote + "".join(pieces) + text[position:end], end


def _behind_space(text: str, position: int, sep: str) -> int:
    while text[position : position + 1] not in {"", sep} and text[position] <= " ":
        position += 1
    return position
