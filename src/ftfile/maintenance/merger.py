"""Small parts made into one: the same rows in the same order, under a name that sorts as the first of theirs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.fingerprint import FingerprintAccumulator
from ftfile.attempt.identity import JobIdentity, TaskIdentity
from ftfile.attempt.message import add_of
from ftfile.attempt.stage import Stage
from ftfile.commit.format.layout import parent, unique_part
from ftfile.commit.format.model import Origin
from ftfile.commit.places import open_add
from ftfile.commit.rewrites import Rewrite
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, Retry
from ftfile.core.logs import get_logger
from ftfile.encoding.registry import format_from_definition
from ftfile.fs.paths import join
from ftfile.parts.filtered_file import chain_of, extension_of
from ftfile.parts.reader import read_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.commit.format.model import Add
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.encoding.api import Format
    from ftfile.fs.api import Capabilities, FileSystem

__all__ = ("Merger", "merged_path")

_log = get_logger(__name__)


class _UnreadableInput(Exception):
    """`args` are the number of a part that cannot be read, from 0, and what was found."""


class Merger:
    """Makes the parts of one compaction; `error` is the first of what could not be merged: all else was."""

    def __init__(self, fs: FileSystem, job_id: str, snapshot: Snapshot) -> None:
        self._fs = fs
        self._identity = TaskIdentity(JobIdentity(job_id), 0, 0)
        self._snapshot = snapshot
        self._count = 0
        self.error: FtfileError | None = None

    def merge_all(self, plan: Sequence[Sequence[Add]]) -> list[Rewrite]:
        """Make one part of each list of parts; of a list with one that cannot be read, of those before and after it.

        Raises:
            StorageError: the store failed; what was written is removed.
        """
        names = _names_left_alone(self._snapshot.adds.values(), plan)
        stages: list[Stage] = []
        rewrites: list[Rewrite] = []
        waiting = [list(inputs) for inputs in reversed(plan)]
        try:
            while waiting:
                inputs = waiting.pop()
                stages.append(Stage(self._fs, self._identity))
                try:
                    merged = self._merge(stages[-1], inputs, names[inputs[0].bucket])
                except _UnreadableInput as found:
                    number, cause = found.args
                    stages.pop().discard()
                    self._note(cause, f"{inputs[number].final_path!r} is not merged")
                    waiting += [piece for piece in (inputs[number + 1 :], inputs[:number]) if len(piece) > 1]
                except (ConfigError, CorruptData) as error:
                    stages.pop().discard()
                    self._note(error, f"{len(inputs)} parts from {inputs[0].final_path!r} on are not merged")
                else:
                    rewrites.append(Rewrite(tuple(inputs), (merged,), self._snapshot.version))
        except BaseException:
            for stage in stages:
                stage.discard()
            raise
        return rewrites

    def _note(self, error: FtfileError, what: str) -> None:
        _log.error("%s: %s", what, error)
        self.error = self.error or error

    def _merge(self, stage: Stage, inputs: Sequence[Add], names: Sequence[str]) -> Add:
        """Write the rows of some parts to one, and check that all are in it before anybody relies on that."""
        first, fs = inputs[0], self._fs
        encoding = self._snapshot.definitions[first.encoding]
        file_format = format_from_definition(encoding["format"], keys_of(fs))
        schema = arrow_schema(encoding["schema"])
        part = stage.open(first.bucket, file_format, schema, chain_of(encoding, keys_of(fs)))
        before, after = FingerprintAccumulator("strong"), FingerprintAccumulator("strong")
        for batch in _rows_of_all(fs, inputs, file_format, schema):
            before.update(batch)
            part.write(batch, None)
        stage.finish(part)
        stage.settle()
        staged = stage.finished[-1]
        merged = add_of(staged, first.encoding, _origin(inputs, self._identity.origin()))
        self._count += 1
        place = f"{self._snapshot.version:010d}{self._count:05d}"
        path = merged_path(first, names, staged.id, extension_of(encoding), place, fs.capabilities)
        merged = replace(merged, final_path=path)
        for batch in read_part(fs.read(merged.path), merged, file_format, schema, keys_of(fs)):
            after.update(batch)
        if before.digest() != after.digest():
            advice = "Nothing was replaced by it"
            raise CorruptData(merged.path, "the rows of the parts it is made of", "other rows", advice)
        return merged


def merged_path(first: Add, names: Iterable[str], part_id: str, extension: str, place: str, store: Capabilities) -> str:
    """Return the name of the first of the merged parts with another unique piece: sorted names keep the order of rows.

    Where that is too long for the store, it is cut, and sorts before all other names of the bucket that begin so, or,
    if one of them comes before the first part, after them; among names that are cut, `place` decides.

    Raises:
        ConfigError: there is no name that the store keeps.
    """
    assert first.final_path is not None, f"{first.id} is no part"
    directory = parent(first.final_path)
    name = first.final_path.rpartition("/")[2]
    unique = unique_part(part_id)
    if unique_part(first.id) in name:
        return join(directory, name.replace(unique_part(first.id), unique))
    stem = name.removesuffix(extension)
    path = join(directory, f"{stem}-{unique}{extension}")
    fault = store.fault_of(path)
    if fault is None:
        return path
    separator = "~" if any(other < name for other in names) else "-"
    for length in range(len(stem) - 1, 0, -1):
        path = join(directory, f"{stem[:length]}{separator}{place}-{unique}{extension}")
        if store.fault_of(path) is None:
            return path
    raise ConfigError(
        f"parts from {first.final_path!r} on cannot become one: it would be called {path!r}, which {fault}"
    )


def _names_left_alone(adds: Iterable[Add], plan: Sequence[Sequence[Add]]) -> dict[str, list[str]]:
    """Return, by bucket, the names of the parts that are not merged, for the buckets in which others are."""
    merged = {add.id for inputs in plan for add in inputs}
    buckets = {inputs[0].bucket for inputs in plan}
    names: dict[str, list[str]] = defaultdict(list)
    for add in adds:
        if add.final_path is not None and add.bucket in buckets and add.id not in merged:
            names[add.bucket].append(add.final_path.rpartition("/")[2])
    return names


def _rows_of_all(
    fs: FileSystem, inputs: Sequence[Add], file_format: Format, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of parts one after the other; raise `_UnreadableInput` for one that nobody can read."""
    for number, add in enumerate(inputs):
        try:
            yield from read_part(open_add(add, fs.read), add, file_format, schema, keys_of(fs))
        except FtfileError as error:
            if error.retry is not Retry.NEVER:
                raise
            raise _UnreadableInput(number, error) from error


def _origin(inputs: Sequence[Add], mixed: Origin) -> Origin:
    """Return the origin of all rows; `mixed` for rows of several writers."""
    origins = [add.origin for add in inputs]
    if len({origin.query_id for origin in origins}) > 1:
        return mixed
    first, last = min(origin.first_batch for origin in origins), max(origin.last_batch for origin in origins)
    return Origin(origins[0].query_id, first, last)
