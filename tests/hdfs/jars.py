"""The class path of the servers: one jar from Maven, and the Hadoop client of PySpark."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from tests.guarded import CannotStart

__all__ = ("class_path", "yarn_jars")

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / ".jars"
# PySpark's jars that the servers need.
CLIENT = re.compile(
    r"(?:hadoop-client-(?:api|runtime)|slf4j-api|jcl-over-slf4j|log4j-(?:api|core|slf4j2-impl|1\.2-api))-"
)
# Jars that the servers of YARN need as well, of Maven and of PySpark.
YARN = re.compile(r"(?:commons-logging|bc(?:pkix|prov|util)-jdk18on)-")
YARN_CLIENT = re.compile(r"jakarta\.|javax\.servlet-api-")
VERSION = re.compile(r"-(\d[\w.]*)\.jar")


def class_path() -> list[Path]:
    """Return the jars of NameNode and DataNode.

    Raises:
        CannotStart: jars are missing or have different versions.
    """
    servers = sorted(SERVERS.glob("hadoop-client-minicluster-*.jar"))
    if not servers:
        raise CannotStart(
            f"the servers of HDFS are not in {SERVERS}: run .ci/jars hdfs, as `make hdfs` and `make test` do. It needs "
            "Maven the first time: install it (apt-get install maven, brew install maven), and put mvn on the PATH"
        )
    client = _matching(_pyspark_jars(), CLIENT)
    hadoop = [jar.name for jar in [*servers, *client] if jar.name.startswith("hadoop-client")]
    versions = {found[1] for name in hadoop if (found := VERSION.search(name))}
    if len(versions) != 1:
        raise CannotStart(
            f"the servers of HDFS and PySpark's Hadoop client are of the versions {' and '.join(sorted(versions))}: "
            "set the one of tests/hdfs/pom.xml to that of PySpark"
        )
    return [*servers, *client]


def yarn_jars() -> list[Path]:
    """Return the jars that only ResourceManager and NodeManager need.

    Raises:
        CannotStart: jars are missing.
    """
    servers = _matching(SERVERS, YARN)
    if len(servers) != 4:
        raise CannotStart(f"jars of YARN are not in {SERVERS}: run .ci/jars hdfs, as `make cluster-tests` does")
    return [*servers, *_matching(_pyspark_jars(), YARN_CLIENT)]


def _pyspark_jars() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise CannotStart("the servers of HDFS use the Hadoop client of PySpark: install pyspark")
    return Path(pyspark.origin).parent / "jars"


def _matching(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    return [jar for jar in sorted(directory.glob("*.jar")) if pattern.match(jar.name)]
