"""The content of live adds: checksums, and whether the format reads the rows that were recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.arrays.spark_types import arrow_schema
from ftfile.commit.places import has_content
from ftfile.commit.read.snapshot import open_add
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, NotFound
from ftfile.maintenance.verify.misplaced import lost
from ftfile.parts.reader import read_add

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    import pyarrow as pa

    from ftfile.commit.format.model import Add
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.findings import Finding

__all__ = ("compare_content",)


def compare_content(fs: FileSystem, snapshot: Snapshot, known: Container[str]) -> Iterator[Finding]:
    """Read every live add, and yield those whose bytes or rows are not what was recorded.

    Args:
        fs: of the directory.
        snapshot: what is live.
        known: paths of those that are already known to be damaged or missing.

    Raises:
        ConfigError: a key is not known.
    """
    schema = None if snapshot.schema is None else arrow_schema(snapshot.definitions[snapshot.schema])
    for add in snapshot.adds.values():
        if (add.final_path or add.path) in known:
            continue
        found = _fault(fs, add, snapshot.definitions.get(add.encoding), schema)
        if found is not None:
            path, text = found
            expected = f"{add.rows} rows in {add.length} bytes with {add.checksum}"
            is_part = add.kind == "part"
            yield lost(add, f"damaged-{add.kind}", expected, text, path if is_part else None)


def _fault(
    fs: FileSystem, add: Add, encoding: dict[str, Any] | None, schema: pa.Schema | None
) -> tuple[str, str] | None:
    """Return where an add lies and what is wrong with its content, or None."""
    try:
        path = open_add(add, fs.stat).path
        if add.kind == "part" and not has_content(fs, path, add):
            return (path, "other bytes") if fs.exists(path) else None
        if schema is None or not isinstance(encoding, dict):
            return None
        for _ in read_add(fs, add, encoding, schema):
            pass
    except ConfigError:
        raise
    except CorruptData as error:
        return error.path, error.found
    except NotFound:
        return None  # it moves at this moment
    except FtfileError as error:
        return add.path, str(error)
    return None
