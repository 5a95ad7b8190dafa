"""URLs taken apart, the way Hadoop, and so Spark, reads a path: one text means one directory everywhere.

- `/data/out` is the local directory of that name; `file:/data/out` and `file:///data/out` are the same.
- Nothing is percent-decoded, and `?`, `#`, blanks and colons in a path are ordinary characters:
  `file:/a%20b` is a directory called `a%20b`.
- Repeated and trailing slashes, `.` and `..` are resolved textually; `..` never climbs above the root.
- Schemes may be written in any case. Relative paths are refused: each process has another working directory.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Url:
    """Where a directory is."""

    scheme: str  # in lower case
    authority: str  # between `//` and the next slash: host, bucket or store's name; may be empty
    path: str  # absolute and canonical; `/` for none

    @property
    def url(self) -> str:
        """Return the canonical text."""
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class Location(Url):
    """Where a directory is, with the settings and the context of its driver."""

    settings: Mapping[str, str]  # options `storage.<name>`; the driver refuses unknown ones
    offered: Mapping[str, str]  # more settings, of which the driver takes those that it knows
    context: Context

    def known_settings(self, *known: str) -> dict[str, str]:
        """Return settings and known offered ones, spelled as in `known`; raises `ConfigError` for unknown settings.

        Spark hands over names in lower case.
        """
        spelling = {name.lower(): name for name in known}
        unknown = sorted(name for name in self.settings if name.lower() not in spelling)
        if unknown:
            names = ", ".join(f"storage.{name}" for name in unknown)
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"the driver of {self.scheme!r} has no setting {names}: {has}")
        given = {spelling[name.lower()]: text for name, text in self.settings.items()}
        return {name: text for name, text in self.offered.items() if name in known} | given


def read_seconds(given: Mapping[str, str], name: str, default: str, *, zero: bool = False) -> float:
    """Return a setting in seconds, which may be 0 if `zero`; raises `ConfigError`."""
    text = given.get(name, default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf") or (seconds == 0 and not zero):
        raise ConfigError(f"storage.{name}={text!r}: it takes a number of seconds, such as {default}")
    return seconds


def normalise(url: str) -> str:
    """Return the canonical URL of a URL or an absolute local path; idempotent; raises as `parse`."""
    return parse(url).url


def parse(url: str) -> Url:
    """Take a URL or an absolute local path apart; raises `ConfigError` for one that its scheme does not allow."""
    if not url.strip() or "\0" in url:
        raise ConfigError(f"the path {url!r} is blank or contains NUL; give a URL or an absolute path")
    match = _SCHEME.match(url)
    if match is None:
        if not url.startswith("/"):
            raise ConfigError(f"the path {url!r} is relative; give an absolute path or a URL")
        return Url("file", "", _canonical(url))
    scheme, path = match[1].lower(), url[match.end() :]
    _refuse_drive(url, scheme)
    authority = ""
    if path.startswith("//"):
        authority, slash, path = path[2:].partition("/")
        path = slash + path
        if ":" in authority.rpartition("@")[0]:
            raise ConfigError(
                f"the {scheme} URL has a password before its host, which explain() and logs would show: leave it out, "
                "and give credentials where the driver looks for them"
            )
    elif not path.startswith("/"):
        hint = "a relative path whose first name has a colon must be made absolute"
        raise ConfigError(f"{url!r} has no slash after its scheme; write {scheme}:///path, and {hint}")
    if scheme == "file":
        if authority.lower() not in {"", "localhost"}:
            raise ConfigError(
                f"{url!r} names the host {authority!r}, but local files have none: write file:///{authority}{path}"
            )
        if not path:
            raise ConfigError(f"{url!r} has no path; write file:///path")
        authority = ""
    return Url(scheme, authority, _canonical(path))


def _refuse_drive(url: str, scheme: str) -> None:
    if len(scheme) == 1 and not url.startswith("://", 1):
        raise ConfigError(
            f"{url!r} looks like a path with a drive of Windows, which ftfile does not run on: in its subsystem for "
            f"Linux, write /mnt/{scheme}/…"
        )


def _canonical(path: str) -> str:
    # POSIX gives a leading "//" a meaning of its own, and normpath keeps it; here it is one slash.
    return posixpath.normpath("/" + path.lstrip("/"))
