"""The values of the log: what a record says, frozen; and tables of fields, one row for each attribute in JSON."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_Value = TypeVar("_Value")
_Types = tuple[type, ...]

TEXT, NUMBER, FLAG, OBJECT, LIST = (str,), (int,), (bool,), (dict,), (list,)
# Of lengths, versions, times and other numbers.
NUMBER_MAX = (1 << 63) - 1
OR_NULL = (NoneType,)
ANY: _Types = ()


class Field(NamedTuple):
    """A row of a table."""

    name: str  # in JSON
    attribute: str  # of the value
    types: _Types = ANY  # in JSON; empty for anything
    encode: Callable[[Any], Any] | None = None  # makes JSON of the attribute; None where it is JSON already
    decode: Callable[[Any], Any] | None = None  # the inverse
    is_rare: bool = False  # few adds have it, so that documents of adds have no column for it
    least: int = 0  # of a number
    words: tuple[str, ...] = ()  # all that a text may be; empty for anything

    def check(self, value: object) -> None:
        """Raise a ValueError unless JSON has something of the right type: a right checksum is no right writer."""
        is_right = not self.types or type(value) in self.types
        if is_right and type(value) is int and self.types:
            is_right = self.least <= value <= NUMBER_MAX
        if not is_right or (self.words and value not in self.words):
            raise ValueError(f"{self.name} is {value!r:.80}")

    def check_all(self, values: Sequence[object]) -> None:
        """Raise a ValueError unless all of these are right; fast for many."""
        types = set(map(type, values))
        if self.types and not types <= {*self.types}:
            suspects = [value for value in values if type(value) not in self.types]
        elif self.words:
            suspects = [*set(values)]
        elif int in types and self.types:
            numbers = [value for value in values if type(value) is int]
            suspects = [min(numbers), max(numbers)]
        else:
            suspects = []
        for value in suspects:
            self.check(value)


class Fields(Generic[_Value]):
    """The table of a class: a dataclass or a named tuple.

    A field at its attribute's default is left out of JSON, unless `always`; JSON without it gives the default. Fields
    that the table lacks are ignored: see docs/internals/format.md on versions.
    """

    def __init__(self, make: Callable[..., _Value], *rows: Field, always: bool = False) -> None:
        self.rows = rows
        self.make = make
        self.defaults = {} if always else _defaults(make)
        required = [row for row in rows if row.attribute not in self.defaults]
        plain = [row for row in required if row.encode is None]
        self._plain, self._plain_names = plain, [row.name for row in plain]
        self._plain_attributes = [row.attribute for row in plain]
        self._plain_of = _getter(operator.attrgetter, self._plain_attributes)
        self._plain_in = _getter(operator.itemgetter, self._plain_names)
        self._decoded = [row for row in required if row.encode is not None]
        self._coded = [(row.name, row.attribute, row.encode) for row in self._decoded if row.encode is not None]
        self._optional = [row for row in rows if row.attribute in self.defaults]
        self._optional_of = _getter(operator.attrgetter, [row.attribute for row in self._optional])
        self._optional_defaults = (*(self.defaults[row.attribute] for row in self._optional),)
        self._required_count = len(required)
        self._numbers_in = _getter(operator.itemgetter, [row.name for row in plain if row.types == NUMBER])
        self._worded = [row for row in plain if row.words]
        self._seen: set[_Types] = set()

    def to_json(self, value: object) -> dict[str, Any]:
        """Return the value as plain JSON."""
        text = dict(zip(self._plain_names, self._plain_of(value), strict=True))
        for name, attribute, encode in self._coded:
            text[name] = encode(getattr(value, attribute))
        if self._optional and (optional := self._optional_of(value)) != self._optional_defaults:
            for row, attribute_value, default in zip(self._optional, optional, self._optional_defaults, strict=True):
                if attribute_value != default:
                    text[row.name] = attribute_value if row.encode is None else row.encode(attribute_value)
        return text

    def attributes(self, text: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes that JSON has. A ValueError names a wrong type, a KeyError a missing field."""
        if type(text) is not dict:
            raise ValueError(f"{text!r:.80} is no object")
        plain = self._plain_in(text)
        types = (*map(type, plain),)
        numbers = self._numbers_in(text)
        if types not in self._seen or (numbers and (min(numbers) < 0 or max(numbers) > NUMBER_MAX)):
            for row, json_value in zip(self._plain, plain, strict=True):
                row.check(json_value)
            self._seen.add(types)
        for row in self._worded:
            if text[row.name] not in row.words:
                row.check(text[row.name])
        attributes = dict(zip(self._plain_attributes, plain, strict=True))
        optional = (row for row in self._optional if row.name in text) if len(text) > self._required_count else ()
        for row in (*self._decoded, *optional):
            json_value = text[row.name]
            row.check(json_value)
            attributes[row.attribute] = json_value if row.decode is None else row.decode(json_value)
        return attributes

    def from_json(self, text: Mapping[str, Any]) -> _Value:
        """Return the value that `to_json` wrote; raises as `attributes`."""
        return self.make(**self.attributes(text))


