"""Final names that tasks give, where files are written under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.sink.naming.facts import PartFacts

if TYPE_CHECKING:
    from ftfile.sink.naming.settings import Naming

__all__ = ("DirectNames",)


@dataclass(frozen=True, slots=True)
class DirectNames:
    """Names of one attempt.

    Attributes:
        batch: the middle of the names; sorts as commits do.
        time_ms: when the batch was planned.
        query_id: the streaming query, or the id of the batch write.
        partition: of the task; the index in all of its names.
        extension: of the file format.
    """

    naming: Naming
    batch: str
    time_ms: int
    query_id: str
    partition: int
    extension: str

    def path(self, bucket: str, file_id: str) -> str:
        """Return the path of a new part.

        Raises:
            ConfigError: see `Naming.name`.
        """
        directory = layout.bucket_directory(bucket)
        facts = PartFacts(
            name=layout.bucket_stem(bucket) or self.naming.prefix,
            directory=directory,
            batch=self.batch,
            index=self.partition,
            number=0,
            unique=layout.unique_part(file_id),
            extension=self.extension,
            time_ms=self.time_ms,
            rows=0,
            size_bytes=0,
            query_id=self.query_id,
        )
        name = self.naming.name(facts)
        return f"{directory}/{name}" if directory else name
