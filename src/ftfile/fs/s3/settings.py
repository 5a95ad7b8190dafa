"""Settings of the S3 driver. Secrets are named there, never given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.units import parse_size_bytes
from ftfile.fs.location import read_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.fs.location import Location

__all__ = ("PART_BYTES_MIN", "SETTINGS", "S3Settings")

SETTINGS = (
    "endpoint",
    "region",
    "addressing",
    "profile",
    "accessKeyVariable",
    "secretKeyVariable",
    "sessionTokenVariable",
    "timeout",
    "patience",
    "partSize",
)

_ADDRESSING = ("auto", "path", "virtual")
# What S3 takes for all parts of a file but the last.
PART_BYTES_MIN = 5 << 20
_KEYS = ("accessKeyVariable", "secretKeyVariable")
_VALUES = ("accesskey", "secretkey", "sessiontoken", "accesskeyid", "secretaccesskey", "key", "secret", "token")
_ELSEWHERE = (
    "options are shown by explain() and in logs, so they are not for secrets. Leave it out for the usual "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile with storage.profile, or name other environment "
    "variables with storage.accessKeyVariable and storage.secretKeyVariable"
)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The settings, checked; what is None is as the environment and the profile say.

    Attributes:
        endpoint: URL of the store; None for AWS.
        region: of the bucket.
        addressing: whether the bucket is named in the `path` or in the host (`virtual`) of requests.
        profile: of the shared configuration and credentials files.
        variables: names of the environment variables with access key, secret key and, if any, session token.
        timeout_s: no request takes longer, without the data it carries.
        patience_s: how long a store that is away, or says to slow down, is waited for.
        part_bytes: length of the parts in which large files are sent, and the largest file sent in one request.
    """

    endpoint: str | None = None
    region: str | None = None
    addressing: str = "auto"
    profile: str | None = None
    variables: tuple[str, ...] = ()
    timeout_s: float = 60.0
    patience_s: float = 30.0
    part_bytes: int = 8 << 20

    @classmethod
    def of(cls, location: Location) -> S3Settings:
        """Read the settings of a location.

        Raises:
            ConfigError: one is unknown or malformed, or is a secret itself.
        """
        secrets = sorted(name for name in location.settings if name.lower() in _VALUES)
        if secrets:
            names = ", ".join(f"storage.{name}" for name in secrets)
            raise ConfigError(f"{names}: {_ELSEWHERE}")
        given = location.known_settings(*SETTINGS)
        if "@" in given.get("endpoint", ""):
            raise ConfigError(f"storage.endpoint has a user before its host: {_ELSEWHERE}")
        settings = cls(
            endpoint=given.get("endpoint"),
            region=given.get("region"),
            addressing=given.get("addressing", "path" if "endpoint" in given else "auto"),
            profile=given.get("profile"),
            variables=_variables(given),
            timeout_s=read_seconds(given, "timeout", "60"),
            patience_s=read_seconds(given, "patience", "30"),
            part_bytes=_part_bytes(given),
        )
        if settings.addressing not in _ADDRESSING:
            raise ConfigError(f"storage.addressing={settings.addressing!r}: it is one of {', '.join(_ADDRESSING)}")
        if settings.variables and settings.profile:
            raise ConfigError("storage.profile and storage.accessKeyVariable both say who asks: leave one out")
        return settings

    def keys(self) -> dict[str, Any]:
        """Return the credentials that the named variables hold, as arguments of the library; none where none are named.

        Raises:
            ConfigError: a variable is not set in this process.
        """
        arguments = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        missing = [name for name in self.variables if not os.environ.get(name)]
        if missing:
            raise ConfigError(
                f"the environment variable {missing[0]}, which an option names for credentials, is not set in this "
                "process: the driver and every executor need it"
            )
        return {argument: os.environ[name] for argument, name in zip(arguments, self.variables, strict=False)}


def _variables(given: Mapping[str, str]) -> tuple[str, ...]:
    names = [given[key] for key in _KEYS if key in given]
    if len(names) == 1 or (not names and "sessionTokenVariable" in given):
        raise ConfigError("storage.accessKeyVariable and storage.secretKeyVariable belong together: give both")
    return (*names, *([given["sessionTokenVariable"]] if "sessionTokenVariable" in given else []))


def _part_bytes(given: Mapping[str, str]) -> int:
    text = given.get("partSize", "8MiB")
    try:
        size_bytes = parse_size_bytes(text)
    except ValueError:
        size_bytes = 0
    if size_bytes < PART_BYTES_MIN:
        raise ConfigError(f"storage.partSize={text!r}: it takes a size of 5MiB or more, such as 16MiB")
    return size_bytes
