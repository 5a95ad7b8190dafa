"""Compaction: the small parts of each bucket become few of a good size. No reader sees another row."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.layout import storage_identity, unique_part
from ftfile.commit.model import MaintenanceAuthor, Origin
from ftfile.commit.policy import Policy
from ftfile.commit.proposal import Proposal, Rewrite
from ftfile.commit.protocol import catch_up, commit
from ftfile.commit.sealed import keys_of
from ftfile.commit.snapshot import open_add, snapshot_at
from ftfile.core.checksum import checksum
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.ids import SYSTEM_IDS
from ftfile.core.logs import get_logger, log_context
from ftfile.encoding.registry import format_from_definition
from ftfile.sink.durability import durability_of
from ftfile.sink.entries import add_of
from ftfile.sink.filtered import chain_of, extension_of
from ftfile.sink.fingerprint import FingerprintAccumulator
from ftfile.sink.identity import JobIdentity, TaskIdentity
from ftfile.sink.rolling.assembly import file_schema_of
from ftfile.sink.staging import Stage
from ftfile.source.reading import plain_part
from ftfile.upkeep.logs import log_to_maintain
from ftfile.upkeep.where import select

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.commit.log import CommitLog
    from ftfile.commit.model import Add
    from ftfile.commit.state import LogState
    from ftfile.encoding.api import Format
    from ftfile.fs.api import FileSystem
    from ftfile.keys.keys import Keys

__all__ = ("TARGET_BYTES", "CompactReport", "compact")

TARGET_BYTES = 128 << 20
# A part of this share of the target is left as it is: merging it again and again would only write.
LARGE_ENOUGH = 0.75

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did.

    Attributes:
        version: of its record; None when there was nothing to do.
        parts_replaced: how many parts it took.
        parts_written: how many there are instead.
        rows: in them, as many as before.
        bytes_replaced: on storage.
        bytes_written: on storage.
        parts_lost: how many parts it had merged when others replaced or dropped them; they were not touched.
    """

    version: int | None = None
    parts_replaced: int = 0
    parts_written: int = 0
    rows: int = 0
    bytes_replaced: int = 0
    bytes_written: int = 0
    parts_lost: int = 0


class _AllLost(Exception):
    """Nothing that was merged is live any more."""


