"""Small parts made into one, with the same rows in the same order; and one range made of all records, on request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, Retry
from ftfile.core.logs import get_logger
from ftfile.formats.api import format_from_definition
from ftfile.formats.parts import chain_of, extension_of, read_part
from ftfile.log.checks import Rewrite
from ftfile.log.format.layout import parent, unique_part
from ftfile.log.format.model import Origin
from ftfile.log.opening import open_with_written_settings
from ftfile.log.read.compacted_records import merge_all
from ftfile.log.sealed import keys_of
from ftfile.rows.spark_types import recorded_schema
from ftfile.storage.paths import join
from ftfile.write.fingerprint import FingerprintAccumulator
from ftfile.write.messages import add_of
from ftfile.write.stage import Stage
from ftfile.write.workers import Work

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.formats.api import Format
    from ftfile.log.format.model import Add
    from ftfile.storage.api import Capabilities, FileSystem
    from ftfile.write.messages import TaskIdentity


_log = get_logger(__name__)


class _UnreadableInput(Exception):
    """`args` are the number of a part that cannot be read, from 0, and what was found."""


class Merge(NamedTuple):
    """Parts that become one."""

    inputs: tuple[Add, ...]  # in the order of their rows, of one directory and encoding
    place: int  # number of the first of them among all that are merged
    least_name: str | None  # the first name among those of the parts of the directory that stay; None without any


class Merged(NamedTuple):
    """The result of a merge; of one with a part that cannot be read, those of the parts before and after it."""

    rewrites: tuple[Rewrite, ...]  # each has one new part
    errors: tuple[FtfileError, ...]  # of what stays as it is


def merges_of(adds: Iterable[Add], plan: Iterable[Sequence[Add]]) -> list[Merge]:
    """Return the merges of a plan, given all live adds."""
    lists = [tuple(inputs) for inputs in plan]
    merged = {add.id for inputs in lists for add in inputs}
    merged_keys = {inputs[0].directory_key for inputs in lists}
    least: dict[str, str] = {}
    for add in adds:
        if add.final_path is not None and add.directory_key in merged_keys and add.id not in merged:
            name = _name(add.final_path)
            least[add.directory_key] = min(name, least.get(add.directory_key, name))
    places = accumulate(map(len, lists), initial=0)
    return [
        Merge(inputs, place, least.get(inputs[0].directory_key)) for inputs, place in zip(lists, places, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class Merging(Work[Merge, Merged]):
    """Merges parts that were live at a version; takes memory for some row groups."""

    read_version: int
    definitions: Mapping[str, Any]  # of the encodings of the parts, by key

    def size_of(self, piece: Merge) -> int:
        """Return the bytes of the parts."""
        return sum(add.length for add in piece.inputs)

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[Merge]) -> Iterator[Merged]:
        """Yield the result of each merge.

        Raises:
            StorageError: the store failed; files of other merges stay, for the caller or a vacuum to delete.
        """
        for merge in pieces:
            yield self._merged(fs, task, merge)

    def _merged(self, fs: FileSystem, task: TaskIdentity, merge: Merge) -> Merged:
        rewrites, errors, waiting = [], list[FtfileError](), [merge]

        def note(error: FtfileError, what: str) -> None:
            _log.error("%s: %s", what, error)
            errors.append(error)

        while waiting:
            inputs, place, least_name = piece = waiting.pop()
            stage = Stage(fs, task)
            try:
                merged = self._merge(fs, stage, piece, task.origin())
            except _UnreadableInput as found:
                number, cause = found.args
                stage.discard()
                note(cause, f"{inputs[number].final_path!r} is not merged")
                after = Merge(inputs[number + 1 :], place + number + 1, least_name)
                waiting += [rest for rest in (after, Merge(inputs[:number], place, least_name)) if len(rest.inputs) > 1]
            except (ConfigError, CorruptData) as error:
                stage.discard()
                note(error, f"{len(inputs)} parts from {inputs[0].final_path!r} on are not merged")
            except BaseException:
                stage.discard()
                raise
            else:
                rewrites.append(Rewrite(inputs, (merged,), self.read_version))
        return Merged(tuple(rewrites), tuple(errors))

    def _merge(self, fs: FileSystem, stage: Stage, merge: Merge, mixed: Origin) -> Add:
        """Write the rows of some parts to one, and check that all are in it before anybody relies on that."""
        first, keys = merge.inputs[0], keys_of(fs)
        encoding = self.definitions[first.encoding]
        file_format = format_from_definition(encoding["format"], keys)
        schema = recorded_schema(encoding["schema"])
        part = stage.open(first.directory_key, file_format, schema, chain_of(encoding, keys))
        before, after = FingerprintAccumulator("strong"), FingerprintAccumulator("strong")
        for batch in _rows_of_all(fs, merge.inputs, file_format, schema):
            before.update(batch)
            part.write(batch, None)
        stage.finish(part)
        stage.wait_closed()
        merged = add_of(stage.finished[-1], first.encoding, _origin(merge.inputs, mixed))
        for batch in read_part(fs, merged, file_format, schema, keys):
            after.update(batch)
        if before.digest() != after.digest():
            advice = "Nothing was replaced by it"
            raise CorruptData(merged.path, "the rows of the parts it is made of", "other rows", advice)
        place = f"{self.read_version:010d}{merge.place:07d}"
        path = merged_path(first, merge.least_name, merged.id, extension_of(encoding), place, fs.capabilities)
        return replace(merged, final_path=path)


def merged_path(
    first: Add, least_name: str | None, part_id: str, extension: str, place: str, store: Capabilities
) -> str:
    """Return the name of the first of the merged parts with another unique piece: sorted names keep the order of rows.

    Where that is too long for the store, it is cut, and sorts before all other names of the directory that begin so,
    or, if the `least_name` of them comes before the first part, after them; among names that are cut, `place` decides.

    Raises:
        ConfigError: there is no name that the store keeps.
    """
    assert first.final_path is not None, f"{first.id} is no part"
    directory = parent(first.final_path)
    name = _name(first.final_path)
    unique = unique_part(part_id)
    if unique_part(first.id) in name:
        return join(directory, name.replace(unique_part(first.id), unique))
    stem = name.removesuffix(extension)
    path = join(directory, f"{stem}-{unique}{extension}")
    fault = store.fault_of(path)
    if fault is None:
        return path
    separator = "~" if least_name is not None and least_name < name else "-"
    for length in range(len(stem) - 1, 0, -1):
        path = join(directory, f"{stem[:length]}{separator}{place}-{unique}{extension}")
        if store.fault_of(path) is None:
            return path
    raise ConfigError(
        f"parts from {first.final_path!r} on cannot become one: it would be called {path!r}, which {fault}"
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _rows_of_all(
    fs: FileSystem, inputs: Sequence[Add], file_format: Format, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of parts one after the other; raise `_UnreadableInput` for one that nobody can read."""
    for number, add in enumerate(inputs):
        try:
            yield from read_part(fs, add, file_format, schema, keys_of(fs))
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


def merge_ranges(
    path: str | os.PathLike[str],
    *,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> int:
    """Make one range of all records, so that readers open one file; return the version up to which it stands for them.

    Ranges that are missing or damaged are made anew. Safe beside running queries, and repeatable. Commits merge small
    ranges themselves. For the arguments see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory.
        CorruptData: a range is damaged, and the records that it stood for are not kept.
    """
    log = open_with_written_settings(path, key_provider, storage, context)
    head = log.refresh(durable=True)
    merge_all(log, head)
    return head.version
