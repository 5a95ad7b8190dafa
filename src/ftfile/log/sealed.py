"""Sealed (encrypted) directories, whose log is authenticated by MACs.

All files of the log that decide anything end with a MAC. The protocol uses plain records, checkpoints, compacted logs
and hints. A directory is sealed from its first record on, or never: its files cannot be replaced by unsealed ones.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.log.format import layout
from ftfile.log.format.record import (
    FILE_BYTES_MAX,
    SMALL_BYTES_MAX,
    from_checked_text,
    read_within,
    to_checked_text,
)
from ftfile.storage.api import RangeFile
from ftfile.storage.paths import parse
from ftfile.storage.registry import WrapperFileSystem, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.core.context import Context
    from ftfile.filters.keys import Keys, UsableKey
    from ftfile.storage.api import FileSystem, InputFile, StoredFile


KEY_PROVIDER_VARIABLE = "FTFILE_KEY_PROVIDER"
# The default permissions of files of an encrypted directory.
OWNER_ONLY = ("filePermission", "600")

_ALGORITHM = "hmac-sha256"
_MAC_LINE = re.compile(rb"(hmac-sha256 ([!-~]{1,200}) (-|[A-Za-z0-9_-]+={0,2})) ([0-9a-f]{64})")
_RECORD, _ROWS = b"ftfile record 1\0", b"ftfile rows 1\0"  # the purpose of a MAC
_SEALED = (f"{layout.LOG}/", f"{layout.CHECKPOINTS}/", f"{layout.COMPACTED}/")
_ADVICE = "Restore it from a copy. Only a process with a key of the directory can have written it"


# The length of the last line of a file.
_MAC_BYTES_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of a directory; it contains no secrets, and is only trusted with a valid MAC."""

    directory_id: str  # unique to this directory and its copies
    key_provider: str | None  # the source of its first writer's keys; None if readers must name it

    @classmethod
    def of(cls, line: bytes) -> Seal:
        """Return the seal in the second line of the format file; CorruptData if it is unknown."""
        # A record sealed with the id of no directory could never be read.
        try:
            text = json.loads(line)
            seal = cls(text["directoryId"], text["keyProvider"])
            is_supported = text["sealed"] == 1 and isinstance(seal.key_provider, str | None)
            if is_supported and re.fullmatch("[0-9a-f]{32}", seal.directory_id):
                return seal
        except (ValueError, KeyError, TypeError):
            pass
        raise CorruptData(layout.FORMAT_FILE, "the line of a sealed directory", repr(line[:80]), _ADVICE)

    def to_line(self) -> bytes:
        """Return the second line of the format file."""
        text = {"sealed": 1, "directoryId": self.directory_id, "keyProvider": self.key_provider}
        return json.dumps(text).encode()


def identity_of_letters(fs: FileSystem, path: str) -> str:
    """Return the identity of dead letters, derived from their path, since no record names them after publishing."""
    identity = layout.storage_identity("deadLetters", path)
    if isinstance(fs, SealedFileSystem):
        return f"{identity} {fs.directory_id}"
    return identity


def keys_of(fs: FileSystem) -> Keys | None:
    """Return the keys of a directory; None if it is not sealed."""
    if isinstance(fs, SealedFileSystem):
        return fs.keys
    return None


class _Mac(NamedTuple):
    prefix: bytes
    key_id: str
    wrapped: bytes
    digest: bytes


