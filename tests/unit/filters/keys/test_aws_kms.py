"""AWS KMS, simulated by moto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.filters.keys import Keys, forget_keys
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto")

REGION = "eu-central-1"


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    forget_keys()
    with moto.mock_aws():
        yield boto3.client("kms", region_name=REGION)
    forget_keys()


def new_arn(kms: Any) -> str:
    arn: str = kms.create_key()["KeyMetadata"]["Arn"]
    return arn


@pytest.mark.slow
def test_keys_are_made_and_found_again(kms: Any) -> None:
    arn = new_arn(kms)
    keys = Keys.from_reference(f"aws-kms:{arn}")
    made = keys.key_to_use(keys.only_id())
    assert made.key not in made.wrapped
    forget_keys()
    assert Keys.from_reference(f"aws-kms:{arn}").find(arn, made.wrapped) == made
    forget_keys()
    assert keys.key_to_use(arn).key != made.key


@pytest.mark.slow
def test_only_the_keys_that_are_named_are_trusted(kms: Any) -> None:
    ours, theirs = new_arn(kms), new_arn(kms)
    made = Keys.from_reference(f"aws-kms:{theirs}").key_to_use(theirs)
    keys = Keys.from_reference(f"aws-kms:{ours}")
    with pytest.raises(ConfigError, match="there is no key"):
        keys.find(theirs, made.wrapped)
    with pytest.raises(ConfigError, match="there is no key"):
        keys.key_to_use(theirs)
    with pytest.raises(ConfigError, match=f"AWS KMS refused the key '{ours}': [A-Za-z]+"):
        keys.find(ours, made.wrapped)


@pytest.mark.slow
@pytest.mark.packages
def test_a_key_that_is_not_there(kms: Any) -> None:
    missing = new_arn(kms)[:-4] + "0000"
    with pytest.raises(ConfigError, match=r"AWS KMS refused the key .*: NotFoundException"):
        Keys.from_reference(f"aws-kms:{missing}").key_to_use(missing)


@pytest.mark.parametrize("arns", ["", " , ", "alias/mine", "1234abcd-12ab-34cd-56ef-1234567890ab"])
def test_what_names_no_key(arns: str) -> None:
    with pytest.raises(ConfigError, match="ARNs of keys"):
        Keys.from_reference(f"aws-kms:{arns}")


@pytest.mark.slow
@pytest.mark.packages
def test_a_stream_that_goes_on_with_another_key(kms: Any, tmp_path: Path) -> None:
    out, (old, new) = str(tmp_path / "out"), (new_arn(kms), new_arn(kms))
    for batch, (arn, provider) in enumerate([(old, old), (new, f"{old},{new}")]):
        forget_keys()
        options = {"fileFormat": "json", "encryption": "aes-gcm", "encryptionKeyId": arn}
        query = MicroBatch(out, {"word": "string"}, options | {"keyProvider": f"aws-kms:{provider}"})
        query.run(batch, [[{"word": f"word {batch}"}]])
        query.restart()
    forget_keys()
    found = ftfile.open(out, key_provider=f"aws-kms:{new},{old}")
    assert found.to_arrow()["word"].to_pylist() == ["word 0", "word 1"]
    with pytest.raises(ConfigError, match="no key provider was given"):
        ftfile.open(out)
    with pytest.raises(ConfigError, match="there is no key"):
        ftfile.open(out, key_provider=f"aws-kms:{new}").to_arrow()
