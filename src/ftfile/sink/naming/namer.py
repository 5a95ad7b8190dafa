"""Final names for the parts of a commit, as they are at the head that it follows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.checks import live_names
from ftfile.commit.format import layout
from ftfile.commit.rewrites import Refused
from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.parts.filtered_file import extension_of
from ftfile.sink.naming.facts import PartFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.rewrites import Rewrite
    from ftfile.sink.naming.settings import Naming

__all__ = ("NUMBERS", "Named", "Namer")

NUMBERS = "partNumbers"  # what the log remembers: by bucket, the number of its next part


@dataclass(frozen=True, slots=True)
class Named:
    """Parts with their final names.

    Attributes:
        adds: of the record itself.
        rewrites: those for which names could be made.
        refused: the others: their rows stay where they are.
        tables: changes of the log's tables: the numbers.
    """

    adds: tuple[Add, ...]
    rewrites: tuple[Rewrite, ...]
    refused: tuple[Refused, ...]
    tables: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Namer:
    """Names the parts of one commit.

    Attributes:
        batch: the middle of the names; sorts as commits do.
        time_ms: when the batch was planned.
        query_id: the streaming query, or the id of the batch write.
        first_index: of the parts of each bucket.
    """

    naming: Naming
    batch: str
    time_ms: int
    query_id: str
    first_index: int = 0

    def path(  # noqa: PLR0913 - what names are made of
        self,
        bucket: str,
        part_id: str,
        extension: str,
        index: int,
        *,
        number: int = 0,
        rows: int = 0,
        size_bytes: int = 0,
    ) -> str:
        """Return the final path of a part; what nobody knows yet is 0.

        Raises:
            ConfigError: see `Naming.name`.
            UserCodeError: see `Naming.name`.
        """
        directory = layout.bucket_directory(bucket)
        facts = PartFacts(
            name=layout.bucket_stem(bucket) or self.naming.prefix,
            directory=directory,
            batch=self.batch,
            index=index,
            number=number,
            unique=layout.unique_part(part_id),
            extension=extension,
            time_ms=self.time_ms,
            rows=rows,
            size_bytes=size_bytes,
            query_id=self.query_id,
        )
        name = self.naming.name(facts)
        return f"{directory}/{name}" if directory else name

    def name(
        self,
        log: CommitLog,
        head: LogState,
        rewrites: Sequence[Rewrite],
        adds: tuple[Add, ...] = (),
        definitions: Mapping[str, Any] | None = None,
    ) -> Named:
        """Return a final name for each part that has none, as of a head; parts of older rows come first.

        Whether names are free is looked at when the record is created.

        Args:
            log: of the directory.
            head: which the record is to follow.
            rewrites: of older rows; one for which no names can be made never fails a batch.
            adds: of the record itself.
            definitions: that the record brings.

        Raises:
            ConfigError: see `Naming.name`.
            UserCodeError: see `Naming.name`.
        """
        round_ = _Round(self, log, head, {**head.definitions, **(definitions or {})})
        named, refused = [], []
        for rewrite in rewrites:
            try:
                named.append(round_.with_names(rewrite))
            except (ConfigError, UserCodeError) as error:
                refused.append(Refused(rewrite, error))
        adds = round_.named(adds)
        remembers = self.naming.uses_numbers and round_.numbers
        tables = {NUMBERS: {"set": round_.numbers, "ttlMs": self.naming.ttl_ms}} if remembers else {}
        return Named(adds, tuple(named), tuple(refused), tables)


class _Round:
    """One attempt at naming, at one head."""

    def __init__(self, namer: Namer, log: CommitLog, head: LogState, definitions: Mapping[str, Any]) -> None:
        self._namer = namer
        self._log = log
        self._head = head
        self._definitions = definitions
        self._remembered: Mapping[str, list[Any]] = head.tables.get(NUMBERS, {})
        self._extensions: dict[str, str] = {}
        self._indexes: Counter[str] = Counter()
        self._forgotten: set[str] = set()
        self._live: AbstractSet[str] | None = None
        self.numbers: dict[str, int] = {}

    def with_names(self, rewrite: Rewrite) -> Rewrite:
        """Return the rewrite with names.

        Raises:
            ConfigError: none can be made; its numbers are not used up.
            UserCodeError: likewise.
        """
        before = {add.bucket: self._number(add.bucket) for add in rewrite.adds}
        try:
            return replace(rewrite, adds=self.named(rewrite.adds))
        except (ConfigError, UserCodeError):
            self.numbers.update(before)
            raise

    def named(self, adds: tuple[Add, ...]) -> tuple[Add, ...]:
        return tuple(self._named(add) if add.kind == "part" and add.final_path is None else add for add in adds)

    def _named(self, add: Add) -> Add:
        number = self._number(add.bucket)
        path = self._path(add, number)
        naming = self._namer.naming
        if add.bucket in self._forgotten and naming.uses_numbers and naming.if_exists == "fail":
            # It had parts before: their numbers are passed over, or none of its batches could be committed any more.
            while self._is_used(path) and (following := self._path(add, number + 1)) != path:
                number, path = number + 1, following
        self._indexes[add.bucket] += 1
        self.numbers[add.bucket] = number + 1
        return replace(add, final_path=path)

    def _path(self, add: Add, number: int) -> str:
        index, extension = self._namer.first_index + self._indexes[add.bucket], self._extension(add.encoding)
        of_part = {"number": number, "rows": add.rows, "size_bytes": add.length}
        return self._namer.path(add.bucket, add.id, extension, index, **of_part)

    def _is_used(self, path: str) -> bool:
        """Return True if a live part has the name, or a removed one for which it is reserved."""
        if self._live is None:
            self._live = live_names(self._log, self._head)
        return path in self._live or path in self._head.reserved

    def _extension(self, encoding: str) -> str:
        """Return the ending of the format in which the part was written, which need not be today's."""
        if encoding not in self._extensions:
            self._extensions[encoding] = extension_of(self._definitions[encoding])
        return self._extensions[encoding]

    def _number(self, bucket: str) -> int:
        if bucket in self.numbers:
            return self.numbers[bucket]
        set_ms, number = self._remembered.get(bucket, (None, 0))
        if set_ms is not None and set_ms >= self._namer.time_ms - self._namer.naming.ttl_ms:
            return int(number)
        self._forgotten.add(bucket)
        return 0
