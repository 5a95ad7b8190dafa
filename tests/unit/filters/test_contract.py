"""Every built-in filter fulfils the contract of filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.codecs import CODECS
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import codec
from ftfile.filters.keys import Keys, forget_keys
from ftfile.testing.contracts.filter import FilterContract
from tests.kit.parameters import slow_after
from tests.unit.filters.filters_of_users import ByteCounter, Cipher
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.filters.api import Filter

__all__ = ("ring",)

DEAR = ("bzip2", "xz")
CHECKED = [*sorted(name for name, row in CODECS.items() if row.has_checksum and name not in DEAR), *DEAR]


class TestCodecs(FilterContract):
    notices_damage = True
    held_bytes_max = 3 << 20

    @pytest.fixture(params=slow_after(3, CHECKED, packages=True))
    def byte_filter(self, request: pytest.FixtureRequest) -> Filter:
        return codec(request.param)


class TestHadoopCodecs(FilterContract):
    encodes_nothing = False  # a valid file has at least one block, so a file truncated to no bytes is detected

    @pytest.fixture(params=sorted(name for name, row in CODECS.items() if not row.has_checksum))
    def byte_filter(self, request: pytest.FixtureRequest) -> Filter:
        return codec(request.param)


class TestAesGcm(FilterContract):
    notices_damage = binds_identity = True

    @pytest.fixture
    def byte_filter(self, ring: Path) -> Iterator[Filter]:
        yield AesGcm("first", Keys.from_reference(f"file:{ring}"))
        forget_keys()


class TestCipherOfUser(FilterContract):
    notices_damage = binds_identity = True

    @pytest.fixture
    def byte_filter(self) -> Filter:
        return Cipher()


class TestByteCounter(FilterContract):
    notices_truncation = False

    @pytest.fixture
    def byte_filter(self) -> Filter:
        return ByteCounter()
