"""Assembly: parts are made of the segments of a due job, verified, and proposed; the log decides."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import structs

from ftfile.core.checksum import checksum
from ftfile.core.context import is_away
from ftfile.core.errors import CorruptData, FtfileError, Unsupported
from ftfile.core.logs import get_logger
from ftfile.filters.chain import Chain, FilteredFile
from ftfile.formats.api import format_from_definition
from ftfile.formats.parts import chain_of
from ftfile.log.checks import Rewrite
from ftfile.log.format.layout import restored_id, restored_version, storage_identity
from ftfile.log.format.model import Add, AssemblyTask, Origin, SourceRange
from ftfile.log.sealed import keys_of
from ftfile.rows.spark_types import recorded_schema
from ftfile.write.files.joiners import PartJoiner, SegmentReader, Target, make_joiner, merging_saves, sample_of
from ftfile.write.files.rolling_groups import live_bytes
from ftfile.write.files.rolling_plan import limits_of
from ftfile.write.messages import StagedPart, add_of
from ftfile.write.stage import Stage, StagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.filters.keys import Keys
    from ftfile.formats.api import Format
    from ftfile.storage.api import FileSystem, OutputStream

    GoesOn = Callable[[int], bool]


_log = get_logger(__name__)


def _always(_parts: int) -> bool:
    return True


class _Nowhere:
    """A stage, and the file on it, that keeps nothing."""

    path = ""

    def __init__(self) -> None:
        self.position = 0

    def create(self, _ending: str) -> StagedFile:
        return StagedFile("", cast("OutputStream", _Nowhere()))

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.position += len(data)
        return len(data)

    def end(self, file: StagedFile) -> None:
        pass

    def drop(self, file: StagedFile) -> None:
        pass


class Assembled(NamedTuple):
    """The result of an assembly task."""

    rewrite: Rewrite | None  # None if no segment became part of a file
    errors: dict[str, Exception]  # by id, of the segments that stay open


class Assembler:
    """Does due jobs, one after the other.

    The definitions are those of the encodings, by key; the jobs were due at the version `read_version`.
    """

    def __init__(self, fs: FileSystem, stage: Stage, definitions: Mapping[str, Any], read_version: int) -> None:
        self._fs = fs
        self._stage = stage
        self._definitions = definitions
        self._read_version = read_version
        self._copies = True

    def assemble(self, job: AssemblyTask, goes_on: GoesOn = _always) -> Rewrite:
        """Make parts of the job's segments; its rows are in them, or in what is left of the segments, once each.

        Before each further part, `goes_on` is asked with the number of those made; if it returns False, the other rows
        stay open.

        Raises:
            FtfileError: a segment is not what was committed, or the store failed; what was staged is dropped.
        """
        try:
            return self._assembled(self._stage, job, goes_on, copies=self._copies)
        except Unsupported as error:
            if not self._copies:
                raise
            # Some that speak like S3 copy no ranges.
            _log.warning("files are assembled by reading their segments: %s", error)
            self._copies = False
            return self._assembled(self._stage, job, goes_on, copies=False)

    def assemble_readable(self, job: AssemblyTask, goes_on: GoesOn = _always) -> Assembled:
        """Make parts of the segments that can be read; for `goes_on` see `assemble`.

        Raises:
            Exception: the store is away, or an error that is no FtfileError prevented all parts.
        """
        try:
            return self._without_damaged(job, goes_on)
        except FtfileError as error:
            if is_away(error):
                raise
            return Assembled(None, {segment.id: error for segment in job.inputs})

    def _without_damaged(self, job: AssemblyTask, goes_on: GoesOn) -> Assembled:
        """Make parts of the segments that can be read; if each can, raise the error of the first attempt."""
        try:
            return Assembled(self.assemble(job, goes_on), {})
        except Exception as error:
            if is_away(error):
                raise
            damaged = self._damaged(job)
            if not damaged:
                raise
        readable = tuple(segment for segment in job.inputs if segment.id not in damaged)
        if not readable:
            return Assembled(None, damaged)
        return Assembled(self.assemble(structs.replace(job, inputs=readable), goes_on), damaged)

    def _damaged(self, job: AssemblyTask) -> dict[str, Exception]:
        """Return the errors of the segments of which no part can be made, by id: each is tried, and written nowhere."""
        damaged: dict[str, Exception] = {}
        for segment in job.inputs:
            try:
                self._assembled(_Nowhere(), structs.replace(job, inputs=(segment,)), _always, copies=False)
            except Exception as error:
                if is_away(error):
                    raise
                damaged[segment.id] = error
        return damaged

    def _assembled(self, stage: Stage | _Nowhere, job: AssemblyTask, goes_on: GoesOn, *, copies: bool) -> Rewrite:
        encoding, keys = self._definitions[job.inputs[0].encoding], keys_of(self._fs)
        file_format, chain = format_from_definition(encoding["format"], keys), chain_of(encoding, keys)
        readers = self._readers(job, file_format, keys, copies=copies)
        merge = bool(chain.framing) and merging_saves(chain, sample_of(readers))
        schema, limits = recorded_schema(encoding["schema"]), limits_of(job)

        def start_part(file: StagedFile) -> PartJoiner:
            identity = storage_identity("part", file.path)
            target = Target(file, FilteredFile(file, chain, identity))
            return make_joiner(file_format.for_file(identity), schema, chain, target, limits, merge=merge)

        work = _Job(stage, job, start_part, chain.names, goes_on)
        try:
            while readers and work.wants_more():
                work.take(readers.popleft())  # its bytes are kept no longer
            return work.end(self._read_version)
        except BaseException:
            work.drop()
            raise

    def _readers(
        self, job: AssemblyTask, file_format: Format, keys: Keys | None, *, copies: bool
    ) -> deque[SegmentReader]:
        store = self._fs.capabilities
        copied_from = store.copy_bytes_min if copies and "copy" in store.stream_capabilities else None
        chains = {names: Chain.for_reading(names, keys) for names in {segment.filters for segment in job.inputs}}
        return deque(
            SegmentReader(self._fs, segment, file_format, chains[segment.filters], copied_from)
            for segment in job.inputs
        )


class _JoinedPart(NamedTuple):
    """A part, and where its rows were."""

    part: StagedPart
    ranges: tuple[SourceRange, ...]


class _Job:
    """One job under way."""

    def __init__(
        self,
        stage: Stage | _Nowhere,
        job: AssemblyTask,
        start_part: Callable[[StagedFile], PartJoiner],
        filters: tuple[str, ...],
        goes_on: GoesOn,
    ) -> None:
        self._stage = stage
        self._job = job
        self._start_part = start_part
        self._filters = filters
        self._goes_on = goes_on
        self._limits = limits_of(job)
        self._files: list[StagedFile] = []
        self._open: PartJoiner | None = None
        self._ranges: list[SourceRange] = []  # of the open part
        self._left_bytes = float(sum(map(live_bytes, job.inputs)))
        self._left_rows = sum(segment.rows for segment in job.inputs)
        self._parts: list[_JoinedPart] = []
        self._used: list[Add] = []
        self._rests: list[Add] = []

    def wants_more(self) -> bool:
        """Return True if another segment would be put into a part."""
        if self._open is not None or not self._parts:
            return True
        if not self._goes_on(len(self._parts)):
            return False
        return self._limits.are_reached(self._left_bytes, self._left_rows) or not self._job.payload["keepTail"]

    def take(self, reader: SegmentReader) -> None:
        """Put a segment's rows into parts, as far as they are wanted."""
        segment = reader.segment
        self._used.append(segment)
        rows, start, skipped = segment.rows, 0, segment.skip_rows
        while rows and self.wants_more():
            is_new = self._open is None
            if self._open is None:
                self._files.append(self._stage.create("staged"))
                self._open, self._ranges = self._start_part(self._files[-1]), []
            part = self._open
            taken = part.take(reader, start, rows, skipped)
            if taken.data_start:
                self._ranges.append(SourceRange(segment.id, "bytes", start, start + taken.data_start))
                start += taken.data_start
            elif taken.rows:
                self._ranges.append(SourceRange(segment.id, "rows", skipped, skipped + taken.rows))
                skipped += taken.rows
            self._left_bytes -= live_bytes(segment) * taken.rows / max(segment.rows, 1)
            self._left_rows -= taken.rows
            rows -= taken.rows
            if part.is_full() and (taken.rows or not is_new):
                self._finish(part)
            elif rows:  # a new part has room for one row at least
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
            self._rests.append(rest)

    def end(self, read_version: int) -> Rewrite:
        """End the last part and check that no row is missing."""
        if self._open is not None:
            self._finish(self._open)
        expected = sum(segment.rows for segment in self._used)
        rows = sum(joined.part.rows for joined in self._parts) + sum(rest.rows for rest in self._rests)
        if rows != expected:
            raise CorruptData(self._used[0].path, f"{expected} rows", f"{rows} rows")
        used, rests, adds = tuple(self._used), tuple(self._rests), map(self._add, self._parts)
        return Rewrite(used, (*adds, *rests), read_version, self._job.reason)

    def _add(self, joined: _JoinedPart) -> Add:
        """Return a part as the log has it, with the batches of the segments that it is made of."""
        origins = {segment.id: segment.origin for segment in self._used}
        took = [origins[source_range.add_id] for source_range in joined.ranges]
        first, last = (
            min(source_range.first_batch for source_range in took),
            max(source_range.last_batch for source_range in took),
        )
        segment = self._used[0]
        return add_of(joined.part, segment.encoding, Origin(segment.origin.query_id, first, last), joined.ranges)

    def drop(self) -> None:
        """Remove the parts, as far as that can be done: no record will name them."""
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
        self._parts.append(_JoinedPart(staged, tuple(self._ranges)))


def _rest_id(segment_id: str, offset: int, skipped: int) -> str:
    """Return the id of the rest of a segment; it tells where that begins, so that rests of rests have other ids."""
    rest_id, restored = f"{segment_id.partition('.')[0]}.{offset}.{skipped}", restored_version(segment_id)
    # A segment that came back may leave the same rest a second time.
    return rest_id if restored < 0 else restored_id(rest_id, restored)
