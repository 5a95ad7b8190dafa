"""A Spark whose Python workers start sooner: they import pyspark as it is installed, compiled, and not from a zip."""

from __future__ import annotations

from pathlib import Path

import pyspark

__all__ = ("unzipped_spark",)

INSTALLED = Path(pyspark.__file__).parent
# Not `python`, with the zip that Spark puts before all else on the path of its workers.
LINKED = ("bin", "jars", "sbin")


def unzipped_spark(directory: Path) -> str:
    """Return a SPARK_HOME below a directory, made of links to the installed Spark; the same one in each call."""
    home = directory / "spark-home"
    if not home.exists():
        home.mkdir(parents=True)
        for name in LINKED:
            (home / name).symlink_to(INSTALLED / name)
    return str(home)
