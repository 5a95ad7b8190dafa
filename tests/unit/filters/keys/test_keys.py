"""The sources of keys. No message, name or pickle contains a key."""

from __future__ import annotations

import base64
import os
import pickle
import shlex
import subprocess
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.filters import key_providers
from ftfile.filters import keys as keys_module
from ftfile.filters.key_providers import parse_ring
from ftfile.filters.keys import (
    ENTRY_POINT_GROUP,
    KEY_BYTES,
    IssuedKey,
    Keys,
    check_key_id,
    forget_keys,
    holds_key,
)
from ftfile.testing.context import ManualClock
from tests.kit.parameters import parametrize
from tests.unit.damage import damaged
from tests.unit.packages import install

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
TEXT = {key: base64.b64encode(key).decode() for key in (FIRST, SECOND)}
# As `openssl rand -base64 32` prints keys, and in the URL-safe alphabet of other programs.
WRITTEN = (TEXT[FIRST], base64.urlsafe_b64encode(SECOND).decode(), "-6bm/wX_yM9cE0vUo1cK3Zl/dG7hQpJ2sYxTnRwBa8g=")
RING = f"# keys\n\n2024 {TEXT[FIRST]}\n2025\t{TEXT[SECOND]}\n"


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    forget_keys()
    yield
    forget_keys()


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(RING)
    path.chmod(0o600)
    return path


def refusal(reference: str, key_id: str = "2024") -> str:
    """Return the message with which a key is refused, and check that the error contains no key."""
    with pytest.raises(ConfigError) as caught:
        Keys.from_reference(reference).key_to_use(key_id)
    printed = "".join(traceback.format_exception(caught.value))
    message = str(caught.value)
    assert not any(text in printed for key in TEXT for text in (TEXT[key], key.hex()))
    return message


