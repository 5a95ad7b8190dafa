"""Facts of a query from its Spark checkpoint: its id, the offsets of a batch, and how far Spark has come."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from ftfile.core.errors import ConfigError, CorruptData, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.model import NUMBER_MAX, StreamAuthor
from ftfile.log.format.record import check_json, json_value, read_within
from ftfile.log.places import list_or_empty
from ftfile.storage.paths import parse
from ftfile.storage.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


# Table with the places of queries' checkpoints.
CHECKPOINTS = "checkpoints"
# Of a file with offsets, of which Kafka has some 20 bytes for each partition.
OFFSETS_BYTES_MAX = 64 << 20

_WILDCARDS = frozenset("*?[{")

_log = get_logger(__name__)


class BatchOffsets(NamedTuple):
    """Spark's `offsets/N` file: a hash of all of it, each source's offset, and when the batch was planned."""

    hash: str
    offsets: list[Any]
    time_ms: int | None  # by the driver's clock; None where the file does not say it


class SparkProgress(NamedTuple):
    """The newest batches of a query, as its checkpoint has them."""

    planned: int | None  # whose offsets are written; None before the first batch
    offsets: BatchOffsets | None  # of that batch
    committed: int | None  # that Spark has noted as done


def read_query_id(checkpoint: str | None, context: Context, settings: Mapping[str, str] | None = None) -> str | None:
    """Return the id in the checkpoint's `metadata` file, or None if it is missing or cannot be read."""
    content = _read(checkpoint, "metadata", context, settings)
    return None if content is None else _id_in(content)


def read_progress(
    checkpoint: str, query_id: str, context: Context, settings: Mapping[str, str] | None = None
) -> SparkProgress:
    """Return how far Spark has come with a query; the settings are those of the checkpoint's file system.

    Raises:
        ConfigError: the checkpoint is of another query, or nothing is there.
        StorageError: it cannot be read.
    """
    fs = open_filesystem(normalise(checkpoint), context, settings)
    try:
        checkpoint_query = _id_in(_content(fs, "metadata"))
    except NotFound:
        raise ConfigError("it does not exist, or is not visible from this host") from None
    if checkpoint_query is None:
        raise ConfigError("its file `metadata` names no query")
    if checkpoint_query != query_id:
        raise ConfigError(f"it belongs to another query, {checkpoint_query}")
    # A batch is planned before it is done.
    committed, planned = (_newest(fs, directory) for directory in ("commits", "offsets"))
    offsets = None if planned is None else _parsed(_content(fs, f"offsets/{planned}"))
    return SparkProgress(planned, offsets, committed)


def check_sources(path: str, checkpoint: str, query_id: str, log: CommitLog, head: LogState) -> None:
    """Raise a ConfigError if a query is to write where it reads, as far as its checkpoint tells: it would never end."""
    try:
        offsets = read_progress(checkpoint, query_id, log.fs.context).offsets
    except (ConfigError, StorageError):
        return
    for number, offset in enumerate(offsets.offsets if offsets is not None else ()):
        if isinstance(offset, dict) and offset.get("kind") == "log" and _is_of(offset, log, head):
            raise ConfigError(
                f"path={path!r} is the directory that the query reads, or a copy of it: each batch would add new rows "
                "for the next batch. Choose another path. A copy needs at least one version that the original does "
                "not contain"
            )
        source = _files_of(checkpoint, offset, log.fs.context)
        if source is not None and f"{path}/".startswith(f"{source}/"):
            raise ConfigError(
                f"path={path!r} lies within {source!r}, whose files the query reads: it would read the rows that it "
                "writes. Choose a path outside of it"
            )
        for url in _files_of_spark(checkpoint, number, offset, log.fs.context):
            if _is_read_below(path, url):
                raise ConfigError(
                    f"path={path!r} contains files that the query reads, such as {url!r}: it would read the rows that "
                    "it writes. Choose another path"
                )


def _is_of(offset: Mapping[str, Any], log: CommitLog, head: LogState) -> bool:
    """Return True if an offset names a version of this log."""
    # Of a version that is read in part, the nonce is its own; see `read.log_positions`.
    version = offset.get("snapshot", offset.get("version", -1))
    if type(version) is not int:
        return False
    version += "snapshot" not in offset and bool(offset.get("next"))
    record = log.read_record(version) if head.log_start <= version <= head.version else None
    return record is not None and record.nonce == offset.get("nonce")


def _files_of(checkpoint: str, offset: Any, context: Context) -> str | None:  # noqa: ANN401 - whatever a checkpoint has
    """Return the URL of the directory whose files a source reads; None for other sources, and for patterns."""
    from ftfile.log.commit_log import PLANS_LAYOUT, CommitLog  # noqa: PLC0415 - asked once for each query

    try:
        state = f"{normalise(checkpoint).rstrip('/')}/{layout.STATE_IN_CHECKPOINT}/{offset['id']}"
        plans = CommitLog(open_filesystem(state, context), layout_line=PLANS_LAYOUT).refresh()
        url = normalise(plans.definitions[plans.queries[offset["id"]].settings or ""]["path"]).rstrip("/")
    except (ConfigError, StorageError, LookupError, TypeError):
        return None
    return None if _WILDCARDS.intersection(url) else url


