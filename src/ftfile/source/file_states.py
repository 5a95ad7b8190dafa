"""Whether committed files are where plain readers look for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ftfile.commit.files import list_or_empty, walk
from ftfile.commit.format import layout
from ftfile.commit.places import Place, find_part
from ftfile.fs.calls.parallel import parallel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.format.model import Add
    from ftfile.fs.api import FileSystem

__all__ = ("FileState", "file_states")

FileState: TypeAlias = Literal["published", "pending", "retired", "missing"]

_STATES: dict[Place, FileState] = {
    Place.PUBLISHED: "published",
    Place.STAGED: "pending",
    Place.TAKEN: "pending",
    Place.IMPOSSIBLE: "pending",
    Place.RETIRED: "retired",
    Place.NOWHERE: "missing",
    Place.DAMAGED: "missing",
}


def file_states(fs: FileSystem, parts: Sequence[Add]) -> list[FileState]:
    """Return the state of each part; lists the stage and every directory of theirs once, and looks for what is odd."""
    directories = sorted({layout.parent(part.final_path or "") for part in parts})
    listed = parallel(fs, lambda directory: list_or_empty(fs, directory), directories)
    sizes = {info.path: info.size_bytes for infos in listed for info in infos if not info.is_directory}
    staged = walk(fs, layout.STAGED)
    found = [
        sizes.get(part.final_path or "") == part.length and (part.path not in staged or part.path == part.final_path)
        for part in parts
    ]
    odd = [part for part, is_there in zip(parts, found, strict=True) if not is_there]
    places = iter(parallel(fs, lambda part: find_part(fs, part).place, odd))
    return ["published" if is_there else _STATES[next(places)] for is_there in found]
