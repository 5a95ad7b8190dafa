"""Treatment of finished parts: names, markers, a hook, storage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.options import Storage
from ftfile.core.errors import ConfigError
from ftfile.core.options import ParsedOptions, parse_options
from ftfile.sink.naming.settings import Naming
from ftfile.sink.publishing.success_file import SuccessFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.fs.api import Capabilities

_OUT = "leave publish out"


@dataclass(frozen=True, slots=True)
class Publishing:
    """The options, checked; the log keeps the first three for a flush."""

    naming: Naming
    on_publish: str | None  # `module:function`
    storage: Storage
    success: SuccessFile | None = None
    publish: str | None = None  # as it was asked for
    export_to: tuple[str, ...] = ()  # formats of tables

    @classmethod
    def from_options(cls, parsed: ParsedOptions, extension: str) -> Publishing:
        """Check the options, as far as that needs no store: see `for_store`."""
        if parsed["onPublish"] is not None:
            from ftfile.sink.publishing.on_publish import check_hook  # noqa: PLC0415 - few writers have one

            check_hook(parsed["onPublish"])
        naming = Naming.from_options(parsed, extension)
        success, publish = _success(parsed, extension), _publish(parsed, naming)
        storage, export_to = Storage.from_options(parsed), parsed["exportTo"]
        return cls(naming, parsed["onPublish"], storage, success, publish, export_to)

    def for_store(self, store: Capabilities) -> Publishing:
        """Return the settings as this store takes them; a ConfigError where it has less than was asked for."""
        _check_publish(self.publish, store)
        return replace(self, storage=self.storage.for_store(store))

    @property
    def direct(self) -> bool:
        """Return True if files are written under their final names."""
        return self.publish == "direct"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {"naming": self.naming.to_json(), "onPublish": self.on_publish, **self.storage.to_json()}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Publishing:
        """Build from `to_json()`."""
        return cls(Naming.from_json(text["naming"]), text["onPublish"], Storage.from_json(text))


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


def default_publishing() -> Publishing:
    """Return the settings of a query that sets none."""
    parsed = parse_options({}, "write")
    return Publishing(Naming.from_options(parsed, ""), parsed["onPublish"], Storage((), parsed["durability"]))
