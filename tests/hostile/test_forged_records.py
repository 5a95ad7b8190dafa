"""An attacker who can write to an unencrypted directory can change its rows, but not attack readers or maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.conftest import PLANTED
from tests.hostile.forging import ANY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.hostile.conftest import Forgery, Outcomes

pytestmark = pytest.mark.slow

UDT = {"type": "udt", "class": "x", "pyClass": f"{PLANTED}.Hit", "serializedClass": "Y29zCg==", "sqlType": "long"}
# Replace a column's type in each schema.
TYPES = {"a class": UDT, "a number": 7, "nothing": None, "a list": ["long"], "an unknown type": "module:Class"}
# Replace the path of a query's checkpoint.
CHECKPOINTS = {
    "a host": "webhdfs://127.0.0.1:9/checkpoint",
    "a page": "http://127.0.0.1:9/checkpoint",
    "a bucket": "s3://bucket/checkpoint",
    "no address": "checkpoint:",
    "a number": 7,
}
# Settings that name code, which would end the process if it were called.
CODE = {
    "rollingPolicy": ("rolling", "rollingPolicy"),
    "onPublish": ("onPublish",),
    "partFileName": ("naming", "partFileName"),
}
# Replace the settings of the file system.
STORAGE = {
    "an address": {"endpoint_url": "http://127.0.0.1:9", "password": "env:HOME", "user": "root"},
    "odd settings": {
        "replication": "99999999999",
        "blockSize": "-1",
        "filePermission": "rwx",
        "directoryPermission": 7,
    },
    "a text": "filePermission",
    "nothing": None,
}
# Replace values that only a writer of rows or files, or a report, interprets.
OPAQUE: dict[str, Sequence[Forgery]] = {
    "the last commit is a number": [(("metrics", "lastCommit"), 7)],
    "the reasons of parts are a text": [(("metrics", "partsByReason"), "x")],
    "the schema is none that is defined": [(("schema",), "unknown")],
    "the encoding is a number": [(("definitions", ANY, "format"), 1.5)],
    "the directories are lists": [(("definitions", ANY, "partitionBy"), [[]])],
    "the rules are others": [(("definitions", ANY, "rolling"), {"a": 1})],
    "the names of files are a number": [(("definitions", ANY, "naming"), 0)],
    "the end of names is a number": [(("definitions", ANY, "naming", "partSuffix"), -1)],
}
FORGERIES: dict[str, Sequence[Forgery]] = {
    **OPAQUE,
    **{
        f"the type of a column is {name}": [
            (("definitions", ANY, "schema", "fields", 0, "type"), kind),
            (("definitions", ANY, "fields", 0, "type"), kind),
        ]
        for name, kind in TYPES.items()
    },
    **{
        f"the checkpoint is {name}": [(("tables", "checkpoints", "set", ANY), url)] for name, url in CHECKPOINTS.items()
    },
    **{
        f"{option} is {name}": [(("definitions", ANY, *steps), name)]
        for option, steps in CODE.items()
        for name in (f"{PLANTED}:Hit", "os:_exit", "os:system")
    },
    **{
        f"the settings of files are {name}": [(("definitions", ANY, "storage"), settings)]
        for name, settings in STORAGE.items()
    },
}


@pytest.fixture(scope="module")
def outcomes(watched: Callable[[Mapping[str, Sequence[Forgery]]], Outcomes]) -> Outcomes:
    return watched(FORGERIES)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_calls_do_nothing_beyond_the_directory(outcomes: Outcomes, forgery: str) -> None:
    assert {name: done["misdeeds"] for name, done in outcomes[forgery].items() if done["misdeeds"]} == {}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_calls_return_or_raise_errors_of_ftfile(outcomes: Outcomes, forgery: str) -> None:
    raised = {name: done["outcome"] for name, done in outcomes[forgery].items() if done["outcome"].startswith("raised")}
    assert raised == {}
