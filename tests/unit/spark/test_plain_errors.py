"""Errors as a user of Spark reads them: Spark shows the text of the traceback before the message."""

from __future__ import annotations

import os
import sys
import traceback
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from ftfile.core.errors import ConfigError, FtfileError, SchemaError, UserCodeError
from ftfile.log.format.model import Add, Origin
from ftfile.spark.datasource import FtFileDataSource
from ftfile.spark.shipping import Shipped, with_plain_errors
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.publishing import call_on_publish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = StructType().add("id", LongType())
ADD = Add("a", "part", "_ftfile/staged/a", "a.json", 1, 1, "crc32:0", 1, "", "e", Origin("q", 0, 0))


def frames(call: Callable[[], Any]) -> tuple[FtfileError, list[str]]:
    """Return the error of a call, and the frames of its traceback below this frame."""
    with pytest.raises(FtfileError) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value))
    assert "The above exception" not in shown
    assert "During handling" not in shown
    found = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    return caught.value, found[found.index("<lambda>") + 1 :]


@pytest.fixture
def path(tmp_path: Path) -> str:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 2**40}]])
    return out


def test_those_of_the_driver(path: str) -> None:
    source = FtFileDataSource({"path": f"{path}-none"})
    assert frames(lambda: [source.schema()])[1] == ["called"]
    assert frames(lambda: FtFileDataSource({"paht": path}).writer(SCHEMA, overwrite=False))[1] == ["called"]
    assert frames(lambda: source.reader(SCHEMA))[1] == ["called"]


def test_those_of_tasks(path: str) -> None:
    reader: Any = FtFileDataSource({"path": path}).reader(StructType().add("id", IntegerType()))
    (share,) = reader.partitions()
    error, found = frames(lambda: list(reader.read(share)))
    assert isinstance(error, SchemaError)
    assert found == ["iterated"]
    other: Any = FtFileDataSource({"path": path}).reader(StructType().add("id", StringType()))
    assert frames(lambda: [*other.read(share)])[1] == ["iterated"]


def test_workers_show_no_traceback(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a worker, the frames belong to this process."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    source = FtFileDataSource({"path": f"{path}-none"})
    frames(lambda: [source.schema()])
    assert os.environ.get("SPARK_HIDE_TRACEBACK") != "1"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    frames(lambda: [source.schema()])
    assert os.environ.get("SPARK_HIDE_TRACEBACK") == "1"
    # If the constructor raised the error, Spark would have no reader to stop.
    reader: Any = FtFileDataSource({"path": path, "startingVersion": "x"}).streamReader(SCHEMA)
    asked: dict[str, tuple[Any, ...]] = {
        "initialOffset": (),
        "latestOffset": (),
        "partitions": ({}, {}),
        "read": (None,),
    }
    for name, given in asked.items():
        with pytest.raises(ConfigError, match="startingVersion"):
            getattr(reader, name)(*given)
    reader.stop()


def failing(_: object) -> None:
    """A hook that raises an error."""
    try:
        int("of the user")
    except ValueError as error:
        raise KeyError("hook") from error


def test_of_users_code_the_users_part_follows_the_message() -> None:
    class Mine(Shipped):
        def commit(self) -> None:
            call_on_publish(f"{__name__}:failing", "file:///out", 7, [ADD])

    with pytest.raises(UserCodeError) as caught:
        Mine().commit()
    assert caught.value.__cause__ is None
    assert caught.traceback[-1].name == "called"
    message, _, rest = str(caught.value).partition("\n")
    assert message.startswith(f"onPublish='{__name__}:failing' raised KeyError('hook'). Its batch is committed")
    assert "ValueError: invalid literal" in rest
    assert rest.endswith("KeyError: 'hook'")
    assert __file__ in rest
    assert "ftfile/writing" not in rest


def test_a_python_without_what_is_needed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))

    def call() -> None:
        raise ModuleNotFoundError("No module named 'isal'", name="isal")

    with pytest.raises(ImportError, match=r"the Python that Spark has started, .*'isal'.* PYSPARK_PYTHON") as caught:
        with_plain_errors(call)()
    assert caught.value.name == "isal"
    assert os.environ.get("SPARK_HIDE_TRACEBACK") == "1"


def test_other_errors_pass() -> None:
    def call() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with_plain_errors(call)()
