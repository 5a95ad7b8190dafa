"""Connections with a wrong configuration fail at once, with an error that names the remedy."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError, StorageError, WrongConnection
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.certificates import make_certificate
from tests.object_stores import gcs, servers
from tests.object_stores.hostile import hasten

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.object_stores.gcs import GcsStorage
    from tests.object_stores.servers import Storage

AT_ONCE_S = 300.0  # less than the patience for temporary errors
# A process keeps a client while the settings are the same, so each test uses another value.
_patience = itertools.count(600)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))[:2]


@pytest.fixture(scope="module")
def secure(files: tuple[Path, Path]) -> Iterator[Storage]:
    if missing := servers.what_is_missing():
        pytest.skip(missing)
    with servers.versity_with_tls(*files) as storage:
        yield storage


@pytest.fixture(scope="module")
def plain() -> Iterator[Storage]:
    with servers.moto() as storage:
        yield storage


def refused(url: str, settings: dict[str, str]) -> str:
    """Return the errors of both kinds of calls, which fail at once."""
    said = []
    for call in ("stat", "create_exclusive"):
        began = time.monotonic()
        fs = open_filesystem(url, settings=settings)
        with pytest.raises(WrongConnection) as caught:
            fs.stat("file") if call == "stat" else fs.create_exclusive("file", b"content")
        assert time.monotonic() - began < AT_ONCE_S
        assert isinstance(caught.value, ConfigError)
        assert isinstance(caught.value, StorageError)
        said.append(caught.value.detail)
    assert len({text.partition("(")[0] for text in said}) == 1
    return said[0]


def of_s3(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "region": "us-east-1", "patience": str(next(_patience))}


def other_scheme(storage: Storage) -> str:
    scheme, _, rest = storage.endpoint.partition(":")
    return f"{'http' if scheme == 'https' else 'https'}:{rest}"


def test_a_certificate_that_nobody_knows(secure: Storage) -> None:
    said = refused(secure.url, of_s3(secure.endpoint))
    assert "certificate is not trusted" in said
    assert "AWS_CA_BUNDLE" in said


def test_a_bundle_that_is_not_there(secure: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nonexistent/bundle.pem")
    assert "AWS_CA_BUNDLE, or ca_bundle of the profile, names a file that does not exist" in refused(
        secure.url, of_s3(secure.endpoint)
    )


def test_plain_http_to_a_server_of_tls(secure: Storage) -> None:
    assert "the server speaks TLS at this port: write https://" in refused(secure.url, of_s3(other_scheme(secure)))


def test_tls_to_a_server_of_plain_http(plain: Storage) -> None:
    assert "the server does not speak TLS: use http:// for this endpoint" in refused(
        plain.url, of_s3(other_scheme(plain))
    )


def test_a_stream_over_tls(
    secure: Storage, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(files[0]))
    import botocore.session

    settings = of_s3(secure.endpoint)
    botocore.session.get_session().create_client("s3", "us-east-1", endpoint_url=secure.endpoint).create_bucket(
        Bucket=servers.BUCKET
    )
    options = {"fileFormat": "text"} | {f"storage.{name}": text for name, text in settings.items()}
    query = MicroBatch(f"{secure.url}/directory", {"value": "string"}, options, checkpoint=str(tmp_path))
    query.run(0, [[{"value": "a"}], [{"value": "b"}]])
    report = check_directory(open_filesystem(f"{secure.url}/directory", settings=settings))
    assert report.visible_rows == Counter([b"a", b"b"])


@pytest.fixture(scope="module")
def google(files: tuple[Path, Path]) -> Iterator[GcsStorage]:
    if missing := gcs.what_is_missing():
        pytest.skip(missing)
    with gcs.fake_gcs(*map(str, files)) as storage:
        yield storage


@pytest.fixture
def hasty() -> Iterator[None]:
    undo = hasten()
    yield
    undo()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("is_right", "said"), [(True, "certificate is not trusted (self-signed certificate): set SSL_CERT_FILE"),
                           (False, "the server speaks TLS at this port: write https://")],
)  # fmt: skip
def test_gcsfs_and_a_server_of_tls(google: GcsStorage, is_right: bool, said: str) -> None:
    endpoint = google.endpoint if is_right else other_scheme(google)
    assert said in refused(f"{google.url}/directory", google.settings_at(endpoint))


@pytest.mark.usefixtures("hasty")
def test_gcsfs_and_tls_to_a_server_of_plain_http(plain: Storage) -> None:
    settings = {"endpoint_url": other_scheme(plain), "token": "anon", "project": "project"}
    assert "the server does not speak TLS" in refused("gs://bucket/directory", settings)


@pytest.mark.usefixtures("hasty")
def test_gcsfs_and_a_silence_that_hides_what_is_wrong(google: GcsStorage) -> None:
    """gcsfs retries until the call's time is over without an error of the certificate; the driver still names it."""
    said = refused(f"{google.url}/directory", google.settings_at(google.endpoint) | {"callTimeout": "0.4"})
    assert "certificate is not trusted" in said
