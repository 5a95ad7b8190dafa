from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def one_rsa_key() -> Iterator[None]:
    """Make one RSA key: moto generates an unused RSA key with every symmetric key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rsa, "generate_private_key", functools.cache(rsa.generate_private_key))
        yield
