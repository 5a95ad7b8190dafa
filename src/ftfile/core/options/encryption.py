"""The options that encrypt."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of, write_option

ENCRYPTION: tuple[Option, ...] = (
    write_option("encryption", one_of("none", "aes-gcm", "parquet"), default="none"),
    write_option("encryptionKeyId", kinds.TEXT),
    Option("keyProvider", kinds.TEXT, used_by=kinds.EVERYWHERE),
)

NEVER_INLINE = "keys are never given in options, which Spark shows to everybody: say with keyProvider where they are"

# What others call keys, or might.
INLINE_KEYS = (
    *("aeskey", "datakey", "encryption.key", "encryption_key", "encryptionkey", "encryptionkeys"),
    *("encryptionpassword", "key", "keys", "kmskey", "masterkey", "password", "passphrase", "secret", "secretkey"),
    *("parquet.encryption.key.list", "parquet.encryption.footer.key"),
    *("parquet.encryption.column.keys", "parquet.encryption.uniform.key"),
)