def _files_of_spark(checkpoint: str, number: int, offset: Any, context: Context) -> Iterator[str]:  # noqa: ANN401
    """Yield the URLs of the files that Spark's own source of files read last; none for other sources."""
    if not isinstance(offset, dict) or type(batch := offset.get("logOffset")) is not int:
        return
    name = f"sources/{number}/{batch}"
    content = _read(checkpoint, name, context) or _read(checkpoint, f"{name}.compact", context) or b""
    for line in content.splitlines()[1:]:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            yield unquote(json_value(line)["path"])


def _is_read_below(path: str, url: str) -> bool:
    """Return True if a query that reads a file reads the directory `path`: it has it, or partitions with it."""
    try:
        directory, file = parse(path), parse(url)
    except ConfigError:  # no URL that ftfile knows
        return False
    if directory.authority != file.authority:
        return False
    above = directory.path.rstrip("/") + "/"
    *partitions, _ = file.path.removeprefix(above).split("/")
    return file.path.startswith(above) and all("=" in name for name in partitions)


def recorded_checkpoint(head: LogState, query_id: str) -> str | None:
    """Return the URL of a query's checkpoint, as its records have it; None where its writer was not given it."""
    table = head.tables.get(CHECKPOINTS)
    entry = None if table is None else table.get(query_id)
    return None if entry is None else str(entry[1])


def checkpoint_table_change(head: LogState, author: Author, checkpoint: str | None) -> dict[str, Any]:
    """Return the change of the log's tables by which the checkpoint's place of a query is known; none where it is."""
    if not isinstance(author, StreamAuthor) or checkpoint is None:
        return {}
    with contextlib.suppress(ConfigError):  # such as of a scheme that only Spark knows
        url = normalise(checkpoint)
        if url != recorded_checkpoint(head, author.query_id):
            return {CHECKPOINTS: {"set": {author.query_id: url}}}
    return {}


def read_offsets(checkpoint: str | None, batch_id: int, context: Context) -> BatchOffsets | None:
    """Return the offsets of a batch, or None if the checkpoint is unknown or cannot be read here.

    The file is a version line, a line of batch metadata with its time, and one line per source; in version 2 the name
    of the source and a colon precede its offset. The hash covers the whole file: a file source's offset alone is equal
    for other data.
    """
    content = _read(checkpoint, f"offsets/{batch_id}", context)
    return None if content is None else _parsed(content)


def _content(fs: FileSystem, name: str) -> bytes:
    """Return a file of a checkpoint; ConfigError for one that is too long, of which no more is read."""
    try:
        return read_within(fs, name, OFFSETS_BYTES_MAX)
    except CorruptData as error:
        raise ConfigError(
            f"its file {name!r} has more than {OFFSETS_BYTES_MAX} bytes: restore the checkpoint from a copy"
        ) from error


def _id_in(metadata: bytes) -> str | None:
    try:
        return str(json_value(metadata)["id"])
    except (ValueError, KeyError, TypeError):
        return None


def _newest(fs: FileSystem, directory: str) -> int | None:
    """Return the newest batch that has a file in a directory of a checkpoint; others are temporary, or checksums."""
    names = (info.path.rpartition("/")[2] for info in list_or_empty(fs, directory))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _parsed(content: bytes) -> BatchOffsets:
    lines = content.decode("utf-8", "replace").splitlines()
    texts = [line.partition(":")[2] if lines[0] == "v2" else line for line in lines[2:]]
    values: list[Any] = [*lines[1:2], *texts]
    with contextlib.suppress(ValueError):  # what is too deep stays text
        check_json(content)
        for place, text in enumerate(values):
            with contextlib.suppress(ValueError):
                values[place] = json.loads(text)
    time_ms = values[0].get("batchTimestampMs") if values and isinstance(values[0], dict) else None
    if type(time_ms) is not int or not 0 <= time_ms <= NUMBER_MAX:
        time_ms = None
    return BatchOffsets("sha256:" + hashlib.sha256(content).hexdigest(), values[1:], time_ms)


def _read(
    checkpoint: str | None, name: str, context: Context, settings: Mapping[str, str] | None = None
) -> bytes | None:
    if checkpoint is None:
        return None
    try:
        return read_within(open_filesystem(normalise(checkpoint), context, settings), name, OFFSETS_BYTES_MAX)
    except NotFound:
        return None
    except (StorageError, ConfigError, CorruptData) as error:
        _log.warning(
            "cannot read %s of the checkpoint, replays are compared by content instead: %s",
            name,
            error,
        )
        return None
