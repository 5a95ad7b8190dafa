"""A directory's file system, with the keys that it takes to read it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ftfile.commit.sealed.filesystem import SealedFileSystem, read_seal
from ftfile.core.errors import ConfigError, NotFound
from ftfile.fs.location import parse
from ftfile.fs.registry import open_filesystem
from ftfile.keys.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem

__all__ = ("KEY_PROVIDER_VARIABLE", "OWNER_ONLY", "open_with_keys")

KEY_PROVIDER_VARIABLE = "FTFILE_KEY_PROVIDER"
# What an encrypted directory's files are readable by, where nothing else was asked for.
OWNER_ONLY = ("filePermission", "600")


def open_with_keys(
    url: str, context: Context, key_provider: str | None = None, settings: Iterable[tuple[str, str]] = ()
) -> FileSystem:
    """Open a directory that exists; `key_provider`, or FTFILE_KEY_PROVIDER, or the directory itself names its keys.

    Where the directory names them, only key files of this user's, or root's, that are not within it, and variables
    whose names begin with FTFILE_ are read: what is on storage must not start programs, or choose whom to trust.
    """
    fs = open_filesystem(url, context, dict(settings))
    try:
        seal = read_seal(fs)
    except NotFound:
        seal = None
    if seal is None and key_provider is None:
        return fs
    told = seal.key_provider if seal is not None else None
    reference = key_provider or os.environ.get(KEY_PROVIDER_VARIABLE)
    keys = Keys.from_reference(reference) if reference else _keys_as_told(url, told)
    if OWNER_ONLY[0] not in dict(settings) and fs.capabilities.permissions:
        fs = open_filesystem(url, context, dict((*settings, OWNER_ONLY)))
    return SealedFileSystem(fs, keys)


def _keys_as_told(url: str, told: str | None) -> Keys:
    keys = Keys(told).as_told_by(parse(url).path) if told is not None else None
    if keys is None:
        raise ConfigError(
            f"{url!r} is encrypted, and where its keys are must be said: by the option keyProvider, the argument "
            f"key_provider, or the environment variable {KEY_PROVIDER_VARIABLE}, as in file:/etc/ftfile/keys"
        )
    return keys
