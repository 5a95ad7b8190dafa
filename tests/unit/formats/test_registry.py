from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError
from ftfile.formats.api import FORMATS, LineFormat, format_from_definition, format_from_options
from ftfile.rows.buffers import from_numpy, from_texts
from tests.unit.formats.rows import DATE, TIMESTAMP, Target

# Slow to import: a worker that starts must not wait for them.
SLOW = {"pandas", "polars", "pyarrow.dataset", "pyarrow.fs._s3fs", "pyspark"}


def imported_by(code: str) -> set[str]:
    script = f"{code}; import sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.slow
@pytest.mark.packages
def test_the_registry_imports_no_format() -> None:
    found = imported_by("import ftfile.formats.api, ftfile.formats.api")
    assert not {name for name in found if name.startswith(("pyarrow", "arro3", "numpy"))}


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("name", FORMATS)
def test_a_format_imports_what_it_needs(name: str) -> None:
    found = imported_by(f"from ftfile.formats.api import format_from_options as f; f({name!r}, {{}})")
    assert not found & SLOW
    assert ("arro3.io" in found) == (name == "json")
    assert ("pyarrow.parquet" in found) == (name == "parquet")
    assert ("pyarrow.orc" in found) == (name == "orc")
    assert "fastavro" not in found  # it only reads


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_values(name: str) -> None:
    one, other = format_from_options(name, {}), format_from_options(name, {})
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.name == name


@pytest.mark.parametrize("name", FORMATS)
def test_lines_are_compressed_by_filters_and_others_by_themselves(name: str) -> None:
    compressed = format_from_options(name, {"compression": "none"})
    assert isinstance(compressed, LineFormat) == (name in {"json", "csv", "text", "binary"})
    assert (compressed == format_from_options(name, {})) == isinstance(compressed, LineFormat)


@pytest.mark.slow
@pytest.mark.packages
def test_unknown_formats() -> None:
    with pytest.raises(ConfigError, match=r"there is no fileFormat 'xml'; there are: arrow, .* 'ftfile.formats'"):
        format_from_options("xml", {})
    with pytest.raises(ConfigError, match="'delta'"):
        format_from_definition({"name": "delta"})


@pytest.mark.packages
@pytest.mark.slow
def test_writing_does_not_import_pandas() -> None:
    """pyarrow does so, where pandas is installed, at the first conversion of a Python value."""
    code = "from tests.unit.formats.test_registry import write_plainly"
    found = imported_by(f"{code}; [write_plainly(name) for name in {list(FORMATS)}]")
    assert "pyarrow" in found
    assert "pandas" not in found


def write_plainly(name: str) -> None:
    """Write rows from plain memory, as a Spark worker gets them."""
    columns = {
        "s": from_texts(["a,b", "", 'say "hi"'], pa.string()),
        "t": from_numpy(np.arange(3), TIMESTAMP),
        "d": from_numpy(np.array([1, 0, 2], np.int32), DATE),
        "x": from_numpy(np.array([0.5, 1.0, 2.0]), pa.float64(), np.array([True, False, True])),
    }
    if name in {"json", "parquet", "avro", "orc", "arrow"}:
        columns["b"] = from_texts([b"", b"\xff", b"abc"], pa.binary())
        columns["l"] = pa.ListArray.from_arrays(from_numpy(np.array([0, 1, 3, 3], np.int32), pa.int32()), columns["t"])
    names = ["s"] if name in {"text", "binary"} else list(columns)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
    target = Target()
    encoder = format_from_options(name, {"header": True} if name == "csv" else {}).encoder(batch.schema, target)
    encoder.write(batch)
    encoder.write(batch, limit_bytes=1_000)
    encoder.finish()
    assert target.position > 0
