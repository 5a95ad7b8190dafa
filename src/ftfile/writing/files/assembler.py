"""Assembly of parts from the segments of due jobs, as rewrites that a commit accepts or rejects."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import structs

from ftfile.core.checksum import checksum
from ftfile.core.errors import CorruptData, FtfileError, Unsupported
from ftfile.core.logs import get_logger
from ftfile.core.retries import is_away
from ftfile.filters.chain import Chain, FilteredFile
from ftfile.formats.api import format_from_definition
from ftfile.formats.parts import chain_of
from ftfile.log.checks import Rewrite
from ftfile.log.format.layout import restored_id, restored_version, storage_identity
from ftfile.log.format.model import Add, Job, Origin, SourceRange
from ftfile.log.sealed import keys_of
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.statistics.merging import entries_of_some
from ftfile.writing.files.assembly_plan import plan_of
from ftfile.writing.files.rolling_groups import live_bytes
from ftfile.writing.files.segment_joiners import (
    PartJoiner,
    PartTarget,
    SegmentReader,
    make_joiner,
    merging_saves,
    sample_of,
)
from ftfile.writing.files.segment_statistics import planned_statistics
from ftfile.writing.messages import StagedPart, add_of
from ftfile.writing.stage import Stage, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.filters.keys import Keys
    from ftfile.formats.api import Format
    from ftfile.storage.api import FileSystem, OutputStream

    GoesOn = Callable[[int], bool]


_log = get_logger(__name__)


def _accept_always(_parts: int) -> bool:
    return True


class _NullStage:
    """A stage, and a file of it, that discard all bytes."""

    path = ""

    def __init__(self) -> None:
        self.position = 0

    def create(self, _ending: str) -> StagedFile:
        return StagedFile("", cast("OutputStream", _NullStage()))

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.position += len(data)
        return len(data)

    def end(self, file: StagedFile) -> None:
        pass

    def drop(self, file: StagedFile) -> None:
        pass


class Assembled(NamedTuple):
    """The result of a job."""

    rewrite: Rewrite | None  # None if no segment was added to a part
    errors: dict[str, Exception]  # of the segments that stay open, by id


class Assembler:
    """Runs due jobs one after the other.

    `definitions` contains the definitions of encodings by key. `read_version` is the version at which the jobs were
    due.
    """

    def __init__(self, fs: FileSystem, stage: Stage, definitions: Mapping[str, Any], read_version: int) -> None:
        self._fs = fs
        self._stage = stage
        self._definitions = definitions
        self._read_version = read_version
        self._copies = True

    def assemble(self, job: Job, goes_on: GoesOn = _accept_always) -> Rewrite:
        """Assemble parts from the job's segments. Each row is in one part, or in the rest of a segment, exactly once.

        Before each further part, `goes_on` is called with the number of finished parts. If it returns False, the
        remaining rows stay open.

        Raises:
            FtfileError: a segment differs from the committed content, or the storage failed. Staged files are dropped.
        """
        try:
            return self._assemble(self._stage, job, goes_on, copies=self._copies)
        except Unsupported as error:
            if not self._copies:
                raise
            # Some S3-compatible storage systems do not support copying of ranges.
            _log.warning("files are assembled by reading their segments: %s", error)
            self._copies = False
            return self._assemble(self._stage, job, goes_on, copies=False)

    def assemble_readable(self, job: Job, goes_on: GoesOn = _accept_always) -> Assembled:
        """Assemble parts from the readable segments. For `goes_on`, see `assemble`.

        Raises:
            Exception: the storage is unavailable, or an error other than FtfileError prevented all parts.
        """
        try:
            return self._assemble_without_damaged(job, goes_on)
        except FtfileError as error:
            if is_away(error):
                raise
            return Assembled(None, {segment.id: error for segment in job.inputs})

    def _assemble_without_damaged(self, job: Job, goes_on: GoesOn) -> Assembled:
        """Assemble parts from the readable segments. If all are readable, raise the error of the first attempt."""
        try:
            return Assembled(self.assemble(job, goes_on), {})
        except Exception as error:
            if is_away(error):
                raise
            damaged = self._find_damaged(job)
            if not damaged:
                raise
        readable = tuple(segment for segment in job.inputs if segment.id not in damaged)
        if not readable:
            return Assembled(None, damaged)
        return Assembled(self.assemble(structs.replace(job, inputs=readable), goes_on), damaged)

    def _find_damaged(self, job: Job) -> dict[str, Exception]:
        """Return the errors of damaged segments by id.

        Each segment is assembled separately, and the result is discarded.
        """
        damaged: dict[str, Exception] = {}
        for segment in job.inputs:
            try:
                self._assemble(_NullStage(), structs.replace(job, inputs=(segment,)), _accept_always, copies=False)
            except Exception as error:
                if is_away(error):
                    raise
                damaged[segment.id] = error
        return damaged

    def _assemble(self, stage: Stage | _NullStage, job: Job, goes_on: GoesOn, *, copies: bool) -> Rewrite:
        encoding, keys = self._definitions[job.inputs[0].encoding], keys_of(self._fs)
        file_format, chain = format_from_definition(encoding["format"], keys), chain_of(encoding, keys)
        readers = self._readers(job, file_format, keys, copies=copies)
        merge = bool(chain.framing) and merging_saves(chain, sample_of(readers))
        schema, limits = recorded_schema(encoding["schema"]), plan_of(job).limits

        def start_part(file: StagedFile) -> PartJoiner:
            identity = storage_identity("part", file.path)
            target = PartTarget(file, FilteredFile(file, chain, identity))
            joiner = make_joiner(
                file_format.for_file(identity), schema, chain=chain, target=target, limits=limits, merge=merge
            )
            joiner.collect(encoding.get("statistics", ()))
            return joiner

        work = _RunningJob(stage, job, start_part=start_part, filters=chain.names, goes_on=goes_on)
        try:
            while readers and work.wants_more():
                work.take(readers.popleft())  # drops the reference, which frees the memory of the segment
            return work.end(self._read_version)
        except BaseException:
            work.drop()
            raise

    def _readers(self, job: Job, file_format: Format, keys: Keys | None, *, copies: bool) -> deque[SegmentReader]:
        storage = self._fs.capabilities
        copied_from = None
        if copies and "copy" in storage.stream_capabilities:
            copied_from = storage.copy_bytes_min
        chains = {}
        for names in {segment.filters for segment in job.inputs}:
            chains[names] = Chain.for_reading(names, keys)
        return deque(
            SegmentReader(
                self._fs, segment, file_format=file_format, chain=chains[segment.filters], copied_from=copied_from
            )
            for segment in job.inputs
        )


class _JoinedPart(NamedTuple):
    """A part and the source ranges of its rows."""

    part: StagedPart
    ranges: tuple[SourceRange, ...]


class _RunningJob:
    """The state of a running job."""

    def __init__(
        self,
        stage: Stage | _NullStage,
        job: Job,
        start_part: Callable[[StagedFile], PartJoiner],
        filters: tuple[str, ...],
        goes_on: GoesOn,
    ) -> None:
        self._stage = stage
        self._job, plan = job, plan_of(job)
        self._start_part = start_part
        self._filters = filters
        self._goes_on = goes_on
        self._limits, self._keeps_tail = plan.limits, plan.keep_tail
        self._statistics = planned_statistics(job)
        self._files: list[StagedFile] = []
        self._open: PartJoiner | None = None
        self._ranges: list[SourceRange] = []  # source ranges of the open part
        self._left_bytes = float(sum(map(live_bytes, job.inputs)))
        self._left_rows = sum(segment.rows for segment in job.inputs)
        self._parts: list[_JoinedPart] = []
        self._used: list[Add] = []
        self._rests: list[Add] = []

    def wants_more(self) -> bool:
        """Return True if another segment would be added to a part."""
        if self._open is not None or not self._parts:
            return True
        if not self._goes_on(len(self._parts)):
            return False
        return self._limits.are_reached(self._left_bytes, self._left_rows) or not self._keeps_tail

    def take(self, reader: SegmentReader) -> None:
        """Add a segment's rows to parts, until no more rows are wanted."""
        segment = reader.segment
        self._used.append(segment)
        rows, start, skipped = segment.rows, 0, segment.skip_rows
        while rows and self.wants_more():
            is_new = self._open is None
            if self._open is None:
                self._files.append(self._stage.create("staged"))
                self._open, self._ranges = self._start_part(self._files[-1]), []
            part = self._open
            joined = part.take(reader, start, rows, skipped)
            if joined.data_start:
                self._ranges.append(SourceRange(segment.id, "bytes", start, start + joined.data_start))
                start += joined.data_start
            elif joined.rows:
                self._ranges.append(SourceRange(segment.id, "rows", skipped, skipped + joined.rows))
                skipped += joined.rows
            self._left_bytes -= live_bytes(segment) * joined.rows / max(segment.rows, 1)
            self._left_rows -= joined.rows
            rows -= joined.rows
            if part.is_full() and (joined.rows or not is_new):
                self._finish(part)
            elif rows:  # a new part accepts at least one row, so rows are missing
                raise CorruptData(segment.path, f"{segment.rows} rows", f"{segment.rows - rows} rows")
        if rows == segment.rows:
            self._used.pop()
        elif rows:
            rest_id = _rest_id(segment.id, segment.offset + start, skipped)
            rest = structs.replace(segment, id=rest_id, rows=rows, skip_rows=skipped)
            if start:
                data = reader.data[start:]
                rest = structs.replace(rest, offset=segment.offset + start, length=len(data), logical_length=len(data))
                rest = structs.replace(rest, checksum=checksum(data))
            rest = structs.replace(rest, statistics=entries_of_some(self._statistics, rows))
            self._rests.append(rest)

    def end(self, read_version: int) -> Rewrite:
        """End the last part, and check that no row is missing."""
        if self._open is not None:
            self._finish(self._open)
        expected = sum(segment.rows for segment in self._used)
        rows = sum(joined.part.rows for joined in self._parts) + sum(rest.rows for rest in self._rests)
        if rows != expected:
            raise CorruptData(self._used[0].path, f"{expected} rows", f"{rows} rows")
        used, rests, adds = tuple(self._used), tuple(self._rests), map(self._add, self._parts)
        return Rewrite(used, (*adds, *rests), read_version, self._job.reason)

    def _add(self, joined: _JoinedPart) -> Add:
        """Return the log entry of a part, with the batches of its segments."""
        origins = {segment.id: segment.origin for segment in self._used}
        took = []
        for source_range in joined.ranges:
            took.append(origins[source_range.add_id])
        first, last = (
            min(source_range.first_batch for source_range in took),
            max(source_range.last_batch for source_range in took),
        )
        segment = self._used[0]
        return add_of(joined.part, segment.encoding, Origin(segment.origin.query_id, first, last), joined.ranges)

    def drop(self) -> None:
        """Delete the parts if possible. No record will name them."""
        for file in self._files:
            self._stage.drop(file)

    def _finish(self, part: PartJoiner) -> None:
        part.finish()
        file, plain_bytes, directory_key = (
            part.target.file,
            part.target.filtered.position,
            self._job.inputs[0].directory_key,
        )
        self._stage.end(file)
        self._open = None
        staged = file.part(plain_bytes, part.rows, directory_key, self._filters)
        statistics = part.statistics() or entries_of_some(self._statistics, part.rows)
        staged = replace(staged, statistics=statistics)
        self._parts.append(_JoinedPart(staged, tuple(self._ranges)))


def _rest_id(segment_id: str, offset: int, skipped: int) -> str:
    """Return the id of the rest of a segment. The id contains the start of the rest, so ids of all rests differ."""
    rest_id, restored = f"{segment_id.partition('.')[0]}.{offset}.{skipped}", restored_version(segment_id)
    # A restored segment can produce the same rest a second time.
    if restored < 0:
        return rest_id
    return restored_id(rest_id, restored)