class TestRings:
    def test_a_file(self, ring: Path) -> None:
        keys = Keys.from_reference(f"file:{ring}")
        assert keys.key_to_use("2024").key == FIRST
        assert keys.key_to_use("2025").key == SECOND
        assert keys.find("2025", b"") == keys.key_to_use("2025")
        assert keys.provider().known_ids() == ("2024", "2025")

    @pytest.mark.slow
    @pytest.mark.packages
    def test_rings_need_no_package_of_aws_and_its_own_keys_name_it(self, ring: Path) -> None:
        arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
        code = (
            "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\n"
            "from ftfile.filters.keys import Keys\n"
            f"Keys.from_reference('file:{ring}').key_to_use('2024')\n"
            f"Keys.from_reference('aws-kms:{arn}').key_to_use('{arn}')"
        )
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "keyProvider=aws-kms:… needs a package" in ended.stderr
        assert "pip install 'ftfile[kms]', on the driver and on the executors" in ended.stderr

    def test_what_is_derived_differs(self, ring: Path) -> None:
        keys = Keys.from_reference(f"file:{ring}")
        found = [keys.key_to_use(key_id) for key_id in ("2024", "2025")]
        assert len({part for each in found for part in (each.key, each.wrapping, each.records)}) == 6

    def test_a_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_KEYS", RING)
        assert Keys.from_reference("env:SOME_KEYS").key_to_use("2024").key == FIRST

    def test_a_command(self, ring: Path) -> None:
        assert Keys.from_reference(f"command:cat '{ring}'").key_to_use("2024").key == FIRST

    def test_a_command_starts_no_shell(self, ring: Path) -> None:
        assert "is not a key" in refusal(f"command:echo $(cat {ring})")

    def test_a_command_runs_once_and_again_for_new_keys_but_not_for_each_that_is_unknown(
        self, ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock, runs = ManualClock(), tmp_path / "runs"
        monkeypatch.setattr(key_providers, "SYSTEM", replace(SYSTEM, clock=clock))
        keys = Keys.from_reference(f"command:sh -c 'echo >> {runs}; cat {ring}'")

        def count() -> int:
            return len(runs.read_text())

        assert keys.key_to_use("2024").key == FIRST
        assert keys.find("2025", b"").key == SECOND
        assert keys.provider().known_ids() == ("2024", "2025")
        assert count() == 1
        ring.write_text(RING + f"2026 {TEXT[FIRST]}\n")
        for number in range(20):
            with pytest.raises(ConfigError, match="which contains: 2024, 2025; it is read again 300 s after the last"):
                keys.find(f"forged-{number}" if number else "2026", b"")
        assert count() == 1
        clock.advance(300)
        assert keys.find("2026", b"").key == FIRST
        for number in range(20):
            with pytest.raises(ConfigError, match="there is no key"):
                keys.find(f"forged-{number}", b"")
        assert count() == 2

    def test_a_command_that_failed_is_tried_again(self, ring: Path) -> None:
        keys = Keys.from_reference(f"command:cat '{ring}'")
        ring.unlink()
        with pytest.raises(ConfigError, match="ended with status"):
            keys.key_to_use("2024")
        ring.write_text(RING)
        assert keys.key_to_use("2024").key == FIRST

    def test_new_keys_get_known(self, ring: Path) -> None:
        keys = Keys.from_reference(f"file:{ring}")
        keys.key_to_use("2024")
        with pytest.raises(ConfigError, match=r"there is no key '2026' in the key file .*, which contains: 2024, 2025"):
            keys.key_to_use("2026")
        ring.write_text(RING + f"2026 {TEXT[FIRST]}\n")
        assert keys.key_to_use("2026").key == FIRST

    def test_the_only_key_needs_no_name(self, ring: Path) -> None:
        with pytest.raises(ConfigError, match="choose one with encryptionKeyId: 2024, 2025"):
            Keys.from_reference(f"file:{ring}").only_id()
        ring.write_text(f"2025 {TEXT[SECOND]}\n")
        assert Keys.from_reference(f"file:{ring}").only_id() == "2025"

    @pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o602, 0o601])
    def test_a_file_that_others_can_read_or_change(self, ring: Path, mode: int) -> None:
        ring.chmod(mode)
        assert f"has mode {mode:04o}" in refusal(f"file:{ring}")

    @pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
    def test_a_file_that_its_group_can_read(self, ring: Path, mode: int) -> None:
        ring.chmod(mode)
        assert Keys.from_reference(f"file:{ring}").key_to_use("2024").key == FIRST

    def test_a_file_of_somebody_else(self, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        uid = ring.stat().st_uid
        if uid == 0:
            os.chown(ring, 4711, -1)
            uid = 4711
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        assert f"belongs to user {uid}" in refusal(f"file:{ring}")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", "there is no key in"),
            ("# nothing\n", "there is no key in"),
            (TEXT[FIRST], "line 1 of .* is not a key"),
            (f"2024 {TEXT[FIRST]}\n2025 {TEXT[SECOND][:-5]}", "line 2 of .* is not a key"),
            (f"2024 {TEXT[FIRST]} more", "line 1 of .* is not a key"),
            (f"2024 {TEXT[FIRST]}\n2024 {TEXT[SECOND]}", "line 2 of .* has the same id"),
            (f"2024 {FIRST.hex()}", "line 1 of .* is not a key"),
            (f"k\u00e9y {TEXT[FIRST]}", "line 1 of .* is not a key"),
            (f"{'k' * 201} {TEXT[FIRST]}", "line 1 of .* is not a key"),
        ],
    )
    def test_what_is_no_ring(self, ring: Path, text: str, expected: str) -> None:
        ring.write_text(text)
        with pytest.raises(ConfigError, match=expected):
            Keys.from_reference(f"file:{ring}").key_to_use("2024")
        refusal(f"file:{ring}")

    @pytest.mark.parametrize(
        ("reference", "expected"),
        [
            ("file:/no/such/keys", "the key file '/no/such/keys' cannot be read on the host '"),
            ("file:keys", "absolute path"),
            ("env:FTFILE_NOT_SET", "the environment variable FTFILE_NOT_SET, which should contain keys, is not set"),
            ("env:not a name", "the name of a variable"),
            ("command:/no/such/program", "cannot be started"),
            ("command:false", "'false' ended with status 1"),
            ("command:", "a program and its arguments"),
            ("command:'", "a program and its arguments"),
            ("vault:secret/ftfile", "this value is not one of aws-kms:…, command:…, env:…, file:…"),
            ("/etc/ftfile/keys", "this value is not one of"),
            ("", "this value is not one of"),
        ],
    )
    def test_what_is_no_provider(self, reference: str, expected: str) -> None:
        assert expected in refusal(reference)

    def test_what_a_command_says_is_not_repeated(self) -> None:
        texts = "[base64.b64encode(bytes(range(start, start + 32))).decode() for start in (0, 32)]"
        code = f"import base64, sys; a, b = {texts}; print(a); print(b, file=sys.stderr); sys.exit(3)"
        assert "status 3" in refusal(f'command:{shlex.quote(sys.executable)} -c "{code}"')


