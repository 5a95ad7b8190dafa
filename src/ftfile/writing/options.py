"""The common options of files and stores, their checks, and the settings that are built from them.

The options set, for example, how files are stored, encrypted and accessed.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ftfile.core.errors import ConfigError
from ftfile.core.options import kinds
from ftfile.core.per_process import OnePerKey
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import check_checkpoint_location
from ftfile.log.format.layout import dead_letter_path, staged_directory
from ftfile.log.format.model import Transaction
from ftfile.log.opening import file_settings
from ftfile.log.policy import Policy
from ftfile.log.sealed import KEY_PROVIDER_VARIABLE, OWNER_ONLY, SealedFileSystem
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.registry import open_filesystem, settings_for_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.core.options.parsing import Settings
    from ftfile.core.options.typed import WriterOptions
    from ftfile.filters.aes_gcm import AesGcm
    from ftfile.filters.chain import Chain
    from ftfile.filters.keys import Keys
    from ftfile.formats.api import Format
    from ftfile.storage.api import Capabilities, Durability, FileSystem


# Digits that the batch and other numbers in a name can gain over time, in total.
MORE_DIGITS = 20

# A placeholder for the longest id that a path can contain.
_ID = "00000000-0000-0000-0000-000000000000"

_C = TypeVar("_C", bound="WriteConfig")

# The least permissions that each option must grant, because the writers' own processes also read the log.
_PERMISSIONS = {"filePermission": 0o600, "directoryPermission": 0o700}

_OWN = {name.lower(): name for name in _PERMISSIONS}
# The settings of drivers for written files. The log records them, because maintenance writes files too.
_OF_DRIVERS = {"replication": kinds.COUNT, "blockSize": kinds.SIZE}
# From the weakest to the strongest.
_MEANINGS: dict[Durability, str] = {
    "none": "keeps no file after the process ends",
    "close": "makes files durable only when they are closed",
    "hsync": "syncs",
}

LOGS_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConfig(ABC):
    """The settings of a write, from its options and schema."""

    path: str  # normalised URL of the directory
    schema_json: str  # of the input rows, as Spark's `StructType.json()` with all columns nullable
    overwrite: bool  # each commit replaces the whole content of the directory
    common: CommonSettings

    def for_storage(self: _C, storage: Capabilities) -> _C:  # noqa: PYI019 - typing.Self comes with Python 3.11
        """Return the settings for this storage.

        A ConfigError is raised if the storage does not support a requested setting.
        """
        fitted = self.common.storage.for_storage(storage)
        if fitted is self.common.storage:
            return self
        return replace(self, common=replace(self.common, storage=fitted))

    @property
    @abstractmethod
    def hidden_chain(self) -> Chain:
        """Return the filters of segments and dead letters. These files are never encrypted by their format."""

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the input rows."""
        return arrow_schema(self.schema_json)

    def log(self, context: Context) -> CommitLog:
        """Return this process's log of the directory, see `CommonSettings.log_at`."""
        return self.common.log_at(self.path, context)


def resolve_column(
    option: str,
    name: str,
    schema: pa.Schema,
    is_right: Callable[[pa.DataType], bool] | None = None,
    needed: str = "",
    advice: str = "",
) -> str:
    """Return a column with the schema's spelling. If it is missing or its type is wrong, a ConfigError is raised."""
    spelling: dict[str, str] = {}
    for field_name in schema.names:
        spelling[field_name.lower()] = field_name
    if name.lower() not in spelling:
        raise ConfigError(
            f"{option} names a column that does not exist: {name!r}; the columns are {', '.join(schema.names)}{advice}"
        )
    column = spelling[name.lower()]
    kind = schema.field(column).type
    if is_right is not None and not is_right(kind):
        raise ConfigError(f"{option}: column {column!r} is {kind}, but {needed} is needed")
    return column


def transaction_of(parsed: WriterOptions, *, stream: bool) -> Transaction | None:
    """Return the user's identity of a batch write; None without `txnAppId` and `txnVersion`."""
    app_id, version = parsed.txn_app_id, parsed.txn_version
    if (app_id is None) != (version is None):
        if version is None:
            present, missing = ("txnAppId", "txnVersion")
        else:
            present, missing = ("txnVersion", "txnAppId")
        raise ConfigError(f"{present} without {missing}: together they identify this write; set both or neither")
    if app_id == "":
        raise ConfigError("option txnAppId='': it must be a name, such as the name of the application")
    if app_id is None or version is None:
        return None
    if stream:
        raise ConfigError(
            "txnAppId and txnVersion are for batch writes, as in foreachBatch: a stream's query and batch ids "
            "already make each batch exactly once. Leave both out"
        )
    return Transaction(app_id, version)


