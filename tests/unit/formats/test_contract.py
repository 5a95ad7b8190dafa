"""Every built-in format keeps the contract of formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.formats.api import FORMATS, format_from_options
from ftfile.testing.contracts.format import FormatContract
from tests.kit.parameters import slow_after

if TYPE_CHECKING:
    from ftfile.formats.api import Format

LINES = ["first", "second, third", 'say "hi"', "", "grüße 日本語", *(f"line {number}" for number in range(40))]
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "csv": ({}, {"header": True, "escape": '"', "lineSep": "\r\n", "nullValue": "\\N"}),
    "json": ({}, {"lineSep": "\r\n", "ignoreNullFields": False, "timeZone": "Europe/Berlin"}),
    "text": ({}, {"lineSep": "<>"}),
    "binary": ({}, {"lengthPrefix": "varint"}),
    "parquet": ({}, {"compression": "none"}),
    "avro": ({}, {"compression": "zstd", "recordName": "row"}),
}
CASES = [(name, options) for name in FORMATS for options in VARIANTS.get(name, ({},))]


class TestBuiltIn(FormatContract):
    least_bytes = 10_000

    @pytest.fixture(params=slow_after(4, CASES, packages=True), ids=lambda case: "-".join([case[0], *case[1]]))
    def file_format(self, request: pytest.FixtureRequest) -> Format:
        return format_from_options(*request.param)

    def rows(self, file_format: Format) -> pa.RecordBatch:
        if file_format.name in {"text", "binary"}:
            return pa.RecordBatch.from_arrays([pa.array(LINES)], names=["v"])
        return super().rows(file_format)

    def unencodable(self, file_format: Format) -> pa.RecordBatch | None:
        return None if file_format.name == "parquet" else super().unencodable(file_format)
