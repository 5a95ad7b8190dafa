"""Settings for the constructor of a file system of fsspec; secrets are in environment variables."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.logs import redacted
from ftfile.storage.paths import read_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.core.options import Settings
    from ftfile.storage.paths import Location


# The time limit of a call; no argument of the constructor.
TIMEOUT = "callTimeout"
_REFERENCE = "env:"
# Values of gcsfs that say where credentials are.
_WAYS = frozenset({"anon", "browser", "cache", "cloud", "google_default"})
# A shorter text may be part of any other.
_SECRET_LENGTH_MIN = 4
_SECRET = re.compile(r"secret|passw|passphrase|token|credential|key|sas|auth|connection_?string")
_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
# A JSON number, word, object, array or quoted text.
_JSON = re.compile(r'[\[{"].*|true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class FsspecSettings:
    """The settings, checked."""

    texts: Settings  # names and texts of the constructor's arguments; secrets are references
    timeout_s: float  # of a call
    variables: tuple[str, ...]  # environment variables to which they refer

    @classmethod
    def of(cls, location: Location) -> FsspecSettings:
        """Read the settings of a location; raises `ConfigError`, also for a secret in plain text."""
        texts = dict(location.settings)
        name = next((name for name in texts if name.lower() == TIMEOUT.lower()), "")
        timeout_text = {TIMEOUT: texts.pop(name)} if name else {}
        variables: list[str] = []
        for name, text in texts.items():
            _check_no_secrets(name, name, value := _parsed(text))
            variables += _references(value)
        return cls(tuple(sorted(texts.items())), read_seconds(timeout_text, TIMEOUT, "60"), tuple(sorted(variables)))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments with references resolved; raises `ConfigError` for an unset variable."""
        return {name: _resolved(name, _parsed(text)) for name, text in self.texts}

    def secrets(self) -> tuple[str, ...]:
        """Return the values of the variables, as they are now."""
        return tuple(os.environ.get(name, "") for name in self.variables)


def hidden(text: str, secrets: Iterable[str]) -> str:
    """Return a text without secrets, and without those of URLs."""
    for secret in secrets:
        text = text.replace(secret, "…") if len(secret) >= _SECRET_LENGTH_MIN else text
    return redacted(text)


def _parsed(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    if _JSON.fullmatch(text) is None:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_no_secrets(option: str, name: str, value: object) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_no_secrets(option, key, inner)
    elif isinstance(value, list):
        for inner in value:
            _check_no_secrets(option, name, inner)
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


def _references(value: object) -> Iterator[str]:
    """Yield the names of the variables to which a value refers."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _references(inner)
    elif isinstance(value, str) and value.startswith(_REFERENCE):
        yield value[len(_REFERENCE) :]


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
