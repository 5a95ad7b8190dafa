"""Every built-in key provider fulfils the contract of key providers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from ftfile.filters.key_providers import CommandRing, EnvironmentRing, FileRing
from ftfile.testing.contracts.filter import KeyProviderContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.filters.keys import KeyProvider

RING = "".join(f"{name} {base64.b64encode(bytes(range(at, at + 32))).decode()}\n" for at, name in enumerate("abc"))


class TestRings(KeyProviderContract):
    @pytest.fixture(params=["file", "env", "command"])
    def make_provider(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[], KeyProvider]:
        path = tmp_path / "keys"
        path.write_text(RING)
        path.chmod(0o600)
        monkeypatch.setenv("FTFILE_KEYS", RING)
        rings: dict[str, Callable[[], KeyProvider]] = {
            "file": lambda: FileRing(str(path)),
            "env": lambda: EnvironmentRing("FTFILE_KEYS"),
            "command": lambda: CommandRing(f"cat '{path}'"),
        }
        return rings[request.param]


@pytest.mark.slow
@pytest.mark.packages
class TestAwsKms(KeyProviderContract):
    @pytest.fixture
    def make_provider(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], KeyProvider]]:
        import boto3
        import moto

        from ftfile.filters.key_providers import AwsKms

        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.setenv(name, "testing")
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        with moto.mock_aws():
            client = boto3.client("kms", region_name="eu-central-1")
            arns = [client.create_key()["KeyMetadata"]["Arn"] for _ in range(2)]
            yield lambda: AwsKms(",".join(arns))
