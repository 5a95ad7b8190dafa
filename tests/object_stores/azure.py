"""Azure's emulator, of which adlfs is the client."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.object_stores.servers import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.storage.blob import BlobServiceClient

__all__ = ("CONNECTION", "AzureStore", "azurite", "what_is_missing")

AZURITE = Path(__file__).parents[2] / ".servers" / "azurite"
CONTAINER = "container"
# By this variable adlfs finds its credentials.
CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
# The same by way of something between.
PROXIED = "FTFILE_PROXIED_CONNECTION_STRING"
# Those that every Azurite has.
ACCOUNT = "devstoreaccount1"
HADOOP_HOST = f"{ACCOUNT}.dfs.core.windows.net"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureStore(Store):
    """Azurite, with one container; it keeps nothing when it ends."""

    def __init__(self) -> None:
        program = AZURITE / "node_modules/azurite/dist/src/blob/main.js"
        # It need not know the newest version of the protocol, which the client speaks.
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
        super().__init__("node", str(program), "--blobHost", "127.0.0.1", "--blobPort", "{port}", *quiet)

    @property
    def url(self) -> str:
        """Return the root of its container."""
        return f"abfs://{CONTAINER}"

    def settings_at(self, endpoint: str) -> dict[str, str]:
        """Return the driver's settings to reach it at another address."""
        name = CONNECTION if endpoint == self.endpoint else PROXIED
        return {"connection_string": f"env:{name}"}

    def environment_at(self, endpoint: str) -> dict[str, str]:
        """Return the variables that a process needs for these settings."""
        return {CONNECTION: self.connection, PROXIED: self._connection_at(endpoint)}

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's client: Azurite has blobs alone, no TLS, and an address of its own."""
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
        """Return the value of that variable."""
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
        """Return the secrets among these, which no output may show."""
        return (KEY,)

    def hadoop_url(self, url: str) -> str:
        """Return a URL below its root in the spelling of Hadoop's client."""
        return url.replace(self.url, f"{self.url}@{HADOOP_HOST}")

    def kept(self, url: str) -> list[str]:
        """Return all that it has below `_ftfile` of a directory, past the driver: names, metadata and content."""
        prefix = f"{url.removeprefix(f'{self.url}/')}/_ftfile/"
        with self.client() as asked:
            container = asked.get_container_client(CONTAINER)
            return [
                f"{blob.name} {blob.metadata} {container.download_blob(blob.name).readall().decode('latin-1')}"
                for blob in container.list_blobs(name_starts_with=prefix, include=["metadata"])
            ]

    def start(self) -> None:
        """Start it and wait until it answers."""
        super().start()
        with self.client() as asked:
            asked.create_container(CONTAINER)

    def client(self) -> BlobServiceClient:
        """Return a client that is not the driver's; close it."""
        # Tests of older Sparks know the store, and have no client of it.
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection)


def what_is_missing() -> str:
    """Say that Azurite, or what runs it, is not there; empty where both are."""
    if (AZURITE / "stamp").exists() and shutil.which("node") is not None:
        return ""
    return "no Azurite is here, and Azure is left out: .ci/azure-server brings it where npm is"


@contextlib.contextmanager
def azurite() -> Iterator[AzureStore]:
    """Start it."""
    store = AzureStore()
    try:
        store.start()
        yield store
    finally:
        store.remove()
