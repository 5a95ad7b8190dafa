"""Archives of classes, from which the JVMs of tests start with half the work.

`python -m tests.archives` makes those that are missing, in the directory of the jars. Without them all JVMs start, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from tests.guarded import JVM, CannotStart, java

__all__ = ("QUICK_START", "archive_options", "spark_class_path", "spark_options")

ARCHIVES = Path(__file__).parents[1] / ".jars/archives"
# C1 alone, as for servers.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def archive_options(class_path: str) -> list[str]:
    """Return the options by which a JVM takes classes from the archive of a class path; none without an archive.

    More may follow in the JVM's class path.
    """
    archive = _archive_of(class_path)
    # What a JVM says of an archive for another class path must not be in what it prints.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"] if archive.exists() else []


def spark_class_path() -> str:
    """Return how the class path of Spark's drivers and executors begins."""
    import pyspark

    home = Path(pyspark.__file__).parent
    [first] = home.glob("jars/slf4j-api-*.jar")
    return f"{home}/conf/:{first}:{home}/jars/*"


def spark_options() -> str:
    """Return the options for JVMs of Spark that live for seconds."""
    return " ".join([QUICK_START, *archive_options(spark_class_path())])


def _make(class_path: str, lists: Path) -> None:
    """Make an archive of what JVMs have loaded, of which each has left a list (`-XX:DumpLoadedClassList`)."""
    # The last line of one that was killed may be cut short.
    loaded = {line for each in lists.iterdir() for line in each.read_text().split("\n")[:-1] if "source:" not in line}
    # Numbers behind a name are of one list alone; what begins with @ is made of classes.
    names = sorted({line.split()[0] for line in loaded if line[0] not in "#@"})
    (lists / "all").write_text("\n".join([*names, *sorted(line for line in loaded if line[0] == "@"), ""]))
    archive = _archive_of(class_path)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        made = Path(directory, "made")
        files = [f"-XX:SharedClassListFile={lists / 'all'}", f"-XX:SharedArchiveFile={made}"]
        subprocess.run([java(), *JVM, "-Xshare:dump", *files, "-cp", class_path], check=True, capture_output=True)
        made.rename(archive)


def _archive_of(class_path: str) -> Path:
    """Return where the archive is; another JVM, and other jars, have another one."""
    entries = [java(), *class_path.split(os.pathsep)]
    files = [
        file for each in entries for file in ([*Path(each[:-1]).iterdir()] if each.endswith("*") else [Path(each)])
    ]
    there = sorted(file.resolve() for file in files if file.exists())
    key = "".join(f"{each}{each.stat().st_size}{each.stat().st_mtime_ns}" for each in there)
    return ARCHIVES / f"{zlib.crc32(key.encode()):08x}.jsa"


def _run_hdfs(lists: Path) -> None:
    from ftfile.testing.context import open_filesystem
    from tests.hdfs.ha_cluster import HaCluster

    with HaCluster(jvm=[f"-XX:DumpLoadedClassList={lists}/%p"]) as cluster:
        os.environ["HADOOP_CONF_DIR"] = str(cluster.conf)
        for url in (cluster.url, cluster.web_url):
            open_filesystem(f"{url}/").create_exclusive(url[:4], b"data")
        del os.environ["HADOOP_CONF_DIR"]


STREAM = """\
import sys
from pyspark.sql import SparkSession
master, home = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1").getOrCreate()
rows = spark.readStream.schema("id long, k string").json(f"{home}/in")
writer = rows.writeStream.format("ftfile").option("fileFormat", "json").option("checkpointLocation", f"{home}/check")
writer.trigger(availableNow=True).start(f"{home}/out").awaitTermination()
read = spark.readStream.format("ftfile").schema("id long, k string").load(f"{home}/out").writeStream.format("noop")
read.trigger(availableNow=True).option("checkpointLocation", f"{home}/other").start().awaitTermination()
assert spark.read.format("ftfile").load(f"{home}/out").count() == 1
spark.stop()
"""


def _run_spark(lists: Path) -> None:
    from tests.cluster.cluster import Cluster
    from tests.demos.files.process import own_environment

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        options = f"{QUICK_START} -XX:DumpLoadedClassList={lists}/%p"
        environment = {**own_environment(home), "JAVA_TOOL_OPTIONS": options, "TMPDIR": name}
        (home / "in").mkdir()
        (home / "in/0.json").write_text('{"id": 1, "k": "x"}\n')
        cluster = Cluster(home, environment)
        try:
            cluster.wait()
            cluster.start_worker("a")
            command = [sys.executable, "-c", STREAM, cluster.url, name]
            subprocess.run(command, cwd=home, env=environment, check=True, capture_output=True)
        finally:
            cluster.stop()


def main() -> None:
    """Let each kind of JVM run for a moment, and make an archive of what it loads."""
    from tests.hdfs.jars import class_path

    of_hdfs = os.pathsep.join(map(str, class_path()))
    systems = (("HDFS", of_hdfs, _run_hdfs), ("Spark", spark_class_path(), _run_spark))
    for system, entries, run in systems:
        if not archive_options(entries):
            print(f"Making an archive of the classes of {system} (half a minute, once)", flush=True)
            try:
                with tempfile.TemporaryDirectory() as lists:
                    run(Path(lists))
                    _make(entries, Path(lists))
            except (AssertionError, CannotStart, subprocess.CalledProcessError) as error:
                print(f"No archive of the classes of {system}: {error}", file=sys.stderr)
    for other in {*ARCHIVES.glob("*.jsa")} - {_archive_of(entries) for _, entries, _ in systems}:
        other.unlink()


if __name__ == "__main__":
    main()