@pytest.mark.slow
@given(damaged(RING.encode()))
def test_a_damaged_ring_gives_keys_of_its_own_or_says_nothing_of_them(content: bytes) -> None:
    try:
        keys = parse_ring(content.decode("utf-8", "replace"), "the ring")
    except ConfigError as error:
        assert not any(word in str(error) for word in content.decode("latin-1").split() if len(word) > 20)  # noqa: PT017
    else:
        assert all(len(key) == KEY_BYTES for key in keys.values())


class TestKeysInOptions:
    @pytest.mark.parametrize("key", [*WRITTEN, FIRST.hex(), "00" * 16, TEXT[FIRST].rstrip("=")])
    @pytest.mark.parametrize("form", ["{}", ":{}", "key:{}", "base64:{}", "FILE:/{}", "{}:file"])
    def test_without_a_known_source_are_refused_and_not_shown(self, key: str, form: str) -> None:
        message = refusal(form.format(key))
        assert "this value is not one of aws-kms:…, command:…, env:…, file:…" in message
        assert "Spark shows options" in message
        assert key not in message

    @pytest.mark.parametrize("key", WRITTEN)
    @pytest.mark.parametrize("source", ["env:", "file:", "aws-kms:"])
    def test_are_refused_and_not_shown(self, key: str, source: str) -> None:
        message = refusal(source + key)
        assert "Spark shows options" in message
        assert key not in message

    @pytest.mark.parametrize("key", WRITTEN)
    @pytest.mark.parametrize(
        "command", ["echo first {}", "printf 'first {}\\n'", "vault --token={} get", "sh -c 'KEY=\"{}\" k'", "x a,{};b"]
    )
    def test_within_a_command_are_refused_and_not_shown(self, key: str, command: str) -> None:
        message = refusal(f"command:{command.format(key)}")
        assert "Spark shows options" in message
        assert key not in message

    @pytest.mark.parametrize(
        "reference",
        [
            "command:vault kv get -field=ring secret/ftfile",
            "command:/usr/bin/env AWS_PROFILE=production aws secretsmanager get-secret-value --secret-id=ftfile/keys",
            "command:gcloud secrets versions access latest --project=1234abcd-12ab-34cd-56ef-1234567890ab",
        ],
    )
    def test_commands_are_none(self, reference: str) -> None:
        Keys.from_reference(reference)

    def test_as_a_key_id(self) -> None:
        with pytest.raises(ConfigError, match="this value contains a key") as caught:
            check_key_id(TEXT[FIRST])
        assert TEXT[FIRST] not in str(caught.value)

    @pytest.mark.parametrize("key", WRITTEN)
    @pytest.mark.parametrize("key_id", ["first:{}", "first={}", "first-{}", "first_{}", "{}:first", "a/{}", '"{}"'])
    def test_within_a_key_id(self, key: str, key_id: str) -> None:
        with pytest.raises(ConfigError, match="this value contains a key") as caught:
            check_key_id(key_id.format(key))
        assert key not in str(caught.value)

    @parametrize("key", WRITTEN, quick=2, packages=True)
    @pytest.mark.parametrize("path", ["file:/{}", "file:///{}", "file:/{} ", "file:/etc/ftfile/{}"])
    def test_as_a_file(self, key: str, path: str) -> None:
        message = refusal(path.format(key))
        assert "Spark shows options" in message
        assert key not in message

    @pytest.mark.parametrize(
        "path",
        [
            f"/etc/ftfile/Prod2{'a' * 38}",
            "/nix/store/3n58xw4373jp0ljirf06d8077j15pc4j-keys/ring",
            f"/var/lib/docker/overlay2/{FIRST.hex()}/merged/keys",
            "/tmp/a-b_c-1/D-e_F-2/g-h_I-3/j-K_l-4/m-N_o-5/p-Q_r-6/keys",
        ],
    )
    def test_files_are_none(self, path: str) -> None:
        Keys.from_reference(f"file:{path}")

    @pytest.mark.parametrize("key_id", ["", "two words", "k\u00e9y", "k" * 201])
    def test_what_is_no_key_id(self, key_id: str) -> None:
        with pytest.raises(ConfigError, match="200 visible ASCII"):
            check_key_id(key_id)

    @pytest.mark.parametrize(
        "key_id",
        [
            *("2024-07", "orders", "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"),
            *("1234abcd-12ab-34cd-56ef-1234567890ab", "production/orders/2024/07"),
            "arn:aws:kms:eu-central-1:111122223333:key/mrk-1234abcd12ab34cd56ef1234567890ab",
            "https://myVault.vault.azure.net/keys/CreditCard/9ea389d1b6d849adb8ef2a12b3a5f4ab",
            *("my-ordersOfTheProductionTeamForever2024Version", "9ea389d1b6d849adb8ef2a12b3a5f4ab9ea389d1b6d"),
            "projects/MyProject1/locations/europe-west1/keyRings/ring2/cryptoKeys/orders/cryptoKeyVersions/1",
        ],
    )
    def test_names_are_no_keys(self, key_id: str) -> None:
        assert not holds_key(key_id)
        check_key_id(key_id)


