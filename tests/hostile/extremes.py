"""Replaces all numbers of one field name by the greatest number, in all records of a directory."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from ftfile.log.format.model import NUMBER_MAX
from ftfile.log.format.record import compact_json, from_checked_text, to_checked_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def number_names(place: Path) -> list[str]:
    """Return the names of all record fields below a place that contain numbers or lists of numbers."""
    lines = (line for path in _records(place) for line in from_checked_text(path.read_bytes(), path.name))
    return sorted({name for line in lines for _, name in _numbers(_json(line))})


def widen(place: Path, name: str) -> None:
    """Write the greatest number into each field of a name, with right checksums. Delete files derived from records."""
    for path in _records(place):
        lines: list[bytes] = []
        for line in from_checked_text(path.read_bytes(), path.name):
            tree = _json(line)
            fields = [field for field, own_name in _numbers(tree) if own_name == name]
            for field in fields:
                field[name] = [NUMBER_MAX] * len(field[name]) if isinstance(field[name], list) else NUMBER_MAX
            lines.append(compact_json(tree) if fields else line)
        path.write_bytes(to_checked_text(lines))
    for derived in ("hints", "checkpoints", "compacted"):
        for folder in [*place.rglob(f"_ftfile/{derived}")]:
            shutil.rmtree(folder)


def _records(place: Path) -> list[Path]:
    return sorted(place.rglob("*.record"))


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _numbers(tree: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the objects in JSON with the names of their number fields."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        values = value if isinstance(value, list) else [value]
        if isinstance(tree, dict) and values and all(type(number) is int for number in values):
            yield tree, name
        yield from _numbers(value)
