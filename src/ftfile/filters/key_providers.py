"""Key providers, such as key files and AWS KMS.

A key ring is lines of text from a file, a variable or a command. Credentials and endpoint of KMS are from boto3's
environment and files. KMS is called once an hour for a key to encrypt with, and once for each of its keys when files
are read.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
import shlex
import socket
import stat
import subprocess
import threading
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.filters.keys import KEY_BYTES, IssuedKey, is_key_id

_COMMAND_S = 60.0
_FOR_OTHERS = stat.S_IWGRP | stat.S_IRWXO
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BYTES_MAX = 1 << 20

_FORMAT = "each line is a key id, a space, and 32 random bytes in base64, as printed by `openssl rand -base64 32`"


class KeyRing(ABC):
    """Keys by id; all keys are read again when an unknown id is requested. `what` names their source in messages.

    An unknown id stays unknown for `fresh_s` seconds, since a program that writes into a directory can invent any
    number of ids.
    """

    fresh_s: ClassVar[float] = 0.0

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._keys: dict[str, bytes] = {}
        self._looked_s = -math.inf

    def new_key(self, key_id: str) -> IssuedKey:
        return IssuedKey(self._key(key_id))

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        if wrapped:
            raise ConfigError(f"the key {key_id!r} belongs to another kind of key provider, not to {self._what}")
        return self._key(key_id)

    def known_ids(self) -> tuple[str, ...]:
        with self._lock:
            self._refresh()
            return tuple(self._keys)

    def _key(self, key_id: str) -> bytes:
        with self._lock:
            if key_id not in self._keys:
                self._refresh()
            if key_id not in self._keys:
                key_ids = ", ".join(self._keys)
                later = ""
                if self.fresh_s:
                    later = f"; it is read again {self.fresh_s:.0f} s after the last read"
                raise ConfigError(f"there is no key {key_id!r} in {self._what}, which contains: {key_ids}{later}")
            return self._keys[key_id]

    def _refresh(self) -> None:
        """Read the keys, unless they are fresh."""
        now_s = SYSTEM.clock.monotonic_s()
        if self._keys and now_s - self._looked_s < self.fresh_s:
            return
        self._looked_s = now_s  # also after a failed read
        self._keys = parse_ring(self._read(), self._what)

    @abstractmethod
    def _read(self) -> str:
        """Return the lines of the ring."""


class FileRing(KeyRing):
    """`file:/etc/ftfile/keys`: a file that only its owner can write, and only its owner and group can read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the key file {path!r}")
        if not path.startswith("/"):
            raise ConfigError("keyProvider=file:… needs an absolute path, such as file:/etc/ftfile/keys")
        self._path = path

    def _read(self) -> str:
        try:
            # A pipe has no permissions to check, and opening it would wait for a writer.
            with open(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                content = b""
                if stat.S_ISREG(status.st_mode):
                    content = file.read(_BYTES_MAX)
        except OSError as error:
            raise ConfigError(f"{self._what} cannot be read {_place_of_call()}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{self._what} is not a regular file")
        if status.st_mode & _FOR_OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            raise ConfigError(f"{self._what} has mode {mode:04o}, so other users can read or change it: run chmod 600")
        if status.st_uid not in {0, os.geteuid()}:
            raise ConfigError(f"{self._what} belongs to user {status.st_uid}: it must belong to this user, or to root")
        return content.decode("utf-8", "replace")


class EnvironmentRing(KeyRing):
    """`env:FTFILE_KEYS`: an environment variable of the driver and the executors."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the environment variable {name}")
        if not _VARIABLE.fullmatch(name):
            raise ConfigError("keyProvider=env:… needs the name of a variable, such as env:FTFILE_KEYS")
        self._name = name

    def _read(self) -> str:
        text = os.environ.get(self._name)
        if not text:
            raise ConfigError(f"{self._what}, which should contain keys, is not set {_place_of_call()}")
        return text


class CommandRing(KeyRing):
    """`command:vault kv get …`: the output of a program, started without a shell; once, unless a key is unknown."""

    fresh_s: ClassVar[float] = 300.0

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError:
            self._words = []
        if not self._words:
            raise ConfigError("keyProvider=command:… needs a program and its arguments, quoted as in a shell")
        super().__init__(f"the output of {self._words[0]!r}")

    def _read(self) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command, never one that storage names
                self._words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(f"the key command {self._words[0]!r} took more than {_COMMAND_S:.0f} s") from None
        except OSError as error:
            raise ConfigError(f"the key command {self._words[0]!r} cannot be started: {error.strerror}") from None
        if done.returncode:
            # Its output can contain a secret.
            raise ConfigError(
                f"the key command {self._words[0]!r} ended with status {done.returncode}: run it manually to see why"
            )
        return done.stdout.decode("utf-8", "replace")


def _place_of_call() -> str:
    return f"on the host {socket.gethostname()!r} (the driver and every executor need it)"


def parse_ring(text: str, what: str) -> dict[str, bytes]:
    """Return the keys of a ring; errors name lines by number and show no content."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = _decode_base64(words[1]) if len(words) == 2 else None  # noqa: PLR2004 - id and key
        if key is None or not is_key_id(words[0]):
            raise ConfigError(f"line {number} of {what} is not a key: {_FORMAT}")
        if words[0] in keys:
            raise ConfigError(f"line {number} of {what} has the same id as an earlier line")
        keys[words[0]] = key
    if not keys:
        raise ConfigError(f"there is no key in {what}: {_FORMAT}")
    return keys


def _decode_base64(text: str) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(key) == KEY_BYTES:
        return key
    return None


_ARN = re.compile(r"arn:[a-z-]+:kms:([a-z0-9-]+):\d{12}:key/[A-Za-z0-9-]+")
# KMS writes it into its log, and refuses to unwrap a key for another use.
_CONTEXT = {"application": "ftfile"}


class AwsKms:
    """The keys of AWS KMS with these ARNs; aliases are not accepted, since they can be moved to other keys."""

    def __init__(self, arns: str) -> None:
        self._regions: dict[str, str] = {}
        for text in arns.split(","):
            arn = text.strip()
            if not arn:
                continue
            match = _ARN.fullmatch(arn)
            if match is None:
                raise ConfigError(
                    "keyProvider=aws-kms:… needs ARNs of keys, separated by commas, such as "
                    "aws-kms:arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
                )
            self._regions[arn] = match[1]
        if not self._regions:
            raise ConfigError("keyProvider=aws-kms: names no key: give ARNs of keys, separated by commas")
        try:
            import boto3  # noqa: F401 - few have keys of AWS, and the package
        except ImportError as error:
            raise ConfigError(
                f"keyProvider=aws-kms:… needs a package that is not installed ({error}): pip install 'ftfile[kms]', on "
                "the driver and on the executors"
            ) from error
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    def known_ids(self) -> tuple[str, ...]:
        return tuple(self._regions)

    def new_key(self, key_id: str) -> IssuedKey:
        answer = self._ask("generate_data_key", key_id, NumberOfBytes=KEY_BYTES)
        return IssuedKey(answer["Plaintext"], answer["CiphertextBlob"])

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        # With KeyId, KMS refuses a ciphertext of another key.
        key: bytes = self._ask("decrypt", key_id, CiphertextBlob=wrapped)["Plaintext"]
        return key

    def _client(self, key_id: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
        import boto3

        if key_id not in self._regions:
            regions = ", ".join(self._regions)
            raise ConfigError(f"there is no key {key_id!r} in keyProvider=aws-kms:…, which names: {regions}")
        region = self._regions[key_id]
        with self._lock:
            if region not in self._clients:
                self._clients[region] = boto3.client("kms", region_name=region)
            return self._clients[region]

    def _ask(self, operation: str, key_id: str, **arguments: object) -> Any:  # noqa: ANN401 - boto3's answer
        from botocore.exceptions import BotoCoreError, ClientError

        client = self._client(key_id)
        try:
            return getattr(client, operation)(KeyId=key_id, EncryptionContext=_CONTEXT, **arguments)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error")
            raise ConfigError(f"AWS KMS refused the key {key_id!r}: {code}") from None
        except BotoCoreError as error:
            raise ConfigError(f"AWS KMS cannot be reached for the key {key_id!r}: {error}") from None
