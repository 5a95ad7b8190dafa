"""The local file system of the tests leaves the same files as Hadoop's, and Spark uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tests import quick_spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(not quick_spark.JAR.exists(), reason="needs javac")


def answer(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Py4JJavaError as error:
        return error.java_exception.getClass().getName()


def left_by(system: Any, jvm: Any, root: Path) -> dict[str, Any]:
    """Return the modes of all files that a file system has created in a directory, and its responses."""
    hadoop = jvm.org.apache.hadoop.fs

    def path(name: str) -> Any:
        return hadoop.Path(f"{root}/{name}")

    def told(name: str) -> tuple[Any, ...]:
        status = system.getFileLinkStatus(path(name))
        return status.isSymlink(), status.isDirectory(), status.getLen(), status.getPermission().toShort()

    system.initialize(jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.conf.Configuration())
    assert system.mkdirs(path("made/more"), hadoop.permission.FsPermission("750"))
    for name in ("made/first", "made/second", "made/of two words"):
        stream = system.create(path(name))
        stream.write(7)
        stream.close()
    for number, name in (("604", "made/of two words"), ("1777", "made/more"), ("600", "nothing")):
        allowed = hadoop.permission.FsPermission(number)
        answer(system.setPermission, path(name), allowed)
    (root / "link").symlink_to("made/first")
    (root / "dangling").symlink_to("nowhere")
    named = {name: answer(told, name) for name in ("made", "made/first", "link", "dangling", "nothing")}
    renamed = system.rename(path("made/first"), path("made/second"))
    modes = {str(file.relative_to(root)): file.lstat().st_mode for file in root.rglob("*")}
    return {"named": named, "renamed": renamed, **modes}


def test_it_leaves_what_hadoops_own_leaves(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    expected = left_by(jvm.org.apache.hadoop.fs.LocalFileSystem(), jvm, theirs)
    assert left_by(jvm.LocalFiles(), jvm, ours) == expected
    assert expected["named"]["link"][0]
    assert "made/.second.crc" in expected


def test_spark_uses_it(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    hadoop, here = jvm.org.apache.hadoop.fs, jvm.java.net.URI("file:///")
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    used = (hadoop.FileSystem, hadoop.AbstractFileSystem)
    names = [each.get(here, configuration).getClass().getName() for each in used]
    assert names == ["LocalFiles", "LocalFiles$Checkpoints"]
