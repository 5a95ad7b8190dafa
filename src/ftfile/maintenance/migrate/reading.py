"""Foreign files read once, whole, for the facts that the log keeps, and as ftfile's readers will read them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.pieces.workers import Work
from ftfile.commit.places import PIECE_BYTES, checksum_of
from ftfile.core.errors import ConfigError, FtfileError, StorageError
from ftfile.encoding.api import LineFormat
from ftfile.encoding.registry import format_from_definition
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_file, stream_errors
from ftfile.fs.api import FileInfo, RangeFile
from ftfile.fs.streams import BUFFER_BYTES, as_file
from ftfile.maintenance.migrate.old_times import may_be_julian, refuse_old_times
from ftfile.maintenance.migrate.schemas import SELF_DESCRIBING, schema_of_file
from ftfile.source.files.decoding.lines import filters_of_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.fs.api import FileSystem, InputFile

_LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts that reading a file shows."""

    checksum: str
    plain_bytes: int  # without its compression as a whole
    filters: tuple[str, ...]
    schema: str  # of the columns in it, as Spark's JSON
    rows: int


@dataclass(frozen=True, slots=True)
class Reading(Work[FileInfo, FileFacts]):
    """Reads files of a format as ftfile's readers will."""

    definition: Mapping[str, Any]  # of the format, as in the log
    schema: str | None  # of files that do not tell their columns

    def size_of(self, piece: FileInfo) -> int:
        """Return the length of a file."""
        return piece.size_bytes

    def do(self, fs: FileSystem, _: TaskIdentity, pieces: Sequence[FileInfo]) -> Iterator[FileFacts]:
        """Yield what is in each file.

        Raises:
            ConfigError: one cannot be read by ftfile, or was changed since it was listed.
            StorageError: the store failed.
        """
        for info in pieces:
            try:
                with fs.open(info.path) as file:
                    yield self._facts(file, info)
            except StorageError:
                raise
            except FtfileError as error:
                raise ConfigError(f"{info.path!r} cannot be migrated: {error}. Nothing was changed") from error

    def _facts(self, file: InputFile, info: FileInfo) -> FileFacts:
        length, checksum = checksum_of(file)
        if length != info.size_bytes:
            raise ConfigError(f"it had {info.size_bytes} bytes when it was listed and has {length}: stop its writer")
        chain = Chain.for_reading(_filters(file))
        plain_bytes = sum(map(len, _plain_pieces(file, chain))) if chain.filters else length
        file_format = format_from_definition(self.definition)

        def plain() -> BinaryIO:
            # Closing it leaves the file open, which is read again.
            stored = as_file(RangeFile(info.path, length, file.read_at))
            if not chain.filters and not isinstance(file_format, LineFormat):
                return stored
            decoded = decoded_file(stored, chain, "", plain_bytes, checksum)
            return decoded if isinstance(file_format, LineFormat) else _in_memory(decoded, info.path)

        name = self.definition["name"]
        schema = schema_of_file(name, plain()) if name in SELF_DESCRIBING else self.schema
        assert schema is not None, "files that do not tell their columns come with a schema"
        columns, rows = arrow_schema(schema), 0
        is_julian = name in SELF_DESCRIBING and may_be_julian(name, columns, plain())
        for batch in file_format.decode(plain(), columns):
            rows += batch.num_rows
            if is_julian:
                refuse_old_times(batch)
        return FileFacts(checksum, plain_bytes, chain.names, schema, rows)


def _filters(file: InputFile) -> tuple[str, ...]:
    found = filters_of_name(file.path)
    # Hadoop and the command `lz4` give their files one ending.
    is_frame = found == ("lz4",) and file.read_at(0, len(_LZ4_FRAME_MAGIC)) == _LZ4_FRAME_MAGIC
    if "aes-gcm" in found:
        raise ConfigError("it is encrypted, and the log of a directory that is not encrypted has no keys")
    return ("lz4frame",) if is_frame else found


def _plain_pieces(file: InputFile, chain: Chain) -> Iterator[bytes]:
    with stream_errors(file.path):
        decoder, offset = chain.decoder(""), 0
        while piece := file.read_at(offset, PIECE_BYTES):
            offset += len(piece)
            # A little may decode to much.
            for start in range(0, len(piece), BUFFER_BYTES):
                yield decoder.feed(piece[start : start + BUFFER_BYTES])
        yield decoder.finish()


def _in_memory(decoded: BinaryIO, path: str) -> BinaryIO:
    with decoded:
        plain = io.BytesIO(decoded.read())
    plain.name = path  # what errors call it
    return plain
