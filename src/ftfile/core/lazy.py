"""Packages whose names are imported when they are used."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, which raises an ImportError for names that need a missing pyspark.

    Functions check their arguments; see `core.arguments`. `homes` has where each name is, as `module:attribute`, or
    as `module` where it is called the same there; or it is a module itself, as `module:`.
    """

    @functools.cache
    def find(name: str) -> Any:  # noqa: ANN401 - as many types as names
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from inspect import isfunction  # noqa: PLC0415 - importing the package imports nothing
        from pkgutil import resolve_name  # noqa: PLC0415

        from ftfile.core.arguments import checked  # noqa: PLC0415

        home = homes[name]
        try:
            found = resolve_name(home if ":" in home else f"{home}:{name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "pyspark":
                raise
            raise ImportError(f"{package}.{name} needs pyspark: pip install 'ftfile[spark]'") from error
        if not isfunction(found):
            return found
        found = checked(found)
        found.__module__, found.__qualname__ = package, name  # by which pickles find it
        return found

    return find