class SealedFileSystem(WrapperFileSystem):
    """A sealed directory: writes and checks MACs, and has the keys of all files in it.

    New MACs use the key `key_id`, by default the key of the newest record that was read, or of what replaces it.
    """

    def __init__(self, inner: FileSystem, keys: Keys, key_id: str | None = None) -> None:
        super().__init__(inner)
        self.keys = keys
        self._key_id = key_id
        self._newest = (-1, "")  # a version that was read, and the key of its record, or of what replaces it
        self._seal: Seal | None = None

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        """Return the content of a file without its MAC; CorruptData for a wrong MAC, ConfigError without its key."""
        content = self.inner.read(path, None if bytes_max is None else bytes_max + _MAC_BYTES_MAX)
        if path == layout.FORMAT_FILE:
            return to_checked_text([self._take(content)])
        if _is_sealed(path):
            return self._check_seal(path, content)
        return content

    def open(self, path: str) -> InputFile:
        """Open a file; a file with a MAC is read completely."""
        if not _is_sealed(path):
            return self.inner.open(path)
        content = read_within(self, path, FILE_BYTES_MAX)
        return RangeFile.of_content(path, content)

    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        """Create a complete file, with its MAC if it has one."""
        if path == layout.FORMAT_FILE:
            # Readers use it without a check, and it contains no secret.
            reference = None
            if self.keys.may_be_told:
                reference = self.keys.reference
            seal = Seal(self.context.ids.unique(), reference)
            stored = self.inner.create_exclusive(
                path, to_checked_text([*from_checked_text(content, path), seal.to_line()])
            )
            self._seal = seal
            return stored
        return self.inner.create_exclusive(path, self._with_mac(path, content) if _is_sealed(path) else content)

    def put(self, path: str, content: bytes) -> None:
        """Write a hint, with its MAC if it has one."""
        self.inner.put(path, self._with_mac(path, content) if _is_sealed(path) else content)

    def keyed_digest(self, digest: str, batch: str, like: str | None = None) -> str:
        """Return a MAC over a digest of a batch's rows, with the key of `like`, an earlier result."""
        if like is None:
            mac = None
        else:
            mac = _mac(like.encode())
        if mac is None:
            key = self.keys.key_to_use(self.key_id)
        else:
            key = self.keys.find(mac.key_id, mac.wrapped)
        return _line(key, _ROWS, directory_id=self.directory_id, name=batch, content=digest.encode()).decode()

    @property
    def key_id(self) -> str:
        """Return the id of the key for new MACs, and for other hidden content of a record."""
        return self._key_id or self._newest[1] or self.keys.only_id()

    def _with_mac(self, path: str, content: bytes) -> bytes:
        line = _line(
            self.keys.key_to_use(self.key_id), _RECORD, directory_id=self.directory_id, name=path, content=content
        )
        return content + b"\n" + line + b"\n"

    def _check_seal(self, path: str, content: bytes) -> bytes:
        body, _, line = content[:-1].rpartition(b"\n")
        mac = None
        if content.endswith(b"\n"):
            mac = _mac(line)
        if mac is None:
            self._take_again(path)
            raise CorruptData(path, "a file that ends in its MAC", f"a file that ends in {content[-24:]!r}", _ADVICE)
        try:
            key = self.keys.find(mac.key_id, mac.wrapped)
        except ConfigError as error:
            if path != layout.PUBLISHED_HINT:
                raise ConfigError(f"{path!r} cannot be read: {error}") from error
            raise CorruptData(path, "a known key", str(error)) from error  # equal to no hint
        for _ in range(2):
            if hmac.compare_digest(
                mac.digest,
                _digest(key, _RECORD, directory_id=self.directory_id, name=path, prefix=mac.prefix, content=body),
            ):
                version = _version_of(path)
                if version is not None and version >= self._newest[0]:
                    self._newest = version, mac.key_id
                return body
            self._take_again(path)  # the directory can have been replaced
        raise CorruptData(
            path,
            f"content that the key {mac.key_id!r} authenticates in this directory",
            "other content: the file was changed, or another key has this name",
            f"Give the keyProvider with which the file was written. {_ADVICE}",
        )

    @property
    def directory_id(self) -> str:
        """Return an identity that only this directory and its copies have."""
        if self._seal is None:
            self._take_again(layout.FORMAT_FILE)
        assert self._seal is not None
        return self._seal.directory_id

    def _take_again(self, path: str) -> None:
        try:
            self._take(read_within(self.inner, layout.FORMAT_FILE, SMALL_BYTES_MAX, _ADVICE))
        except NotFound as error:
            # While the log exists, the directory must not look empty.
            why = "the file that describes an encrypted directory"
            why += f", needed for {path!r}" if path != layout.FORMAT_FILE else ""
            raise CorruptData(layout.FORMAT_FILE, why, "no such file", _ADVICE) from error

    def _take(self, content: bytes) -> bytes:
        """Read the seal in the content of the format file; return its first line."""
        line, *seal = from_checked_text(content, layout.FORMAT_FILE, _ADVICE)
        if not seal:
            raise ConfigError(
                "keys were given, but this directory is not encrypted, so its content cannot be trusted: encryption "
                "starts with the first commit to a directory. To write, use another directory. To read this directory "
                "without encryption, leave out encryption and keyProvider"
            )
        self._seal = Seal.of(seal[0])
        return line


