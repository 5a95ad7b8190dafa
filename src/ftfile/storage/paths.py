"""Paths inside a file system, and URLs, parsed in the same way as Hadoop and Spark parse paths.

- `/data/out` is a local directory; `file:/data/out` and `file:///data/out` are the same.
- Nothing is percent-decoded, and `?`, `#`, blanks and colons in a path are ordinary characters: `file:/a%20b` is a
  directory called `a%20b`.
- Repeated and trailing slashes, `.` and `..` are resolved in the text; `..` never leaves the root.
- Schemes are not case-sensitive. Relative paths are refused, since each process has another working directory.
"""

from __future__ import annotations

import functools
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context

__all__ = (
    "NAME_BYTES_MAX",
    "Location",
    "Url",
    "check_path",
    "fault_of",
    "join",
    "normalise",
    "parent_of",
    "parse",
    "read_seconds",
    "room_below",
    "shape_fault",
)


NAME_BYTES_MAX = 255
# An empty component (also a leading or trailing slash), "." or "..", or a NUL.
_MALFORMED = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0")


def check_path(operation: str, path: str) -> None:
    """Raise `Unsupported` unless a path is the root (`""`) or names joined by `/`, each of at most `NAME_BYTES_MAX`.

    Blanks, `%`, `#`, `:`, `=` and all other characters except for NUL are allowed.
    """
    if (detail := _invalid(path)) is not None:
        raise Unsupported(operation, path, detail)


# The same few paths are checked many times.
@functools.lru_cache(maxsize=4096)
def _invalid(path: str) -> str | None:
    """Return why a path is invalid, or None."""
    if not path:
        return None
    if _MALFORMED.search(path):
        return "a path must be relative to the root, without empty parts, '.', '..' and NUL; correct the path"
    if path.isascii() and len(path) <= NAME_BYTES_MAX:
        return None
    try:
        longest = max(len(name.encode("utf-8", "surrogateescape")) for name in path.split("/"))
    except UnicodeEncodeError as error:
        return f"a name that UTF-8 cannot encode ({error.reason})"
    if longest > NAME_BYTES_MAX:
        return f"a name has {longest} bytes, at most {NAME_BYTES_MAX} are portable; shorten it"
    return None


def shape_fault(path: str) -> str | None:
    """Return why a path is not the name of a file below the root, as in "it …", or None."""
    if _MALFORMED.search(path):
        return "has an empty part, '.', '..' or NUL; replace it"
    return None


def fault_of(
    path: str, forbidden: str, *, blank_ends: bool, bytes_max: int | None = None, more_bytes: int = 0
) -> str | None:
    """Return why storage does not support a path, whose name can become `more_bytes` longer, as in "it …", or None."""
    for character in forbidden:
        if character in path:
            return f"has the character {character!r}, which this storage may not keep; replace it"
    if not blank_ends and any(name != name.strip() for name in path.split("/")):
        return "has a name that begins or ends with a space, which this storage may not list; replace it"
    if path.isascii() and len(path) + more_bytes <= min(NAME_BYTES_MAX, bytes_max or NAME_BYTES_MAX):
        return None
    sizes = [len(name.encode(errors="surrogatepass")) for name in path.split("/")]
    sizes[-1] += more_bytes
    if max(sizes) > NAME_BYTES_MAX:
        return f"has a name of up to {max(sizes)} bytes, and {NAME_BYTES_MAX} are allowed; shorten it"
    size_bytes = sum(sizes) + len(sizes) - 1
    if bytes_max is not None and size_bytes > bytes_max:
        return f"can have {size_bytes} bytes, and this storage allows {bytes_max} below its directory; shorten it"
    return None


def room_below(prefix: str, bytes_max: int) -> int:
    """Return the bytes that remain for a path below `prefix` if paths of the storage have at most `bytes_max`."""
    return bytes_max - (len(prefix.encode(errors="surrogatepass")) + 1 if prefix else 0)


