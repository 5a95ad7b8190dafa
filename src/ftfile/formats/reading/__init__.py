"""Code that formats share, also for formats of users and other folders."""

from ftfile.formats.reading.batches import batch_as, batch_of
from ftfile.formats.reading.lent_file import LentFile
from ftfile.formats.reading.memory_limit import bounded
from ftfile.formats.reading.read_errors import corrupt, reading_errors
from ftfile.formats.reading.schema_checks import check_problems, columns_within
from ftfile.formats.reading.time_formats import TimeFormats

__all__ = (
    "LentFile",
    "TimeFormats",
    "batch_as",
    "batch_of",
    "bounded",
    "check_problems",
    "columns_within",
    "corrupt",
    "reading_errors",
)
