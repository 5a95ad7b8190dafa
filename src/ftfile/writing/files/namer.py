"""Final names for the parts of a commit, based on the head that it follows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.formats.parts import extension_of
from ftfile.log.checks import RefusedRewrite, Rewrite, live_names
from ftfile.log.format import layout
from ftfile.storage.paths import join
from ftfile.writing.files.naming import PartFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import Capabilities
    from ftfile.writing.files.naming import Naming


NUMBERS = "partNumbers"  # a table of the log: the number of the next part by directory


@dataclass(frozen=True, slots=True)
class Named:
    """Parts with their final names."""

    adds: tuple[Add, ...]
    rewrites: tuple[Rewrite, ...]  # with names
    refused: tuple[RefusedRewrite, ...]  # rewrites for which no name exists; their rows stay in the existing files
    tables: dict[str, Any]  # changes of the log's tables: the next numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Namer:
    """Names the parts of one commit."""

    naming: Naming
    batch: str  # the middle of the names, which sorts in the order of commits
    time_ms: int  # planning time of the batch
    query_id: str  # or the id of the batch write
    extensions: Mapping[str, str]  # the extensions of names by encoding key; other extensions are computed
    first_index: int = 0  # of the parts of each directory

    def path(
        self, directory_key: str, part_id: str, extension: str, index: int, number: int = 0, add: Add | None = None
    ) -> str:
        """Return the final path of a part. Without its add, its numbers are 0. Errors are those of `Naming.name`."""
        directory = layout.directory_of(directory_key)
        facts = PartFacts(
            name=layout.stem_of(directory_key) or self.naming.prefix,
            directory=directory,
            batch=self.batch,
            index=index,
            number=number,
            unique=layout.unique_part(part_id),
            extension=extension,
            time_ms=self.time_ms,
            rows=0 if add is None else add.rows,
            size_bytes=0 if add is None else add.length,
            query_id=self.query_id,
        )
        return join(directory, self.naming.name(facts))

    def name(
        self,
        log: CommitLog,
        head: LogState,
        rewrites: Sequence[Rewrite],
        adds: tuple[Add, ...] = (),
        definitions: Mapping[str, Any] | None = None,
    ) -> Named:
        """Return final names for the adds and rewrites of a record that have none, based on the head that it follows.

        Rewrites are named first, because their rows are older. A rewrite without a valid name does not fail the batch.
        `definitions` contains the new definitions of the record. The creation of the record checks that names are
        unused. Errors are those of `Naming.name`.
        """
        round_ = _NamesOfRecord(self, log, head, {**head.definitions, **(definitions or {})})
        named, refused = [], []
        for rewrite in rewrites:
            try:
                named.append(round_.with_names(rewrite))
            except (ConfigError, UserCodeError) as error:
                refused.append(RefusedRewrite(rewrite, error))
        adds = round_.name_adds(adds)
        remembers = self.naming.uses_numbers and round_.numbers
        if remembers:
            tables = {NUMBERS: {"set": round_.numbers, "ttlMs": self.naming.ttl_ms}}
        else:
            tables = {}
        return Named(adds, tuple(named), tuple(refused), tables)


class _NamesOfRecord:
    """Names the parts of one record, at one head."""

    def __init__(self, namer: Namer, log: CommitLog, head: LogState, definitions: Mapping[str, Any]) -> None:
        self._namer = namer
        self._log = log
        self._head = head
        self._definitions = definitions
        self._remembered: Mapping[str, list[Any]] = head.tables.get(NUMBERS, {})
        self._extensions: dict[str, str] = {**namer.extensions}
        self._indexes: Counter[str] = Counter()
        self._forgotten: set[str] = set()
        self._live: AbstractSet[str] | None = None
        self.numbers: dict[str, int] = {}

    def with_names(self, rewrite: Rewrite) -> Rewrite:
        """Return the rewrite with names. If a name is invalid, the numbers of its parts are not used."""
        before = {}
        for add in rewrite.adds:
            before[add.directory_key] = self._number(add.directory_key)
        try:
            return replace(rewrite, adds=self.name_adds(rewrite.adds))
        except (ConfigError, UserCodeError):
            self.numbers.update(before)
            raise

    def name_adds(self, adds: tuple[Add, ...]) -> tuple[Add, ...]:
        return tuple(self._name_add(add) if add.kind == "part" and add.final_path is None else add for add in adds)

    def _name_add(self, add: Add) -> Add:
        number = self._number(add.directory_key)
        path = self._path(add, number)
        naming = self._namer.naming
        if add.directory_key in self._forgotten and naming.uses_numbers and naming.if_exists == "fail":
            # After lost numbers, existing names are skipped. Otherwise, no batch could be committed any more.
            while self._is_used(path) and (following := self._path(add, number + 1)) != path:
                number, path = number + 1, following
        self._indexes[add.directory_key] += 1
        self.numbers[add.directory_key] = number + 1
        return structs.replace(add, final_path=path)

    def _path(self, add: Add, number: int) -> str:
        index, extension = self._namer.first_index + self._indexes[add.directory_key], self._extension(add.encoding)
        return self._namer.path(add.directory_key, add.id, extension=extension, index=index, number=number, add=add)

    def _is_used(self, path: str) -> bool:
        """Return True if a live part has the name, or if it is reserved for a removed part."""
        if self._live is None:
            self._live = live_names(self._log, self._head)
        return path in self._live or path in self._head.reserved

    def _extension(self, encoding: str) -> str:
        """Return the extension of the format of the part, which can differ from the current format."""
        if encoding not in self._extensions:
            self._extensions[encoding] = extension_of(self._definitions[encoding])
        return self._extensions[encoding]

    def _number(self, directory_key: str) -> int:
        if directory_key in self.numbers:
            return self.numbers[directory_key]
        set_ms, number = self._remembered.get(directory_key, (None, 0))
        if set_ms is not None and set_ms >= self._namer.time_ms - self._namer.naming.ttl_ms:
            return int(number)
        self._forgotten.add(directory_key)
        return 0


def rewritten_path(
    first: Add, least_name: str | None, part_id: str, extension: str, place: str, storage: Capabilities
) -> str:
    """Return the name of the first of the inputs with another unique piece: sorted names keep the order of rows.

    Where that is too long for the storage, it is cut, and sorts before all other names of the directory that begin so,
    or, if the `least_name` of them comes before the first part, after them; among names that are cut, `place` decides.

    Raises:
        ConfigError: there is no name that the storage keeps.
    """
    assert first.final_path is not None, f"{first.id} is not a part"
    directory = layout.parent(first.final_path)
    name = layout.name_of(first.final_path)
    unique = layout.unique_part(part_id)
    if layout.unique_part(first.id) in name:
        return join(directory, name.replace(layout.unique_part(first.id), unique))
    stem = name.removesuffix(extension)
    path = join(directory, f"{stem}-{unique}{extension}")
    fault = storage.fault_of(path)
    if fault is None:
        return path
    separator = "-"
    if least_name is not None and least_name < name:
        separator = "~"
    for length in range(len(stem) - 1, 0, -1):
        path = join(directory, f"{stem[:length]}{separator}{place}-{unique}{extension}")
        if storage.fault_of(path) is None:
            return path
    raise ConfigError(
        f"the parts from {first.final_path!r} on cannot be merged: the name of the merged part would be {path!r}, "
        f"which {fault}"
    )
