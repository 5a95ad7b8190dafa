"""Treatment of finished parts: names, markers, a hook, permissions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.stage import durability_of
from ftfile.commit.sealed.filesystem import OWNER_ONLY
from ftfile.core.errors import ConfigError
from ftfile.core.options import ParsedOptions, parse_options
from ftfile.fs.registry import settings_for_others
from ftfile.sink.naming.settings import Naming
from ftfile.sink.publishing.on_publish import check_hook
from ftfile.sink.publishing.success_file import SuccessFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.fs.api import Capabilities

__all__ = ("Publishing", "default_publishing")

# The least that each must grant: the writers' own processes read the log, too.
_PERMISSIONS = {"filePermission": 0o600, "directoryPermission": 0o700}

_BLOCKS = ("replication", "blockSize")
_OWN = {name.lower(): name for name in (*_PERMISSIONS, *_BLOCKS)}
_CHECKSUM_BYTES = 512
_OUT = "leave publish out"


@dataclass(frozen=True, slots=True)
class Publishing:
    """The options, checked; the log keeps the first four for a flush."""

    naming: Naming
    on_publish: str | None  # `module:function`
    storage: tuple[tuple[str, str], ...]  # settings of the file system for written files
    durability: str  # as it was asked for; see `durability_of`
    success: SuccessFile | None = None
    connection: tuple[tuple[str, str], ...] = ()  # settings of the file system for this query's processes alone
    publish: str | None = None  # as it was asked for
    owner_only: bool = False  # only the owner reads files, where the store can, and nothing else was asked for

    @classmethod
    def from_options(cls, parsed: ParsedOptions, extension: str) -> Publishing:
        """Check the options, as far as that needs no store: see `for_store`."""
        if parsed["onPublish"] is not None:
            check_hook(parsed["onPublish"])
        for name in parsed.prefixed("storage"):
            if name in _OWN:
                raise ConfigError(f"storage.{name} is an option of its own: write {_OWN[name]}")
        connection = tuple(sorted(settings_for_others(parsed["path"], parsed.prefixed("storage")).items()))
        naming = Naming.from_options(parsed, extension)
        return cls(
            naming,
            parsed["onPublish"],
            _storage(parsed),
            parsed["durability"],
            _success(parsed, extension),
            connection,
            _publish(parsed, naming),
            parsed["encryption"] != "none" and "filePermission" not in parsed.given,
        )

    def for_store(self, store: Capabilities) -> Publishing:
        """Return the settings as this store takes them; a ConfigError where it has less than was asked for."""
        if self.durability != "auto":
            durability_of(self.durability, store)
        _check_publish(self.publish, store)
        for names, has, what in (
            (_PERMISSIONS, store.permissions, "permissions"),
            (_BLOCKS, store.replication, "replicas and no blocks to choose"),
        ):
            asked = [name for name, _ in self.storage if name in names]
            if asked and not has:
                asked_for = " and ".join(asked)
                raise ConfigError(f"{asked_for}: the file system {store.driver!r} has no {what}; leave it out")
        owner_only = (OWNER_ONLY,) if self.owner_only and store.permissions else ()
        return replace(self, storage=(*self.storage, *owner_only), owner_only=False)

    @property
    def direct(self) -> bool:
        """Return True if files are written under their final names."""
        return self.publish == "direct"

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """Return all settings of the file system."""
        return (*self.connection, *self.storage)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {
            "naming": self.naming.to_json(),
            "onPublish": self.on_publish,
            "storage": dict(self.storage),
            "durability": self.durability,
        }

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Publishing:
        """Build from `to_json()`."""
        naming, storage = Naming.from_json(text["naming"]), tuple(text["storage"].items())
        return cls(naming, text["onPublish"], storage, text["durability"])


def _success(parsed: ParsedOptions, extension: str) -> SuccessFile | None:
    if parsed["successFile"] is not None:
        return SuccessFile.checked(parsed["successFile"], parsed["successDelay"], extension)
    if "successDelay" in parsed.given:
        raise ConfigError("successDelay is for successFile, which is not given: set successFile=_SUCCESS")
    return None


def _check_publish(how: str | None, store: Capabilities) -> None:
    if how == "rename" and not store.atomic_rename:
        raise ConfigError(f"publish=rename: the file system {store.driver!r} has no rename in one step; {_OUT}")
    if how == "copy" and store.atomic_rename:
        raise ConfigError(f"publish=copy: the file system {store.driver!r} renames in one step; {_OUT}")
    if how == "direct" and store.visible_at != "at_close":
        raise ConfigError(
            f"publish=direct: the file system {store.driver!r} shows files while they are written; {_OUT}"
        )


def _publish(parsed: ParsedOptions, naming: Naming) -> str:
    how: str = parsed["publish"]
    if how != "direct":
        return how
    if parsed["encryption"] != "none":
        raise ConfigError(
            "publish=direct and encryption: what is encrypted is bound to the name it is staged under; leave one out"
        )
    if naming.if_exists == "fail":
        raise ConfigError("publish=direct and ifExists=fail: names are taken before the commit looks; leave one out")
    if naming.uses_numbers:
        raise ConfigError(
            "publish=direct and partFileName: files are named before they are committed, so that there is no {number} "
            "for them, and nothing for a function to go by; write a template without it"
        )
    return how


def _storage(parsed: ParsedOptions) -> tuple[tuple[str, str], ...]:
    """Return the settings that were asked for of what is written."""
    permissions = {name: f"{parsed[name]:o}" for name in _PERMISSIONS if name in parsed.given}
    blocks = {name: str(parsed[name]) for name in _BLOCKS if name in parsed.given}
    for name, least in _PERMISSIONS.items():
        if name in parsed.given and parsed[name] & least != least:
            raise ConfigError(f"{name}={parsed[name]:04o}: the sink itself needs {least:04o}")
    if "blockSize" in blocks and parsed["blockSize"] % _CHECKSUM_BYTES:
        raise ConfigError(f"blockSize={parsed['blockSize']}: HDFS takes multiples of {_CHECKSUM_BYTES} bytes")
    return (*permissions.items(), *blocks.items())


def default_publishing() -> Publishing:
    """Return the settings of a query that sets none."""
    parsed = parse_options({}, "write")
    return Publishing(Naming.from_options(parsed, ""), parsed["onPublish"], _storage(parsed), parsed["durability"])
