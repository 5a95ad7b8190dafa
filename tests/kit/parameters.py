"""Parameters of which the first few are quick, as examples, and the remaining ones slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

__all__ = ("parametrize", "slow_after")


def slow_after(quick: int, values: Iterable[Any], *, packages: bool = False) -> list[ParameterSet]:
    """Return the values as parameters; those after the first `quick` are marked `slow`, and `packages` on request."""
    return [_parameter((value,), slow=at >= quick, packages=packages) for at, value in enumerate(values)]


def parametrize(
    names: str | tuple[str, ...], values: Iterable[Any], *, quick: int, packages: bool = False, **options: Any
) -> pytest.MarkDecorator:
    """Parametrize a test like `pytest.mark.parametrize`, with the marks of `slow_after`."""
    single = isinstance(names, str)
    rows = [(value,) if single or hasattr(value, "marks") else tuple(value) for value in values]
    parameters = [_parameter(row, slow=at >= quick, packages=packages) for at, row in enumerate(rows)]
    return pytest.mark.parametrize(names, parameters, **options)


def _parameter(row: tuple[Any, ...], *, slow: bool, packages: bool) -> ParameterSet:
    marks = [pytest.mark.slow] * slow + [pytest.mark.packages] * (slow and packages)
    if len(row) == 1 and hasattr(row[0], "marks"):  # is already a parameter
        return pytest.param(*row[0].values, marks=[*row[0].marks, *marks], id=row[0].id)
    return pytest.param(*row, marks=marks)
