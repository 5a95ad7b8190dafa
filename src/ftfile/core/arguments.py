"""The arguments of public functions, and checks of their types."""

from __future__ import annotations

import functools
import inspect
import operator
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, cast

from ftfile.core.context import SYSTEM, absolute_path
from ftfile.core.errors import ArgumentError, ConfigError
from ftfile.core.remedies import Advice, Argument, Wording

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress


_Function = TypeVar("_Function", bound="Callable[..., object]")

_PATH = "str | os.PathLike[str]"
_NONE = " | None"
# The accepted forms of a condition by argument. They are here, so that the command needs no import of Arrow.
_CONDITION_TEXT = "it takes a text, such as \"month >= 7 AND city IN ('a', 'b')\""
CONDITION_TAKEN = {
    "where": Wording(
        'it takes values by column, such as {"month": 7} or {"month": [7, 8]}; a text, such as '
        "\"month >= 7 AND city IN ('a', 'b')\"; or a pyarrow expression, which may contain functions and fields of "
        "structs, as in pyarrow.compute.field('a', 'b') > 7",
        _CONDITION_TEXT,
    ),
    "replaceWhere": Wording(_CONDITION_TEXT, _CONDITION_TEXT),
}


class DirectoryArguments(TypedDict, total=False):
    """Optional keyword arguments that open a directory or a store, as described for `ftfile.open`."""

    key_provider: str | None
    storage: Mapping[str, str] | None
    at_least_version: int | None


class AccessArguments(DirectoryArguments, total=False):
    """The same, and the environment of the process."""

    context: Context


class OperationArguments(AccessArguments, total=False):
    """The arguments of an operation: how it opens a directory, and a function that receives its `Progress`."""

    progress: OnProgress | None


class SparkOperationArguments(DirectoryArguments, total=False):
    """The arguments of an operation that runs in Spark tasks, with the number of concurrent tasks."""

    tasks: int | None
    progress: OnProgress | None


