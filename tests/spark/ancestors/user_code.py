"""Code of the cases' users: an assigner of directories, and a hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ftfile.writing.files.publishing import PublishedPart


class ByFive:
    """Directories of five numbers."""

    names_files = False

    def __init__(self, options: Mapping[str, str]) -> None:
        del options

    def paths(self, batch: pa.RecordBatch) -> pa.Array:
        directory = pc.divide(batch.column("value").cast("int64"), 5)
        return pc.binary_join_element_wise("directory", directory.cast("string"), "-")


def note(parts: tuple[PublishedPart, ...]) -> None:
    """Write the published parts to a file next to the directory of the sink."""
    for part in parts:
        out = Path(part.url.removeprefix("file://").removesuffix(part.path))
        assert (out / part.path).stat().st_size == part.size_bytes
        with (out.parent / "published").open("a") as notes:
            notes.write(json.dumps([part.path, part.rows, part.size_bytes]) + "\n")
