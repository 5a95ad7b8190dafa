"""The invariants of a store, checked only from its files, at any moment.

- **K1** Live runs of a bucket do not overlap in both keys and position.
- **K2** The rows of a run are in ascending order, each key once, in its bucket, and as its metadata describes them.
- **K3** The pages of a run find each of its rows.
- **K4** A purge ends the older rows in its range, and no other rows.
- **K5** Deletes and purges are removed from a bucket only if no older row can reappear.
- **K6** Maintenance changes the rows of no version. A batch changes only the rows that it wrote.
- **K7** A store has one definition: the keys, buckets and merges of its first record do not change.
- **K8** Epochs of an operator increase. I2 covers that its windows are recorded once and in order.
- **K10** In each bucket, all runs of level 1 are older than all runs of level 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.core.errors import CorruptData, NotFound
from ftfile.kv.definition import DELETE, StoreDefinition, operations, ops_in
from ftfile.kv.feed_rows import differ
from ftfile.kv.fold import fold
from ftfile.kv.hashing import bucket_number, buckets_of, hash_rows
from ftfile.kv.key_columns import first_fall
from ftfile.kv.merge_functions import code_of
from ftfile.kv.planning.runs import are_apart, open_metadata, position_of, run_of
from ftfile.kv.run.pages import Cache
from ftfile.kv.run_files import OpenFiles, open_run
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.wal import NO_OPENING, OPERATORS, Opening
from ftfile.testing.checker import DirectoryReport, check_directory
from ftfile.testing.log_check import LogContents, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.runs import Run
    from ftfile.log.format.model import Add, Record
    from ftfile.storage.api import FileSystem

__all__ = ("StoreReport", "check_store", "key_at")

_CACHE_BYTES = 16 << 20

Buckets = dict[str, pa.Table]


@dataclass
class StoreReport:
    """The content of a store.

    Attributes:
        version: the newest version.
        rows: of the newest version, values by key.
        directory: the result of `check_directory`.
        checked: versions whose rows were checked. They stay valid while their bytes are unchanged.
        tables: the rows of checked runs, by id.
    """

    version: int
    rows: dict[tuple[Any, ...], tuple[Any, ...]]
    directory: DirectoryReport
    checked: set[int] = field(default_factory=set)
    tables: dict[str, pa.Table] = field(default_factory=dict)


def check_store(
    fs: FileSystem, *, earlier: StoreReport | None = None, directory: DirectoryReport | None = None
) -> StoreReport:
    """Check K1 to K8 and K10, and I1 to I9 of its directory, and return the rows of a store. Changes nothing.

    The rows of a version are compared with the rows of the version before it plus the new runs. This covers all
    versions that the log keeps and whose files exist.

    Args:
        fs: rooted at the store, with its keys if it is encrypted.
        earlier: of an earlier check; of versions that it has checked, only the bytes are compared.
        directory: the result of `check_directory`, if nothing has changed since.

    Raises:
        InvariantViolation: names the invariant and the violation.
    """
    if directory is None:
        directory = check_directory(fs, earlier=earlier.directory if earlier else None, rows_of=lambda _: ())
    check = _Check(fs, directory.log, earlier)
    _check_epochs(check.log.records)
    newest = check.log.head
    for version in sorted(check.log.snapshots):
        if version >= 0 and (version == newest or version not in check.checked):
            check.version(version)
    return StoreReport(newest, check.rows, directory, check.checked, check.tables)


class _Check:
    def __init__(self, fs: FileSystem, log: LogContents, earlier: StoreReport | None) -> None:
        self.log = log
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.checked: set[int] = set(earlier.checked) if earlier else set()
        self.tables: dict[str, pa.Table] = dict(earlier.tables) if earlier else {}
        self._fs = fs
        self._files = OpenFiles(fs)
        self._cache = Cache(_CACHE_BYTES)
        self._records = {record.version: record for record in log.records}
        self._definitions = _definitions_of(fs, log)
        self._in_bucket: set[tuple[str, int]] = set()

    def version(self, version: int) -> None:
        """Check a version, unless vacuum has deleted its files."""
        definition = self._definitions.get(version)
        if definition is None:
            return
        runs = self._runs_of(version)
        try:
            for bucket, own in runs.items():
                self._check_runs(bucket, own, definition)
        except NotFound as error:
            gone = version < self.log.vacuumed_to
            require(gone, "K6", f"version {version} needs a missing file: {error}")
            return
        found = self._folded(runs, definition, is_bottommost=True)
        if version == self.log.head:
            self.rows = _as_dict(_live_rows(found, definition), definition)
        if version not in self.checked:
            self._check_change(version, definition, found)
            self.checked.add(version)

    def _runs_of(self, version: int) -> dict[str, list[Run]]:
        found: defaultdict[str, list[Run]] = defaultdict(list)
        definition = self._definitions.get(version)
        kinds = [] if definition is None else definition.key_types
        for add in open_metadata(self._fs, self.log.snapshots[version].values(), kinds):
            if add.kind == "segment":
                found[add.directory_key].append(run_of(add))
        return {bucket: sorted(runs, key=lambda run: run.metadata.at) for bucket, runs in found.items()}

    def _check_runs(self, bucket: str, runs: Sequence[Run], definition: StoreDefinition) -> None:
        last = max((run.metadata.at[1] for run in runs if run.metadata.level), default=-1)
        for run in runs:
            is_newer = run.metadata.level > 0 or run.metadata.at[0] > last
            require(is_newer, "K10", f"run {run.add.id} of level 0 of bucket {bucket} is not newer than all of level 1")
        for place, run in enumerate(runs):
            for other in runs[:place]:
                text = (
                    f"runs {run.add.id} and {other.add.id} of bucket {bucket} share keys, and their order is not known"
                )
                require(are_apart(run, other), "K1", text)
            rows = self._table(run.add)
            if (run.add.id, definition.buckets) not in self._in_bucket:
                self._in_bucket.add((run.add.id, definition.buckets))
                _check_rows(run, rows, definition)

    def _table(self, add: Add) -> pa.Table:
        """Return the live rows of a run."""
        if add.id not in self.tables:
            try:
                reader = open_run(self._files, add, self._cache)
                reader.verify()
            except CorruptData as error:
                require(False, "K3", str(error))
            rows = pa.Table.from_batches(reader.scan(), reader.schema)
            require(rows.num_rows == add.rows, "K2", f"{add.id} has {rows.num_rows} rows instead of {add.rows}")
            require(not add.skip_rows, "K2", f"{add.id} has {add.skip_rows} skipped rows")
            self.tables[add.id] = rows
        return self.tables[add.id]

    def _folded(
        self, runs: Mapping[str, Sequence[Run]], definition: StoreDefinition, *, is_bottommost: bool
    ) -> Buckets:
        return {
            bucket: fold(
                [self._table(run.add) for run in own],
                definition,
                is_bottommost=is_bottommost,
                purges=[run.metadata.purges for run in own],
            )
            for bucket, own in runs.items()
        }

    def _check_change(self, version: int, definition: StoreDefinition, found: Buckets) -> None:
        """Compare the rows of a version with the rows of the version before it plus the new runs."""
        record = self._records.get(version)
        before = self._definitions.get(version - 1)
        if record is None or (version > 0 and version - 1 not in self.log.snapshots):
            return
        is_moved = _operation(record) == "rebucket"
        runs = self._runs_of(version)
        new = {bucket: [run for run in own if not is_moved and _is_of(run, version)] for bucket, own in runs.items()}
        old: Buckets = {}
        if before is not None and not record.overwrite:
            try:
                old = self._folded(self._runs_of(version - 1), before, is_bottommost=False)
            except NotFound:
                return  # vacuum has deleted its files
        expected = {}
        for bucket in old.keys() | new.keys():
            tables = [old[bucket]] if bucket in old else []
            tables += [self._table(run.add) for run in new.get(bucket, ())]
            purges = [()] * (bucket in old) + [run.metadata.purges for run in new.get(bucket, ())]
            if tables:
                expected[bucket] = fold(tables, definition, is_bottommost=True, purges=purges)
        self._compare(version, _live_rows(expected, definition), _live_rows(found, definition), definition, new)

    def _compare(
        self,
        version: int,
        expected: pa.Table,
        found: pa.Table,
        definition: StoreDefinition,
        new: Mapping[str, Sequence[Run]],
    ) -> None:
        if _are_same(expected, found):
            return
        wanted, has = _as_dict(expected, definition), _as_dict(found, definition)
        back = has.keys() - wanted.keys()
        has_purges = any(run.metadata.purges for own in new.values() for run in own)
        invariant = "K4" if has_purges else "K5" if back else "K6"
        differing = sorted(key for key in wanted.keys() | has.keys() if wanted.get(key) != has.get(key))[:3]
        shown = "; ".join(f"{key}: {has.get(key)} instead of {wanted.get(key)}" for key in differing)
        require(False, invariant, f"rows of version {version} are not the rows before it plus its changes: {shown}")


def _definitions_of(fs: FileSystem, log: LogContents) -> dict[int, StoreDefinition]:
    """Return the definition at each version that has one, and check that it stays the same."""
    head = CommitLog(fs).refresh()
    checkpoints = sorted(log.checkpoints.items())
    encoding = next((checkpoint.encoding for name, checkpoint in checkpoints if name.version <= log.start), None)
    found: dict[int, StoreDefinition] = {}
    last: StoreDefinition | None = None
    for record in log.records:
        encoding = record.encoding or encoding
        if encoding is None:
            continue
        definition = StoreDefinition.from_json(head.definitions[encoding]["store"])
        definition = definition.naming(code_of(definition.merge))  # merge functions of the tests
        if last is not None and not record.overwrite:
            _require_same(last, definition, record)
        found[record.version] = last = definition
    return found


def _require_same(last: StoreDefinition, definition: StoreDefinition, record: Record) -> None:
    pairs: list[tuple[object, object]] = [
        (last.keys, definition.keys),
        (last.bucket_by, definition.bucket_by),
        (last.sequence, definition.sequence),
        (last.schema.names[: len(last.keys)], definition.schema.names[: len(last.keys)]),
        ([definition.merge.get(name) for name in last.values], [last.merge.get(name) for name in last.values]),
    ]
    if _operation(record) != "rebucket":
        pairs.append((last.buckets, definition.buckets))
    for old, new in pairs:
        require(old == new, "K7", f"version {record.version} changes {old} to {new}")


def _check_epochs(records: Sequence[Record]) -> None:
    openings: dict[str, Opening] = {}
    for record in sorted(records, key=lambda record: record.version):
        for writer, entry in record.tables.get(OPERATORS, {}).get("set", {}).items():
            opening, last = Opening(*entry), openings.get(writer, NO_OPENING)
            fences = opening.epoch > last.epoch and opening.wal_epoch in {last.wal_epoch, opening.epoch}
            fences = fences and last.wal_id in {"", opening.wal_id}
            takes_over = opening == last._replace(wal_epoch=last.epoch) and not last.is_owner
            require(fences or takes_over, "K8", f"version {record.version} has {opening} of {writer} after {last}")
            openings[writer] = opening


def _operation(record: Record) -> str:
    return record.author.operation if isinstance(record.author, MaintenanceAuthor) else ""


def _is_of(run: Run, version: int) -> bool:
    first, last = run.metadata.at
    return first == last and position_of(version) <= first < position_of(version + 1)


def _check_rows(run: Run, rows: pa.Table, definition: StoreDefinition) -> None:
    add, metadata = run.add, run.metadata
    ends = (key_at(rows, 0, definition.keys), key_at(rows, -1, definition.keys)) if rows.num_rows else None
    require(metadata.keys == ends, "K2", f"{add.id} has keys {ends}, but its metadata has {metadata.keys}")
    more = ops_in(rows) & ~metadata.ops
    require(not more, "K2", f"{add.id} has operations {ops_in(rows):b}, but its metadata has {metadata.ops:b}")
    deletes = int((operations(rows) == DELETE).sum())
    require(metadata.deletes == deletes, "K2", f"{add.id} has {deletes} deletes, not {metadata.deletes}")
    if not rows.num_rows:
        return
    batch = rows.combine_chunks().to_batches()[0]
    fall = first_fall([batch.column(name) for name in definition.keys])
    require(fall is None, "K2", f"keys of {add.id} do not increase after row {fall}")
    numbers = set(buckets_of(hash_rows([batch.column(name) for name in definition.bucket_by]), definition.buckets))
    require(
        numbers == {bucket_number(add.directory_key)},
        "K2",
        f"{add.id} of bucket {add.directory_key} has rows of {numbers}",
    )


def _are_same(expected: pa.Table, found: pa.Table) -> bool:
    """Return True if two tables have one schema and the same rows; NaN equals NaN."""
    if expected.equals(found):
        return True
    columns = zip(expected.columns, found.columns, strict=True)
    return expected.num_rows == found.num_rows and not any(
        differ(one.combine_chunks(), other.combine_chunks()).any() for one, other in columns
    )


def _live_rows(buckets: Buckets, definition: StoreDefinition) -> pa.Table:
    """Return the rows of all buckets that are not deletes, by key, without ftfile's internal columns."""
    names = definition.schema.names
    tables = [definition.align(definition.schema.empty_table()).select(names)]
    for rows in buckets.values():
        live = rows.filter(pa.array(operations(rows) != DELETE))
        tables.append(definition.align(live).select(names))
    found = pa.concat_tables(tables)
    order = pc.sort_indices(found.select(definition.keys), [(name, "ascending") for name in definition.keys])
    return found.take(order).combine_chunks()


def _as_dict(rows: pa.Table, definition: StoreDefinition) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    columns = [rows[name].to_pylist() for name in definition.schema.names]
    count = len(definition.keys)
    values: Iterator[tuple[Any, ...]] = (
        zip(*columns[count:], strict=True) if columns[count:] else iter([()] * len(rows))
    )
    return dict(zip(zip(*columns[:count], strict=True), values, strict=True))


def key_at(rows: pa.Table | pa.RecordBatch, row: int, names: Sequence[str]) -> Key:
    """Return the key of a row; negative numbers count from the end."""
    return tuple(_value(rows[name][row]) for name in names)


def _value(scalar: pa.Scalar) -> int | bytes:
    if isinstance(scalar, (pa.StringScalar, pa.BinaryScalar)):
        return bytes(scalar.as_buffer())
    if isinstance(scalar, pa.Decimal128Scalar):
        return int(scalar.as_py().scaleb(scalar.type.scale))
    found: int = scalar.value if isinstance(scalar, (pa.Date32Scalar, pa.TimestampScalar)) else scalar.as_py()
    return found
