"""The directory or store of a command, and how it is opened.

Where its log is lost, commands say so, and end with `DAMAGED`, where Python finds nothing in it.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.cli.parameters import KeyProvider, Path, Storage, settings_of
from ftfile.core.errors import ConfigError, CorruptData

if TYPE_CHECKING:
    from ftfile.maintenance.opened import OpenedDirectory


@dataclass(frozen=True)
class Place:
    """An argument and the options that commands share; `with_place` gives them to a command."""

    path: Path
    key_provider: KeyProvider = None
    storage: Storage = None

    @property
    def access(self) -> dict[str, Any]:
        """Return the arguments of functions by which they open it."""
        return {"key_provider": self.key_provider, "storage": settings_of(self.storage)}

    def open(self) -> "OpenedDirectory":
        """Return the directory of files; ConfigError if it is none.

        Raises:
            CorruptData: it has had commits, and none of them can be read; with what `status` says of it.
        """
        directory = ftfile.open(self.path, **self.access)
        if directory.version() < 0:
            for finding in directory.status(lag=False).findings:
                if finding.severity == "error":
                    raise CorruptData(finding.path, finding.expected, finding.found, finding.remedy)
        return directory

    def require_log(self) -> None:
        """Raise `CorruptData` if a directory, in which a command found nothing, has lost its log."""
        with contextlib.suppress(ConfigError):  # a store, which has a log
            self.open()

    @contextlib.contextmanager
    def requiring_log(self) -> Iterator[None]:
        """Raise `CorruptData` where the block names what a directory does not have, because it has lost its log."""
        try:
            yield
        except ConfigError:
            self.require_log()
            raise


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of its `Place` itself, first the path, and last the options."""
    signature = inspect.signature(command)
    own = [each for each in signature.parameters.values() if each.annotation is not Place]
    if len(own) == len(signature.parameters):
        return command

    @functools.wraps(command)
    def placed(path: str, key_provider: str | None, storage: list[str] | None, **options: object) -> None:
        command(place=Place(path, key_provider, storage), **options)

    path, *access = inspect.signature(Place).parameters.values()
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (path, *own, *access)]
    placed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return placed
