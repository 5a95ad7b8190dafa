"""The log of a Delta table over the files of a directory: a commit for each version, and a checkpoint now and then.

As in Delta's protocol, https://github.com/delta-io/delta/blob/master/PROTOCOL.md. A commit is created in one step, so
that one of several exporters writes it, and a crash leaves all of it or nothing. Its `commitInfo` says which version of
which log it stands for.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.arrays.spark_types import arrow_schema
from ftfile.arrays.value_text import UTC, value_texts
from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData, NotFound
from ftfile.encoding.partitions.paths import bucket_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.commit.format.model import Add, Remove
    from ftfile.fs.api import FileSystem

__all__ = ("CHECKPOINT_EVERY", "LOG", "DeltaLog", "Exported", "Files", "table_actions")

LOG = "_delta_log"
CHECKPOINT_EVERY = 100
_COMMIT = re.compile(r"(\d{20})\.json")
# A feature that no program writes by: all of them refuse to write to the table, whose files are ftfile's.
_WRITER_FEATURE = "ftfileExport"
_TEXTS = pa.map_(pa.string(), pa.string())
_ACTIONS = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
    }
)

Action = dict[str, Any]


class Exported(NamedTuple):
    """The version of a log that a commit of a Delta table stands for.

    Attributes:
        commit: the Delta table's own version.
        version: of the directory.
        nonce: of its record.
        schema: key of its columns in the log.
        partition_by: its partition columns.
        table: the Delta table's id.
    """

    commit: int
    version: int
    nonce: str
    schema: str
    partition_by: list[str]
    table: str


class DeltaLog:
    """The commits of a Delta table in a directory."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def newest(self) -> Exported | None:
        """Return the newest commit, by the version that it stands for; None without any.

        Raises:
            ConfigError: another program wrote it.
        """
        commits = self._commits()
        if not commits:
            return None
        for action in self._read(commits[-1]):
            found = action.get("commitInfo", {}).get("ftfile")
            if found is not None:
                return Exported(commits[-1], **found)
        raise ConfigError(
            f"{LOG!r} has a newest commit, {_name(commits[-1])!r}, that is no export of ftfile's: another program "
            "wrote to this table. Delete the directory to export anew"
        )

    def live_paths(self) -> set[str]:
        """Return the paths of the files of the newest commit, as the table has them."""
        commits = self._commits()
        checkpoint = next((number for number in reversed(commits) if number % CHECKPOINT_EVERY == 0 and number), None)
        live: set[str] = set()
        if checkpoint is not None:
            # A crash between a commit and its checkpoint leaves out the latter: then commits have all.
            with contextlib.suppress(NotFound):
                content = self._fs.read(_checkpoint_path(checkpoint))
                live = {add["path"] for add in pq.read_table(pa.BufferReader(content))["add"].to_pylist() if add}
                commits = commits[commits.index(checkpoint) + 1 :]
        for number in commits:
            for action in self._read(number):
                if "add" in action:
                    live.add(action["add"]["path"])
                if "remove" in action:
                    live.discard(action["remove"]["path"])
        return live

    def append(self, exported: Exported, operation: str, time_ms: int, actions: Iterable[Action]) -> None:
        """Create a commit.

        Raises:
            AlreadyExists: somebody else did.
        """
        own = exported._asdict()
        del own["commit"]
        info = {"timestamp": time_ms, "operation": operation, "operationParameters": {}, "ftfile": own}
        lines = [json.dumps(action, separators=(",", ":")) for action in ({"commitInfo": info}, *actions)]
        self._fs.make_directories(LOG)
        self._fs.create_exclusive(f"{LOG}/{_name(exported.commit)}", "\n".join([*lines, ""]).encode())

    def write_checkpoint(self, commit: int, actions: list[Action]) -> None:
        """Write all that is live at a commit, for readers that would read all commits otherwise; idempotent."""
        rows = [{name: action.get(name) for name in _ACTIONS.names} for action in actions]
        for row in rows:
            if row["add"] is not None:
                row["add"] = row["add"] | {"partitionValues": list(row["add"]["partitionValues"].items())}
            if row["metaData"] is not None:
                form = row["metaData"]["format"] | {"options": []}
                row["metaData"] = row["metaData"] | {"configuration": [], "format": form}
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, _ACTIONS), content)
        # No hint of it is written: readers find it by its name, and some fail at a hint that a crash tore.
        with contextlib.suppress(AlreadyExists):
            self._fs.create_exclusive(_checkpoint_path(commit), content.getvalue())

    def _commits(self) -> list[int]:
        names = (info.path.rpartition("/")[2] for info in list_or_empty(self._fs, LOG))
        return sorted(int(match[1]) for name in names if (match := _COMMIT.fullmatch(name)))

    def _read(self, number: int) -> list[Action]:
        path = f"{LOG}/{_name(number)}"
        try:
            return [json.loads(line) for line in self._fs.read(path).decode().splitlines() if line]
        except ValueError as error:
            raise CorruptData(
                path, "a commit of a Delta table", str(error), "Delete _delta_log to export anew"
            ) from error


