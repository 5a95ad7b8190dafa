from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from ftfile.core.errors import ConfigError
from ftfile.encoding.registry import FORMATS, format_from_definition, format_from_options

# Slow to import: a worker that starts must not wait for them.
SLOW = {"pandas", "polars", "pyarrow.dataset", "pyarrow.fs._s3fs", "pyspark"}


def imported_by(code: str) -> set[str]:
    script = f"{code}; import sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_the_registry_imports_no_format() -> None:
    found = imported_by("import ftfile.encoding.registry, ftfile.encoding.api")
    assert not {name for name in found if name.startswith(("pyarrow", "arro3", "numpy"))}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_imports_what_it_needs(name: str) -> None:
    found = imported_by(f"from ftfile.encoding.registry import format_from_options as f; f({name!r}, {{}})")
    assert not found & SLOW
    assert ("arro3.io" in found) == (name == "json")
    assert ("pyarrow.parquet" in found) == (name == "parquet")


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_values(name: str) -> None:
    one, other = format_from_options(name, {}), format_from_options(name, {})
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.name == name


def test_unknown_formats() -> None:
    with pytest.raises(ConfigError, match="fileFormat='orc' is not known; known are parquet, json, csv, text"):
        format_from_options("orc", {})
    with pytest.raises(ConfigError, match="'avro'"):
        format_from_definition({"name": "avro"})
