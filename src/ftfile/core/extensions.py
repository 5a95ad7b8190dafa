"""Objects that are loaded by name, such as entry points of other packages."""

from __future__ import annotations

import functools
import pkgutil
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import ftfile.core.import_wait
import ftfile.core.log_wait  # noqa: F401 - and for log messages
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_T = TypeVar("_T")

SPARK_LEAST = 4  # the oldest supported major version

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

# The places (`module:name`) of objects that a folder uses from a folder above it, which it cannot name. The package
# `ftfile` sets them, so they also exist where ftfile is not installed, but only its files are on the path.
UPPER_PLACES: dict[str, str] = {}

# The places (`module:name`) of loaded entry points by group and name. Cached, since a lookup takes as long as a small
# commit.
_loaded: dict[tuple[str, str], str] = {}


def list_installed(group: str) -> dict[str, str]:
    """Return the places of a group's entry points (`module:name`) by their names."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes 25 ms, only needed for code of other packages

    return {entry.name: entry.value for entry in entry_points(group=group)}


def forget_extensions() -> None:
    """Forget the entry points that this process has loaded."""
    _loaded.clear()


def load_extension(what: str, name: str, built_in: Mapping[str, str], group: str) -> Any:  # noqa: ANN401
    """Return a built-in object, or the object of an entry point.

    Args:
        what: the kind of the object, for errors.
        name: the name of the object.
        built_in: the places of the built-in objects (`module:name`) by their names.
        group: the group of the entry points.

    Raises:
        ConfigError: no object has this name, or it cannot be loaded.
    """
    if type(name) is not str:
        raise ConfigError(f"{name!r:.80} is not a name of a {what}")
    place = built_in.get(name) or _loaded.get((group, name)) or list_installed(group).get(name)
    if place is None:
        names = ", ".join(sorted({*built_in, *list_installed(group)}))
        raise ConfigError(
            f"there is no {what} {name!r}; there are: {names}. Packages can add others with an entry point of the "
            f"group {group!r}. They must be installed where the driver and the executors run"
        )
    try:
        loaded = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"the {what} {name!r} cannot be loaded from {place!r}: {error}") from error
    if name not in built_in:
        _loaded[group, name] = place
    return loaded


def is_name_of_code(text: str) -> bool:
    """Return True if a text has the form `module:name`."""
    return _NAME.fullmatch(text) is not None


def load(option: str, name: str) -> Any:  # noqa: ANN401 - of any type
    """Return the object `module:name`; if it cannot be loaded, raise a ConfigError that names the option."""
    if not is_name_of_code(name):
        raise ConfigError(
            f"{option}={name!r} is not a valid name: write `module:name`, such as `my_package.files:Mine`"
        )
    try:
        return pkgutil.resolve_name(name)
    except Exception as error:  # importing a module can raise any error
        raise ConfigError(
            f"{option}={name!r} cannot be loaded: {error!r}. It must be importable on the driver and on every executor"
        ) from error


def load_class(what: str, name: str, built_in: Mapping[str, str], group: str, base: type[_T]) -> type[_T]:
    """Return the class that `load_extension` finds by its name.

    The class must be derived from `base`, and its attribute `name` must contain the same name.

    Raises:
        ConfigError: no class has this name, or it cannot be loaded or used.
    """
    loaded = load_extension(what, name, built_in, group)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        base_name = f"{base.__module__}.{base.__qualname__}"
        raise ConfigError(f"the {what} {name!r} is {loaded!r}, which is not a class derived from {base_name}")
    class_name = getattr(loaded, "name", None)
    # The log contains the name of the class, and readers search the entry points for it.
    if class_name != name:
        raise ConfigError(f"the {what} {name!r} has the name {class_name!r}: its entry point must have the same name")
    return loaded


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports each of its names at first use.

    Functions are wrapped, so that they check their arguments; see `core.arguments`. If a name needs pyspark, and
    pyspark is missing or too old, `__getattr__` raises an ImportError.

    Args:
        package: the name of the package.
        homes: the place of each name: `module:attribute`, `module` if the attribute has the same name, or `module:` for
            the module itself.
    """
    return functools.cache(functools.partial(_value_of, package, homes))


def _value_of(package: str, homes: Mapping[str, str], name: str) -> Any:  # noqa: ANN401 - of any type
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    from inspect import isfunction  # noqa: PLC0415 - the package itself imports no modules
    from pkgutil import resolve_name  # noqa: PLC0415

    from ftfile.core.arguments import check_arguments  # noqa: PLC0415

    place = homes[name]
    if ":" not in place:
        place = f"{place}:{name}"
    try:
        value = resolve_name(place)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyspark":
            raise
        version = getattr(sys.modules.get("pyspark"), "__version__", "")
        if not version:
            raise ImportError(f"{package}.{name} needs pyspark: pip install 'ftfile[spark]'") from error
        if int(version.partition(".")[0]) >= SPARK_LEAST:
            raise
        raise ImportError(
            f"{package}.{name} needs pyspark {SPARK_LEAST}.0 or later, but pyspark {version} is installed: "
            f"pip install 'pyspark>={SPARK_LEAST}.0'"
        ) from error
    if not isfunction(value):
        return value
    function = check_arguments(value)
    # A pickle of the function contains these two names, and unpickling imports the function by them.
    function.__module__ = package
    function.__qualname__ = name
    return function