def check_staged_names(path: str, letters: Chain, storage: Capabilities) -> None:
    """Raise a ConfigError if the storage does not support the names of staged files or dead letters."""
    staged = f"{staged_directory(_ID)}/0000000000-00000-0-{_ID}.staged"
    for staged_path in (staged, dead_letter_path(_ID, 0, partition=0, letter_id=_ID, filters=letters.names)):
        if fault := storage.fault_of(staged_path, MORE_DIGITS):
            raise ConfigError(f"path={path!r}: the sink would write a file {staged_path!r}, which {fault}")


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption settings of written files. They contain no key."""

    kind: str  # `aes-gcm`: every file has an envelope; `parquet`: all files except parts have an envelope
    key_id: str  # of the key-encryption key
    keys: Keys

    @classmethod
    def from_options(cls, parsed: WriterOptions) -> Encryption | None:
        """Check the options, and that the key is available in this process. Return None if nothing is encrypted."""
        kind, key_id, reference = parsed.encryption, parsed.encryption_key_id, parsed.key_provider
        if kind == "none" and key_id is None and reference is None:
            return None
        from ftfile.filters.keys import Keys, check_key_id  # noqa: PLC0415 - most writers encrypt nothing

        if key_id is not None:
            check_key_id(key_id)
        if reference is not None:
            Keys.from_reference(reference)
        if kind == "none":
            set_options = []
            for name in ("encryptionKeyId", "keyProvider"):
                if name in parsed.given:
                    set_options.append(name)
            raise ConfigError(f"{' and '.join(set_options)} without encryption: set encryption=aes-gcm")
        reference = reference or os.environ.get(KEY_PROVIDER_VARIABLE)
        if not reference:
            raise ConfigError(
                f"encryption={kind} without keyProvider: set where the keys are, as in "
                f"keyProvider=file:/etc/ftfile/keys, or set the environment variable {KEY_PROVIDER_VARIABLE} on the "
                "driver and the executors"
            )
        keys = Keys.from_reference(reference)
        key = keys.key_to_use(key_id or keys.only_id())
        if kind == "parquet" and key.wrapped:
            raise ConfigError(
                f"encryption=parquet needs the keys of a key ring, which other readers can also have, but {keys.kind} "
                "does not return keys. Use encryption=aes-gcm"
            )
        return cls(kind, key.key_id, keys)

    def format_of(self, file_format: Format) -> Format:
        """Return the format of parts."""
        if self.kind == "parquet":
            return file_format.encrypt(self.key_id, self.keys)
        return file_format

    @property
    def around_parts(self) -> AesGcm | None:
        """Return the filter for a whole part; None if the format encrypts it."""
        if self.kind == "parquet":
            return None
        return self.around_others

    @property
    def around_others(self) -> AesGcm:
        """Return the filter for a whole segment, or for dead letters."""
        from ftfile.filters.aes_gcm import AesGcm  # noqa: PLC0415

        return AesGcm(self.key_id, self.keys)


def open_for_writer(
    url: str,
    context: Context,
    settings: Iterable[tuple[str, str]],
    encryption: Encryption | None,
    optional_settings: Iterable[tuple[str, str]] = (),
) -> FileSystem:
    """Open a directory for a writer with these settings. It need not exist yet. See `open_filesystem`."""
    fs = open_filesystem(url, context, dict(settings), dict(optional_settings))
    if encryption is None:
        return fs
    return SealedFileSystem(fs, encryption.keys, encryption.key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The checked storage options. The log records the first two for maintenance."""

    file_settings: Settings = ()  # of the file system, for written files
    durability: str = "auto"  # as requested; see `durability_of`
    client_settings: Settings = ()  # of the file system, for the processes of this writer only
    owner_only: bool = (
        False  # make files readable by the owner only, if the storage supports it and no permission is set
    )

    @classmethod
    def from_options(cls, parsed: WriterOptions, encryption: Encryption | None, clients: Settings) -> Storage:
        """Check options that need no storage; `for_storage` checks the others. For `clients`, see `client_settings`."""
        for name in parsed.options_with_prefix("storage"):
            if name in _OWN:
                raise ConfigError(f"storage.{name} is a separate option: write {_OWN[name]}")
        owner_only = encryption is not None and not parsed.is_given("filePermission")
        return cls(
            file_settings=_file_settings(parsed),
            durability=parsed.durability,
            client_settings=clients,
            owner_only=owner_only,
        )

    def for_storage(self, storage: Capabilities) -> Storage:
        """Return the settings for this storage.

        A ConfigError is raised if the storage does not support a requested setting.
        """
        if self.durability != "auto":
            durability_of(self.durability, storage)
        permissions = " and ".join(name for name, _ in self.file_settings if name in _PERMISSIONS)
        if permissions and not storage.permissions:
            raise ConfigError(f"{permissions}: the file system {storage.driver!r} has no permissions; leave it out")
        if not self.owner_only:
            return self
        owner_only = (OWNER_ONLY,) if storage.permissions else ()
        return replace(self, file_settings=(*self.file_settings, *owner_only), owner_only=False)

    @property
    def settings(self) -> Settings:
        """Return all settings of the file system."""
        return (*self.client_settings, *self.file_settings)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {"storage": dict(self.file_settings), "durability": self.durability}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Storage:
        """Build from `to_json()`. An unknown durability raises a ValueError."""
        durability = text["durability"]
        if durability not in {"auto", *_MEANINGS}:
            raise ValueError(f"the durability is {durability!r:.80}")
        return cls(file_settings=file_settings(text["storage"]), durability=durability)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """The checked common options of files and stores."""

    policy: Policy
    storage: Storage
    encryption: Encryption | None
    bad_records: Literal["fail", "deadLetter", "drop"]
    max_record_bytes: int | None
    max_open_bytes: int  # memory of a task for rows that are not written yet
    on_schema_change: Literal["fail", "widen", "any"]
    checkpoint: str | None  # the query's checkpoint location, if the writer received it
    transaction: Transaction | None  # the user's identity of a batch write
    user_metadata: str | None  # the user's text for each commit
    at_least_version: int | None  # lower bound of the directory's version
    is_stream: bool = False
    is_attached: bool = False  # a listener maintains the directory while no batch runs
    is_application: bool = False  # a repeated batch is recognised by its opening and its position, not by its rows

    @classmethod
    def from_options(
        cls, parsed: WriterOptions, encryption: Encryption | None, clients: Settings, *, stream: bool
    ) -> CommonSettings:
        """Check the options. For `clients`, see `client_settings`.

        Raises:
            ConfigError: an option contradicts another, an option does not support streams, or the checkpoint is within
                a log.
        """
        checkpoint = parsed.spark.get("checkpointlocation")
        check_checkpoint_location(checkpoint)
        return cls(
            policy=Policy.from_options(parsed),
            storage=Storage.from_options(parsed, encryption, clients),
            encryption=encryption,
            bad_records=parsed.bad_records,
            max_record_bytes=parsed.max_record_bytes,
            max_open_bytes=parsed.max_open_bytes,
            on_schema_change=parsed.on_schema_change,
            checkpoint=checkpoint,
            transaction=transaction_of(parsed, stream=stream),
            user_metadata=parsed.user_metadata,
            at_least_version=parsed.at_least_version,
            is_stream=stream,
        )

    def log_at(self, path: str, context: Context) -> CommitLog:
        """Return this process's log of a directory. Its cached state is checked before each use. Thread-safe.

        The settings need not be checked against the storage.
        """
        storage, encryption, at_least_version = self.storage, self.encryption, self.at_least_version
        optional_settings = (*storage.file_settings, *((OWNER_ONLY,) if storage.owner_only else ()))
        # One log for all writers of a directory in this process, because its lock serialises them.
        return _logs.of(
            _LogKey(path, context, storage.client_settings, encryption, optional_settings, at_least_version)
        )