@pytest.mark.parametrize(
    ("path", "is_believed"),
    [
        ("/dev/shm/keys", True),
        ("/dev/shm", False),
        ("/dev/shm/../fd/3", False),
        ("/dev/fd/3", False),
        ("/proc/self/root/keys", False),
    ],
)
def test_a_directory_names_plain_files_also_in_memory(path: str, is_believed: bool) -> None:
    assert Keys(f"file:{path}").as_told_by("/out") == (Keys(f"file:{path}") if is_believed else None)


class TestSecrets:
    def test_are_in_no_representation_and_in_no_pickle(self, ring: Path) -> None:
        keys = Keys.from_reference(f"command:cat {ring} --secret-token")
        keys = Keys(f"file:{ring}")
        found = keys.key_to_use("2024")
        for text in (repr(keys), repr(found), repr(keys.provider()), repr(IssuedKey(FIRST))):
            assert not any(secret in text for secret in (TEXT[FIRST], FIRST.hex(), repr(FIRST), str(ring)))
        assert FIRST not in pickle.dumps(keys)
        assert pickle.loads(pickle.dumps(keys)) == keys

    def test_a_command_is_not_shown(self) -> None:
        assert "token" not in repr(Keys("command:vault --token=secret"))
        assert "token" not in refusal("command:/no/such/vault --token=secret")


class OfUser:
    """A provider that creates a key at each call. The wrapped key is only the name of the key."""

    def __init__(self, settings: str) -> None:
        self.settings = settings
        self.made: dict[bytes, bytes] = {}
        self.asked = 0

    def known_ids(self) -> tuple[str, ...]:
        return ("theirs",)

    def new_key(self, key_id: str) -> IssuedKey:
        if key_id == "short":
            return IssuedKey(b"short")
        wrapped = f"{key_id} {len(self.made)}".encode()
        self.made[wrapped] = bytes([len(self.made)]) * 32
        return IssuedKey(self.made[wrapped], wrapped)

    def find_key(self, key_id: str, wrapped: bytes) -> bytes:
        self.asked += 1
        if wrapped not in self.made:
            raise ConfigError(f"there is no key {key_id}")
        return self.made[wrapped]


class TestProvidersOfUsers:
    @pytest.fixture(autouse=True)
    def installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = f"vault = {__name__}:OfUser\ngone = no.such.module:Provider\nnone = builtins:str\n"
        install(tmp_path / "packages", "keys_of_users", f"[{ENTRY_POINT_GROUP}]\n{entries}")
        monkeypatch.syspath_prepend(tmp_path / "packages")
        monkeypatch.setitem(sys.modules, __name__, sys.modules[self.__module__])

    def test_get_what_stands_after_the_colon(self) -> None:
        provider = Keys.from_reference("vault:secret/keys").provider()
        assert isinstance(provider, OfUser)
        assert provider.settings == "secret/keys"

    def test_are_asked_once_for_each_key(self) -> None:
        keys = Keys.from_reference("vault:a")
        first = keys.key_to_use("theirs")
        assert keys.key_to_use("theirs") is first
        provider = keys.provider()
        assert isinstance(provider, OfUser)
        assert [keys.find("theirs", first.wrapped).key for _ in range(3)] == [first.key] * 3
        assert (len(provider.made), provider.asked) == (1, 1)

    def test_are_asked_for_a_new_key_after_an_hour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = Keys.from_reference("vault:a")
        first = keys.key_to_use("theirs")
        monkeypatch.setattr(keys_module, "_ISSUED_S", -1.0)
        assert keys.key_to_use("theirs").key != first.key
        assert keys.find("theirs", first.wrapped).key == first.key

    def test_that_give_something_else_than_a_key(self) -> None:
        with pytest.raises(ConfigError, match="a key of 5 bytes"):
            Keys.from_reference("vault:a").key_to_use("short")

    @pytest.mark.slow
    @pytest.mark.packages
    def test_that_are_not_there(self) -> None:
        with pytest.raises(ConfigError, match="the key provider 'gone' cannot be loaded"):
            Keys.from_reference("gone:a")
        with pytest.raises(ConfigError, match="the key provider 'none' has no new_key, find_key, known_ids"):
            Keys.from_reference("none:a")
