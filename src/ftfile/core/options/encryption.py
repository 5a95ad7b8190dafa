"""The options that encrypt."""

from __future__ import annotations

from ftfile.core.options import kinds
from ftfile.core.options.kinds import Option, one_of

ENCRYPTION: tuple[Option, ...] = (
    Option(
        "encryption",
        one_of("none", "aes-gcm", "parquet"),
        "`aes-gcm` encrypts every file as a whole, after its compression, and authenticates the log; `parquet` does "
        "so too, but that finished files are encrypted by Parquet itself, which other readers know. It begins with the "
        "first commit to a directory; see [encryption](encryption.md). Stores take `aes-gcm`.",
        default="none",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
    ),
    Option(
        "encryptionKeyId",
        kinds.TEXT,
        "The name of the key to encrypt with, never a key itself. Files that older keys encrypted stay readable.",
        used_by=kinds.WRITE | kinds.STORE_WRITE,
        default_text="the only key there is",
    ),
    Option(
        "keyProvider",
        kinds.TEXT,
        "Where keys are, on the driver and the executors: `file:/etc/ftfile/keys`, `env:FTFILE_KEYS`, "
        "`command:<program> <arguments>`, `aws-kms:<key ARNs>`, or a provider of your own; never a key itself.",
        used_by=kinds.EVERYWHERE,
        default_text="`$FTFILE_KEY_PROVIDER`; for reading, else what the directory says",
    ),
)

NEVER_INLINE = "keys are never given in options, which Spark shows to everybody: say with keyProvider where they are"

# What others call keys, or might.
INLINE_KEYS = (
    *("aeskey", "datakey", "encryption.key", "encryption_key", "encryptionkey", "encryptionkeys"),
    *("encryptionpassword", "key", "keys", "kmskey", "masterkey", "password", "passphrase", "secret", "secretkey"),
    *("parquet.encryption.key.list", "parquet.encryption.footer.key"),
    *("parquet.encryption.column.keys", "parquet.encryption.uniform.key"),
)
