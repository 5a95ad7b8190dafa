"""The list of the files that Spark's built-in sources read, which each query compares with the storage."""

from __future__ import annotations

import functools
import json
import posixpath
from dataclasses import dataclass, field
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark.sql import DataFrame

from ftfile.storage.paths import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path


_INDEX = "MetadataLogFileIndex"
_VERSION = "v1"
_BLOCK_BYTES = 128 << 20  # recorded only for Spark, which splits files by its own settings


class ListedFile(NamedTuple):
    """A file of a list."""

    path: str  # relative to the ftfile directory
    size_bytes: int


@dataclass(slots=True)
class FileList:
    """Published parts, as text for each directory."""

    ids: list[str] = field(default_factory=list)  # of the adds
    size_bytes: int = 0
    # By directory: length, NUL, name and NUL of each file.
    texts: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, add_id: str, directory: str, name: str, size_bytes: int) -> None:
        """Append a file."""
        self.ids.append(add_id)
        self.size_bytes += size_bytes
        texts = self.texts.get(directory)
        if texts is None:
            texts = self.texts[directory] = []
        texts.append(f"{size_bytes}\0{name}\0")

    def samples(self) -> Iterator[ListedFile]:
        """Yield one file of each directory."""
        for directory, texts in self.texts.items():
            size_bytes, name, _ = texts[0].split("\0")
            yield ListedFile(posixpath.join(directory, name), int(size_bytes))

    def encode(self, url: str) -> Iterator[bytes]:
        """Yield the content that `ListedFiles.java` reads; `url` is the canonical URL of the ftfile directory."""
        for directory, texts in self.texts.items():
            content = quote("".join(texts), safe="\0").encode()
            yield f"{hadoop_url(url, directory).rstrip('/')}\0{len(content)}\0".encode()
            yield content


def hadoop_url(directory: str, path: str) -> str:
    """Return the encoded Hadoop URL of a file in a directory; `directory` is a canonical URL."""
    parsed = parse(directory)
    scheme = parsed.scheme
    if parsed.scheme == "s3":
        scheme = "s3a"
    return f"{scheme}://{parsed.authority}{quote(posixpath.join(parsed.path, path))}"


def write_sink_log(folder: Path, directory: str, files: Iterable[ListedFile]) -> None:
    """Write the log of a file sink to `folder`, as if the sink had written exactly these files.

    Spark ignores empty files, so each file has at least one byte in the log.
    """
    log = folder / "_spark_metadata"
    log.mkdir()
    more = {"isDir": False, "modificationTime": 0, "blockReplication": 1, "blockSize": _BLOCK_BYTES, "action": "add"}
    with (log / "0").open("w", encoding="utf-8", newline="\n") as out:
        out.write(_VERSION)
        for file in files:
            entry = {"path": hadoop_url(directory, file.path), "size": max(file.size_bytes, 1), **more}
            out.write(f"\n{json.dumps(entry)}")


def reads_exactly(frame: DataFrame, directories: int, partition_by: Collection[str]) -> bool:
    """Return True if Spark uses exactly the sink log's files, one for each directory, and these partition columns."""
    plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the plan is not in the public API
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return False
    index = plan.relation().location()
    if index.getClass().getSimpleName() != _INDEX or index.allFiles().size() != directories:
        return False
    partition_names = [column["name"] for column in json.loads(index.partitionSchema().json())["fields"]]
    return partition_names == list(partition_by)


def with_all_files(frame: DataFrame, path: Path, size_bytes: int, *, compare: bool) -> DataFrame:
    """Return a read of one file of each directory as a read of all files in the encoded list at a local path.

    With `compare`, a query fails at its start if the length of a file that it reads differs from the list, if its time
    differs from an earlier query of the DataFrame, or if it is missing.

    Args:
        frame: a DataFrame for which `reads_exactly` is true.
        path: of the content of `FileList.encode`, which is read once.
        size_bytes: of all files, for Spark's choice of joins.
        compare: requests the files again for each query. Otherwise they are requested once for their times.
    """
    spark: Any = frame.sparkSession
    session, jvm = spark._jsparkSession, spark._jvm  # noqa: SLF001 - Spark has no public API for a list of files
    read: Any = frame._jdf.queryExecution().analyzed().relation()  # noqa: SLF001
    options = read.options()
    values = read.location(), read.sparkSession(), options, str(path), size_bytes, compare
    arguments = spark.sparkContext._gateway.new_array(jvm.Object, len(values))  # noqa: SLF001
    for place, value in enumerate(values):
        arguments[place] = value
    location = _constructor(jvm).newInstance(arguments)
    schemas = read.partitionSchema(), read.dataSchema(), read.bucketSpec()
    relation = read.copy(location, *schemas, read.fileFormat(), options, read.sparkSession())
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


@functools.lru_cache(maxsize=1)
def _constructor(jvm: object) -> Any:  # noqa: ANN401 - of Java
    """Return the constructor of the Java list of files. Spark's compiler for generated code compiles it once."""
    java: Any = jvm
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.cook(resources(__package__).joinpath("ListedFiles.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass("ftfile.ListedFiles").getConstructors()[0]
