"""Settings of S3 storage, without secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.units import parse_size_bytes
from ftfile.storage.paths import read_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.storage.paths import Location


_SETTINGS = ("endpoint", "region", "addressing", "profile", "timeout", "patience", "partSize")
_KEYS = ("accessKeyVariable", "secretKeyVariable")
_VARIABLES = (*_KEYS, "sessionTokenVariable")
_ADDRESSING = ("auto", "path", "virtual")
# The minimum size of all parts of a file but the last, on S3.
PART_BYTES_MIN = 5 << 20
_VALUES = ("accesskey", "secretkey", "sessiontoken", "accesskeyid", "secretaccesskey", "key", "secret", "token")
_ELSEWHERE = (
    "explain() and logs show options, so do not put secrets in them. Omit it to use AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, name a profile with storage.profile, or name other environment variables with "
    "storage.accessKeyVariable and storage.secretKeyVariable"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Checked settings; the environment and the profile decide settings that are None."""

    endpoint: str | None = None
    region: str | None = None
    addressing: str = "auto"
    profile: str | None = None
    variables: tuple[str, ...] = ()  # environment variables of access key, secret key and, optionally, session token
    timeout_s: float = 60.0  # timeout of a request without data
    patience_s: float = 30.0  # for a storage system that is down, or throttles
    part_bytes: int = 8 << 20  # of large files; a smaller file is sent in one request

    @classmethod
    def of(cls, location: Location) -> S3Settings:
        """Read the settings of a location; raises `ConfigError`, also for secrets in plain text."""
        secrets = sorted(name for name in location.settings if name.lower() in _VALUES)
        if secrets:
            names = ", ".join(f"storage.{name}" for name in secrets)
            raise ConfigError(f"{names}: {_ELSEWHERE}")
        values = location.known_settings(*_SETTINGS, *_VARIABLES)
        if "@" in values.get("endpoint", ""):
            raise ConfigError(f"storage.endpoint has a user before its host: {_ELSEWHERE}")
        settings = cls(
            endpoint=values.get("endpoint"),
            region=values.get("region"),
            addressing=values.get("addressing", "path" if "endpoint" in values else "auto"),
            profile=values.get("profile"),
            variables=tuple(values[name] for name in _VARIABLES if name in values),
            timeout_s=read_seconds(values, "timeout", "60"),
            patience_s=read_seconds(values, "patience", "30"),
            part_bytes=_part_bytes(values),
        )
        if settings.variables and not values.keys() >= {*_KEYS}:
            raise ConfigError("storage.accessKeyVariable and storage.secretKeyVariable belong together: give both")
        if settings.addressing not in _ADDRESSING:
            raise ConfigError(f"storage.addressing={settings.addressing!r}: it must be one of {', '.join(_ADDRESSING)}")
        if settings.variables and settings.profile:
            raise ConfigError("storage.profile and storage.accessKeyVariable both select credentials: omit one of them")
        return settings

    def keys(self) -> dict[str, Any]:
        """Return the credentials in the named variables as arguments of the library, or raise `ConfigError`."""
        arguments = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        missing = [name for name in self.variables if not os.environ.get(name)]
        if missing:
            raise ConfigError(
                f"the environment variable {missing[0]}, which an option names for credentials, is not set in this "
                "process: the driver and every executor need it"
            )
        return {argument: os.environ[name] for argument, name in zip(arguments, self.variables, strict=False)}


def _part_bytes(values: Mapping[str, str]) -> int:
    text = values.get("partSize", "8MiB")
    try:
        size_bytes = parse_size_bytes(text)
    except ValueError:
        size_bytes = 0
    if size_bytes < PART_BYTES_MIN:
        raise ConfigError(f"storage.partSize={text!r}: it must be a size of 5MiB or more, such as 16MiB")
    return size_bytes
