"""Files in UTF-16: the same rows as for UTF-8, and the replacement characters of Java's decoder."""

from __future__ import annotations

import codecs
import gzip
import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.source.decoding.utf_16 import utf_8_pieces
from ftfile.source.settings import FileDecoding, require_columns
from tests.unit.source.planned import LINE

if TYPE_CHECKING:
    from tests.unit.source.planned import Files

BAD = ("_corrupt_record", pa.string())
FIELDS = pa.schema([("a", pa.int32()), ("b", pa.string()), BAD])
ONE = pa.schema([("b", pa.string()), BAD])
LITTLE, BIG = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
# Both encodings contain the byte 0x0A within characters, and lines have an odd number of characters.
TEXTS = {
    "text": "one\u0a0a\n\u0100\u010atwo\U0001f60a\r\n\nlast",
    "json": '{"a": 1, "b": "\u0a0a\U0001f60a"}\n\n{"a": 2, "b": "\u010a"}\n{"a": "bad"}\n',
    "csv": 'b,a\n\u0a0a\U0001f60a,1\n\u010a,2\r\nx,bad\n"q,\u0a0d",3',
}
SCHEMAS = {"text": LINE, "json": FIELDS, "csv": FIELDS}
FIRST, SECOND = b"\x3d\xd8", b"\x00\xde"  # the halves of a surrogate pair, in UTF-16LE


def little(*pieces: str | bytes) -> bytes:
    return b"".join(piece.encode("utf-16-le") if isinstance(piece, str) else piece for piece in pieces)


def decoding_of(file_format: str, **options: Any) -> FileDecoding:
    return FileDecoding(file_format, header=file_format == "csv", **options)


@pytest.mark.parametrize(
    ("encoding", "mark", "codec"),
    [
        ("UTF-16LE", b"", "utf-16-le"),
        ("UTF-16BE", b"", "utf-16-be"),
        ("UTF-16", b"", "utf-16-be"),
        ("UTF-16", LITTLE, "utf-16-le"),
        ("UTF-16", BIG, "utf-16-be"),
    ],
)
@pytest.mark.parametrize("file_format", TEXTS)
def test_rows_are_those_of_utf_8(files: Files, file_format: str, encoding: str, mark: bytes, codec: str) -> None:
    schema = SCHEMAS[file_format]
    for multi_line in {False, file_format != "text"}:
        text = TEXTS[file_format]
        if multi_line and file_format == "json":
            records = ",\n".join(text.split("\n")).replace(",\n,", ",").rstrip(",\n")
            text = f"[{records}]"
        files.write("plain", text.encode())
        files.write("data", mark + text.encode(codec))
        files.write("data.gz", gzip.compress(mark + text.encode(codec)))
        options = {"multi_line": multi_line, "max_partition_bytes": 1}
        expected = files.rows(files.whole("plain"), schema, decoding_of(file_format, **options))
        assert len(expected) in {3, 4}
        decoding = decoding_of(file_format, encoding=encoding, **options)
        for path in ("data", "data.gz"):
            assert files.rows([files.whole(path), files.whole(path)], schema, decoding) == expected * 2


@pytest.mark.parametrize("mark", [LITTLE, BIG])
def test_a_mark_in_an_encoding_that_names_the_order(files: Files, mark: bytes) -> None:
    """Spark drops the byte order mark, but reads it as text in JSON."""
    codec = "utf-16-le" if mark == LITTLE else "utf-16-be"
    files.write("text", mark + "x\n".encode(codec))
    files.write("json", mark + '{"b": "x"}\n{"b": "y"}\n'.encode(codec))
    whole = files.whole("text")
    assert files.lines(whole, encoding=codec) == ["x"]
    for multi_line in (False, True):
        csv, json = (FileDecoding(name, encoding=codec, multi_line=multi_line) for name in ("csv", "json"))
        assert files.rows(whole, ONE, csv) == [("x", None)]
        (first, *others) = files.rows(files.whole("json"), ONE, json)
        assert first[0] is None
        assert "\ufeff{" in first[1]
        assert others == ([] if multi_line else [("y", None)])
    other = "UTF-16BE" if mark == LITTLE else "UTF-16LE"
    with pytest.raises(CorruptData, match=f"found the byte order mark of {codec}. encoding=UTF-16 reads"):
        files.lines(whole, encoding=other)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (little("q", FIRST, "z\ny\n"), ["q\ufffd", "y"]),
        (little("q", FIRST, "\ny\n"), ["q\ufffd", "y"]),
        (little("q", SECOND, "z\ny\n"), ["q\ufffdz", "y"]),
        (little("q", FIRST, FIRST, SECOND, "z\n"), ["q\ufffd\ufffdz"]),
        (little("y\n", b"z"), ["y", "\ufffd"]),
        (little("y\n", FIRST), ["y", "\ufffd"]),
        (little("y\n", FIRST, b"z"), ["y", "\ufffd"]),
        (little("z\ufffey\ufeffx\n"), ["z\ufffey\ufeffx"]),
        (b"z", ["\ufffd"]),
        (b"", []),
    ],
)
def test_malformed_text_is_replaced_as_in_java(files: Files, content: bytes, values: list[str]) -> None:
    files.write("data", content)
    whole = files.whole("data")
    assert files.lines(whole, encoding="UTF-16LE") == values
    for multi_line in (False, True):
        joined = values if not multi_line or FIRST + b"\n\0" not in content else ["q\ufffdy"]
        rows = files.rows(whole, ONE, FileDecoding("csv", encoding="UTF-16LE", multi_line=multi_line))
        assert rows == [(value, None) for value in joined]


def test_malformed_text_in_json(files: Files) -> None:
    """Spark replaces malformed text in a file of several lines, and rejects it in a single line."""
    files.write("data", little('{"b": "q', SECOND, 'z"}\n'))
    by_line, whole = (FileDecoding("json", encoding="UTF-16LE", multi_line=value) for value in (False, True))
    assert files.rows(files.whole("data"), ONE, whole) == [("q\ufffdz", None)]
    assert files.rows(files.whole("data"), ONE, by_line) == [(None, '{"b": "q\0z"}')]


def test_pieces_are_cut_anywhere() -> None:
    content = LITTLE + little("aé\U0001f600", FIRST, "z", SECOND, FIRST, "\n", FIRST, b"!")
    decoding = FileDecoding("text", encoding="UTF-16")
    expected = "\ufeffaé\U0001f600\ufffd\ufffd\ufffd\n\ufffd".encode()
    for first, second in itertools.combinations(range(len(content) + 1), 2):
        pieces = [content[:first], content[first:second], content[second:]]
        assert b"".join(utf_8_pieces(pieces, decoding, "data")) == expected


def test_a_separator_of_one_s_own(files: Files) -> None:
    files.write("data", little("a\nb|c", FIRST, "|d"))
    assert files.lines(files.whole("data"), encoding="UTF-16LE", line_sep="|") == ["a\nb", "c\ufffd", "d"]


def test_bytes_of_lines_are_refused() -> None:
    schema = pa.schema([("value", pa.binary())])
    with pytest.raises(ConfigError, match="column `value`: binary; text in UTF-16 is decoded: make it a string"):
        require_columns(schema, FileDecoding("text", encoding="UTF-16"))


def test_lines_that_were_planned_in_another_encoding_are_refused(files: Files) -> None:
    files.write("data", b"one\ntwo\n")
    with pytest.raises(ConfigError, match="the bytes 0 to 4 of 'data' are lines of a growing file"):
        files.lines(files.range("data", 0, 4), encoding="UTF-16")
