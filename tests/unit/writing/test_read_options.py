"""Each option of a writer has one place that reads it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.options.table import OPTIONS
from ftfile.core.options.typed import Options
from ftfile.kv.config import StoreConfig
from ftfile.testing.micro_batch import spark_schema
from ftfile.writing.files.file_options import SinkConfig, forget_configs

if TYPE_CHECKING:
    from ftfile.core.options.typed import Use

SCHEMA = spark_schema({"k": "string", "n": "long"})
# Read only where they are given, or where another option is.
RARE = {"filePermission": "640", "directoryPermission": "750"}


class Readers(dict[str, set[str]]):
    """By option, the classes whose `from_options` read it."""

    def wrong(self, use: Use) -> dict[str, set[str]]:
        """Return the options of a use that several classes read, or none."""
        options = {option.name for option in OPTIONS if use in option.used_by}
        readers = {name: self.get(name, set()) for name in options}
        return {name: names for name, names in readers.items() if len(names) != 1}

    def add(self, option: str) -> None:
        """Add the class whose `from_options` is running."""
        frame = inspect.currentframe()
        assert frame is not None
        while frame.f_code.co_name != "from_options" or "cls" not in frame.f_locals:
            assert frame.f_back is not None, f"{option} is read outside of from_options"
            frame = frame.f_back
        self.setdefault(option, set()).add(frame.f_locals["cls"].__name__)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Record who reads an option, while the test runs."""
    readers = Readers()

    names = {option.attribute: option.name for option in OPTIONS}

    def read(options: Options, attribute: str) -> Any:
        if attribute in names:
            readers.add(names[attribute])
        return object.__getattribute__(options, attribute)

    def for_format(options: Options, format_name: str) -> dict[str, Any]:
        for option in OPTIONS:
            if option.formats:
                readers.add(option.name)
        return formatted(options, format_name)

    formatted = Options.for_format
    monkeypatch.setattr(Options, "__getattribute__", read)
    monkeypatch.setattr(Options, "for_format", for_format)
    forget_configs()
    return readers


def test_of_files(readers: Readers) -> None:
    SinkConfig.from_options({"path": "/x", "rolling": "policy", "successFile": "_SUCCESS", **RARE}, SCHEMA)
    assert readers.wrong("write") == {}


def test_of_stores(readers: Readers) -> None:
    StoreConfig.from_options({"path": "/x", "keyColumns": "k", **RARE}, SCHEMA)
    assert readers.wrong("ftkv-write") == {}
