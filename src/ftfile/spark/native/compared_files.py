"""The comparison, as each query begins, of the files that Spark is about to read with those that were listed."""

from __future__ import annotations

import functools
from importlib.resources import files as resources
from typing import Any

from pyspark.sql import DataFrame


def compare_files(frame: DataFrame, time_unit_ms: int) -> DataFrame:
    """Return a read of a list of files that fails, as a query begins, where a file that it reads is another one by now.

    That is one of another length, one that was changed at another time, and one that is not there.

    Args:
        frame: the read, by one of Spark's own sources.
        time_unit_ms: the unit in which times are compared; 0 for none.
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
