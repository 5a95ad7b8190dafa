from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, EncodingError, UserCodeError
from ftfile.formats import binary_records as binary_format
from ftfile.formats.api import format_from_options
from tests.unit.formats.rows import decode, encode, for_reading, one_column

HERE = "tests.unit.formats.user_encoders"
WORDS = pa.RecordBatch.from_pydict({"word": ["a", "", "bc"]})
PAGE = Path(__file__).parents[3] / "docs/formats/binary.md"


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    binary_format._make_user_class.cache_clear()  # noqa: SLF001 - one instance serves a process


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with entry points, as pip would leave it."""
    names = {"marked": "Marked", "write-only": "WriteOnly", "broken": "Broken"}
    info = tmp_path / "marked-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: marked\nVersion: 1.0\n")
    lines = [f"{name} = {HERE}:{found}\n" for name, found in names.items()]
    (info / "entry_points.txt").write_text("[ftfile.encoders]\n" + "".join(lines))
    monkeypatch.syspath_prepend(tmp_path)


def named(name: str, **own: str) -> Any:
    return format_from_options("binary", {"encoder": name, "encoder.": own})


def test_its_bytes_are_the_records() -> None:
    file_format = named(f"{HERE}:Marked", mark="->")
    file_format.check_schema(WORDS.schema)
    assert file_format.extension == ".marked"
    assert encode(file_format, WORDS) == b"->a\n->\n->bc\n"
    prefixed = format_from_options("binary", {"encoder": f"{HERE}:Marked", "lengthPrefix": "varint"})
    assert encode(prefixed, WORDS) == b"\x02*a\x01*\x03*bc"


def test_null_says_that_a_record_cannot_be_encoded() -> None:
    with pytest.raises(EncodingError, match="Marked' returned null"):
        encode(named(f"{HERE}:Marked"), one_column(pa.string(), "bad").rename_columns(["word"]))


@pytest.mark.usefixtures("installed")
def test_entry_points_are_read_back() -> None:
    file_format = named("marked", mark="->")
    reading = for_reading(file_format, WORDS.schema)
    assert reading == file_format
    wanted = pa.schema([("new", pa.int32()), ("word", pa.string())])
    expected = [{"new": None, "word": word} for word in ("a", "", "bc")]
    assert decode(reading, encode(file_format, WORDS), wanted) == expected


@pytest.mark.usefixtures("installed")
def test_the_log_does_not_make_readers_import_modules() -> None:
    reading = for_reading(named(f"{HERE}:Marked"), WORDS.schema)
    with pytest.raises(ConfigError, match=r"does not import a module .*entry point of the group 'ftfile.encoders'"):
        decode(reading, b"*a\n", WORDS.schema)
    with pytest.raises(ConfigError, match=r"'write-only' has no method decode\(values, schema\)"):
        decode(for_reading(named("write-only"), WORDS.schema), b"*a\n", WORDS.schema)


@pytest.mark.usefixtures("installed")
def test_options_are_named_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"cannot be created from encoder\.how, encoder\.password: ") as caught:
        named("broken", how="init", password="s3cret")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(named("marked", password="s3cret"))


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("no.such.module:X", "", "encoder='no.such.module:X' cannot be loaded"),
        (
            "no-such-name",
            "",
            "'no-such-name' is neither `module:Class` nor an entry point .*; installed: broken, marked",
        ),
        ("broken", "init", "encoder='broken' cannot be created from .*no good"),
        ("broken", "extension", "has the extension '../x', and an extension such as '.bin' is required"),
        ("broken", "method", r"has no method encode\(batch\): see docs/formats/binary.md"),
        ("broken", "raises", "when it encoded a batch without rows, encoder='broken' raised KeyError"),
        (
            "broken",
            "type",
            "when it encoded a batch without rows, .* returned <class 'list'>, and binary values are required",
        ),
        ("broken", "numbers", "returned int64, and binary values are required"),
        ("broken", "fewer", "returned 1 values for 0 rows"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_what_is_refused_before_the_query_starts(name: str, how: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        named(name, how=how).check_schema(WORDS.schema)


@pytest.mark.usefixtures("installed")
def test_no_rows_may_have_no_type() -> None:
    """As `pyarrow.array([])` has none."""
    file_format = named("broken", how="no type")
    file_format.check_schema(WORDS.schema)
    assert encode(file_format, WORDS) == b"a\n\nbc\n"


@pytest.mark.usefixtures("installed")
def test_what_fails_the_batch() -> None:
    with pytest.raises(UserCodeError, match="returned 2 values for 3 rows"):
        encode(named("broken", how="fewer"), WORDS)
    data = encode(named("broken", how="chunks"), WORDS)
    assert data == b"*a\n*\n*bc\n"
    with pytest.raises(UserCodeError, match="returned 2 rows for 3 records"):
        decode(named("broken", how="decode fewer"), data, WORDS.schema)
    with pytest.raises(UserCodeError, match="raised KeyError"):
        decode(named("broken", how="decode raises"), data, WORDS.schema)


def test_the_documented_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example, _) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    module = types.ModuleType("documented_encoder")
    exec(example, module.__dict__)
    monkeypatch.setitem(sys.modules, "documented_encoder", module)
    info = tmp_path / "documented-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: documented\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ftfile.encoders]\nreadings = documented_encoder:Readings\n")
    monkeypatch.syspath_prepend(tmp_path)
    rows = pa.RecordBatch.from_pydict({"sensor": [1, 2**40], "value": [0.5, -1.0], "more": ["x", "y"]})
    options = {"encoder": "readings", "encoder.": {"sensor": "<i8"}, "lengthPrefix": "int32"}
    file_format = format_from_options("binary", options)
    file_format.check_schema(rows.schema)
    assert file_format.extension == ".readings"
    data = encode(file_format, rows)
    assert data[:4] == b"\0\0\0\x10"
    assert decode(file_format, data, rows.schema.remove(2)) == rows.drop_columns(["more"]).to_pylist()
