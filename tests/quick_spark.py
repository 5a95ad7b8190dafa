"""Spark applications that start sooner: the environment and the Java options of those that tests start.

Started as a script, it prepares the environment of its interpreter: a Spark home whose Python workers import pyspark as
it is installed, compiled, and not from a zip; Hadoop's local file system that starts no process for each file; and an
archive of the classes that small queries load, which a JVM maps instead of reading, parsing and verifying them. What
cannot be made is left out, and Spark starts all the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ("environment", "java_options")

LOCAL_FILES = Path(__file__).with_name("LocalFiles.java")
# An archive holds for one class path, and so for one place of Spark; another file system has another home.
HOME = Path(sys.prefix).resolve() / f"share/quick-spark-{zlib.crc32(LOCAL_FILES.read_bytes()):08x}"
ARCHIVE = HOME / "classes.jsa"
JAR = HOME / "local-files.jar"
# Whoever has the jar on its class path uses what is in it, unless its own configuration of Hadoop comes before.
CORE_SITE = """\
<configuration>
  <property><name>fs.file.impl</name><value>LocalFiles</value></property>
  <property><name>fs.AbstractFileSystem.file.impl</name><value>LocalFiles$Checkpoints</value></property>
</configuration>
"""
# Not `python`, with the zip that Spark puts before all else on the path of its workers.
LINKED = ("bin", "jars", "sbin")
# C1 alone: applications of tests live for seconds, and their queries are small.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Others may have the machine for minutes: no executor is lost for that, and no Python that is late in taking rows.
PATIENCE = "-Dspark.network.timeout=900s -Dspark.python.authenticate.socketTimeout=900s"
WRITING_TIMEOUT_S = 120.0


def environment(*jars: Path) -> dict[str, str]:
    """Return variables for who starts a driver, or a worker of a cluster; more jars may be on the class path."""
    # Spark appends these jars: an archive holds for a class path that begins as its own.
    appended = os.pathsep.join(map(str, [*[JAR] * JAR.exists(), *jars]))
    home = {"SPARK_HOME": str(HOME)} if HOME.exists() else {}
    # Where the locale is C, or is not installed, Java finds no file whose name has other letters than those of ASCII.
    names = {"LC_ALL": "C.UTF-8"} if sys.flags.utf8_mode else {}
    return {"SPARK_LAUNCHER_OPTS": QUICK_START, "SPARK_DIST_CLASSPATH": appended} | home | names


def java_options() -> str:
    """Return options of the driver's JVM."""
    # An archive that another Java has made is passed over, and nothing said of it.
    return f"{QUICK_START} {PATIENCE}" + (
        f' -XX:SharedArchiveFile="{ARCHIVE}" -Xlog:cds*=off' if ARCHIVE.exists() else ""
    )


def prepare() -> None:
    """Make the home and the archive, once."""
    directory = os.open(sys.prefix, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)  # two `make` at once in one checkout
    if HOME.exists():
        return
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    HOME.mkdir(parents=True)
    for name in LINKED:
        (HOME / name).symlink_to(Path(pyspark.origin).resolve().with_name(name))
    with tempfile.TemporaryDirectory(prefix="ftfile-classes-") as scratch:
        write_jar(Path(scratch))
    os.environ.update({**environment(), "PYSPARK_PYTHON": sys.executable})
    with tempfile.TemporaryDirectory(prefix="ftfile-classes-") as scratch, contextlib.suppress(Exception):
        write_archive(Path(scratch))


def write_jar(scratch: Path) -> None:
    """Compile the local file system, where there is a compiler."""
    java_home = os.environ.get("JAVA_HOME")
    compiler = shutil.which("javac", path=f"{java_home}/bin" if java_home else None)
    if compiler is None:
        print("No javac here: Hadoop starts processes for each local file, and tests with Spark take longer")
        return
    subprocess.run([compiler, "-d", scratch, "-cp", f"{HOME}/jars/*", "--release", "17", LOCAL_FILES], check=True)
    (scratch / "core-site.xml").write_text(CORE_SITE)
    with zipfile.ZipFile(JAR, "w") as jar:
        for file in sorted(scratch.iterdir()):
            jar.write(file, file.name)


def write_archive(scratch: Path) -> None:
    """Run queries as tests do, and have the JVM write down which classes it has loaded."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.extraJavaOptions": f'{QUICK_START} -Xlog:cds*=off -XX:ArchiveClassesAtExit="{ARCHIVE}"',
        "spark.local.dir": str(scratch),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source, middle, end = (str(scratch / name) for name in ("source", "middle", "end"))
    for file_format in ("parquet", "json"):
        rows = spark.range(10).selectExpr("id", "string(id) AS word").write.format(file_format)
        rows.save(f"{source}/{file_format}")
    files = spark.readStream.schema("id long, word string").json(f"{source}/json")
    stream(files.repartition("word"), middle)
    stream(spark.readStream.format("ftfile").load(middle), end)
    for frame in (spark.read.format("ftfile").load(end), spark.read.parquet(end)):
        frame.collect()
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - has the process, which goes on when the session stops
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(WRITING_TIMEOUT_S)


def stream(frame: DataFrame, output: str) -> None:
    """Write all that there is."""
    writer = frame.writeStream.format("ftfile").option("checkpointLocation", f"{output}-checkpoint")
    writer.trigger(availableNow=True).start(output).awaitTermination()


if __name__ == "__main__":
    prepare()
