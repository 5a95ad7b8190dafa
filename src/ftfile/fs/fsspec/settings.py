"""Settings for the constructor of a file system of fsspec; secrets are in environment variables."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.fs.location import read_seconds

if TYPE_CHECKING:
    from ftfile.fs.location import Location

# The time limit of a call; no argument of the constructor.
TIMEOUT = "callTimeout"
_REFERENCE = "env:"
# Values of gcsfs that say where credentials are.
_WAYS = frozenset({"anon", "browser", "cache", "cloud", "google_default"})
# A shorter text may be part of any other.
_SECRET_LENGTH_MIN = 4
_REFERENCED = re.compile(rf"{_REFERENCE}(\w+)")
_SECRET = re.compile(r"secret|passw|passphrase|token|credential|key|sas|auth|connection_?string")
# Parts of upload URLs, signed URLs and connection strings that are credentials.
_SIGNED = re.compile(
    r"\b(upload_id|sig|signature|x-goog-signature|x-amz-signature|accountkey|sharedaccesssignature)=[^&;,\s'\")]+", re.I
)
_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
# A JSON number, word, object, array or quoted text.
_JSON = re.compile(r'[\[{"].*|true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class FsspecSettings:
    """The settings, checked."""

    texts: tuple[tuple[str, str], ...]  # names and texts of the constructor's arguments; secrets are references
    timeout_s: float  # of a call

    @classmethod
    def of(cls, location: Location) -> FsspecSettings:
        """Read the settings of a location; raises `ConfigError`, also for a secret in plain text."""
        texts = dict(location.settings)
        name = next((name for name in texts if name.lower() == TIMEOUT.lower()), "")
        given = {TIMEOUT: texts.pop(name)} if name else {}
        for name, text in texts.items():
            _refuse_secrets(name, name, _parsed(text))
        return cls(tuple(sorted(texts.items())), read_seconds(given, TIMEOUT, "60"))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments with references resolved; raises `ConfigError` for an unset variable."""
        return {name: _resolved(name, _parsed(text)) for name, text in self.texts}

    def hidden(self, text: str) -> str:
        """Return a text without the secrets of the settings and of URLs."""
        for name in _REFERENCED.findall(" ".join(text for _, text in self.texts)):
            secret = os.environ.get(name, "")
            text = text.replace(secret, "...") if len(secret) >= _SECRET_LENGTH_MIN else text
        return _SIGNED.sub(r"\1=...", text)


def _parsed(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    if _JSON.fullmatch(text) is None:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refuse_secrets(option: str, name: str, value: object) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_secrets(option, key, inner)
    elif isinstance(value, list):
        for inner in value:
            _refuse_secrets(option, name, inner)
    elif _is_secret(name, value):
        inside = "" if option == name else f" (in it, {name})"
        raise ConfigError(
            f"storage.{option}{inside}: options are shown by explain() and in logs, so they are not for secrets. "
            f"Write {_REFERENCE}NAME with the name of an environment variable that the driver and every executor have, "
            "or leave it out where the library finds its credentials by itself"
        )


def _is_secret(name: str, value: object) -> bool:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value.startswith(_REFERENCE)):
        return False
    if name == "token" and value in _WAYS:
        return False
    return bool(_SECRET.search(name.lower())) or _PASSWORD.search(str(value)) is not None


def _resolved(option: str, value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, dict):
        return {key: _resolved(option, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolved(option, inner) for inner in value]
    if not (isinstance(value, str) and value.startswith(_REFERENCE)):
        return value
    name = value[len(_REFERENCE) :]
    if not os.environ.get(name):
        raise ConfigError(
            f"the environment variable {name!r}, which storage.{option} names, is not set in this process: the driver "
            "and every executor need it"
        )
    return os.environ[name]
