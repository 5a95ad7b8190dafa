"""Settings of an fsspec file system, whose secrets are references to environment variables."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.storage.paths import read_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.core.options.parsing import Settings
    from ftfile.storage.paths import Location


# The timeout of a call, which is not an argument of the constructor.
TIMEOUT = "callTimeout"
_REFERENCE = "env:"
# Values of gcsfs that name the source of credentials.
_WAYS = frozenset({"anon", "browser", "cache", "cloud", "google_default"})
_SECRET = re.compile(r"secret|passw|passphrase|token|credential|key|sas|auth|connection_?string")
_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
# A JSON number, word, object, array or string.
_JSON = re.compile(r'[\[{"].*|true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class FsspecSettings:
    """Checked settings."""

    texts: Settings  # names and texts of the constructor's arguments; secrets are references
    timeout_s: float  # timeout of a call
    variables: tuple[str, ...]  # environment variables that the arguments refer to

    @classmethod
    def of(cls, location: Location) -> FsspecSettings:
        """Read the settings of a location; raises `ConfigError`, also for a secret in plain text."""
        texts = dict(location.settings)
        timeout_text = {}
        for name in list(texts):
            if name.lower() == TIMEOUT.lower():
                timeout_text[TIMEOUT] = texts.pop(name)
                break
        variables: list[str] = []
        for name, text in texts.items():
            value = _parse_value(text)
            _check_no_secrets(name, name, value)
            variables += _references(value)
        return cls(tuple(sorted(texts.items())), read_seconds(timeout_text, TIMEOUT, "60"), tuple(sorted(variables)))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments with resolved references; raises `ConfigError` for an unset variable."""
        return {name: _resolve_value(name, _parse_value(text)) for name, text in self.texts}

    def secrets(self) -> tuple[str, ...]:
        """Return the current values of the variables."""
        return tuple(os.environ.get(name, "") for name in self.variables)


def _parse_value(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
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
        if option == name:
            inside = ""
        else:
            inside = f" (in it, {name})"
        raise ConfigError(
            f"storage.{option}{inside}: explain() and logs show options, so do not put secrets in them. Write "
            f"{_REFERENCE}NAME with the name of an environment variable that the driver and every executor have, or "
            "omit the option if the library finds its credentials"
        )


def _is_secret(name: str, value: object) -> bool:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value.startswith(_REFERENCE)):
        return False
    if name == "token" and value in _WAYS:
        return False
    return bool(_SECRET.search(name.lower())) or _PASSWORD.search(str(value)) is not None


def _references(value: object) -> Iterator[str]:
    """Yield the names of the variables that a value refers to."""
    if isinstance(value, dict):
        yield from _references(list(value.values()))
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
    elif isinstance(value, str) and value.startswith(_REFERENCE):
        yield value[len(_REFERENCE) :]


def _resolve_value(option: str, value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, dict):
        return {key: _resolve_value(option, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolve_value(option, inner) for inner in value]
    if not (isinstance(value, str) and value.startswith(_REFERENCE)):
        return value
    name = value[len(_REFERENCE) :]
    if not os.environ.get(name):
        raise ConfigError(
            f"the environment variable {name!r}, which storage.{option} names, is not set in this process: the driver "
            "and every executor need it"
        )
    return os.environ[name]
