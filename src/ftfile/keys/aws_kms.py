"""`keyProvider=aws-kms:<ARNs>`: keys that AWS KMS makes and wraps; which of its keys may be used, the option says.

Credentials and endpoint are those of boto3's own environment and files. KMS is asked once an hour for a key to encrypt
with, and once for each key that it made when files are read.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from ftfile.core.errors import ConfigError
from ftfile.keys.api import KEY_BYTES, IssuedKey

_ARN = re.compile(r"arn:[a-z-]+:kms:([a-z0-9-]+):\d{12}:key/[A-Za-z0-9-]+")
# KMS writes it into its own log, and refuses to unwrap what was wrapped for another use.
_CONTEXT = {"application": "ftfile"}


class AwsKms:
    """The keys of AWS KMS with these ARNs, and no others: no aliases, which can be made to point elsewhere."""

    def __init__(self, arns: str) -> None:
        self._regions: dict[str, str] = {}
        for arn in filter(None, (text.strip() for text in arns.split(","))):
            match = _ARN.fullmatch(arn)
            if match is None:
                raise ConfigError(
                    "keyProvider=aws-kms:… takes ARNs of keys, separated by commas, such as "
                    "aws-kms:arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
                )
            self._regions[arn] = match[1]
        if not self._regions:
            raise ConfigError("keyProvider=aws-kms: names no key: give ARNs of keys, separated by commas")
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    def known_ids(self) -> tuple[str, ...]:
        return tuple(self._regions)

    def new_key(self, key_id: str) -> IssuedKey:
        made = self._ask("generate_data_key", key_id, NumberOfBytes=KEY_BYTES)
        return IssuedKey(made["Plaintext"], made["CiphertextBlob"])

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        # With KeyId, KMS refuses what another key wrapped.
        key: bytes = self._ask("decrypt", key_id, CiphertextBlob=wrapped)["Plaintext"]
        return key

    def _client(self, key_id: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
        if key_id not in self._regions:
            known = ", ".join(self._regions)
            raise ConfigError(f"there is no key {key_id!r} in keyProvider=aws-kms:…, which names: {known}")
        region = self._regions[key_id]
        with self._lock:
            if region not in self._clients:
                self._clients[region] = boto3.client("kms", region_name=region)
            return self._clients[region]

    def _ask(self, operation: str, key_id: str, **given: object) -> Any:  # noqa: ANN401 - boto3's answer
        client = self._client(key_id)
        try:
            return getattr(client, operation)(KeyId=key_id, EncryptionContext=_CONTEXT, **given)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error")
            raise ConfigError(f"AWS KMS refuses the key {key_id!r}: {code}") from None
        except BotoCoreError as error:
            raise ConfigError(f"AWS KMS cannot be asked for the key {key_id!r}: {error}") from None
