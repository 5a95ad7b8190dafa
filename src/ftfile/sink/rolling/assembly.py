"""Assembly: parts are made of the segments of a due job, verified, and proposed; the log decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.layout import storage_identity
from ftfile.commit.model import SourceRange
from ftfile.commit.sealed import keys_of
from ftfile.core.checksum import checksum
from ftfile.core.errors import CorruptData, Unsupported
from ftfile.core.logs import get_logger
from ftfile.encoding.api import Limits
from ftfile.encoding.registry import format_from_definition
from ftfile.encoding.spark_types import arrow_schema
from ftfile.sink.filtered import FilteredFile, chain_of
from ftfile.sink.message import Assembled, StagedPart
from ftfile.sink.rolling.groups import live_bytes
from ftfile.sink.rolling.joining import SAMPLE_BYTES, Target, make_joiner, merging_saves
from ftfile.sink.rolling.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ftfile.commit.model import Add, DueJob
    from ftfile.encoding.api import Format
    from ftfile.filters.chain import Chain
    from ftfile.fs.api import FileSystem
    from ftfile.sink.rolling.joining import PartJoiner
    from ftfile.sink.rolling.pieces import Piece
    from ftfile.sink.staging import Stage, StagedFile

__all__ = ("Assembler", "file_schema_of", "job_payload")

PARTS_MAX = 16

_log = get_logger(__name__)


def job_payload(limits: Limits, *, keep_tail: bool) -> dict[str, Any]:
    """Return what a job says of the parts to make.

    Args:
        limits: of each part.
        keep_tail: rows that fill no part stay open.
    """
    return {
        "maxBytes": limits.max_bytes,
        "maxRows": limits.max_rows,
        "strict": limits.strict,
        "keepTail": keep_tail,
    }


def file_schema_of(encoding: Mapping[str, Any]) -> pa.Schema:
    """Return the schema of the rows in the files and segments of an encoding."""
    return arrow_schema(encoding["schema"])


@dataclass(slots=True)
class _OpenPart:
    """One part being made, and where its rows come from."""

    file: StagedFile
    target: FilteredFile
    joiner: PartJoiner
    ranges: list[SourceRange]


class Assembler:
    """Does due jobs, one after the other.

    Args:
        fs: rooted at the directory.
        stage: where parts are staged.
        definitions: of the encodings, by key.
        known_at: the version at which the jobs were due.
    """

    def __init__(self, fs: FileSystem, stage: Stage, definitions: Mapping[str, Any], known_at: int) -> None:
        self._fs = fs
        self._stage = stage
        self._definitions = definitions
        self._known_at = known_at
        self._copies = True

    def can_do(self, job: DueJob) -> bool:
        """Say whether the encoding of the job's segments is known here."""
        return job.inputs[0].encoding in self._definitions

    def assemble(self, job: DueJob) -> Assembled:
        """Make parts of the job's segments; its rows are in them, or in what is left of the segments, once each.

        Raises:
            FtfileError: a segment is not what was committed, or the store failed; what was staged is dropped.
        """
        try:
            return self._assembled(job, copies=self._copies)
        except Unsupported as error:
            if not self._copies:
                raise
            # Some that speak like S3 copy no ranges.
            _log.warning("files are made by reading what they are made of: %s", error)
            self._copies = False
            return self._assembled(job, copies=False)

    def _assembled(self, job: DueJob, *, copies: bool) -> Assembled:
        encoding = self._definitions[job.inputs[0].encoding]
        keys = keys_of(self._fs)
        file_format, chain = format_from_definition(encoding["format"], keys), chain_of(encoding, keys)
        pieces = Pieces(self._fs, job.inputs, file_format, keys, copies=copies)
        merge = bool(chain.framing) and merging_saves(chain, pieces.sample(SAMPLE_BYTES))
        work = _Job(self._stage, job, _Kind(file_format, file_schema_of(encoding), chain, merge))
        rest = iter(pieces)
        try:
            while work.wants_more() and (piece := next(rest, None)) is not None:
                work.take(piece)
            return work.end(self._known_at)
        except BaseException:
            work.drop()
            raise


