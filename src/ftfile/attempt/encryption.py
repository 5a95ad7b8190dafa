"""The options that encrypt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.sealed.filesystem import KEY_PROVIDER_VARIABLE, SealedFileSystem
from ftfile.core.errors import ConfigError
from ftfile.fs.registry import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.core.context import Context
    from ftfile.core.options import ParsedOptions
    from ftfile.encoding.api import Format
    from ftfile.filters.aes_gcm import AesGcm
    from ftfile.fs.api import FileSystem
    from ftfile.keys.keys import Keys


@dataclass(frozen=True, slots=True)
class Encryption:
    """How what is written is encrypted; holds no key."""

    kind: str  # `aes-gcm` for an envelope around every file, `parquet` for one around all but parts
    key_id: str  # of the key-encryption key
    keys: Keys

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> Encryption | None:
        """Check the options, and that the key is available here; None where nothing is to be encrypted."""
        kind, key_id, reference = parsed["encryption"], parsed["encryptionKeyId"], parsed["keyProvider"]
        if kind == "none" and key_id is None and reference is None:
            return None
        from ftfile.keys.keys import Keys, check_key_id  # noqa: PLC0415 - most writers encrypt nothing

        if key_id is not None:
            check_key_id(key_id)
        if reference is not None:
            Keys.from_reference(reference)
        if kind == "none":
            given = [name for name in ("encryptionKeyId", "keyProvider") if name in parsed.given]
            raise ConfigError(f"{' and '.join(given)} without encryption: set encryption=aes-gcm")
        reference = reference or os.environ.get(KEY_PROVIDER_VARIABLE)
        if not reference:
            raise ConfigError(
                f"encryption={kind} without keyProvider: name where keys are, as in keyProvider=file:/etc/ftfile/keys, "
                f"or set the environment variable {KEY_PROVIDER_VARIABLE} on the driver and the executors"
            )
        keys = Keys.from_reference(reference)
        key = keys.key_to_use(key_id or keys.only_id())
        if kind == "parquet" and key.wrapped:
            raise ConfigError(
                f"encryption=parquet takes keys of a key ring, which other readers can have, too: {keys.kind} gives "
                "none away. Use encryption=aes-gcm"
            )
        return cls(kind, key.key_id, keys)

    def format_of(self, file_format: Format) -> Format:
        """Return the format of parts."""
        return file_format.encrypted(self.key_id, self.keys) if self.kind == "parquet" else file_format

    @property
    def around_parts(self) -> AesGcm | None:
        """Return the filter around a whole part; None if the format encrypts it."""
        return None if self.kind == "parquet" else self.around_others

    @property
    def around_others(self) -> AesGcm:
        """Return the filter around a whole segment, or around dead letters."""
        from ftfile.filters.aes_gcm import AesGcm  # noqa: PLC0415

        return AesGcm(self.key_id, self.keys)


def open_to_write(
    url: str,
    context: Context,
    settings: Iterable[tuple[str, str]],
    encryption: Encryption | None,
    offered: Iterable[tuple[str, str]] = (),
) -> FileSystem:
    """Open a directory, which need not exist yet, for a writer with such settings; see `open_filesystem`."""
    fs = open_filesystem(url, context, dict(settings), dict(offered))
    return fs if encryption is None else SealedFileSystem(fs, encryption.keys, encryption.key_id)
