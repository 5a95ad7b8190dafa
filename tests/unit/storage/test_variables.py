"""Environment variables that settings of fsspec's file systems name, and that change while the process runs."""

from __future__ import annotations

import itertools
import traceback
from typing import Any, ClassVar

import pytest

import ftfile
from ftfile.core.errors import OutcomeUnknown, Unsupported
from ftfile.storage.fsspec_client import clients
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.storage.fake_objects import Objects, known_as
from tests.unit.storage.test_fsspec import Talkative

names = (f"variables-{number}" for number in itertools.count())
SETTINGS = {"account_key": "env:MY_KEY"}


class OfAccounts(Objects):
    """Each account has separate objects; objects of the account with the bad name can be overwritten."""

    stores: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, account_key: str, **kwargs: Any) -> None:
        super().__init__(use_listings_cache=kwargs["use_listings_cache"])
        self.account = account_key
        self.__dict__["store"] = self.stores.setdefault(account_key, {})

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        super().make(path, content, is_new=is_new and "b4d" not in self.account)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    known_as("ofaccounts", OfAccounts)
    monkeypatch.setenv("MY_KEY", "f1rst")
    return f"ofaccounts://{next(names)}"


def test_another_value_leads_to_another_client(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_filesystem(url, settings=SETTINGS)
    opened.create_exclusive("file", b"first")
    monkeypatch.setenv("MY_KEY", "s3cond")
    for each in (opened, open_filesystem(url, settings=SETTINGS)):
        assert not each.exists("file")
    opened.create_exclusive("file", b"second")
    assert open_filesystem(url, settings=SETTINGS).read("file") == b"second"
    monkeypatch.setenv("MY_KEY", "f1rst")
    assert opened.read("file") == b"first"
    assert not [secret for secret in ("f1rst", "s3cond") if secret in repr(clients._objects.here.made)]  # noqa: SLF001


def test_a_variable_that_is_unset_leads_to_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_filesystem(url, settings=SETTINGS)
    opened.create_exclusive("file", b"first")
    monkeypatch.delenv("MY_KEY")
    assert opened.read("file") == b"first"


@pytest.mark.slow
def test_a_corrected_value_leads_writers_elsewhere(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = MicroBatch(url, {"n": "long"}, {"storage.account_key": "env:MY_KEY"})
    query.run(0, [[{"n": 1}]])
    monkeypatch.setenv("MY_KEY", "s3cond")
    query.run(0, [[{"n": 2}]])
    for account, found in (("f1rst", [1]), ("s3cond", [2])):
        monkeypatch.setenv("MY_KEY", account)
        assert ftfile.open(url, storage=SETTINGS).to_arrow()["n"].to_pylist() == found
    # Another storage system is tried as well.
    monkeypatch.setenv("MY_KEY", "b4d")
    with pytest.raises(Unsupported, match="overwrites an existing file"):
        query.run(0, [[{"n": 3}]])


def test_no_error_shows_a_secret_that_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    known_as("talkative", Talkative)
    monkeypatch.setenv("MY_KEY", "0ld-secret")
    filesystem = open_filesystem(f"talkative://{next(names)}", settings={"account_key": "env:MY_KEY"})
    stream = filesystem.create("file")
    monkeypatch.setenv("MY_KEY", "n3w-secret")
    with pytest.raises(OutcomeUnknown, match=r"refused with …:") as caught:
        stream.close()
    assert "-secret" not in "".join(traceback.format_exception(caught.value))
