"""Text, JSON and CSV by lines: the bounds of lines, the rows, and the bad records."""

from __future__ import annotations

import contextlib
import datetime
import encodings.aliases
import gzip
import itertools
import json
import random
import re
from dataclasses import fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ftfile.core.errors import ConfigError, CorruptData, SourceError
from ftfile.core.options.table import OPTIONS
from ftfile.source.decode import rows_of_share
from ftfile.source.decoding import json_lines, lines
from ftfile.source.decoding.lines import as_utf_8
from ftfile.source.plan import SourcePlan
from ftfile.source.settings import FileDecoding, default_schema, require_columns
from tests.kit.parameters import parametrize
from tests.unit.source.planned import LINE, Files

if TYPE_CHECKING:
    from pathlib import Path

TEXT_AND_BYTES = pa.schema([("value", pa.binary())])
BAD = ("_corrupt_record", pa.string())
UTC = datetime.timezone.utc
FIELDS = pa.schema([("a", pa.int32()), ("b", pa.string()), BAD])
SCHEMAS = {"text": LINE, "json": FIELDS, "csv": FIELDS}

# Fragments of files that are difficult for parsers. A file is a sequence of such fragments.
PIECES = {
    "text": ["a", "\r", "\n", "\r\n", "é", "\U0001f600", "", "\ufeff"],
    "json": [*'{}[]":,\n', '{"a":1}', '{"b":"x"}', '"a"', '"b"', "1", "\\", '\\"', "null", " ", "\r\n", "é", "\0"],
    "csv": [*'a1,"\\\n\r #', "\r\n", '""', '","', "1,x\n", '2,"y"\n', "é", "\0", '\\"'],
}


