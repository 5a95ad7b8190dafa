"""Every promise of a key provider as tests: a provider inherits them.

A subclass has a fixture `make_provider`. It returns a function that gives a provider of at least two keys, and
gives another one of the same keys when it is called again.
"""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError
from ftfile.filters.keys import KEY_BYTES, WRAPPED_BYTES_MAX, IssuedKey, check_key_id, is_key_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.filters.keys import KeyProvider


__all__ = ("KeyProviderContract",)


class KeyProviderContract:
    """All tests of a key provider."""

    unknown_id = "no-such-key"  # of no key

    def test_ids_are_known(self, make_provider: Callable[[], KeyProvider]) -> None:
        key_ids = make_provider().known_ids()
        assert isinstance(key_ids, tuple)
        assert len(key_ids) == len(set(key_ids)) >= 2, "the tests need two keys"
        for key_id in key_ids:
            assert is_key_id(key_id)
            check_key_id(key_id)
        assert make_provider().known_ids() == key_ids

    def test_keys_are_keys(self, make_provider: Callable[[], KeyProvider]) -> None:
        for issued in _issued(make_provider()).values():
            assert isinstance(issued, IssuedKey)
            assert type(issued.key) is type(issued.wrapped) is bytes
            assert len(issued.key) == KEY_BYTES
            assert len(issued.wrapped) <= WRAPPED_BYTES_MAX
            assert len(set(issued.key)) > 1, "a key is random"

    def test_each_id_has_a_key_of_its_own(self, make_provider: Callable[[], KeyProvider]) -> None:
        issued = _issued(make_provider())
        assert len({data_key.key for data_key in issued.values()}) == len(issued)

    def test_a_key_is_found_here_and_by_another_provider(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        first, second = _issued(provider), _issued(provider)
        for finder in (provider, make_provider()):
            for issued in (first, second, first):
                for key_id, data_key in issued.items():
                    assert finder.find_key(key_id, data_key.wrapped) == data_key.key

    def test_wrapped_keys_do_not_show_the_key(self, make_provider: Callable[[], KeyProvider]) -> None:
        for issued in _issued(make_provider()).values():
            assert not any(form in issued.wrapped for form in _forms(issued.key))

    def test_a_key_is_not_shown(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        issued = _issued(provider)
        shown = f"{provider!r} {provider!s} {issued!r}".encode()
        assert not any(form in shown for data_key in issued.values() for form in _forms(data_key.key))

    def test_an_unknown_id_is_refused(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        issued = _issued(provider)
        wrapped = next(iter(issued.values())).wrapped
        for ask in (lambda: provider.new_key(self.unknown_id), lambda: provider.find_key(self.unknown_id, wrapped)):
            with pytest.raises(ConfigError, match=self.unknown_id) as caught:
                ask()
            assert not any(
                form in str(caught.value).encode() for data_key in issued.values() for form in _forms(data_key.key)
            )

    def test_what_was_never_issued_is_refused(self, make_provider: Callable[[], KeyProvider]) -> None:
        """Data made with a key that is found is believed."""
        provider = make_provider()
        for key_id, issued in _issued(provider).items():
            for forged in (b"garbage", issued.wrapped + b"\0", issued.wrapped[:-1] or b"\0", bytes(100)):
                with pytest.raises(ConfigError):
                    provider.find_key(key_id, forged)

    def test_what_was_issued_under_another_id_is_another_key(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        issued = _issued(provider)
        for key_id, other_id in zip(issued, list(issued)[1:], strict=False):
            try:
                key = provider.find_key(other_id, issued[key_id].wrapped)
            except ConfigError:
                continue
            assert key != issued[key_id].key

    def test_many_threads_ask_at_once(self, make_provider: Callable[[], KeyProvider]) -> None:
        provider = make_provider()
        key_ids = provider.known_ids()

        def ask(number: int) -> bool:
            key_id = key_ids[number % len(key_ids)]
            issued = provider.new_key(key_id)
            return provider.find_key(key_id, issued.wrapped) == issued.key

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(32)))


def _issued(provider: KeyProvider) -> dict[str, IssuedKey]:
    return {key_id: provider.new_key(key_id) for key_id in provider.known_ids()}


def _forms(key: bytes) -> tuple[bytes, ...]:
    """Return a key in the forms in which it would be shown."""
    return key, key.hex().encode(), base64.b64encode(key).rstrip(b"="), repr(key)[2:-1].encode()