class Access(NamedTuple):
    """How a directory or a store is opened; see `AccessArguments`."""

    key_provider: str | None = None
    storage: Mapping[str, str] | None = None
    at_least_version: int | None = None
    context: Context = SYSTEM

    @classmethod
    def of(cls, arguments: DirectoryArguments) -> Access:
        """Return how a call opens a directory; other arguments of the call are ignored."""
        values: dict[str, Any] = {**arguments}
        values.pop("progress", None)
        values.pop("tasks", None)
        return cls(**values)

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the settings of the file system."""
        return self.storage or {}


class _ArgumentKind(NamedTuple):
    """The values that a parameter accepts: instances of some types, and others that pass a check."""

    taken: str  # for error messages
    types: tuple[type, ...] = ()
    check: Callable[[Any], bool] | None = None

    def has(self, value: object) -> bool:
        """Return True if the parameter accepts a value."""
        return isinstance(value, self.types) or (self.check is not None and self.check(value))


def _is_int(value: Any) -> bool:  # noqa: ANN401 - of the user
    try:
        operator.index(value)
    except TypeError:  # such as an array of NumPy with several numbers, which has __index__
        return False
    return not isinstance(value, bool)


def _has_texts_in_order(value: Any) -> bool:  # noqa: ANN401 - of the user
    return isinstance(value, Sequence) and _has_texts(value)


def _has_texts(value: Any) -> bool:  # noqa: ANN401 - of the user
    # An iterator would be exhausted by the check.
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(item, str) for item in value)


def _has_settings(value: object) -> bool:
    return isinstance(value, Mapping) and _has_texts(value) and _has_texts(value.values())


def _has_ints(value: Any) -> bool:  # noqa: ANN401 - of the user
    return isinstance(value, Collection) and all(map(_is_int, value))


def _is_pair_of_numbers(value: object) -> bool:
    if not isinstance(value, tuple | list) or len(value) != 2:  # noqa: PLR2004
        return False
    return all(isinstance(item, int | float) and not isinstance(item, bool) and item >= 0 for item in value)


def _has_names(value: object) -> bool:
    return isinstance(value, Mapping) and _has_texts(value)


def _is_session(value: object) -> bool:
    # There are sessions of classic Spark, of Spark Connect, and of vendors.
    return hasattr(value, "range")


_GROUPS = (DirectoryArguments, AccessArguments, OperationArguments, SparkOperationArguments)
_SHARED = {f"Unpack[{group.__name__}]": group for group in _GROUPS}
_TEXTS = _ArgumentKind("a list of texts, such as ['a', 'b']", check=_has_texts)
_KINDS = {
    "bool": _ArgumentKind("True or False", (bool,)),
    "int": _ArgumentKind("an int", check=_is_int),
    "str": _ArgumentKind("a text", (str,)),
    _PATH: _ArgumentKind("a path or URL, as a text or an os.PathLike", (str, os.PathLike)),
    "SparkSession": _ArgumentKind("a SparkSession", check=_is_session),
    "OnProgress": _ArgumentKind("a function of a Progress", check=callable),
    "str | datetime": _ArgumentKind("a datetime, or a text in ISO 8601", (str, date)),
    "int | str | datetime": _ArgumentKind(
        "a version, or its time as a datetime, or as a text in ISO 8601", (str, date), _is_int
    ),
    "str | timedelta": _ArgumentKind("a timedelta, or a text such as '7d'", (str, timedelta)),
    "str | Sequence[str]": _ArgumentKind("a text, or a list of texts", (str,), _has_texts),
    "Sequence[str]": _TEXTS._replace(check=_has_texts_in_order),
    "Collection[str]": _TEXTS,
    "Collection[int]": _ArgumentKind("a list of ints, such as [0, 1]", check=_has_ints),
    "tuple[float, float]": _ArgumentKind("two numbers from 0 on, such as (0.005, 0.0004)", check=_is_pair_of_numbers),
    "Mapping[str, str]": _ArgumentKind("a dictionary of texts, such as {'name': 'text'}", check=_has_settings),
    "str | Mapping[str, str]": _ArgumentKind(
        "a text, or a dictionary of texts, such as {'name': 'text'}", (str,), _has_settings
    ),
    "Mapping[str, str | pa.DataType]": _ArgumentKind(
        "a dictionary of types by name, such as {'a': 'string'}", check=_has_names
    ),
}


def kind_of(annotation: str) -> str | None:
    """Return a description of the values that a parameter accepts; None if its annotation is not checked."""
    kind = _KINDS.get(annotation.removesuffix(_NONE))
    if kind is None:
        return None
    if annotation.endswith(_NONE):
        return f"{kind.taken}, or None"
    return kind.taken


def _whole_signature(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function, in which a group of shared arguments is replaced by its arguments."""
    signature = inspect.signature(function)
    parameters = list[inspect.Parameter]()
    for parameter in signature.parameters.values():
        shared: Any = _SHARED.get(str(parameter.annotation))
        if shared is None:
            parameters.append(parameter)
            continue
        for name, kind in shared.__annotations__.items():
            default = Access._field_defaults.get(name)
            annotation = kind.__forward_arg__
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
    return signature.replace(parameters=parameters)


def check_arguments(function: _Function) -> _Function:
    """Return a function that checks the types of its arguments and makes paths absolute.

    It raises an ArgumentError for a value of another type, with the accepted types, and a TypeError for an unknown
    argument. Integers of other types, such as NumPy's, become an int. See `absolute_path` for paths.
    """
    signature = _whole_signature(function)
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ones = {name: parameter for name, parameter in signature.parameters.items() if parameter.kind not in many}
    annotations: dict[str, str] = {name: str(parameter.annotation) for name, parameter in ones.items()}

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> object:  # noqa: ANN401 - as the function has them
        try:
            bound = signature.bind(*args, **named)
        except TypeError:
            if len(ones) == len(signature.parameters):
                for name in named.keys() - ones.keys():
                    error = f"{function.__qualname__}() got an unexpected keyword argument {name!r}"
                    raise TypeError(error) from None
            return function(*args, **named)  # whose own error names it
        for name, value in bound.arguments.items():
            annotation = annotations.get(name, "")
            base = annotation.removesuffix(_NONE)
            kind = _KINDS.get(base)
            if kind is None or (value is None and base != annotation):
                continue
            if not kind.has(value):
                raise ArgumentError(Advice(Argument(name, value), f": it takes {kind_of(annotation)}"))
            if base == _PATH:
                bound.arguments[name] = absolute_path(value)
            elif base == "int":
                bound.arguments[name] = operator.index(value)
        return function(*bound.args, **bound.kwargs)

    # For `help` and the documentation: the signature of `function` does not list shared arguments.
    call.__signature__ = signature  # type: ignore[attr-defined]
    return cast("_Function", call)


def check_count(name: str, count: int | None) -> None:
    """Raise a ConfigError if an argument is a negative number."""
    if count is not None and count < 0:
        raise ConfigError(Advice(Argument(name, count), ": it must be a number, 0 or more"))
