"""Facts from the Spark checkpoint of a query."""

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


# Table of the log with the checkpoint locations of queries.
CHECKPOINTS = "checkpoints"
# Limit for a checkpoint file. Kafka offsets have about 20 bytes for each partition.
OFFSETS_BYTES_MAX = 64 << 20

_WILDCARDS = frozenset("*?[{")

_log = get_logger(__name__)


class BatchOffsets(NamedTuple):
    """The content of Spark's file `offsets/N`: a hash of the file, the offset of each source, and the planning time."""

    hash: str
    offsets: list[Any]
    time_ms: int | None  # of the driver's clock; None if the file does not contain it


class SparkProgress(NamedTuple):
    """The newest batches of a query in its checkpoint."""

    planned: int | None  # newest batch with offsets; None before the first batch
    offsets: BatchOffsets | None  # of the newest planned batch
    committed: int | None  # newest batch in Spark's commit log


def read_query_id(checkpoint: str | None, context: Context, settings: Mapping[str, str] | None = None) -> str | None:
    """Return the id in the checkpoint's `metadata` file, or None if it is missing or cannot be read."""
    content = _read(checkpoint, "metadata", context, settings)
    if content is None:
        return None
    return _id_in(content)


def newest_planned(checkpoint: str, context: Context) -> int | None:
    """Return the newest batch with offsets in a checkpoint; None before the first batch, or if it cannot be read."""
    try:
        return _find_newest(open_filesystem(normalise(checkpoint), context), "offsets")
    except (ConfigError, StorageError):
        return None


def read_progress(
    checkpoint: str, query_id: str, context: Context, settings: Mapping[str, str] | None = None
) -> SparkProgress:
    """Return the newest batches of a query. The settings are those of the checkpoint's file system.

    Raises:
        ConfigError: the checkpoint does not exist, or belongs to another query.
        StorageError: the checkpoint cannot be read.
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
    # `commits` is read first, because a batch is planned before it is committed.
    committed, planned = (_find_newest(fs, directory) for directory in ("commits", "offsets"))
    if planned is None:
        offsets = None
    else:
        offsets = _parse_offsets(_content(fs, f"offsets/{planned}"))
    return SparkProgress(planned, offsets, committed)


def check_sources(path: str, checkpoint: str, query_id: str, log: CommitLog, head: LogState) -> None:
    """Raise a ConfigError if a query would read the files that it writes, according to its checkpoint.

    Such a query never ends. If the checkpoint cannot be read, nothing is checked.
    """
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
    """Return True if an offset refers to a version of this log."""
    # The nonce of an offset within a version belongs to that version; see `read.log_positions`.
    version = offset.get("snapshot", offset.get("version", -1))
    if type(version) is not int:
        return False
    version += "snapshot" not in offset and bool(offset.get("next"))
    record = None
    if head.log_start <= version <= head.version:
        record = log.read_record(version)
    return record is not None and record.nonce == offset.get("nonce")


def _files_of(checkpoint: str, offset: Any, context: Context) -> str | None:  # noqa: ANN401 - whatever a checkpoint has
    """Return the URL of the directory that an ftfile source of files reads; None for other sources and patterns."""
    from ftfile.log.commit_log import PLANS_LAYOUT, CommitLog  # noqa: PLC0415 - asked once for each query

    try:
        state = f"{normalise(checkpoint).rstrip('/')}/{layout.STATE_IN_CHECKPOINT}/{offset['id']}"
        plans = CommitLog(open_filesystem(state, context), layout_line=PLANS_LAYOUT).refresh()
        url = normalise(plans.definitions[plans.queries[offset["id"]].settings or ""]["path"]).rstrip("/")
    except (ConfigError, StorageError, LookupError, TypeError):
        return None
    if _WILDCARDS.intersection(url):
        return None
    return url


def _files_of_spark(checkpoint: str, number: int, offset: Any, context: Context) -> Iterator[str]:  # noqa: ANN401
    """Yield the URLs of the last files that Spark's file source read; none for other sources."""
    if not isinstance(offset, dict) or type(batch := offset.get("logOffset")) is not int:
        return
    name = f"sources/{number}/{batch}"
    content = _read(checkpoint, name, context) or _read(checkpoint, f"{name}.compact", context) or b""
    for line in content.splitlines()[1:]:
        with contextlib.suppress(ValueError, LookupError, TypeError):
            yield unquote(json_value(line)["path"])


def _is_read_below(path: str, url: str) -> bool:
    """Return True if a query that reads the file `url` reads `path`, which contains the file or its partition."""
    try:
        directory, file = parse(path), parse(url)
    except ConfigError:  # not a URL of a supported scheme
        return False
    if directory.authority != file.authority:
        return False
    above = directory.path.rstrip("/") + "/"
    *partitions, _ = file.path.removeprefix(above).split("/")
    return file.path.startswith(above) and all("=" in name for name in partitions)


def recorded_checkpoint(head: LogState, query_id: str) -> str | None:
    """Return the URL of a query's checkpoint in the log; None if the writer did not receive it."""
    table = head.tables.get(CHECKPOINTS)
    if table is None:
        entry = None
    else:
        entry = table.get(query_id)
    if entry is None:
        return None
    return str(entry[1])


def checkpoint_table_change(head: LogState, author: Author, checkpoint: str | None) -> dict[str, Any]:
    """Return the change of the log's tables that records the checkpoint of a query; empty if it is recorded already."""
    if not isinstance(author, StreamAuthor) or checkpoint is None:
        return {}
    with contextlib.suppress(ConfigError):  # for example, a scheme that only Spark supports
        url = normalise(checkpoint)
        if url != recorded_checkpoint(head, author.query_id):
            return {CHECKPOINTS: {"set": {author.query_id: url}}}
    return {}


def read_offsets(checkpoint: str | None, batch_id: int, context: Context) -> BatchOffsets | None:
    """Return the offsets of a batch, or None if the checkpoint is unknown or cannot be read here.

    The file contains a version line, a line of batch metadata with the time, and one line per source. In version 2, the
    name of the source and a colon precede its offset. The hash covers the whole file, because offsets of a file source
    can be equal for different data.
    """
    content = _read(checkpoint, f"offsets/{batch_id}", context)
    if content is None:
        return None
    return _parse_offsets(content)


def _content(fs: FileSystem, name: str) -> bytes:
    """Return a file of a checkpoint. A file that exceeds the limit raises a ConfigError and is not read further."""
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


def _find_newest(fs: FileSystem, directory: str) -> int | None:
    """Return the newest batch with a file in a directory of a checkpoint; temporary files and checksums are ignored."""
    names = (info.path.rpartition("/")[2] for info in list_or_empty(fs, directory))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _parse_offsets(content: bytes) -> BatchOffsets:
    lines = content.decode("utf-8", "replace").splitlines()
    texts = []
    for line in lines[2:]:
        texts.append(line.partition(":")[2] if lines[0] == "v2" else line)
    values: list[Any] = [*lines[1:2], *texts]
    with contextlib.suppress(ValueError):  # JSON that is nested too deeply stays text
        check_json(content)
        for place, text in enumerate(values):
            with contextlib.suppress(ValueError):
                values[place] = json.loads(text)
    time_ms = None
    if values and isinstance(values[0], dict):
        time_ms = values[0].get("batchTimestampMs")
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