@pytest.mark.slow
@given(st.data())
@pytest.mark.parametrize("file_format", SCHEMAS)
def test_any_cuts_of_any_ranges_have_the_rows_of_the_whole(
    file_format: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    files = Files(tmp_path_factory.mktemp("any"))
    pieces = data.draw(st.lists(st.sampled_from(PIECES[file_format]), max_size=40))
    content = "".join(pieces).encode() + data.draw(st.sampled_from([b"", b"\n", b"\xff", b"\xc3\n"]))
    files.write("data", content)
    header = file_format == "csv" and data.draw(st.booleans())
    options: dict[str, Any] = {"header": header, "comment": "#"} if file_format == "csv" else {}
    options["ignore_corrupt_files"] = True  # the quote of a header may be unclosed
    schema = SCHEMAS[file_format]
    whole = files.rows(files.range("data"), schema, FileDecoding(file_format, **options))
    line_ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    ends = data.draw(st.sets(st.sampled_from(line_ends))) if line_ends else set()
    bounds = sorted({0, len(content), *ends})
    ranges = [files.range("data", start, end) for start, end in itertools.pairwise(bounds)]
    decoding = FileDecoding(file_format, max_partition_bytes=data.draw(st.integers(1, 20)), **options)
    assert files.rows(ranges, schema, decoding) == whole
    # The file was compressed after it was planned. Its cuts are still the cuts of the plan.
    files.write("data.gz", gzip.compress(content))
    rows: list[tuple[Any, ...]] = []
    for share in SourcePlan(tuple(ranges)).shares(decoding.max_partition_bytes):
        packed = [structs.replace(cut.range, path="data.gz", compression="gzip") for cut in share.cuts]
        cuts = tuple(cut._replace(range=one) for cut, one in zip(share.cuts, packed, strict=True))
        for batch in rows_of_share(files.fs, replace(share, cuts=cuts), schema, decoding):
            rows += zip(*batch.to_pydict().values(), strict=True)
    assert rows == whole


def accepted_encodings() -> list[str]:
    """Return Python's names of all encodings that growing files may have, except UTF-8."""
    names = set()
    for alias in encodings.aliases.aliases.values():
        with contextlib.suppress(ConfigError):
            decoding = FileDecoding("text", encoding=alias)
            if not decoding.is_utf_16:
                names.add(decoding.encoding)
    return sorted(names - {"utf-8"})


class TestText:
    def test_line_ends_and_characters_cut_in_half_scenario_15(self, files: Files) -> None:
        files.write("data", "one\r\ntwo\n\n\rthree\r\r\nfo\rur é".encode())
        for size in range(1, 30):
            found = files.lines(files.range("data"), max_partition_bytes=size)
            assert found == ["one", "two", "", "\rthree\r", "fo\rur é"]

    def test_a_byte_order_mark_is_no_text_but_within(self, files: Files) -> None:
        files.write("data", b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
        assert files.lines(files.range("data"), max_partition_bytes=2) == ["a", "\ufeffb"]
        assert files.lines(files.range("data", 5)) == ["\ufeffb"]

    def test_bytes_that_are_no_text(self, files: Files) -> None:
        files.write("data", b"a\xffb\n\xe2\x82\n")
        assert files.lines(files.range("data")) == ["a�b", "�"]
        raw = files.rows(files.range("data"), TEXT_AND_BYTES, FileDecoding("text"))
        assert raw == [(b"a\xffb",), (b"\xe2\x82",)]

    @pytest.mark.parametrize("encoding", ["ISO-8859-1", "windows-1252", "GBK", "Shift_JIS", "EUC-KR", "utf8"])
    def test_encodings(self, files: Files, encoding: str) -> None:
        text = {"ISO-8859-1": "é", "windows-1252": "€", "EUC-KR": "가"}.get(encoding, "表")
        files.write("data", f"{text}1\r\n{text}2".encode(encoding))
        assert files.lines(files.range("data"), encoding=encoding, max_partition_bytes=1) == [f"{text}1", f"{text}2"]

    @pytest.mark.slow
    def test_a_line_that_ends_in_half_a_character_is_a_row_whatever_is_behind_it(self) -> None:
        """For every encoding: as the only line, before another line, and before other incomplete characters."""
        names = accepted_encodings()
        assert {"gb18030", "euc_jp", "shift_jis", "cp1252"} <= set(names)
        draw = random.Random(1)
        for name in names:
            decoding = FileDecoding("text", encoding=name)
            halves = [bytes(draw.choices([*range(10), *range(11, 256)], k=draw.randrange(4))) for _ in range(200)]
            single = [as_utf_8(half + b"\n", decoding) for half in halves]
            assert [text.count(b"\n") for text in single] == [1] * len(halves), name
            assert [as_utf_8(half + b"\na\n", decoding) for half in halves] == [text + b"a\n" for text in single], name
            assert as_utf_8(b"".join(half + b"\n" for half in halves), decoding) == b"".join(single), name

    def test_half_a_character_at_the_end_of_a_file(self, files: Files) -> None:
        files.write("data", b"a\n\x81\x30\n")
        assert files.lines(files.range("data"), encoding="gb18030") == ["a", "\ufffd0"]

    @pytest.mark.parametrize("encoding", ["UTF-32", "utf-32le", "utf-7", "iso2022_jp", "cp037", "none", "hex"])
    def test_encodings_without_the_line_feed_are_refused(self, encoding: str) -> None:
        with pytest.raises(ConfigError, match=f"encoding='{encoding}'"):
            FileDecoding("text", encoding=encoding)

    @pytest.mark.parametrize("separator", ["\r\n", "\0", "||\n", "é"])
    def test_tail_3_a_separator_of_one_s_own(self, files: Files, separator: str) -> None:
        rows = ["a\nb", "", "c|\r", "d"]
        files.write("data", separator.join(rows).encode())
        for size in (1, 2, 3, 100):
            assert files.lines(files.range("data"), line_sep=separator, max_partition_bytes=size) == rows
        raw = files.rows(files.range("data"), TEXT_AND_BYTES, FileDecoding("text", line_sep=separator))
        assert raw == [(row.encode(),) for row in rows]

    def test_a_separator_that_ends_as_it_begins_is_refused(self) -> None:
        for separator in ("||", ""):
            with pytest.raises(ConfigError, match="lineSep"):
                FileDecoding("text", line_sep=separator)

    @pytest.mark.parametrize("encoding", ["windows-1252", "utf-8"])
    def test_a_separator_in_an_encoding(self, files: Files, encoding: str) -> None:
        files.write("data", "é1|é2|".encode(encoding))
        found = files.lines(files.range("data"), encoding=encoding, line_sep="|", max_partition_bytes=1)
        assert found == ["é1", "é2"]

    @pytest.mark.parametrize(("encoding", "line_sep"), [("GBK", "|"), ("gb18030", "0"), ("Shift_JIS", "ャ")])
    def test_a_separator_that_may_be_half_a_character_is_refused(self, encoding: str, line_sep: str) -> None:
        with pytest.raises(ConfigError, match=f"lineSep='.': it cannot be encoded in {encoding.lower()}"):
            FileDecoding("text", encoding=encoding, line_sep=line_sep)
        FileDecoding("text", encoding=encoding, line_sep="\r\n")

    @pytest.mark.packages
    @pytest.mark.slow
    def test_lines_longer_than_a_cut_and_than_what_is_read_at_once(self, files: Files) -> None:
        rows = ["x" * length for length in (1, 9 << 20, 0, 1 << 20, (1 << 20) + 1, 70_000, 3)]
        files.write("data", "\n".join(rows).encode())
        for size in (1 << 16, (1 << 20) - 1, 1 << 20, 32 << 20):
            assert files.lines(files.range("data"), max_partition_bytes=size) == rows

    def test_a_line_beyond_the_limit_is_refused(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "LINE_BYTES_MAX", 5 << 20)
        files.write("data", b"x" * (5 << 20) + b"\n")
        assert len(files.lines(files.range("data"))) == 1
        files.write("data", b"x" * (10 << 20) + b"\n")
        with pytest.raises(CorruptData, match="at most 5242880 bytes"):
            files.lines(files.range("data"))

    def test_a_line_of_json_has_a_lower_limit(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_lines, "JSON_LINE_BYTES_MAX", 5 << 20)
        files.write("data", b'"' + b"x" * (10 << 20) + b'"\n')
        with pytest.raises(CorruptData, match="at most 5242880 bytes"):
            files.rows(files.range("data"), LINE, FileDecoding("json"))

    def test_an_empty_range_has_no_rows(self, files: Files) -> None:
        files.write("data", b"a\n")
        assert files.lines([files.range("data", 2), files.range("data", 0, 0)]) == []

    def test_scenario_16_a_last_line_without_its_end_is_a_row(self, files: Files) -> None:
        files.write("data", b"a\nb")
        assert files.lines([files.range("data", 0, 2), files.range("data", 2)]) == ["a", "b"]

    def test_values_of_directories(self, files: Files) -> None:
        files.write("day=2024-07-01/Name=a%2Fb/none=__HIVE_DEFAULT_PARTITION__/data", b"x\n")
        schema = pa.schema([("name", pa.string()), ("line", pa.string()), ("DAY", pa.date32()), ("none", pa.int8())])
        planned = files.range("day=2024-07-01/Name=a%2Fb/none=__HIVE_DEFAULT_PARTITION__/data")
        rows = files.rows(planned, schema, FileDecoding("text"))
        assert rows == [("a/b", "x", datetime.date(2024, 7, 1), None)]

    def test_a_directory_whose_value_is_of_another_type(self, files: Files) -> None:
        files.write("n=x/data", b"a\n")
        with pytest.raises(SourceError, match="'n'"):
            files.rows(files.range("n=x/data"), pa.schema([("n", pa.int32())]), FileDecoding("text"))

    def test_no_column_of_the_file_but_its_rows(self, files: Files) -> None:
        files.write("n=1/data", b"a\nb\n")
        assert files.rows(files.range("n=1/data"), pa.schema([("n", pa.int32())]), FileDecoding("text")) == [(1,), (1,)]


JSON = pa.schema(
    [
        ("n", pa.int32()),
        ("w", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("l", pa.timestamp("us")),
        ("m", pa.decimal128(10, 2)),
        ("z", pa.binary()),
        ("o", pa.struct([("i", pa.list_(pa.int64())), ("t", pa.timestamp("us", tz="UTC"))])),
        ("k", pa.map_(pa.string(), pa.int32())),
        BAD,
    ]
)
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=UTC)


def json_rows(files: Files, text: str, schema: pa.Schema = JSON, **options: Any) -> list[dict[str, Any]]:
    files.write("data", text.encode())
    rows = files.rows(files.range("data"), schema, FileDecoding("json", **options))
    return [{name: v for name, v in zip(schema.names, row, strict=True) if v is not None} for row in rows]


class TestJson:
    @parametrize(
        ("line", "row"),
        [
            ('{"n":1,"other":[{}]}', {"n": 1}),
            ('{"N":1}', {}),
            ('{"w":9007199254740993}', {"w": 2**53 + 1}),
            ('{"w":-9223372036854775808}', {"w": -(2**63)}),
            ("{}", {}),
            ('{"n":null}', {"n": None}),
            ('{"x":1}', {"x": 1.0}),
            ('{"x":"NaN"}', {"x": "nan"}),
            ('{"s":"\\u0000é\\n"}', {"s": "\0é\n"}),
            ('{"s":1.50}', {"s": "1.50"}),
            ('{"s":true}', {"s": "true"}),
            ('{"s":{"a": [1.0, "é"]}}', {"s": '{"a": [1.0, "é"]}'}),
            ('{"s":{"a":1,"a":"\\u00e9"}}', {"s": '{"a":1,"a":"\\u00e9"}'}),
            ('{"s":"x\\ud800\\udc00\\ud800"}', {"s": "x\U00010000?"}),
            ('{"n":1,"other":"\\ud800"}', {"n": 1}),
            ('{"x":-0}', {"x": 0.0}),
            ('{"x":-0.0}', {"x": -0.0}),
            ('{"x":"+INF"}', {"x": float("inf")}),
            ('{"b":true}', {"b": True}),
            ('{"d":"2024-07-01"}', {"d": datetime.date(2024, 7, 1)}),
            ('{"d":"2024-07-01T10:00:00"}', {"d": datetime.date(2024, 7, 1)}),
            ('{"t":"2024-07-01T12:00:00Z"}', {"t": NOON}),
            ('{"t":"2024-07-01T14:00:00.000000000+02:00"}', {"t": NOON}),
            ('{"t":"2024-07-01 12:00:00"}', {"t": NOON}),
            ('{"t":1719835200}', {"t": NOON}),
            ('{"l":"2024-07-01 12:00:00.123456789"}', {"l": NOON.replace(tzinfo=None, microsecond=123456)}),
            ('{"m":1.005}', {"m": Decimal("1.01")}),
            ('{"m":-1.00499}', {"m": Decimal("-1.00")}),
            ('{"m":"12345678.12"}', {"m": Decimal("12345678.12")}),
            ('{"z":"AP8="}', {"z": b"\0\xff"}),
            ('{"o":{"i":[1,null],"t":"2024-07-01 12:00:00"}}', {"o": {"i": [1, None], "t": NOON}}),
            ('{"o":{}}', {"o": {"i": None, "t": None}}),
            ('{"k":{"a":1,"b":null}}', {"k": [("a", 1), ("b", None)]}),
            ('{"n":1,"n":2}', {"n": 2}),
            (' {"n":1,"n":2}', {"n": 2}),
            ('{"o":{"i":[1]},"o":{}}', {"o": {"i": None, "t": None}}),
            ('{"k":{"a":1,"a":2}}', {"k": [("a", 1), ("a", 2)]}),
            (' {"n":1} ', {"n": 1}),
            ('\t{"n":1}\r', {"n": 1}),
        ],
        quick=8,
    )
    def test_values(self, files: Files, line: str, row: dict[str, Any]) -> None:
        expected = {name: value for name, value in row.items() if value is not None}
        found = json_rows(files, f'{line}\n{{"n":7}}\n')
        among_bad = json_rows(files, f'{line}\n{{"n":"x"}}\n{{"s":{{}}}}\n')
        assert str(among_bad[0]) == str(found[0])
        if expected.get("x") == "nan":
            assert str(found[0]["x"]) == "nan"
        else:
            assert found[0] == expected
        assert found[1] == {"n": 7}

    @parametrize(
        "line",
        [
            *('{"n":1', '{"n":1}}', '{"n":1}{"n":2}', '{"n":"x"}', '{"n":99999999999}', '{"n":true}', '{"n":[1]}', "x"),
            *("1", "null", '"text"', "[null]", '{"d":"2024-13-01"}', '{"d":18000}', '{"t":"soon"}', '{"b":1}'),
            *('{"m":123456789.5}', '{"z":"x"}', '{"o":[1]}', '{"o":{"t":"x"}}', '{"k":[1]}', '{"s":"a\0"}', "{'n':1}"),
            *('{"n":1,}', '{"n":1,,"w":2}', '{"n":1 "w":2}', '{,"n":1}', '{"n":01}', '{"w":1.}', '{"n":-.5}'),
            *('{"n":"12"}', '{"n":1.0}', '{"n":1e0}', '{"w":9007199254740993.0}', '{"w":12345678901234567890e-1}'),
            *('{"l":"2024-07-01T12:00:00+05:00"}', '{"l":"2024-07-01T12:00:00.123456789Z"}', '{"l":1719835200}'),
            *('{"t":"2024-07-01T12:00Z"}', '{"t":"2024-07-01T12:00:00+19:00"}', '{"t":"2024-07-01T12:00:00.5+18:01"}'),
            *('{"\\u006e":1.0}', '{"x":"12"}', '{"x":"inf"}', '{"m":"1_000"}', '{"m":1e4294967296}', '{"s":"\t"}'),
            *(
                '{"o":{"i":[1,2.0]}}',
                '{"o":{"i":["1"]}}',
                '{"o":{"i":[1,,2]}}',
                '{"k":{"a":1,"b":2.0}}',
                '{"k":{"a":"1"}}',
            ),
            *(
                '[{"n":1},{"n":"x"}]',
                '{"n":1.5}',
                '{"n":1.5,"w":9007199254740993}',
                '{"w":9223372036854775808}',
                '{"s":"' + '{"n":1}',
                '{"n":"\\u0000x"}',
                '{"b":"\\u0000"}',
                "[" * 100_000,
            ),
            *('{"w":-9223372036854775809}', '{"w":-9223372036854776808}', '{"m":"0e99999999999"}', '{"m":1e-1001}'),
            *('{"k":{"\\udc00":1}}', '{"n":1,"other":[{"\\ud800x":1}]}', "\xa0", "\x0b"),
        ],
        ids=lambda line: line[:40],
        quick=1,
    )
    def test_bad_records(self, files: Files, line: str) -> None:
        text = f'{{"n":1}}\n{line}\r\n{{"n":2}}\n'
        assert json_rows(files, text) == [{"n": 1}, {"_corrupt_record": line}, {"n": 2}]
        without = JSON.remove(len(JSON) - 1)
        assert json_rows(files, text, without, bad_records="drop") == [{"n": 1}, {"n": 2}]
        with pytest.raises(SourceError, match="badRecords=drop"):
            json_rows(files, text, without)

    def test_the_bounds_of_sparks_parser(self, files: Files) -> None:
        """Spark reads up to 1,000 levels and digits, also in fields that are not in the schema."""
        levels, digits = "[" * 999 + "]" * 999, "1" * 998
        taken = [f'{{"n":1,"y":{value}}}' for value in (levels, digits + "11", f"{digits}.11", f"{digits}e11")]
        refused = [f'{{"n":1,"y":{value}}}' for value in (f"[{levels}]", digits + "111", f"{digits}.1e-11")]
        refused.append(f'{{"n":1,"x":0.{"1" * 1000}}}')
        text = "".join(f"{line}\n" for line in [*taken, *refused])
        expected = [{"n": 1}] * len(taken) + [{"_corrupt_record": line} for line in refused]
        assert json_rows(files, text) == expected
        long_text = digits * 3
        assert json_rows(files, f'{{"s":"{long_text}"}}\n') == [{"s": long_text}]

    def test_blank_lines_are_none_and_arrays_are_many(self, files: Files) -> None:
        text = '\n \t\n[]\n[{"n":1}, {"n":2}]\r\n\r\n{"n":3}'
        assert json_rows(files, text) == [{"n": 1}, {"n": 2}, {"n": 3}]

    @pytest.mark.parametrize("data", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
    def test_lines_that_are_not_utf_8_are_bad_records(self, files: Files, data: bytes) -> None:
        """Spark's parser rejects these bytes, or reads them as other characters."""
        line = b'{"s":"' + data + b'"}'
        schema = pa.schema([("n", pa.int64()), ("s", pa.string()), BAD])
        files.write("data", b'{"n":1}\n' + line + b'\n{"s":"\xc3\xa4"}\n')
        found = files.rows(files.range("data"), schema, FileDecoding("json"))
        assert found == [(1, None, None), (None, None, line.decode(errors="replace")), (None, "ä", None)]
        files.write("data", b"[" + line + b"]")
        found = files.rows(files.whole("data"), schema, FileDecoding("json", multi_line=True))
        assert found == [(None, None, f"[{line.decode(errors='replace')}]")]

    def test_other_encodings_have_other_characters(self, files: Files) -> None:
        files.write("data", b'{"s":"\xe4"}\n')
        decoding = FileDecoding("json", encoding="latin-1")
        assert files.rows(files.range("data"), pa.schema([("s", pa.string())]), decoding) == [("ä",)]

    def test_a_bad_record_is_not_damage_that_is_ignored(self, files: Files) -> None:
        with pytest.raises(SourceError, match="'data' has a record"):
            json_rows(files, '{"n":"x"}', pa.schema([("n", pa.int32())]), ignore_corrupt_files=True)

    def test_clocks_of_a_zone_and_patterns(self, files: Files) -> None:
        decoding = FileDecoding.from_options(
            {"fileFormat": "json", "timeZone": "Europe/Berlin", "dateFormat": "dd.MM.yyyy"}
        )
        files.write(
            "data",
            b'{"t":"2024-07-01 14:00:00","d":"01.07.2024"}\n{"d":"2024-07-01"}\n{"t":"2024-03-31 02:30:00"}\n',
        )
        schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32()), BAD])
        assert files.rows(files.range("data"), schema, decoding) == [
            (NOON, datetime.date(2024, 7, 1), None),
            (None, None, '{"d":"2024-07-01"}'),
            (datetime.datetime(2024, 3, 31, 1, 30, tzinfo=UTC), None, None),  # the clocks skip this time
        ]

    def test_many_odd_lines_keep_their_order(self, files: Files) -> None:
        kinds = [
            '{{"n":{}}}',
            ' {{"n":{}}}',
            '{{"n":"x{}"}}',
            '[{{"n":{}}},{{"s":1}}]',
            '{{"n":{},"s":{{}}}}',
            ' {{"n":[{}]}}',
        ]
        lines = [kinds[number % 6].format(number) for number in range(900)]
        found = json_rows(files, "\n".join(lines))
        assert [row["_corrupt_record"] for row in found if "_corrupt_record" in row] == [
            line for number, line in enumerate(lines) if number % 6 in {2, 5}
        ]
        numbers = [row.get("n") for row in found if "_corrupt_record" not in row and row != {"s": "1"}]
        assert numbers == [number for number in range(900) if number % 6 not in {2, 5}]
        assert found[3:5] == [{"n": 3}, {"s": "1"}]

    @pytest.mark.slow
    @pytest.mark.parametrize("line_sep", ["\n", "\r\n", "|"])
    def test_lines_are_decoded_part_by_part(self, files: Files, line_sep: str, monkeypatch: pytest.MonkeyPatch) -> None:
        text = line_sep.join(f'{{"n":{number},"s":"{"x" * (number % 7)}"}}' for number in range(40))
        expected = [{"n": number, "s": "x" * (number % 7)} for number in range(40)]
        for size in (1, 17, 18, 19, 100, len(text), 1 << 20):
            monkeypatch.setattr(json_lines, "_PART_BYTES", size)
            assert json_rows(files, text, line_sep=line_sep) == expected

    @pytest.mark.slow
    def test_objects_of_two_lines_and_lines_of_two_objects_are_bad_whatever_is_beside_them(self, files: Files) -> None:
        schema = pa.schema(
            [("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.int32())]))), ("t", pa.string()), BAD]
        )
        bad = ['{"b":[{"c":1}', '{"c":2}],"a":7}', '{"a":1} {"a":2}', '{"a":5},{"a":6}', '{"a":3}\r{"a":4}']
        good = '{"t":"}{"}'
        single = {line: json_rows(files, f"{line}\n", schema) for line in (*bad, good)}
        assert single == {line: [{"_corrupt_record": line}] for line in bad} | {good: [{"t": "}{"}]}
        for order in itertools.permutations(single):
            expected = [row for line in order for row in single[line]]
            assert json_rows(files, "".join(f"{line}\n" for line in order), schema) == expected

    def test_a_line_cannot_take_in_the_next_one(self, files: Files) -> None:
        halves = ['{"s":"x}', '{y"}{"n":1}']
        for text in ("\n".join(halves), '{"n":1}\n' + "\n".join(halves)):
            assert [row for row in json_rows(files, f"{text}\n") if row != {"n": 1}] == [
                {"_corrupt_record": half} for half in halves
            ]

    def test_lines_cannot_add_up_to_more_levels_than_the_stack_holds(self, files: Files) -> None:
        """Each line but the last ends within a string that the next line closes. Together they are one record."""
        depth, count = 900, 500  # less in total than one read
        lines = ['{"s":' + "[" * depth + '"}', *['{",' + "[" * depth + '"}'] * count]
        lines += [*['{"' + "]" * depth + ',"}'] * count, '{"' + "]" * depth + "}"]
        assert json_rows(files, "".join(f"{line}\n" for line in lines)) == [{"_corrupt_record": line} for line in lines]

    # Spark reads the first value of a file with several values, and nothing of an array with a value that is no object.
    NOT_ONE_VALUE = (
        *('{"n":1} {"n":2}', '{"n":1}[{"n":2}]', '[{"n":1}]{"n":2}', '[{"n":1}] 5', '{"n":1} x', '{"n":1} {"n":'),
        *('[{"n":1},null]', '[{"n":1},5]', '[{"n":1},[{"n":2}]]', '[[{"n":1}]]'),
    )

    def test_multi_line(self, files: Files) -> None:
        schema = pa.schema([("n", pa.int64()), ("s", pa.string()), BAD])
        decoding = FileDecoding("json", multi_line=True)
        for text, rows in [
            ('[{"n":1,\r\n "s":"x"},\n\n {"n":2}]\n', [(1, "x", None), (2, None, None)]),
            ('\ufeff{"n":\n1}\n', [(1, None, None)]),
            ('[{"n":1}, {"n":"x"}]', [(1, None, None), (None, None, '{"n":"x"}')]),
            ('[{"n":1}\n{"n":2}]', [(None, None, '[{"n":1} {"n":2}]')]),
            ('[{"n":1},]', [(None, None, '[{"n":1},]')]),
            ('{"s": {"a":\n 1}}', [(None, '{"a":\n 1}', None)]),
            ('{"n":\n1.0}', [(None, None, '{"n":\n1.0}')]),
            ('{"s":"x\ny"}', [(None, None, '{"s":"x y"}')]),
            (" \n", []),
            ("[]", []),
            ("null", [(None, None, "null")]),
            *[(text, [(None, None, text)]) for text in self.NOT_ONE_VALUE],
        ]:
            files.write("data", text.encode())
            assert files.rows(files.whole("data"), schema, decoding) == rows

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (pa.list_(pa.list_(pa.int64())), "[[1],[2,3.0]]"),
            (pa.list_(pa.struct([("y", pa.int64())])), '[{"y":1},{"y":2.0}]'),
            (pa.map_(pa.string(), pa.float64()), '{"a{":1,"b":"2"}'),
            (pa.map_(pa.string(), pa.list_(pa.int64())), '{"a":[1],"b":[2e0]}'),
            (pa.map_(pa.string(), pa.struct([("y", pa.int64())])), '{"a":{"y":1.0}}'),
            (pa.list_(pa.map_(pa.string(), pa.int64())), '[{"a":1},{"b":2.0}]'),
            (pa.list_(pa.decimal128(5, 2)), '["1",1e4294967296]'),
        ],
        ids=str,
    )
    def test_numbers_within_other_values(self, files: Files, kind: pa.DataType, value: str) -> None:
        line = f'{{"other":2.0,"v":{value},"w":"1.0"}}'
        assert json_rows(files, f"{line}\n", pa.schema([("v", kind), BAD])) == [{"_corrupt_record": line}]