def compact(
    path: str | os.PathLike[str],
    where: Mapping[str, object] | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> CompactReport:
    """Merge small finished parts of the same bucket and encoding into parts of about `target_bytes`.

    Safe beside running queries and readers. Replaced parts are hidden at once, and can be read by readers of older
    versions until a vacuum. The rows of a bucket keep their order where all of its parts are small.

    Args:
        path: of the directory.
        where: buckets to look at, as values of partition columns: `{"month": "7"}`, `{"month": [7, 8]}`; by default
            all of them.
        target_bytes: how large parts become.
        key_provider: of an encrypted directory; see `ftfile.open`.
        storage: settings of its file system: what the options `storage.<name>` are to the sink.

    Raises:
        ConfigError: the path is no ftfile directory, or an argument is wrong.
        CorruptData: a part is not what was recorded; nothing was changed.
        CommitError: as for a batch write; `NotPublished` says that the compaction is recorded all the same.
    """
    if target_bytes < 1:
        raise ConfigError(f"target_bytes={target_bytes}: it takes a number of bytes of 1 or more")
    log = log_to_maintain(path, key_provider, storage)
    author = MaintenanceAuthor("compact", SYSTEM_IDS.unique())
    with log_context(job=author.job_id):
        with log.lock:
            head, problems = catch_up(log, author, Policy())
            snapshot = snapshot_at(log, head)
            chosen = list(snapshot.adds.values()) if where is None else select(head, snapshot, where)
        stuck = {add_id for problem in problems for add_id in problem.add_ids}
        merges = _plan((add for add in chosen if add.id not in stuck), target_bytes)
        rewrites = _merge_all(log.fs, author.job_id, merges, snapshot.definitions, snapshot.version)
        report = _commit(log, author, rewrites) if rewrites else CompactReport()
        _log.info("compacted: %s", report)
        return report


def _plan(adds: Iterable[Add], target_bytes: int) -> list[list[Add]]:
    """Return what is to become one part each: two or more small parts, in their order, of about the target together."""
    merges: list[list[Add]] = []
    growing: dict[tuple[str, str], list[Add]] = {}
    for add in adds:
        if add.kind != "part" or add.length >= LARGE_ENOUGH * target_bytes:
            continue
        merge = growing.get((add.bucket, add.encoding))
        if merge is None or sum(other.length for other in merge) + add.length > target_bytes:
            merge = growing[add.bucket, add.encoding] = []
            merges.append(merge)
        merge.append(add)
    return [merge for merge in merges if len(merge) > 1]


def _merge_all(
    fs: FileSystem, job_id: str, merges: Sequence[list[Add]], definitions: Mapping[str, Any], version: int
) -> tuple[Rewrite, ...]:
    """Make one part of each merge; what was written is removed when one fails."""
    identity = TaskIdentity(JobIdentity(job_id), 0, 0)
    stage = Stage(fs, SYSTEM_IDS, identity)
    try:
        return tuple(
            Rewrite(tuple(inputs), (_merge(stage, fs, inputs, definitions, identity.origin()),), version)
            for inputs in merges
        )
    except BaseException:
        stage.discard()
        raise


def _merge(stage: Stage, fs: FileSystem, inputs: Sequence[Add], definitions: Mapping[str, Any], mixed: Origin) -> Add:
    """Write the rows of some parts to one, and look whether they are all in it before anybody relies on that.

    Args:
        stage: where to write.
        fs: of the directory.
        inputs: what to merge, in this order.
        definitions: of the log.
        mixed: the origin of rows of several writers.
    """
    first = inputs[0]
    encoding = definitions[first.encoding]
    file_format = format_from_definition(encoding["format"], keys_of(fs))
    schema = file_schema_of(encoding)
    part = stage.open(first.bucket, file_format, schema, chain_of(encoding, keys_of(fs)))
    before, after = FingerprintAccumulator("strong"), FingerprintAccumulator("strong")
    for add in inputs:
        for batch in _rows(open_add(add, fs.read), add, file_format, schema, keys_of(fs)):
            before.update(batch)
            part.write(batch, None)
    stage.finish(part)
    stage.settle()
    staged = stage.finished[-1]
    merged = add_of(staged, first.encoding, _origin(inputs, mixed))
    merged = replace(merged, final_path=_final_path(first, staged.id, extension_of(encoding)))
    for batch in _rows(fs.read(merged.path), merged, file_format, schema, keys_of(fs)):
        after.update(batch)
    if before.digest() != after.digest():
        raise CorruptData(merged.path, "the rows of the parts it is made of", "other rows", "Nothing was replaced")
    return merged


def _rows(
    content: bytes, add: Add, file_format: Format, schema: pa.Schema, keys: Keys | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part whose bytes are what was recorded.

    Raises:
        CorruptData: they are not.
    """
    if len(content) != add.length or checksum(content) != add.checksum:
        found = f"{len(content)} bytes with {checksum(content)}"
        raise CorruptData(add.final_path or add.path, f"{add.length} bytes with {add.checksum}", found, _ADVICE)
    rows, file = 0, io.BytesIO(content)
    file.name = add.final_path or add.path  # what errors call it
    decode = file_format.for_file(storage_identity("part", add.path)).decode
    for batch in decode(plain_part(file, add, file_format, keys), schema):
        rows += batch.num_rows
        yield batch
    if rows != add.rows:
        raise CorruptData(add.final_path or add.path, f"{add.rows} rows", f"{rows} rows", _ADVICE)


_ADVICE = "Another program changed it: restore it from a copy. Nothing was replaced"


def _final_path(first: Add, part_id: str, extension: str) -> str:
    """Return the name of the first of the parts with another unique piece: sorted names keep the order of rows."""
    assert first.final_path is not None, f"{first.id} is no part"
    directory, slash, name = first.final_path.rpartition("/")
    if unique_part(first.id) in name:
        return f"{directory}{slash}{name.replace(unique_part(first.id), unique_part(part_id))}"
    stem = first.final_path.removesuffix(extension)
    return f"{stem}-{unique_part(part_id)}{extension}"


def _origin(inputs: Sequence[Add], mixed: Origin) -> Origin:
    origins = [add.origin for add in inputs]
    if len({origin.query_id for origin in origins}) > 1:
        return mixed
    first, last = min(origin.first_batch for origin in origins), max(origin.last_batch for origin in origins)
    return Origin(origins[0].query_id, first, last)


def _commit(log: CommitLog, author: MaintenanceAuthor, rewrites: tuple[Rewrite, ...]) -> CompactReport:
    """Record what was merged; what others have replaced or dropped meanwhile is left out, in the extreme all of it."""

    def check(head: LogState) -> None:
        if not any(all(head.is_live(add, rewrite.known_at) for add in rewrite.inputs) for rewrite in rewrites):
            raise _AllLost

    durability = durability_of("auto", log.fs.capabilities)
    proposal = Proposal(author, rewrites=rewrites, metrics={"durability": durability}, check=check)
    taken = sum(len(rewrite.inputs) for rewrite in rewrites)
    try:
        with log.lock:
            version = commit(log, proposal, Policy()).version
            record = log.read_record(version)
    except _AllLost:
        return CompactReport(parts_lost=taken)
    assert record is not None, f"version {version} has no record"
    replaced = {remove.id for remove in record.removes}
    inputs = [add for rewrite in rewrites for add in rewrite.inputs if add.id in replaced]
    return CompactReport(
        version=version,
        parts_replaced=len(inputs),
        parts_written=len(record.adds),
        rows=sum(add.rows for add in record.adds),
        bytes_replaced=sum(add.length for add in inputs),
        bytes_written=sum(add.length for add in record.adds),
        parts_lost=taken - len(inputs),
    )
