"""The comparison of the rows that ftfile's format and Spark read from text files of another program."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import SchemaError
from ftfile.source.decode import READERS
from ftfile.source.decoding.lines import RangeContent
from ftfile.source.plan import Cut, Range
from ftfile.source.settings import FileDecoding
from ftfile.writing.fingerprint import FingerprintAccumulator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ftfile.storage.api import FileInfo, InputFile


COMPARED = frozenset({"json", "csv", "text"})  # readers of other formats compare bytes or types


class SparkRows:
    """Compares rows with the rows that Spark reads from the same file."""

    def __init__(self) -> None:
        self._found = FingerprintAccumulator("strong")

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that ftfile's format has read."""
        self._found.update(batch)

    def require_same(
        self,
        file: InputFile,
        info: FileInfo,
        filters: tuple[str, ...],
        schema: pa.Schema,
        definition: Mapping[str, Any],
    ) -> None:
        """Compare with the rows of the reader of other programs' files, which returns the same values as Spark.

        Raises:
            SchemaError: the rows differ from the added rows.
            SourceError: a record cannot be read.
        """
        expected = FingerprintAccumulator("strong")
        for batch in _rows_as_spark(file, info, filters=filters, schema=schema, definition=definition):
            expected.update(batch)
        if expected.digest() != self._found.digest():
            raise SchemaError(
                f"ftfile's format {definition['name']} would not return the rows that Spark reads: it reads "
                f"{self._found.rows} rows and Spark reads {expected.rows}, or values differ. Read the file with "
                f"spark.readStream.format('ftfile') and fileFormat={definition['name']}, and write its rows with "
                "ftfile"
            )


def _rows_as_spark(
    file: InputFile, info: FileInfo, filters: tuple[str, ...], schema: pa.Schema, definition: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    # `head` and `tail` are empty, so the reader compares no fingerprint: the caller has read the same bytes.
    planned = Range(
        path=info.path,
        start=0,
        end=info.size_bytes,
        head="",
        tail="",
        size_bytes=info.size_bytes,
        modified_ms=info.modified_ms,
        whole=True,
    )
    options = {name: value for name, value in definition.items() if name != "name"}
    decoding = FileDecoding.from_options(options | {"fileFormat": definition["name"]})
    content = RangeContent(file, planned, filters)
    read = pkgutil.resolve_name(READERS[decoding.file_format])
    yield from read(content, Cut(planned, 0, info.size_bytes), schema, decoding)