def csv_rows(files: Files, text: str, schema: pa.Schema, **options: Any) -> list[tuple[Any, ...]]:
    files.write("data", text.encode())
    return files.rows(files.range("data"), schema, FileDecoding("csv", **options))


STRINGS = pa.schema([(name, pa.string()) for name in "abc"] + [BAD])


class TestCsv:
    # The rows are the rows of Spark's parser.
    @pytest.mark.parametrize(
        ("line", "fields"),
        [
            ("x,y,z", ("x", "y", "z")),
            ('"x","y,y",z', ("x", "y,y", "z")),
            ('"",,""', (None, None, None)),
            ('"a"b,c,d', ('"a"b', "c", "d")),
            ('"a ""b"" c",d,e', ('"a ""b"" c"', "d", "e")),
            ('a"b,c"d,e', ('a"b', 'c"d', "e")),
            (r'"a\"b",c,d', ('a"b', "c", "d")),
            (r'"a\\",c,d', ("a\\", "c", "d")),
            (r'"a\\b",c,d', (r"a\b", "c", "d")),
            (r'"a\b",c,d', (r"a\b", "c", "d")),
            (r"a\b,c,d", (r"a\b", "c", "d")),
            (r"a\"b,c,d", (r"a\"b", "c", "d")),
            (r"a\,b,c", ("a\\", "b", "c")),
            (' "a",b,c', (' "a"', "b", "c")),
            ('"a" ,b,c', ("a", "b", "c")),
            ('"a"b","c",d', ('"a"b"', "c", "d")),
            ('"a,b"c,d,e', ('"a,b"c', "d", "e")),
            (r'x,"y\\\"z",w', ("x", 'y\\"z', "w")),
            (r'"a\\"b",c,d', (r'"a\"b"', "c", "d")),
            ('1,2,"x\ty"', ("1", "2", "x\ty")),
            ("a\rb,c,d", ("a\rb", "c", "d")),
        ],
    )
    def test_fields(self, files: Files, line: str, fields: tuple[str | None, ...]) -> None:
        assert csv_rows(files, f"1,2,3\n{line}\r\n4,5,6", STRINGS) == [
            ("1", "2", "3", None),
            (*fields, None),
            ("4", "5", "6", None),
        ]

    @pytest.mark.parametrize(
        ("line", "fields"),
        [
            ('"a ""b"" c",d,e', ('a "b" c', "d", "e")),
            ('"a"",b",c,d', ('a",b', "c", "d")),
            ('"""","""a""",""', ('"', '"a"', None)),
            (r'"\",x,y', ("\\", "x", "y")),
            (r'"a\"b",c,d', (r'"a\"b"', "c", "d")),
        ],
    )
    def test_doubled_quotes(self, files: Files, line: str, fields: tuple[str | None, ...]) -> None:
        assert csv_rows(files, f"{line}\n", STRINGS, escape='"') == [(*fields, None)]

    @pytest.mark.parametrize("line", ['"abc', '"abc,d,e', "a,b", "a,b,c,d", '"a""b,c', r'"\",x,y', r'"abc' + "\\"])
    def test_bad_records(self, files: Files, line: str) -> None:
        bad = (None, None, None, line)
        assert csv_rows(files, f"1,2,3\n{line}\n4,5,6", STRINGS) == [("1", "2", "3", None), bad, ("4", "5", "6", None)]
        without = STRINGS.remove(3)
        assert csv_rows(files, f"{line}\n4,5,6", without, bad_records="drop") == [("4", "5", "6")]
        with pytest.raises(SourceError, match="badRecords=drop"):
            csv_rows(files, f"{line}\n4,5,6", without)

    def test_a_carriage_return_within_a_line_is_a_character(self, files: Files) -> None:
        text = 'a\rb,c,d\n"x\\"",y,z\n1,2,"3\r"\n'
        rows = [("a\rb", "c", "d", None), ('x"', "y", "z", None), ("1", "2", "3\r", None)]
        assert csv_rows(files, text, STRINGS) == rows

    def test_a_quote_that_is_not_closed_ends_with_its_line(self, files: Files) -> None:
        rows = csv_rows(files, '"a\nb\n"c', pa.schema([("a", pa.string()), BAD]))
        assert rows == [(None, '"a'), ("b", None), (None, '"c')]
        assert csv_rows(files, '1,"', pa.schema([("a", pa.string()), ("b", pa.string()), BAD])) == [(None, None, '1,"')]

    @pytest.mark.parametrize("line", ['"a""",x,y', '""" ,x,y', '"a"b\\,x,y', 'x,y,"a" b"'])
    def test_quotes_that_spark_moves(self, files: Files, line: str) -> None:
        assert csv_rows(files, f"{line}\n", STRINGS) == [(None, None, None, line)]

    def test_a_header_with_an_unclosed_quote(self, files: Files) -> None:
        for options in ({}, {"multi_line": True}):
            with pytest.raises(CorruptData, match="a header with the names of columns"):
                csv_rows(files, 'a,"b\n1,2\n', STRINGS, header=True, **options)

    def test_values(self, files: Files) -> None:
        schema = pa.schema(
            [
                ("n", pa.int8()),
                ("x", pa.float64()),
                ("b", pa.bool_()),
                ("d", pa.date32()),
                ("t", pa.timestamp("us", tz="UTC")),
                ("m", pa.decimal128(5, 1)),
                ("z", pa.binary()),
                BAD,
            ]
        )
        good = ['+1,1e3,TRUE,2024-07-01,2024-07-01 12:00:00,0.25,"x"', ",,,,,,"]
        bad = ["1.0,,,,,,", "128,,,,,,", ",x,,,,,", ",,1,,,,", ",,,2024-02-30,,,", ",,,,12,,", ",,,,,12345.6,"]
        rows = csv_rows(files, "\n".join(itertools.chain(good, bad)), schema)
        assert rows == [
            (1, 1000.0, True, datetime.date(2024, 7, 1), NOON, Decimal("0.3"), b"x", None),
            (None,) * 8,
            *[(*(None,) * 7, line) for line in bad],
        ]

    @pytest.mark.parametrize(
        ("kind", "texts"),
        [
            (pa.int8(), ["0xFF", "0X80", "0x1F", "+0x1", '"0xFF"', "1_000", "1e1"]),
            (pa.int64(), ["0xFF", "0x8000000000000000"]),
            (pa.float64(), ["inf", "-INF", "+Inf", "infinity", "nan", "NAN"]),
            (pa.decimal128(10, 2), ["1_000", " 5", "5 ", "\t5", "NaN"]),
            (pa.timestamp("us", tz="UTC"), ["2024-07-01T12:00Z", "2024-07-01 12+02:00", "2024-07-01T12:00:00+18:30"]),
            (pa.timestamp("us"), ["2024-07-01T12:00:00Z", "2024-07-01T12:00:00.1234567+02:00"]),
        ],
        ids=str,
    )
    def test_values_of_other_parsers_are_bad(self, files: Files, kind: pa.DataType, texts: list[str]) -> None:
        schema = pa.schema([("v", kind), ("s", pa.string()), BAD])
        for text in texts:
            assert csv_rows(files, f"{text},x\n", schema) == [(None, None, f"{text},x")]

    def test_numbers_that_are_not_finite(self, files: Files) -> None:
        schema = pa.schema([("v", pa.float64()), ("s", pa.string()), BAD])
        texts = ["Inf", "Infinity", "+Infinity", "1e400", "-Inf", "-1e400", "NaN", "+NaN"]
        rows = csv_rows(files, "".join(f"{text},x\n" for text in texts), schema)
        assert [str(row[0]) for row in rows] == ["inf"] * 4 + ["-inf"] * 2 + ["nan"] * 2

    def test_null_values_as_spark_has_them(self, files: Files) -> None:
        text = 'NA,"NA",,""\n'
        schema = pa.schema([(name, pa.string()) for name in "abcd"])
        assert csv_rows(files, text, schema) == [("NA", "NA", None, None)]
        assert csv_rows(files, text, schema, null_value="NA") == [(None, None, None, "")]

    def test_other_separators(self, files: Files) -> None:
        text = "x;'a;b'\n# no record\n  \n#y;z\n"
        schema = pa.schema([("a", pa.string()), ("b", pa.string())])
        rows = csv_rows(files, text, schema, sep=";", quote="'", comment="#")
        assert rows == [("x", "a;b")]
        assert csv_rows(files, "a,b|c,\nd|", schema, line_sep="|") == [("a", "b"), ("c", "\nd")]

    @parametrize("size", [1, 5, 17, 100], quick=2)
    def test_a_header_names_columns_in_every_cut(self, files: Files, size: int) -> None:
        files.write("data", b'\xef\xbb\xbf# made by hand\r\n\r\n C ,a,"B"\r\n1,2,x\n#no\n  \n3,4,y\r\n5,6,"z"')
        schema = pa.schema([("A", pa.int64()), ("zz", pa.int8()), ("b", pa.string())])
        decoding = FileDecoding("csv", header=True, comment="#", max_partition_bytes=size)
        rows = [(2, None, "x"), (4, None, "y"), (6, None, "z")]
        assert files.rows(files.range("data"), schema, decoding) == rows
        content = (files.root / "data").read_bytes()
        bounds = [0, *(place + 1 for place, byte in enumerate(content) if byte == ord("\n")), len(content)]
        ranges = [files.range("data", start, end) for start, end in itertools.pairwise(bounds)]
        assert files.rows(ranges, schema, decoding) == rows
        assert files.rows(ranges[4:], schema, decoding) == rows[1:]

    def test_a_header_alone_has_no_rows(self, files: Files) -> None:
        schema = pa.schema([("a", pa.string())])
        for text in ("", "a", "a\n", "\n\n", "#\n"):
            assert csv_rows(files, text, schema, header=True, comment="#") == []

    def test_multi_line(self, files: Files) -> None:
        schema = pa.schema([("b", pa.string()), ("a", pa.int32()), BAD])
        files.write("data", b'a,b\r\n1,"x\r\ny, ""z"""\n"2","q"\n3,a"b\n4\n"x\n",5\n\n6,"w\n\n"')
        decoding = FileDecoding("csv", multi_line=True, header=True, escape='"')
        assert files.rows(files.whole("data"), schema, decoding) == [
            ('x\ny, "z"', 1, None),
            ("q", 2, None),
            ('a"b', 3, None),
            (None, None, "4"),
            (None, None, '"x\n",5'),
            ("w\n\n", 6, None),
        ]
        for content in (b"", b"a,b", b"\n"):
            files.write("data", content)
            assert files.rows(files.whole("data"), schema, decoding) == []

    def test_the_first_line_end_decides_those_within_quotes(self, files: Files) -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.string()), BAD])
        decoding = FileDecoding("csv", multi_line=True)
        for first, within in (("\r\n", "x\ny"), ("\n", "x\r\ny")):
            files.write("data", f'q,z{first}1,"x\r\ny"\r\n"2","z"\r\n'.encode())
            rows = files.rows(files.whole("data"), schema, decoding)
            assert rows == [("q", "z", None), ("1", within, None), ("2", "z", None)]
        for content in (b'"x\ry",1\n', b"1,x\r"):
            files.write("data", content)
            with pytest.raises(CorruptData, match="a single carriage return"):
                files.rows(files.whole("data"), schema, decoding)

    def test_characters_are_left_to_stand_for_line_feeds(self, files: Files) -> None:
        schema = pa.schema([("a", pa.string())])
        decoding = FileDecoding("csv", multi_line=True)
        files.write("data", b'"x\ny\x1d"\n')
        assert files.rows(files.whole("data"), schema, decoding) == [("x\ny\x1d",)]
        files.write("data", b'"x\ny' + bytes(range(1, 32)).replace(b"\r", b"").replace(b"\n", b"") + b'"\n')
        with pytest.raises(SourceError, match="line feeds"):
            files.rows(files.whole("data"), schema, decoding)

    @pytest.mark.slow
    def test_many_odd_lines_keep_their_order(self, files: Files) -> None:
        schema = pa.schema([("n", pa.int64()), ("s", pa.string()), BAD])
        kinds = ["{},x", '{},"x"', '{},"x"y', "{}", "x{},y", '{},"x\\"y"']
        text = "\n".join(kinds[number % 6].format(number) for number in range(3000))
        rows = csv_rows(files, text, schema)
        assert [row[2] for row in rows if row[2]] == [
            kinds[number % 6].format(number) for number in range(3000) if number % 6 in {3, 4}
        ]
        assert [row[0] for row in rows] == [None if number % 6 in {3, 4} else number for number in range(3000)]


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_rows_are_counted_without_a_column_of_the_file(files: Files, file_format: str) -> None:
    text = '{"a":1}\n\n{"a":2}\n{}\n' if file_format == "json" else '1,x\n\n2\n"\n'
    files.write("p=1/data", text.encode())
    decoding, planned = FileDecoding(file_format), files.range("p=1/data")
    assert files.rows(planned, pa.schema([("p", pa.int32())]), decoding) == [(1,)] * 3
    assert files.rows(planned, pa.schema([BAD]), decoding) == [(None,)] * 3


