"""Fingerprints as sealed directories record them: without a key they neither confirm a guess of rows, nor compare."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.commit.format.model import JobAuthor, StreamAuthor
from ftfile.commit.sealed.filesystem import SealedFileSystem

if TYPE_CHECKING:
    from ftfile.commit.format.model import Author, Fingerprint
    from ftfile.fs.api import FileSystem

__all__ = ("as_recorded",)


def as_recorded(
    fs: FileSystem, fingerprint: Fingerprint | None, author: Author, recorded: Fingerprint | None = None
) -> Fingerprint | None:
    """Return a fingerprint as the directory's records have it.

    Args:
        fs: of the directory.
        fingerprint: of a batch's rows.
        author: of the batch.
        recorded: what it is to be compared with; by default, it is made for a new record.

    Raises:
        ConfigError: the key is not to be had.
    """
    if fingerprint is None or not isinstance(fs, SealedFileSystem):
        return fingerprint
    like = None if recorded is None else recorded.digest
    return replace(fingerprint, digest=fs.keyed_digest(fingerprint.digest, _batch(author), like))


def _batch(author: Author) -> str:
    """Return what is the same whenever the batch comes again."""
    if isinstance(author, StreamAuthor):
        return f"{author.query_id}/{author.batch_id}"
    if isinstance(author, JobAuthor) and author.transaction is not None:
        return f"{author.transaction.app_id}/{author.transaction.version}"
    return author.job_id