def one(name: str, attribute: str, fields: Fields[Any], types: _Types = OBJECT) -> Field:
    """Return the row of an attribute that has a table of its own; None stays null where `types` have that."""

    def encode(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 - of any class with a table
        return None if value is None else fields.to_json(value)

    return Field(name, attribute, types, encode, lambda text: None if text is None else fields.from_json(text))


def many(name: str, attribute: str, fields: Fields[Any], *, is_rare: bool = False) -> Field:
    """Return the row of a tuple of values that have a table of their own."""
    return Field(
        name,
        attribute,
        LIST,
        lambda values: [fields.to_json(value) for value in values],
        lambda texts: tuple(fields.from_json(text) for text in texts),
        is_rare,
    )


def _defaults(make: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    if not dataclasses.is_dataclass(make):
        return dict(getattr(make, "_field_defaults", {}))
    missing, defaults = dataclasses.MISSING, {}
    for field_ in dataclasses.fields(make):
        if field_.default is not missing:
            defaults[field_.name] = field_.default
        elif field_.default_factory is not missing:
            defaults[field_.name] = field_.default_factory()
    return defaults


def _getter(make: Any, names: list[str]) -> Callable[[Any], tuple[Any, ...]]:  # noqa: ANN401 - attrgetter or itemgetter
    """Return a function that gets all of these as a tuple, however few."""
    if len(names) > 1:
        getter: Callable[[Any], tuple[Any, ...]] = make(*names)
        return getter
    first = make(*names) if names else None
    return lambda value: () if first is None else (first(value),)


MIGRATION = "migration"  # table of the log of a directory whose first files another program wrote


class Origin(NamedTuple):
    """The batches of a query, or of a batch-write job, that the rows of an add come from."""

    query_id: str
    first_batch: int
    last_batch: int


class SourceRange(NamedTuple):
    """The piece of a segment that went into a part made from segments: `[start, end)` in bytes or rows."""

    add_id: str
    unit: Literal["bytes", "rows"]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Add:
    """Rows that a record brings: a part (a file of its own) or a segment (a range of a spool)."""

    id: str  # unique for ever; removes, jobs and ranges refer to it
    kind: Literal["part", "segment"]
    path: str  # where it was written, relative to the directory
    final_path: str | None  # the name under which a part is published; None for a segment
    length: int  # bytes on storage
    logical_length: int  # bytes before the filters
    checksum: str  # of the bytes on storage, as `core.checksum` writes it
    rows: int
    directory_key: str  # see `layout.directory_key`; empty for the directory itself
    encoding: str  # key of the definition that says how to decode
    origin: Origin
    offset: int = 0  # first byte within `path`; 0 for a part
    filters: tuple[str, ...] = ()  # in the order in which they were applied
    ranges: tuple[SourceRange, ...] = ()  # of the segments that a part was made from
    skip_rows: int = 0  # rows at the start of a segment that a part already holds; not counted in `rows`
    rolling_stats: dict[str, Any] = field(default_factory=dict)  # opaque, plain JSON


@dataclass(frozen=True, slots=True)
class Remove:
    """A live add that a record ends; length and checksum tell a part from another file of its name."""

    id: str
    kind: Literal["part", "segment"]
    final_path: str | None = None  # None for a segment
    length: int = 0  # bytes of a part on storage
    checksum: str = ""  # of these bytes; empty for a segment

    @classmethod
    def of(cls, add: Add) -> Remove:
        """Return the remove that ends `add`."""
        if add.kind == "segment":
            return cls(add.id, add.kind)
        return cls(add.id, add.kind, add.final_path, add.length, add.checksum)


@dataclass(frozen=True, slots=True)
class AssemblyTask:
    """Parts to be made from segments. A task finds all that it needs in one record."""

    id: str
    inputs: tuple[Add, ...]  # in the order of their rows
    reason: str  # why now
    attempts: int = 0  # failed ones
    payload: Any = None  # opaque, plain JSON


@dataclass(frozen=True, slots=True)
class StreamAuthor:
    """One micro-batch of one streaming query."""

    query_id: str
    run_id: str
    batch_id: int
    offsets_hash: str | None = None  # of Spark's whole `offsets/N` file; None when unknown
    offsets: Any = None  # of each source; None when unknown


class Transaction(NamedTuple):
    """A user's own identity of a batch write: versions of one application only go up."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class JobAuthor:
    """One batch write."""

    job_id: str
    transaction: Transaction | None = None


@dataclass(frozen=True, slots=True)
class MaintenanceAuthor:
    """One maintenance operation, such as `compact`."""

    operation: str
    job_id: str


Author = StreamAuthor | JobAuthor | MaintenanceAuthor


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The content of a batch, independent of the order of rows and of partitioning."""

    kind: str  # how it was made, with its version; only equal kinds compare
    digest: str
    covers_content: bool  # whether equality proves equal rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The changes of a writer to the log: a record without its author and its place."""

    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    overwrite: bool = False  # removes everything that was live
    replaces: str | None = None  # what an overwrite or a drop of some partitions is for; None for other records
    restored: int | None = None  # version whose rows this one has again; None for other records
    rows_removed: int = 0  # rows that were live, and are in no add of this record
    dead_letters: tuple[Add, ...] = ()  # records that could not be written; published like parts, in no snapshot
    assembly_tasks: tuple[AssemblyTask, ...] | None = None  # None for those jobs of the record before that are not done
    tasks: int = 0  # that wrote it; the next batch deals the jobs to as many
    horizon_ms: int | None = None  # staged files not younger may be deleted; None: unchanged
    log_start: int | None = None  # records before this version may be deleted; None: unchanged
    schema: str | None = None  # key of the definition of the rows' schema
    settings: str | None = None  # key of the definition of how the author's query rolls its open parts
    encoding: str | None = None  # key of the definition of how new rows are written
    definitions: dict[str, Any] = field(default_factory=dict)  # a record has only those that are new to the log
    user_metadata: str | None = None  # the user's own text about it
    metrics: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)  # changes; see `log.apply.TablesDraft`
    payload: Any = None  # of a use case that adds no files; opaque, plain JSON


@dataclass(frozen=True, slots=True)
class Record(Body):
    """One version of the directory. Creating it is the commit."""

    version: int  # 0, 1, 2 … without a gap
    nonce: str  # unique and kept over retries: tells an own record from another's
    author: Author
    time_ms: int  # the author's clock
    store_ms: int | None = field(default=None, kw_only=True)  # the store's clock then, where the author's is another
    assembly_tasks: tuple[AssemblyTask, ...] = field(default=(), kw_only=True)
    lineage_start: int | None = field(default=None, kw_only=True)  # batch with which the author's query starts anew
    fingerprint: Fingerprint | None = field(default=None, kw_only=True)
    previous_nonce: str | None = field(default=None, kw_only=True)  # empty for the first record; None: unknown
    writer: str = field(default="", kw_only=True)  # `user@host` of the process that created it; empty: unknown

    @property
    def created_ms(self) -> int:
        """Return when it was created, by the store's clock within some seconds, as its author knew it."""
        return self.time_ms if self.store_ms is None else self.store_ms

    @property
    def is_change(self) -> bool:
        """Return True if it ends rows that were live, or brings others back: an overwrite, a drop, a restore."""
        return self.restored is not None or self.rows_removed > 0