class TestSettings:
    def test_from_options(self) -> None:
        options = {"fileFormat": "csv", "sep": "\t", "fileIdentity": "content", "nullValue": "-", "path": "/x"}
        decoding = FileDecoding.from_options(options | {"encoding": "latin1", "maxPartitionBytes": 5})
        assert (decoding.sep, decoding.file_identity, decoding.null_value) == ("\t", "content", "-")
        assert (decoding.encoding, decoding.max_partition_bytes) == ("iso8859-1", 5)

    def test_fields_have_the_names_and_the_defaults_of_their_options(self) -> None:
        defaults = {option.name: option.default for option in OPTIONS if "files" in option.used_by}
        made = FileDecoding("text")
        for field in fields(FileDecoding):
            if field.name in {"file_format", "times", "delimiter"}:
                continue  # not a text, not a single option, and not allowed if a file is one row
            name = re.sub("_([a-z])", lambda match: match[1].upper(), field.name)
            given = FileDecoding.from_options({"fileFormat": "text", name: defaults[name]})
            assert getattr(given, field.name) == getattr(made, field.name), name

    @pytest.mark.parametrize(
        "options",
        [
            {"sep": ""},
            {"sep": "\n"},
            {"sep": '"'},
            {"quote": "é"},
            {"escape": ","},
            {"comment": ","},
            {"comment": "##"},
            {"bad_records": "deadLetter"},
            {"delimiter": b"|"},
        ],
        ids=str,
    )
    def test_contradictions(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"option|delimiter"):
            FileDecoding("csv", **options)

    def test_only_some_formats(self) -> None:
        with pytest.raises(ConfigError, match="fileFormat='xml'"):
            FileDecoding("xml")
        with pytest.raises(ConfigError, match="multiLine"):
            FileDecoding("text", multi_line=True)

    def test_columns_that_a_format_cannot_have(self) -> None:
        nested = pa.schema([("a", pa.list_(pa.int32()))])
        number = pa.schema([("n", pa.int32())])
        for decoding, schema in [
            (FileDecoding("text"), number),
            (FileDecoding("text"), pa.schema([("a", pa.string()), ("b", pa.string())])),
            (FileDecoding("binary"), LINE),
            (FileDecoding("binary"), pa.schema([("length", pa.int32())])),
            (FileDecoding("binary", delimiter=b"|"), number),
            (FileDecoding("csv"), nested),
            (FileDecoding("csv"), pa.schema([("_corrupt_record", pa.int32())])),
            (FileDecoding("json"), pa.schema([("a", pa.map_(pa.int32(), pa.int32()))])),
        ]:
            with pytest.raises(ConfigError, match=f"fileFormat={decoding.file_format}"):
                require_columns(schema, decoding)
        require_columns(nested, FileDecoding("json"))
        require_columns(number, FileDecoding("text"), may_be_in_paths=True)
        with pytest.raises(ConfigError):
            require_columns(nested, FileDecoding("csv"), may_be_in_paths=True)

    def test_formats_with_columns_of_their_own(self) -> None:
        assert default_schema(FileDecoding("text")) == LINE
        assert default_schema(FileDecoding("csv")) is None
        for decoding in (FileDecoding("binary"), FileDecoding("binary", length_prefix="varint"), FileDecoding("text")):
            schema = default_schema(decoding)
            assert schema is not None
            require_columns(schema, decoding)


def test_errors_of_a_task_name_the_file(files: Files, tmp_path: Path) -> None:
    assert tmp_path == files.root
    files.write("data", b"1\n")
    with pytest.raises(ConfigError, match=r"text.*'data'"):
        files.rows(files.range("data"), pa.schema([("n", pa.int32())]), FileDecoding("text"))


@pytest.mark.slow
def test_lines_of_json_beside_a_long_one_have_the_same_values(files: Files) -> None:
    long = "x" * (5 << 20)
    lines = [{"id": 1, "word": "a"}, {"id": 2, "word": long}, {"id": 1.5, "word": "b"}, {"id": 4, "word": "c"}]
    files.write("a.json", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    rows = files.rows(files.whole("a.json"), schema, FileDecoding("json", bad_records="drop"))
    assert rows == [(1, "a"), (2, long), (4, "c")]
