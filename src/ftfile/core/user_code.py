"""Classes and functions of the user's, by name: loaded on the driver to be checked, and wherever they are used."""

from __future__ import annotations

import pkgutil
import re
from typing import Any

from ftfile.core.errors import ConfigError

__all__ = ("is_name_of_code", "load")

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def is_name_of_code(text: str) -> bool:
    """Return True if a text has the form `module:name`."""
    return _NAME.fullmatch(text) is not None


def load(option: str, name: str) -> Any:  # noqa: ANN401 - whatever it is called
    """Return the object called `module:name`.

    Raises:
        ConfigError: there is none, or its module cannot be imported; names the option.
    """
    if not is_name_of_code(name):
        raise ConfigError(f"{option}={name!r} is not understood: write `module:name`, such as `my_package.files:Mine`")
    try:
        return pkgutil.resolve_name(name)
    except Exception as error:  # anything may happen while a module is imported
        raise ConfigError(
            f"{option}={name!r} cannot be loaded: {error!r}. It must be importable on the driver and on every executor"
        ) from error
