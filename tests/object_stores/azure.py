"""Azure's emulator Azurite, for the client adlfs."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.object_stores.servers import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.storage.blob import BlobServiceClient

__all__ = ("CONNECTION", "AzureStorage", "azurite", "what_is_missing")

AZURITE = Path(__file__).parents[2] / ".servers" / "azurite"
CONTAINER = "container"
# adlfs reads its credentials from this variable.
CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
# The same, through a proxy.
PROXIED = "FTFILE_PROXIED_CONNECTION_STRING"
# The fixed credentials of every Azurite.
ACCOUNT = "devstoreaccount1"
HADOOP_HOST = f"{ACCOUNT}.dfs.core.windows.net"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureStorage(Storage):
    """Azurite with one container, whose content is lost when it ends."""

    def __init__(self) -> None:
        program = AZURITE / "node_modules/azurite/dist/src/blob/main.js"
        # The client may use a newer version of the protocol than Azurite.
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
        super().__init__("node", str(program), "--blobHost", "127.0.0.1", "--blobPort", "{port}", *quiet)

    @property
    def url(self) -> str:
        """Return the root of its container."""
        return f"abfs://{CONTAINER}"

    def settings_at(self, endpoint: str) -> dict[str, str]:
        """Return the driver's settings for another address of the server."""
        name = CONNECTION if endpoint == self.endpoint else PROXIED
        return {"connection_string": f"env:{name}"}

    def environment_at(self, endpoint: str) -> dict[str, str]:
        """Return the environment variables that a process needs for these settings."""
        return {CONNECTION: self.connection, PROXIED: self._connection_at(endpoint)}

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's client: Azurite supports only blobs without TLS, at a separate address."""
        return {
            "fs.azure.abfs.endpoint": self.endpoint.removeprefix("http://"),
            f"fs.azure.account.key.{HADOOP_HOST}": KEY,
            "fs.azure.account.hns.enabled": "false",
            "fs.azure.fns.account.service.type": "BLOB",
            "fs.azure.always.use.https": "false",
            "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        }

    @property
    def connection(self) -> str:
        """Return the value of `CONNECTION`."""
        return self._connection_at(self.endpoint)

    def _connection_at(self, endpoint: str) -> str:
        blobs = f"BlobEndpoint={endpoint}/{ACCOUNT}"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};{blobs};"

    @property
    def credentials(self) -> tuple[str, ...]:
        """Return the credentials of its clients."""
        return (self.connection,)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secret credentials, which no output may contain."""
        return (KEY,)

    def hadoop_url(self, url: str) -> str:
        """Return a URL below its root in the form of Hadoop's client."""
        return url.replace(self.url, f"{self.url}@{HADOOP_HOST}")

    def kept(self, url: str) -> list[str]:
        """Return names, metadata and content of all blobs below `_ftfile` of a directory, read without the driver."""
        prefix = f"{url.removeprefix(f'{self.url}/')}/_ftfile/"
        with self.client() as asked:
            container = asked.get_container_client(CONTAINER)
            return [
                f"{blob.name} {blob.metadata} {container.download_blob(blob.name).readall().decode('latin-1')}"
                for blob in container.list_blobs(name_starts_with=prefix, include=["metadata"])
            ]

    def start(self) -> None:
        """Start the server and wait until it responds."""
        super().start()
        with self.client() as asked:
            asked.create_container(CONTAINER)

    def client(self) -> BlobServiceClient:
        """Return another client than the driver's; the caller closes it."""
        # Tests of older Sparks use the storage but do not have its client.
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection)


def what_is_missing() -> str:
    """Return the reason why Azurite cannot run; empty if it can."""
    if (AZURITE / "stamp").exists() and shutil.which("node") is not None:
        return ""
    return "no Azurite is here, and Azure is left out: .ci/azure-server brings it where npm is"


@contextlib.contextmanager
def azurite() -> Iterator[AzureStorage]:
    """Start Azurite."""
    storage = AzureStorage()
    try:
        storage.start()
        yield storage
    finally:
        storage.remove()
