"""ftfile: a fault-tolerant, exactly-once file sink for Spark Structured Streaming, in Python, without a jar.

    df.writeStream.format("ftfile").option("path", "/data/out").option("checkpointLocation", "...").start()
    ftfile.open("/data/out").to_arrow()

Importing this package imports nothing else; names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftfile.core.version import __version__
    from ftfile.spark.datasource import FtFileDataSource
    from ftfile.upkeep.compaction import compact
    from ftfile.upkeep.dropping import drop
    from ftfile.upkeep.flush import flush
    from ftfile.upkeep.opened import open_directory as open  # noqa: A004 - ftfile.open reads best
    from ftfile.upkeep.repair.run import repair
    from ftfile.upkeep.vacuum import vacuum

__all__ = ("FtFileDataSource", "__version__", "compact", "drop", "flush", "open", "repair", "vacuum")

_HOMES = {
    "FtFileDataSource": ("ftfile.spark.datasource", "FtFileDataSource"),
    "__version__": ("ftfile.core.version", "__version__"),
    "compact": ("ftfile.upkeep.compaction", "compact"),
    "drop": ("ftfile.upkeep.dropping", "drop"),
    "flush": ("ftfile.upkeep.flush", "flush"),
    "open": ("ftfile.upkeep.opened", "open_directory"),
    "repair": ("ftfile.upkeep.repair.run", "repair"),
    "vacuum": ("ftfile.upkeep.vacuum", "vacuum"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as many types as names
    if name not in _HOMES:
        raise AttributeError(f"module 'ftfile' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - importing this package imports nothing

    module, attribute = _HOMES[name]
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyspark":
            raise
        raise ImportError("ftfile.FtFileDataSource needs pyspark: pip install 'ftfile[spark]'") from error
