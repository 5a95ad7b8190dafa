"""Options of the sink as keyword arguments of Python."""

from __future__ import annotations

import difflib
import inspect
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ArgumentError
from ftfile.core.options.declaration import attribute_name
from ftfile.core.options.kinds import DURATION
from ftfile.core.options.table import STORAGE_PREFIX
from ftfile.core.options.typed import SinkOptions
from ftfile.operate.writers.sink_arguments import SinkArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ftfile.core.options.declaration import Option


# The declarations of the sink's options by their names in snake case.
_OPTIONS = {option.attribute: option for option in SinkOptions.BY_NAME.values()}
# The options that are lists, each with its text for an empty list; None is the default.
_OF_EMPTY_LISTS = {"partition_by": None, "filters": None, "export_to": None, "statistics_columns": "none"}


def option_texts(
    options: Mapping[str, object], storage: Mapping[str, str] | None, elsewhere: Mapping[str, str]
) -> dict[str, str]:
    """Return options by the names of the sink, with texts as Spark passes them; None and empty lists are left out.

    Args:
        options: values by names in snake case: texts, numbers, booleans, paths, durations, or lists of column names.
        storage: settings of the file system, as for `ftfile.open`.
        elsewhere: options that the caller does not accept, by names in snake case, each with its replacement.

    Raises:
        ArgumentError: an option does not exist, or has a value of another type. Values are checked by the sink.
    """
    texts: dict[str, str] = {}
    for name, value in options.items():
        if name in elsewhere:
            raise ArgumentError(f"{name}: {elsewhere[name]}")
        if name not in _OPTIONS:
            raise ArgumentError(_describe_unknown(name))
        chosen = value
        if name in _OF_EMPTY_LISTS and isinstance(value, list | tuple) and not value:
            chosen = _OF_EMPTY_LISTS[name]
        if chosen is not None:
            texts[_OPTIONS[name].name] = _text(name, chosen)
    for name, text in (storage or {}).items():
        texts[name if name.startswith(STORAGE_PREFIX) else f"{STORAGE_PREFIX}{name}"] = text
    return texts


def _describe_unknown(name: str) -> str:
    snake = attribute_name(name)
    similar = difflib.get_close_matches(snake, _OPTIONS, n=1)
    if similar:
        return f"{name}: there is no such option. Did you mean {similar[0]}?"
    return f"{name}: there is no such option. docs/options.md lists the options of the sink: use them in snake case"


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return ",".join(_quote_name(item) for item in value)
    raise ArgumentError(f"{name}={value!r}: it takes a text, a number, a boolean, a timedelta, or a list of texts")


def _quote_name(name: str) -> str:
    """Return a column name as in a list of columns."""
    if name.isidentifier():
        return name
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def show_options(function: Callable[..., object], omitted: Collection[str] = ()) -> None:
    """Add each option to the signature of a function, before `**options`, for `help` and the documentation."""
    signature = inspect.signature(function)
    *parameters, options = signature.parameters.values()
    for name, kind in SinkArguments.__annotations__.items():
        if name not in omitted:
            parameter = inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(_OPTIONS[name]),
                annotation=kind.__forward_arg__,
            )
            parameters.append(parameter)
    function.__signature__ = signature.replace(parameters=[*parameters, options])  # type: ignore[attr-defined]


def _default(option: Option[Any]) -> Any:  # noqa: ANN401 - of any option
    """Return the default of an option as a user would give it."""
    value = option.default
    if value == ():
        return None
    if isinstance(value, float) and option.kind is DURATION:
        return f"{value:g}s"
    if isinstance(value, bytes):
        return value.decode()
    return value
