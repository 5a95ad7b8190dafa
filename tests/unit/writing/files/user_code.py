"""Classes and functions as users write them, for options of the form `module:name`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.writing.files.naming import PartFacts


class Initials:
    """Directories by the first letters of `word`; option `directoryAssigner.letters` sets their length."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.dead_letters = int(options.get("letters", "1"))

    def paths(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.utf8_slice_codeunits(batch.column("word"), 0, self.dead_letters)


class Files:
    """The path of a file in `word`."""

    names_files = True

    def __init__(self, options: Mapping[str, str]) -> None:
        del options

    def paths(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column("word").dictionary_encode()


class Broken(Files):
    """Breaks the contract in the way that option `directoryAssigner.how` names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.how = options["how"]
        if self.how == "init":
            raise RuntimeError("cannot be made")

    def paths(self, batch: pa.RecordBatch) -> Any:
        if self.how == "late" and batch.num_rows == 0:
            return pa.array([], pa.string())
        results = {"numbers": pa.array(range(batch.num_rows)), "short": pa.array(["x"]), "list": ["x"]}
        if self.how in results:
            return results[self.how]
        raise ValueError("does not like these rows")


class Ending:
    """An encoder whose file suffix is option `encoder.is`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.extension = options["is"]

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column("word")


class NoMethod:
    def __init__(self, options: Mapping[str, str]) -> None:
        del options


def by_rows(part: PartFacts) -> str:
    """Name a part by its content."""
    return f"{part.name}_{part.batch}_{part.rows}rows{part.extension}"


def always_the_same(part: PartFacts) -> str:
    del part
    return "only.log"


def long_numbered(part: PartFacts) -> str:
    return f"{'n' * 230}.{part.number:010}{part.extension}"


def numbered(part: PartFacts) -> str:
    return f"{part.name}.{part.number}"


def with_slash(part: PartFacts) -> str:
    return f"a/{part.unique}"


def failing(part: PartFacts) -> str:
    raise KeyError(part.name)


def failing_for_y(part: PartFacts) -> str:
    """Name parts, except the parts of k=y."""
    if part.directory == "k=y":
        raise KeyError("y")
    return f"{part.unique}{part.extension}"


def failing_later(part: PartFacts) -> str:
    if part.query_id == "query":
        return "fine"
    raise KeyError("late")


def hidden_later(part: PartFacts) -> str:
    return "fine" if part.query_id == "query" else "_hidden"


def lz4_later(part: PartFacts) -> str:
    return "fine" if part.query_id == "query" else "fine.lz4"


def no_text(part: PartFacts) -> int:
    return part.rows


HEARD: list[Any] = []


def hear(parts: tuple[Any, ...]) -> None:
    """Remember the published files once they are visible."""
    assert all(Path(part.url.removeprefix("file://")).stat().st_size == part.size_bytes for part in parts)
    HEARD.extend(parts)


def hear_and_fail(parts: tuple[Any, ...]) -> None:
    hear(parts)
    raise RuntimeError("somebody else's fault")