def open_with_keys(
    url: str, context: Context, key_provider: str | None = None, settings: Iterable[tuple[str, str]] = ()
) -> FileSystem:
    """Open an existing directory; `key_provider`, FTFILE_KEY_PROVIDER, or the directory itself names its keys.

    If the directory names them, only key files owned by this user or root and outside of the directory, and variables
    whose names begin with FTFILE_, are read: content on storage must not start programs, or choose a trusted key.
    """
    fs = open_filesystem(url, context, dict(settings))
    seal = _read_seal(fs)
    if seal is None and key_provider is None:
        return fs
    from ftfile.filters.keys import Keys  # noqa: PLC0415 - most directories are not encrypted

    keys = None
    if reference := key_provider or os.environ.get(KEY_PROVIDER_VARIABLE):
        keys = Keys.from_reference(reference)
    elif seal is not None and seal.key_provider is not None:
        keys = Keys(seal.key_provider).as_told_by(parse(url).path)
    if keys is None:
        raise ConfigError(
            f"{url!r} is encrypted, and no key provider was given: name it with the option keyProvider, the argument "
            f"key_provider, or the environment variable {KEY_PROVIDER_VARIABLE}, as in file:/etc/ftfile/keys"
        )
    if OWNER_ONLY[0] not in dict(settings) and fs.capabilities.permissions:
        fs = open_filesystem(url, context, dict((*settings, OWNER_ONLY)))
    return SealedFileSystem(fs, keys)


def _read_seal(fs: FileSystem) -> Seal | None:
    """Return the seal of a directory; None if it is not sealed, or its file is lost, which `check_layout` refuses."""
    try:
        content = read_within(fs, layout.FORMAT_FILE, SMALL_BYTES_MAX, _ADVICE)
    except NotFound:
        return None
    try:
        _, *seal = from_checked_text(content, layout.FORMAT_FILE, _ADVICE)
    except CorruptData:
        if b'"sealed"' in content:  # without its keys, later errors would not show the cause
            raise
        return None
    if seal:
        return Seal.of(seal[0])
    return None


def _is_sealed(path: str) -> bool:
    return path.startswith(_SEALED) or path == layout.PUBLISHED_HINT


def _version_of(path: str) -> int | None:
    """Return the last version that a file of the log contains; None for a hint."""
    covered = layout.parse_compacted_name(path)
    name = layout.parse_log_name(path) or layout.parse_checkpoint_name(path)
    if covered:
        return covered.last
    if name:
        return name.version
    return None


def _mac(line: bytes) -> _Mac | None:
    match = _MAC_LINE.fullmatch(line)
    if match is None:
        return None
    try:
        wrapped = base64.b64decode(b"" if match[3] == b"-" else match[3], b"-_", validate=True)
    except binascii.Error:
        return None
    return _Mac(match[1], match[2].decode(), wrapped, bytes.fromhex(match[4].decode()))


def _line(key: UsableKey, use: bytes, directory_id: str, name: str, content: bytes) -> bytes:
    wrapped = base64.urlsafe_b64encode(key.wrapped).decode() or "-"
    prefix = f"{_ALGORITHM} {key.key_id} {wrapped}".encode()
    return (
        prefix
        + b" "
        + _digest(key, use, directory_id=directory_id, name=name, prefix=prefix, content=content).hex().encode()
    )


def _digest(key: UsableKey, use: bytes, directory_id: str, name: str, prefix: bytes, content: bytes) -> bytes:
    names = b"".join(field + b"\0" for field in (directory_id.encode(), name.encode(), prefix))
    return hmac.digest(key.records, use + names + content, "sha256")
