"""Arguments of public functions: their types, and relative paths."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ftfile
from ftfile.core.arguments import check_arguments
from ftfile.core.context import absolute_path
from ftfile.core.errors import ConfigError
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    import os

ANY: Any = ftfile  # accepts arguments of any type


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("out"))
    MicroBatch(out, {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
    return out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("store"))
    StoreBatch(out, {"k": "long", "n": "long"}, {"keyColumns": "k"}).run(0, [[{"k": 1, "n": 1}]])
    return out


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda _: ANY.open(1), r"path=1: it takes a path or URL, as a text or an os\.PathLike"),
        (lambda _: ANY.open(None), "path=None: it takes a path"),
        (lambda out: ANY.open(out, storage={"user": 1}), r"storage=\{'user': 1\}: it takes a dictionary of texts"),
        (lambda out: ANY.open(out, Path("/keys")), "key_provider=.*: it takes a text, or None"),
        (lambda out: ANY.open(out).to_arrow("0"), "version='0': it takes an int, or None"),
        (lambda out: ANY.open(out).to_arrow(True), "version=True: it takes an int, or None"),
        (lambda out: ANY.open(out).to_arrow(columns="id"), r"columns='id': it takes a list of texts, such as \['a'"),
        (lambda out: ANY.open(out).to_batches(columns=[1]), r"columns=\[1\]: it takes a list of texts"),
        (lambda out: ANY.open(out).count(0.5), "version=0.5: it takes an int, or None"),
        (lambda out: ANY.open(out).dataset("new"), "version='new': it takes an int, or None"),
        (lambda out: ANY.open(out).files("0"), "version='0'"),
        (lambda out: ANY.open(out).version_at(1.5), "time=1.5: it takes a datetime, or a text in ISO 8601"),
        (lambda out: ANY.open(out).verify(full=1), "full=1: it takes True or False"),
        (lambda out: ANY.vacuum(out, retention=7), "retention=7: it takes a timedelta, or a text such as '7d'"),
        (lambda out: ANY.vacuum(out, dry_run="no"), "dry_run='no': it takes True or False"),
        (lambda out: ANY.compact(out, progress=5), "progress=5: it takes a function of a Progress, or None"),
        (lambda out: ANY.flush(out, progress="no"), "progress='no': it takes a function"),
        (lambda out: ANY.restore(out, "0"), "version='0': it takes an int, or None"),
        (lambda out: ANY.compact(out, target_bytes="128m"), "target_bytes='128m': it takes an int"),
        (lambda out: ANY.repair(out, give_up="a-file"), "give_up='a-file': it takes a list of texts"),
        (lambda out: ANY.flush(out, query_id=7), "query_id=7: it takes a text, or None"),
        (lambda out: ANY.kv.open(out, version="0"), "version='0': it takes an int, or None"),
        (lambda out: ANY.kv.open(out, timestamp=0), "timestamp=0: it takes a datetime, or a text .*, or None"),
        (lambda out: ANY.kv.rebucket(out, "16"), "buckets='16': it takes an int"),
        (lambda _: ANY.kv.KeyValueStore(3, writer="a"), "path=3: it takes a path"),
        (lambda out: ANY.kv.KeyValueStore(out, writer=None), "writer=None: it takes a text"),
        (
            lambda out: ANY.kv.KeyValueStore(out, writer="a", keys=["k"]),
            r"keys=\['k'\]: it takes a dictionary of types",
        ),
        (
            lambda out: ANY.kv.KeyValueStore(out, writer="a", values={1: "long"}),
            "values=.*: it takes a dictionary of",
        ),
        (
            lambda out: ANY.kv.KeyValueStore(out, writer="a", keys={"k": 5}),
            "column 'k': 5 is not a type: give the name of a Spark",
        ),
        (lambda out: ANY.kv.KeyValueStore(out, writer="a", codec=5), r"codec=5: it must be a codec, such as Pairs"),
        (lambda out: ANY.kv.KeyValueStore(out, writer="a", codec=ANY.kv.Pairs), "codec=<class .*: it must be a codec"),
        (lambda _: ANY.kv.Pairs(5, ANY.kv.Text()), r"keys=5: it must be a part of a codec, such as Text\(\)"),
        (lambda _: ANY.kv.Pairs(ANY.kv.Text(), ANY.kv.Json), "values=<class .*: it must be a part of a codec"),
        (lambda out: ANY.open(out).to_arrow(np.array([0, 1])), r"version=array\(\[0, 1\]\): it takes an int, or None"),
        (lambda _: ANY.vacuum(), "missing 1 required positional argument: 'path'"),
        (lambda out: ANY.vacuum(out, since="7d"), "unexpected keyword argument 'since'"),
    ],
    ids=itertools.count(),
)
def test_another_type_is_an_error_that_names_the_types_taken(call: Any, text: str, out: str) -> None:
    with pytest.raises(TypeError, match=text):
        call(out)


@pytest.mark.slow
def test_whole_numbers_of_numpy_are_ints(tmp_path: Path) -> None:
    out, store = str(tmp_path / "out"), str(tmp_path / "store")
    MicroBatch(out, {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
    StoreBatch(store, {"k": "long", "n": "long"}, {"keyColumns": "k"}).run(0, [[{"k": 1, "n": 1}]])
    ANY.restore(out, np.int64(0))
    ANY.kv.rebucket(store, np.int64(8))
    assert ANY.open(out).count(np.int32(0)) == 1
    with ANY.kv.open(store, version=np.int64(1)) as reader:
        assert (reader.definition.buckets, reader.at(np.int64(0)).get(1)) == (8, 1)


def test_times_and_durations_are_python_s_or_texts(out: str, store: str) -> None:
    for retention in ("7d", timedelta(days=7)):
        assert ftfile.vacuum(out, retention=retention).files == ()
    with pytest.raises(ConfigError, match="is below 24h"):
        ftfile.vacuum(out, retention=timedelta(hours=1))
    for time in (datetime(2199, 1, 1, tzinfo=timezone.utc), date(2199, 1, 1), "2199-01-01"):
        assert ANY.open(out).version_at(time) == 0
        assert ANY.kv.open(store, timestamp=time).version >= 0


@parametrize("relative", ["out", "./out", "~/out", Path("out"), Path("~/out")], ids=repr, quick=2)
def test_paths_mean_the_same_in_every_call(
    relative: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, store: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    link = tmp_path / "out"
    link.symlink_to(out)
    directory = ftfile.open(relative)
    assert (directory.path, directory.count()) == (f"file://{link}", 1)
    assert ftfile.vacuum(relative).files == ()
    assert ftfile.flush(relative).files == ftfile.compact(relative).files_removed == 0
    assert ftfile.repair(relative).steps == ()
    link.unlink()
    link.symlink_to(store)
    assert ftfile.kv.open(relative).get(1) == 1
    assert ftfile.kv.verify(relative).damaged == ()
    assert sum(batch.num_rows for batch in ftfile.kv.changes(relative)) == 1
    with ftfile.kv.KeyValueStore(relative, writer="a", keys={"k": "long"}, values={"n": "long"}) as opened:
        assert opened.get(1) == 1


@pytest.mark.parametrize("path", ["/data/out", "s3://bucket/out", "file:/data/~/out", "/~", "", "  "])
def test_absolute_paths_and_urls_stay(path: str) -> None:
    assert absolute_path(path) == path


def test_the_home_of_nobody_is_no_path() -> None:
    with pytest.raises(
        ConfigError, match=r"names the home directory of an unknown user; write '\./~nobody-of-this-name/out'"
    ):
        absolute_path("~nobody-of-this-name/out")
    assert absolute_path("./~") == str(Path.cwd() / "~")


def test_other_arguments_arrive_as_they_are() -> None:
    @check_arguments
    def function(
        path: str | os.PathLike[str], other: list[int], *more: int, flag: bool = False, **options: object
    ) -> tuple[Any, ...]:
        return path, other, more, flag, options

    given = [1]
    path, other, more, flag, options = function("/x", given, 2, 3, flag=True, key=4)
    assert other is given
    assert (path, more, flag, options) == ("/x", (2, 3), True, {"key": 4})
