"""Rewrites the files of pieces, and checks the content of the new files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ftfile.core.errors import ConfigError, CorruptData, FtfileError
from ftfile.core.logs import get_logger
from ftfile.formats.api import format_from_definition
from ftfile.formats.parts import UnreadablePart, chain_of, extension_of, read_part, rows_of_parts
from ftfile.log.checks import Rewrite
from ftfile.log.format.adds import total_rows
from ftfile.log.sealed import keys_of
from ftfile.operate.rewriter.pieces import Outcome, RewritePiece
from ftfile.operate.rewriter.sorted_parts import SortedParts
from ftfile.rows.spark_types import recorded_schema
from ftfile.writing.files.namer import rewritten_path
from ftfile.writing.fingerprint import strong_digest
from ftfile.writing.messages import add_of, common_origin
from ftfile.writing.stage import staging
from ftfile.writing.workers import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.log.format.model import Add
    from ftfile.storage.api import FileSystem
    from ftfile.writing.messages import TaskIdentity

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RowRewriter(Work[RewritePiece, Outcome]):
    """Rewrites files that were live at a version; uses memory for some row groups."""

    read_version: int
    definitions: Mapping[str, Any]  # of the encodings of the files, by key
    dry_run: bool  # only count the rows to remove, and write nothing

    def size_of(self, piece: RewritePiece) -> int:
        """Return the bytes of the files."""
        return piece.length

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[RewritePiece]) -> Iterator[Outcome]:
        """Yield the result of each piece.

        Raises:
            StorageError: the storage failed; files of completed pieces remain, for the caller or a vacuum to delete.
        """
        for piece in pieces:
            yield self._outcome(fs, task, piece)

    def _outcome(self, fs: FileSystem, task: TaskIdentity, whole: RewritePiece) -> Outcome:
        outcome, waiting = Outcome(), [whole]

        def note(error: FtfileError, what: str) -> Outcome:
            _log.error("%s: %s", what, error)
            return outcome._replace(errors=(*outcome.errors, error))

        while waiting:
            piece = waiting.pop()
            inputs = piece.inputs
            try:
                rows_removed = piece.rows_removed(fs, self.definitions)
                outcome = outcome._replace(rows_removed=outcome.rows_removed + rows_removed)
                if self.dry_run or (piece.without is not None and not rows_removed):
                    continue
                adds = () if rows_removed == piece.row_count else self._rewrite(fs, task, piece, rows_removed)
                outcome = outcome._replace(rewrites=(*outcome.rewrites, Rewrite(inputs, adds, self.read_version)))
            except UnreadablePart as unreadable:
                number, cause = unreadable.args
                outcome = note(cause, f"{inputs[number].final_path!r} is not changed")
                after = piece._replace(inputs=inputs[number + 1 :], place=piece.place + number + 1)
                before = piece._replace(inputs=inputs[:number])
                for rest in (after, before):
                    if len(rest.inputs) > 1:
                        waiting.append(rest)
            except (ConfigError, CorruptData) as error:
                outcome = note(error, f"{len(inputs)} parts from {inputs[0].final_path!r} on are not changed")
        return outcome

    def _rewrite(self, fs: FileSystem, task: TaskIdentity, piece: RewritePiece, rows_removed: int) -> tuple[Add, ...]:
        """Write the remaining rows to new files, and check their content before they replace the inputs."""
        first, keys, advice = piece.inputs[0], keys_of(fs), "It replaced no part"
        encoding = self.definitions[first.encoding]
        file_format = format_from_definition(encoding["format"], keys)
        schema = recorded_schema(encoding["schema"])
        with staging(fs, task) as stage:
            columns = encoding.get("statistics", ())
            open_part = partial(
                stage.open, first.directory_key, file_format, schema, chain=chain_of(encoding, keys), statistics=columns
            )
            rows = rows_of_parts(fs, piece.inputs, file_format, schema)
            if piece.order is not None:
                before = SortedParts(stage, open_part, piece.order).write(piece.inputs, encoding, rows)
            else:
                part = open_part()
                before = strong_digest(part.write_all(_remaining(rows, piece, encoding)))
                stage.finish(part)
            stage.wait_closed()
            origin = common_origin(piece.inputs, task.origin())
            adds = tuple(add_of(part, first.encoding, origin) for part in stage.finished)
            read = partial(read_part, fs, file_format=file_format, schema=schema, keys=keys)
            if strong_digest(chain.from_iterable(map(read, adds))) != before:
                raise CorruptData(adds[0].path, "the rows of the merged parts", "other rows", advice)
            if total_rows(adds) != piece.row_count - rows_removed:
                expected = f"{piece.row_count - rows_removed} rows, without the removed rows"
                raise CorruptData(adds[0].path, expected, f"{total_rows(adds)} rows", advice)
        return self._name_adds(fs, piece, adds, extension_of(encoding))

    def _name_adds(self, fs: FileSystem, piece: RewritePiece, adds: Sequence[Add], extension: str) -> tuple[Add, ...]:
        """Return new files with final paths, which follow the names of the inputs."""
        inputs = sorted(piece.inputs, key=_name_of) if len(adds) > 1 else piece.inputs
        named = []
        for number, add in enumerate(adds):
            path = rewritten_path(
                inputs[min(number, len(inputs) - 1)],
                piece.least_name,
                part_id=add.id,
                extension=extension,
                place=f"{self.read_version:010d}{piece.place:07d}",
                storage=fs.capabilities,
            )
            named.append(structs.replace(add, final_path=path))
        return tuple(named)


def _name_of(add: Add) -> str:
    return add.final_path or add.path


def _remaining(
    rows: Iterator[tuple[Add, pa.RecordBatch]], piece: RewritePiece, encoding: dict[str, Any]
) -> Iterator[pa.RecordBatch]:
    if piece.without is not None:
        return piece.without.apply(rows, encoding)
    return map(itemgetter(1), rows)
