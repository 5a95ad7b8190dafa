"""`onPublish`: a function of the user's hears of every part that became visible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.layout import bucket_directory
from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.core.user_code import load

if TYPE_CHECKING:
    from ftfile.commit.model import Record

__all__ = ("PublishedPart", "check_hook", "tell_hook")

_OPTION = "onPublish"


@dataclass(frozen=True, slots=True)
class PublishedPart:
    """One finished file.

    Attributes:
        url: where it is.
        path: the same, relative to the directory of the sink.
        bucket: its sub-directory; empty for the directory itself.
        rows: records in it.
        size_bytes: its length.
        query_id: the streaming query that wrote it, or the id of a batch write.
        batch_id: the last micro-batch whose records are in it; 0 for a batch write.
        version: of the commit.
    """

    url: str
    path: str
    bucket: str
    rows: int
    size_bytes: int
    query_id: str
    batch_id: int
    version: int


def check_hook(name: str) -> None:
    """Check that there is such a function.

    Raises:
        ConfigError: there is none.
    """
    if not callable(load(_OPTION, name)):
        raise ConfigError(f"{_OPTION}={name!r} is no function")


def tell_hook(name: str, url: str, record: Record) -> None:
    """Call the function with the parts of a record, if it has any.

    Args:
        name: `module:function`.
        url: of the sink's directory.
        record: committed and published.

    Raises:
        UserCodeError: the function raised; the batch is committed.
    """
    parts = tuple(
        PublishedPart(
            url=f"{url}/{add.final_path}",
            path=add.final_path,
            bucket=bucket_directory(add.bucket),
            rows=add.rows,
            size_bytes=add.length,
            query_id=add.origin.query_id,
            batch_id=add.origin.last_batch,
            version=record.version,
        )
        for add in record.adds
        if add.final_path is not None
    )
    if not parts:
        return
    try:
        load(_OPTION, name)(parts)
    except Exception as error:
        raise UserCodeError(
            f"{_OPTION}={name!r} raised {error!r}. Its batch is committed, in version {record.version}; a streaming "
            "query calls it again with the same files when it is started again"
        ) from error