def join(directory: str, name: str) -> str:
    """Return the path of `name` inside `directory`; either can be the root."""
    if directory and name:
        return f"{directory}/{name}"
    return directory or name


def parent_of(path: str) -> str:
    """Return the parent directory of `path`; the root is the parent of the root."""
    return path.rpartition("/")[0]


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Url:
    """The place of a directory."""

    scheme: str  # in lower case
    authority: str  # between `//` and the next slash: host, bucket or the name of a storage system; can be empty
    path: str  # absolute and canonical; `/` for the root

    @property
    def url(self) -> str:
        """Return the canonical text."""
        return f"{self.scheme}://{self.authority}{self.path}"


@dataclass(frozen=True, slots=True)
class Location(Url):
    """The place of a directory, with the settings and the context of its driver."""

    settings: Mapping[str, str]  # options `storage.<name>`; the driver refuses unknown ones
    optional_settings: Mapping[str, str]  # more settings, of which the driver uses the ones that it knows
    context: Context

    def known_settings(self, *accepted: str) -> dict[str, str]:
        """Return settings and known optional ones, spelled as in `known`; raises `ConfigError` for unknown settings.

        Spark passes names in lower case.
        """
        spelling = {name.lower(): name for name in accepted}
        unknown = sorted(name for name in self.settings if name.lower() not in spelling)
        if unknown:
            names = ", ".join(f"storage.{name}" for name in unknown)
            has = "it has no settings"
            if accepted:
                has = f"its settings are {', '.join(accepted)}"
            raise ConfigError(f"the driver of {self.scheme!r} has no setting {names}: {has}")
        values = {spelling[name.lower()]: text for name, text in self.settings.items()}
        return {name: text for name, text in self.optional_settings.items() if name in accepted} | values


def read_seconds(values: Mapping[str, str], name: str, default: str, *, zero: bool = False) -> float:
    """Return a setting in seconds, which can be 0 if `zero`; raises `ConfigError`."""
    text = values.get(name, default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf") or (seconds == 0 and not zero):
        raise ConfigError(f"storage.{name}={text!r}: it must be a number of seconds, such as {default}")
    return seconds


def normalise(url: str) -> str:
    """Return the canonical URL of a URL or an absolute local path; idempotent; raises like `parse`."""
    return parse(url).url


def parse(url: str) -> Url:
    """Parse a URL or an absolute local path; raises `ConfigError` if its scheme does not allow it."""
    if not url.strip() or "\0" in url:
        raise ConfigError(f"the path {url!r} is blank or contains NUL; give a URL or an absolute path")
    match = _SCHEME.match(url)
    if match is None:
        if not url.startswith("/"):
            raise ConfigError(f"the path {url!r} is relative; give an absolute path or a URL")
        return Url("file", "", _canonical(url))
    scheme, path = match[1].lower(), url[match.end() :]
    _check_no_drive(url, scheme)
    authority = ""
    if path.startswith("//"):
        authority, slash, path = path[2:].partition("/")
        path = slash + path
        if ":" in authority.rpartition("@")[0]:
            raise ConfigError(
                f"the {scheme} URL has a password before its host, which explain() and logs would show: remove it, "
                "and configure credentials for the driver"
            )
    elif not path.startswith("/"):
        hint = "a relative path whose first name contains a colon must be written as an absolute path"
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


def _check_no_drive(url: str, scheme: str) -> None:
    if len(scheme) == 1 and not url.startswith("://", 1):
        raise ConfigError(
            f"{url!r} looks like a path with a Windows drive, and ftfile does not run on Windows: in the Windows "
            f"Subsystem for Linux, write /mnt/{scheme}/…"
        )


def _canonical(path: str) -> str:
    # In POSIX, a leading "//" is implementation-defined and normpath keeps it; here it is one slash.
    return posixpath.normpath("/" + path.lstrip("/"))
