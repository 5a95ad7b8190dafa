"""The stream sink in Spark on Azure's emulator, by adlfs and fsspec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.object_stores import azure
from tests.spark.store_scenarios import StoreScenarios

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.azure import AzureStore

pytestmark = [
    # adlfs sends large bodies by aiohttp, which warns that this takes time
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),
    pytest.mark.skipif(bool(azure.what_is_missing()), reason=azure.what_is_missing()),
]


@pytest.fixture(scope="module")
def store(azurite: AzureStore) -> Iterator[AzureStore]:
    azurite.start()
    yield azurite
    azurite.kill()


class TestAzure(StoreScenarios):
    variables = ("STORE_CONNECTION",)
    kills_applications = False
    by_variable = (("connection_string", "env:STORE_CONNECTION"),)
