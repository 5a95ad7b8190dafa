"""A folder with Spark's own log of a file sink, by which its sources read exactly the files of a list.

As each query begins, the files that Spark is about to read are compared with those of the list.
"""

from __future__ import annotations

import functools
import json
import posixpath
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql import DataFrame

from ftfile.fs.location import parse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ftfile.fs.api import FileInfo

_VERSION = "v1"
_BLOCK_BYTES = 128 << 20  # Spark splits files by its own settings


def hadoop_url(directory: str, path: str) -> str:
    """Return the encoded URL by which Hadoop knows a file in a directory, which is named by its canonical URL."""
    parsed = parse(directory)
    scheme = "s3a" if parsed.scheme == "s3" else parsed.scheme
    return f"{scheme}://{parsed.authority}{quote(posixpath.join(parsed.path, path))}"


def write_sink_log(folder: Path, directory: str, files: Iterable[FileInfo]) -> None:
    """Write the log of a sink that has put these files, and no others, into `folder`."""
    log = folder / "_spark_metadata"
    log.mkdir()
    start = json.dumps(hadoop_url(directory, ""))[:-1]  # a quoted path needs no escapes of JSON
    more = json.dumps({"isDir": False, "blockReplication": 1, "blockSize": _BLOCK_BYTES, "action": "add"})[1:]
    quoted = functools.lru_cache(maxsize=1024)(quote)  # directories have many files each
    with (log / "0").open("w", encoding="utf-8", newline="\n") as out:
        out.write(_VERSION)
        for file in files:
            above, slash, name = file.path.rpartition("/")
            path = f"{quoted(above)}{slash}{quote(name)}"
            numbers = f'"size": {file.size_bytes}, "modificationTime": {file.modified_ms}'
            out.write(f'\n{{"path": {start}{path}", {numbers}, {more}')


def compare_files(frame: DataFrame, time_unit_ms: int) -> DataFrame:
    """Return a read of a list of files that fails, as a query begins, where a file that it reads is another one by now.

    That is one of another length, one that was changed at another time, and one that is not there. Times are compared
    in units of `time_unit_ms`; not at all for 0.
    """
    spark: Any = frame.sparkSession
    session, jvm = spark._jsparkSession, spark._jvm  # noqa: SLF001 - what follows has no other way
    read: Any = frame._jdf.queryExecution().analyzed().relation()  # noqa: SLF001
    options = read.options()
    given = spark.sparkContext._gateway.new_array(jvm.Object, 4)  # noqa: SLF001
    given[0], given[1], given[2], given[3] = read.location(), read.sparkSession(), options, time_unit_ms
    location = _constructor(jvm).newInstance(given)
    schemas = read.partitionSchema(), read.dataSchema(), read.bucketSpec()
    relation = read.copy(location, *schemas, read.fileFormat(), options, read.sparkSession())
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


@functools.lru_cache(maxsize=1)
def _constructor(jvm: object) -> Any:  # noqa: ANN401 - of Java
    """Return the constructor of the list that compares, compiled once, by the compiler of Spark's own code."""
    java: Any = jvm
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.cook(resources(__package__).joinpath("ComparedFiles.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass("ftfile.ComparedFiles").getConstructors()[0]
