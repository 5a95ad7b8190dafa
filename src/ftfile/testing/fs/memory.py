"""The memory driver: named stores that live as long as the process, for tests and examples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.fs.api import Capabilities
from ftfile.testing.fs.disk import Disk
from ftfile.testing.fs.mounting import RootedFileSystem
from ftfile.testing.fs.tree import Tree
from ftfile.testing.fs.volume import STREAMS, Volume, VolumeFileSystem

if TYPE_CHECKING:
    from ftfile.core.clock import Clock
    from ftfile.fs.api import FileSystem
    from ftfile.fs.location import Location

__all__ = ("MemoryFileSystem", "open_location")

_CAPABILITIES = Capabilities(
    driver="memory",
    shared_between_processes=False,
    durability="none",
    directory_sync=False,
    atomic_rename=True,
    stream_capabilities=STREAMS["memory"].offered,
    shared_between_hosts=False,
)
_stores: dict[str, Volume] = {}


class MemoryFileSystem(VolumeFileSystem):
    """A store of this process: every instance of one name sees the same files.

    Pickles as its name, so that another process finds its own, empty store. The clock gives modification times, from
    now on to all instances of the name.
    """

    def __init__(self, name: str, *, clock: Clock = SYSTEM.clock) -> None:
        self.name = name
        volume = _stores.setdefault(name, Volume(Disk(Tree(), {}), clock, journals=False))
        volume.clock = clock
        super().__init__(volume, "memory", _CAPABILITIES)

    @classmethod
    def drop(cls, name: str) -> None:
        """Forget the store of this name; instances that still use it keep it to themselves."""
        _stores.pop(name, None)

    def __repr__(self) -> str:
        return f"MemoryFileSystem({self.name!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return partial(MemoryFileSystem, clock=self._volume.clock), (self.name,)


def open_location(location: Location) -> FileSystem:
    """Open a `memory` URL; the authority names the store, and ConfigError says if there is none."""
    location.known_settings()
    if not location.authority:
        raise ConfigError(f"{location.url!r} names no store; write memory://name or memory://name/directory")
    return RootedFileSystem(MemoryFileSystem(location.authority, clock=location.context.clock), location.path[1:])