@dataclass(frozen=True, slots=True)
class _Kind:
    """What kind of parts are made."""

    format: Format
    schema: pa.Schema
    chain: Chain
    merge: bool

    def open(self, file: StagedFile, limits: Limits) -> _OpenPart:
        """Start a part."""
        identity = storage_identity("part", file.path)
        target, file_format = FilteredFile(file, self.chain, identity), self.format.for_file(identity)
        joiner = make_joiner(file_format, self.schema, self.chain, Target(file, target), limits, merge=self.merge)
        return _OpenPart(file, target, joiner, [])


class _Job:
    """One job under way."""

    def __init__(self, stage: Stage, job: DueJob, kind: _Kind) -> None:
        self._stage = stage
        self._job = job
        self._kind = kind
        payload = job.payload
        self._limits = Limits(payload["maxBytes"], payload["maxRows"], payload["strict"])
        self._files: list[StagedFile] = []
        self._open: _OpenPart | None = None
        self._left_bytes = float(sum(map(live_bytes, job.inputs)))
        self._left_rows = sum(segment.rows for segment in job.inputs)
        self._parts: list[tuple[StagedPart, tuple[SourceRange, ...]]] = []
        self._used: list[Add] = []
        self._rests: list[Add] = []

    def wants_more(self) -> bool:
        """Say whether another segment would be put into a part."""
        if self._open is not None:
            return True
        if len(self._parts) >= PARTS_MAX:
            return False
        limits = self._limits
        fills_one = (limits.max_bytes is not None and self._left_bytes >= limits.max_bytes) or (
            limits.max_rows is not None and self._left_rows >= limits.max_rows
        )
        return fills_one or not self._parts or not self._job.payload["keepTail"]

    def take(self, piece: Piece) -> None:
        """Put a segment's rows into parts, as far as they are wanted."""
        segment = piece.segment
        self._used.append(segment)
        rows, start, skipped = segment.rows, 0, segment.skip_rows
        while rows and self.wants_more():
            if self._open is None:
                file = self._stage.create("staged")
                self._files.append(file)
                self._open = self._kind.open(file, self._limits)
            part = self._open
            taken = part.joiner.take(piece, start, rows, skipped)
            if taken.data_start:
                part.ranges.append(SourceRange(segment.id, "bytes", start, start + taken.data_start))
                start += taken.data_start
            elif taken.rows:
                part.ranges.append(SourceRange(segment.id, "rows", skipped, skipped + taken.rows))
                skipped += taken.rows
            self._left_bytes -= live_bytes(segment) * taken.rows / segment.rows
            self._left_rows -= taken.rows
            rows -= taken.rows
            if part.joiner.is_full():
                self._finish(part)
            elif rows:
                raise CorruptData(segment.path, f"{segment.rows} rows", f"{segment.rows - rows} rows")
        if rows:
            rest = replace(segment, id=f"{segment.id}.rest", rows=rows, skip_rows=skipped)
            if start:
                found = piece.data[start:]
                rest = replace(rest, offset=segment.offset + start, length=len(found), logical_length=len(found))
                rest = replace(rest, checksum=checksum(found))
            self._rests.append(rest)

    def end(self, known_at: int) -> Assembled:
        """End the last part and check that no row is missing."""
        if self._open is not None:
            self._finish(self._open)
        expected = sum(segment.rows for segment in self._used)
        found = sum(part.rows for part, _ in self._parts) + sum(rest.rows for rest in self._rests)
        assert found == expected, f"{found} rows made of {expected}"
        return Assembled(
            self._job.id,
            self._job.reason,
            tuple(self._used),
            tuple(self._parts),
            tuple(self._rests),
            known_at,
        )

    def drop(self) -> None:
        """Remove the parts, as far as that can be done: no record will name them."""
        for file in self._files:
            self._stage.drop(file)

    def _finish(self, part: _OpenPart) -> None:
        part.joiner.finish()
        file = part.file
        self._stage.end(file)
        self._open = None
        bucket = self._job.inputs[0].bucket
        staged = StagedPart(
            file.id,
            file.path,
            file.position,
            part.target.position,
            file.checksum,
            part.joiner.rows,
            bucket,
            self._kind.chain.names,
        )
        self._parts.append((staged, tuple(part.ranges)))
