"""Settings of both HDFS drivers: of the location, and of the environment that Spark's driver hands over."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, Unsupported
from ftfile.fs.hdfs.environment import HANDED_OVER, Surroundings
from ftfile.fs.location import read_seconds
from ftfile.fs.paths import require_valid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.fs.location import Location

__all__ = ("FORBIDDEN", "SETTINGS", "HadoopSettings", "require_hdfs_name")

SETTINGS = ("filePermission", "directoryPermission", "replication", "blockSize", "user", "timeout", "patience")

# HDFS has no way to store a name with a colon.
FORBIDDEN = ":"
_RESERVED = ".snapshot"

_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_MODE = re.compile("0?[01]?[0-7]{3}")


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """The settings, checked.

    Attributes:
        user: who is asking, where no ticket or token says it; None for the one of this process.
        timeout_s: no single call takes longer, without the data it carries.
        patience_s: how long a NameNode that is away, in standby or in safe mode is waited for.
        replication: of new files; None for the server's default.
        block_size: of new files, in bytes; None for the server's default.
        file_mode: permissions of new files.
        directory_mode: permissions of new directories.
        surroundings: see there.
    """

    user: str | None = None
    timeout_s: float = 60.0
    patience_s: float = 30.0
    replication: int | None = None
    block_size: int | None = None
    file_mode: int = _FILE_MODE
    directory_mode: int = _DIRECTORY_MODE
    surroundings: Surroundings = field(default_factory=Surroundings)

    @property
    def of_files(self) -> tuple[int | None, int | None, int] | None:
        """Return the setting for new files, or None if none was given."""
        asked = self.replication, self.block_size, self.file_mode
        return None if asked == (None, None, _FILE_MODE) else asked

    @classmethod
    def of(cls, location: Location) -> HadoopSettings:
        """Read the settings of a location.

        Raises:
            ConfigError: one is unknown or malformed; or see `Surroundings.from_text`.
        """
        settings = dict(location.settings)
        handed_over = settings.pop(HANDED_OVER, None)
        given = replace(location, settings=settings).known_settings(*SETTINGS)
        return cls(
            user=given.get("user"),
            timeout_s=read_seconds(given, "timeout", "60"),
            patience_s=read_seconds(given, "patience", "30", zero=True),
            replication=_count(given, "replication"),
            block_size=_count(given, "blockSize"),
            file_mode=_mode(given, "filePermission", _FILE_MODE),
            directory_mode=_mode(given, "directoryPermission", _DIRECTORY_MODE),
            surroundings=Surroundings() if handed_over is None else Surroundings.from_text(handed_over),
        )


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"{name}={text!r}: it takes a number of 1 or more")
    return int(text)


def _mode(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, f"{default:o}")
    if not _MODE.fullmatch(text):
        raise ConfigError(f"{name}={text!r}: it takes permissions as octal digits, such as {default:o}")
    return int(text, 8)


def require_hdfs_name(operation: str, path: str) -> None:
    """Accept what every driver accepts and HDFS can store.

    Raises:
        Unsupported: see `require_valid`; or a name has a colon, or is `.snapshot`.
    """
    require_valid(operation, path)
    if FORBIDDEN in path:
        raise Unsupported(operation, path, "HDFS has no names with a colon; replace it")
    if _RESERVED in path.split("/"):
        raise Unsupported(operation, path, f"{_RESERVED!r} is a name that HDFS keeps for itself; choose another")
