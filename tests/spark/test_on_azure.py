"""The stream sink in Spark on Azure's emulator, by adlfs and fsspec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.object_stores import azure
from tests.spark.storage_scenarios import StorageScenarios

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.azure import AzureStorage

pytestmark = [
    # adlfs sends large bodies by aiohttp, which warns that this takes time
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
    pytest.mark.skipif(bool(azure.what_is_missing()), reason=azure.what_is_missing()),
]


@pytest.fixture(scope="module")
def storage(azurite: AzureStorage) -> Iterator[AzureStorage]:
    azurite.start()
    yield azurite
    azurite.kill()


class TestAzure(StorageScenarios):
    variables = ("STORAGE_CONNECTION",)
    kills_applications = False
    by_variable = (("connection_string", "env:STORAGE_CONNECTION"),)
