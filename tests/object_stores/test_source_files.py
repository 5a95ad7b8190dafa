"""Files of other programs on object stores, with the state of the stream on the storage, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.object_stores import gcs
from tests.source_files import check_a_migration, check_lines_are_read_once

if TYPE_CHECKING:
    from tests.object_stores.azure import AzureStorage
    from tests.object_stores.servers import Storage

# Two of the clients send large bodies by aiohttp, which warns that this takes time.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


def test_on_s3(each_storage: Storage) -> None:
    check_lines_are_read_once(f"{each_storage.url}/foreign", each_storage.settings)


def test_a_migration_on_s3(each_storage: Storage) -> None:
    check_a_migration(f"{each_storage.url}/migrated", each_storage.settings)


def test_on_azure(azurite: AzureStorage) -> None:
    check_lines_are_read_once(f"{azurite.url}/foreign", azurite.settings)


@pytest.mark.skipif(bool(gcs.what_is_missing()), reason=gcs.what_is_missing())
def test_on_gcs() -> None:
    with gcs.fake_gcs() as storage:
        check_lines_are_read_once(f"{storage.url}/foreign", storage.settings)