class Files:
    """Makes the actions of files, of a directory with these definitions and columns."""

    def __init__(self, definitions: Mapping[str, Any], schema: str, time_ms: int) -> None:
        self._definitions = definitions
        self._schema = arrow_schema(schema)
        self._time_ms = time_ms
        self._values: dict[tuple[str, str], dict[str, str | None]] = {}

    def add(self, add: Add, *, is_change: bool = True) -> Action:
        """Return the action of a part that comes; with `is_change`, its rows are new."""
        stats = json.dumps({"numRecords": add.rows})
        return {
            "add": {
                "path": _path(add),
                "partitionValues": self._partition_values(add),
                "size": add.length,
                "modificationTime": self._time_ms,
                "dataChange": is_change,
                "stats": stats,
            }
        }

    def remove(self, removed: Remove, *, is_change: bool = True) -> Action:
        """Return the action of a part that goes."""
        return self.remove_path(_path(removed), is_change=is_change)

    def remove_path(self, path: str, *, is_change: bool = True) -> Action:
        """Return the action of a file that goes, by its path in the table."""
        return {"remove": {"path": path, "deletionTimestamp": self._time_ms, "dataChange": is_change}}

    def _partition_values(self, add: Add) -> dict[str, str | None]:
        key = (add.encoding, add.bucket)
        if key not in self._values:
            directory, stem = layout.bucket_directory(add.bucket), layout.bucket_stem(add.bucket)
            values = bucket_values(self._definitions[add.encoding], directory, stem, self._schema)
            self._values[key] = {name: _text(value) for name, value in values.items()}
        return self._values[key]


def table_actions(schema: str, partition_by: list[str], table: str, time_ms: int) -> list[Action]:
    """Return the actions that say what a table is.

    Args:
        schema: of its rows, as Spark's JSON, which is Delta's, too.
        partition_by: names of columns.
        table: its id.
        time_ms: of its making.
    """
    # A reader that does not know local times must not take them for instants.
    features = ["timestampNtz"] if '"timestamp_ntz"' in schema else []
    protocol: dict[str, Any] = {"minReaderVersion": 3 if features else 1, "minWriterVersion": 7}
    if features:
        protocol["readerFeatures"] = features
    metadata = {
        "id": table,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": partition_by,
        "configuration": {},
        "createdTime": time_ms,
    }
    return [{"protocol": protocol | {"writerFeatures": [*features, _WRITER_FEATURE]}}, {"metaData": metadata}]


def _path(recorded: Add | Remove) -> str:
    assert recorded.final_path is not None
    return quote(recorded.final_path, safe="/=")


def _text(value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    (text,) = value_texts(pa.array([value.as_py()], value.type), UTC)
    return f"{text.replace(' ', 'T')}Z" if getattr(value.type, "tz", None) else text


def _name(commit: int) -> str:
    return f"{commit:020}.json"


def _checkpoint_path(commit: int) -> str:
    return f"{LOG}/{commit:020}.checkpoint.parquet"
