"""Checks, before rows are written, that the files of a bucket will get names that the store keeps."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.fs.paths import NAME_BYTES_MAX, join
from ftfile.sink.naming.facts import first_part

if TYPE_CHECKING:
    from ftfile.fs.api import Capabilities
    from ftfile.sink.naming.settings import Naming

__all__ = ("PathCheck",)

# Stand in the example for the stem and the directory of a bucket, and are in no name.
_NAME, _BUCKET = "\0", "\1"


class PathCheck:
    """Checks the path that a bucket's first file would have, with room for longer ones of later files."""

    def __init__(self, naming: Naming, extension: str, store: Capabilities) -> None:
        self._naming = naming
        self._extension = extension
        self._store = store

    def fault_of(self, directory: str, stem: str) -> str | None:
        """Return why the files of a bucket cannot get their names, as in "it … ", or None."""
        if self._naming.function is None:
            example, more_bytes = self._example
            name = example.replace(_BUCKET, directory.replace("/", "-"))
            name = name.replace(_NAME, stem or self._naming.prefix)
        else:
            # Nobody knows what a function makes: it may begin with what it is given, and be as long as names are.
            name = stem.rstrip() or self._naming.prefix
            more_bytes = max(0, NAME_BYTES_MAX - len(name.encode()))
        path = join(directory, name)
        fault = self._store.fault_of(path, more_bytes)
        return None if fault is None else f"would go to a file such as {_shown(path)}, which {fault}"

    @functools.cached_property
    def _example(self) -> tuple[str, int]:
        return self._naming.template.fill(first_part(_NAME, _BUCKET, self._extension)), self._naming.more_bytes

    def check(self, directory: str) -> None:
        """Raise a ConfigError if the store does not keep the names of examples in a directory."""
        more_bytes = self._naming.more_bytes if self._naming.function is None else 0
        for name in self._naming.examples(self._extension, directory):
            path = join(directory, name)
            if fault := self._store.fault_of(path, more_bytes):
                raise ConfigError(f"a file would be called {_shown(path)}, which {fault}")


def _shown(path: str) -> str:
    return repr(path) if len(path) <= NAME_BYTES_MAX else f"{path[:80]!r}...{path[-80:]!r}"