class _LogKey(NamedTuple):
    path: str
    context: Context
    client_settings: Settings
    encryption: Encryption | None
    optional_settings: Settings
    at_least_version: int | None


def _open_log(key: _LogKey) -> CommitLog:
    fs = open_for_writer(
        key.path,
        key.context,
        settings=key.client_settings,
        encryption=key.encryption,
        optional_settings=key.optional_settings,
    )
    return CommitLog(fs, at_least_version=key.at_least_version)


_logs = OnePerKey(_open_log, LOGS_KEPT)


def client_settings(parsed: WriterOptions) -> Settings:
    """Return the client options of the storage and this process's environment settings, for executors."""
    return tuple(sorted(settings_for_others(parsed.required_path(), parsed.options_with_prefix("storage")).items()))


def _file_settings(parsed: WriterOptions) -> Settings:
    """Return the requested settings of written files."""
    settings: list[tuple[str, str]] = []
    permissions = {"filePermission": parsed.file_permission, "directoryPermission": parsed.directory_permission}
    for name, bits in permissions.items():
        if bits is None:
            continue
        if bits & _PERMISSIONS[name] != _PERMISSIONS[name]:
            raise ConfigError(f"{name}={bits:04o}: the sink needs at least {_PERMISSIONS[name]:04o}")
        settings.append((name, f"{bits:o}"))
    texts = parsed.options_with_prefix("storage")
    for name, kind in _OF_DRIVERS.items():
        # The driver has the text among its settings too, and refuses a wrong one.
        with contextlib.suppress(KeyError, ValueError):
            settings.append((name, str(kind.parse(texts[name.lower()]))))
    return tuple(settings)


def durability_of(asked: str, capabilities: Capabilities) -> Durability:
    """Return the durability of data files before the driver commits them; `auto` is the strongest possible."""
    if asked == "auto":
        return capabilities.durability
    durability = next(name for name in _MEANINGS if name == asked)
    strengths = list(_MEANINGS)
    if strengths.index(durability) > strengths.index(capabilities.durability):
        raise ConfigError(
            f"durability={asked}: the file system {capabilities.driver!r} {_MEANINGS[capabilities.durability]}; "
            "leave it out"
        )
    return durability


def forget_logs() -> None:
    """Drop the logs, to simulate a new process."""
    _logs.clear()
