"""Public functions are listed, check their arguments, and are pickled by name."""

from __future__ import annotations

import inspect
import pickle
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import pytest

import ftfile
from ftfile.core.arguments import Access, kind_of
from ftfile.core.context import SYSTEM
from ftfile.kv.operator.store import KeyValueStore
from ftfile.kv.reading.reader import Reader
from ftfile.operate.open_directory import OpenedDirectory
from ftfile.operate.writers.sink_arguments import SinkArguments
from tests.unit.spark.fake_session import Session

if TYPE_CHECKING:
    from pathlib import Path

CHECKED_ELSEWHERE = frozenset(
    {
        "confirm",
        "context",
        "data",
        "df",
        "end",
        "from_",
        "how",
        "meter_provider",
        "options",
        "prefix",
        "progress",
        "schema",
    }
    | {"start", "to", "where"}
)
CHECKED_IN_METHODS = frozenset({"codec", "keys", "maintenance", "offset"})
PACKAGES = (ftfile, ftfile.kv, ftfile.spark)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_packages_list_their_names(package: Any) -> None:
    assert dir(package) == sorted(package.__all__)
    for name in dir(package):
        assert getattr(package, name) is getattr(package, name)
    with pytest.raises(AttributeError, match="has no attribute 'what'"):
        _ = package.what


def test_functions_for_users_are_pickled_by_their_names() -> None:
    for function in (ftfile.vacuum, ftfile.kv.open, ftfile.spark.lookup):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_argument_of_every_function_is_checked(package: Any) -> None:
    functions = [each for each in (getattr(package, name) for name in dir(package)) if isinstance(each, FunctionType)]
    assert len(functions) >= 4
    for function in functions:
        for parameter in inspect.signature(function).parameters.values():
            is_option = parameter.name in SinkArguments.__annotations__  # the sink checks it
            assert kind_of(parameter.annotation) or is_option or parameter.name in CHECKED_ELSEWHERE, (
                f"{function}: {parameter}"
            )


@pytest.mark.parametrize("kind", [KeyValueStore, Reader, OpenedDirectory], ids=lambda kind: kind.__name__)
def test_every_argument_of_every_method_is_checked(kind: type) -> None:
    methods = [each for each in (getattr(kind, name) for name in dir(kind) if name[0] != "_") if callable(each)]
    if kind is KeyValueStore:
        methods.append(kind.__init__)  # functions create the other objects
    assert len(methods) >= 9
    for method in methods:
        for parameter in [*inspect.signature(method).parameters.values()][1:]:
            shown = f"{method}: {parameter}"
            if kind_of(parameter.annotation):
                assert hasattr(method, "__wrapped__"), f"{shown} is not @checked"
            elif parameter.annotation != "Any":
                assert parameter.name in CHECKED_ELSEWHERE | CHECKED_IN_METHODS, shown


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_an_argument_that_there_is_not_is_named_and_nothing_is_opened(package: Any, tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    values: dict[str, Any] = {"path": str(path), "spark": Session(), "writer": "w", "version": 0, "where": "all"}
    functions = [each for each in (getattr(package, name) for name in dir(package)) if isinstance(each, FunctionType)]
    kinds: list[Any] = [KeyValueStore] if package is ftfile.kv else []
    for function in [*functions, *kinds]:
        parameters = inspect.signature(function).parameters.values()
        if function in (ftfile.source_status, ftfile.write, ftfile.writer):
            continue  # these functions accept options, and name an unknown option
        assert not [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD], function
        needed = [each.name for each in parameters if each.default is inspect.Parameter.empty]
        arguments = {name: values.get(name) for name in needed}
        with pytest.raises(TypeError, match="unexpected keyword argument 'key_providr'"):
            function(**arguments, key_providr="file:/keys")
    assert not path.exists()


def test_shared_arguments_are_shown_with_their_types() -> None:
    parameters = inspect.signature(ftfile.compact).parameters
    assert parameters["context"].default is SYSTEM
    assert parameters["at_least_version"].annotation == "int | None"
    assert parameters["progress"].kind is inspect.Parameter.KEYWORD_ONLY
    with pytest.raises(TypeError, match="at_least_version='7': it takes an int, or None"):
        ftfile.compact("/x", at_least_version=cast("Any", "7"))


def test_a_function_itself_takes_no_other_argument() -> None:
    """The check also works if the package has not wrapped the function, because other modules call it directly."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'key_providr'"):
        Access.of(cast("Any", {"progress": None, "tasks": 2, "key_providr": "file:/keys"}))


def test_arguments_of_functions_of_spark_are_checked() -> None:
    spark: Any = ftfile.spark
    with pytest.raises(TypeError, match="path=1: it takes a path"):
        spark.lookup(None, 1, "k")
    with pytest.raises(TypeError, match="spark=None: it takes a SparkSession"):
        spark.load(None, "/x")
    with pytest.raises(TypeError, match="full='yes': it takes True or False"):
        spark.compact(Session(), "/x", full="yes")
