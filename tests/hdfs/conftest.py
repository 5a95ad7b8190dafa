"""One HDFS for all tests of a run. Tests that kill its servers restart them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.writing.files import file_writer as sink_writer
from tests.hdfs.minicluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.register_assert_rewrite("ftfile.testing")


@pytest.fixture(scope="session")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """Clear the caches that other tests have filled in this process."""
    sink_writer.forget_caches()
    yield
    sink_writer.forget_caches()
