"""Settings of both HDFS drivers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import ConfigError, Unsupported
from ftfile.core.units import parse_size_bytes
from ftfile.storage.hdfs.configuration import is_kerberos, read_configuration
from ftfile.storage.hdfs.credentials.keytab import KEYTAB, PRINCIPAL, login_from
from ftfile.storage.hdfs.handover import FROM_DRIVER, HAND_TOKENS, hands_tokens, settings_from_driver
from ftfile.storage.paths import check_path, read_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.storage.hdfs.credentials.keytab import Login
    from ftfile.storage.paths import Location


_SETTINGS = (
    *("filePermission", "directoryPermission", "replication", "blockSize"),
    *("user", "timeout", "patience", HAND_TOKENS, KEYTAB, PRINCIPAL),
)
# HDFS cannot store a name with a colon.
FORBIDDEN = ":"
_RESERVED = ".snapshot"
_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_MODE = re.compile("0?[01]?[0-7]{3}")
_CHECKSUM_BYTES = 512  # of content for each checksum; blocks contain whole checksums


class FileSettings(NamedTuple):
    """Settings for new files."""

    replication: int | None
    block_size: int | None
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HadoopSettings:
    """Checked settings; the server decides settings that are None."""

    user: str | None = None  # without ticket and token; None for the user of the environment
    timeout_s: float = 60.0  # timeout of a call without data
    patience_s: float = 30.0  # for a NameNode that is down, in standby or in safe mode
    replication: int | None = None
    block_size: int | None = None  # in bytes
    file_mode: int = _FILE_MODE
    directory_mode: int = _DIRECTORY_MODE
    handed: Mapping[str, str] = field(default_factory=dict)  # properties of Spark's driver, which override this host's
    handed_user: str | None = None  # the user of Spark's driver
    login: Login | None = None  # by a keytab, which is preferred to tickets and tokens

    @property
    def of_files(self) -> FileSettings | None:
        """Return replication, block size and permissions for new files, or None if none of them is set."""
        asked = FileSettings(self.replication, self.block_size, self.file_mode)
        if asked == (None, None, _FILE_MODE):
            return None
        return asked

    @classmethod
    def of(cls, location: Location) -> HadoopSettings:
        """Read the settings of a location, or raise `ConfigError`, also if only Spark's driver has a token."""
        hands_tokens(location.settings)  # checks the value
        settings = dict(location.settings)
        from_driver = settings.pop(FROM_DRIVER, None)
        values = replace(location, settings=settings).known_settings(*_SETTINGS)
        login = login_from(values, is_executor=from_driver is not None)
        handed, handed_user = settings_from_driver(from_driver, needs_token=login is None)
        # The configuration is read for each opening only if it is needed.
        if login is not None and not is_kerberos(read_configuration(handed)):
            login = None
            if KEYTAB in values:
                raise ConfigError(
                    f"storage.{KEYTAB} is for clusters with Kerberos, and hadoop.security.authentication is not "
                    "kerberos: set HADOOP_CONF_DIR to the configuration of the cluster, or omit it"
                )
        return cls(
            user=values.get("user"),
            timeout_s=read_seconds(values, "timeout", "60"),
            patience_s=read_seconds(values, "patience", "30", zero=True),
            replication=_count(values, "replication"),
            block_size=_block_size(values),
            file_mode=_mode(values, "filePermission", _FILE_MODE),
            directory_mode=_mode(values, "directoryPermission", _DIRECTORY_MODE),
            handed=handed,
            handed_user=handed_user,
            login=login,
        )


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"storage.{name}={text!r}: it must be a number of 1 or more")
    return int(text)


def _block_size(values: Mapping[str, str]) -> int | None:
    text = values.get("blockSize")
    if text is None:
        return None
    try:
        size_bytes = parse_size_bytes(text)
    except ValueError:
        size_bytes = 0
    if size_bytes <= 0 or size_bytes % _CHECKSUM_BYTES:
        raise ConfigError(
            f"storage.blockSize={text!r}: it must be a multiple of {_CHECKSUM_BYTES} bytes, such as 128MiB"
        )
    return size_bytes


def _mode(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, f"{default:o}")
    if not _MODE.fullmatch(text):
        raise ConfigError(f"{name}={text!r}: it must be permissions as octal digits, such as {default:o}")
    return int(text, 8)


def check_hdfs_name(operation: str, path: str) -> None:
    """Raise `Unsupported` for a path that no driver supports (`check_path`), or that HDFS cannot store."""
    check_path(operation, path)
    if FORBIDDEN in path:
        raise Unsupported(operation, path, "HDFS does not allow a colon in names; replace it")
    if _RESERVED in path.split("/"):
        raise Unsupported(operation, path, f"{_RESERVED!r} is a name reserved by HDFS; choose another name")
