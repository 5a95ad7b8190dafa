"""ftfile: a fault-tolerant, exactly-once file sink for Spark Structured Streaming, in Python, without a jar.

    df.writeStream.format("ftfile").option("path", "/data/out").option("checkpointLocation", "...").start()
    ftfile.open("/data/out").to_arrow()

Importing this package imports nothing else; names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftfile.commit.vacuum.run import vacuum
    from ftfile.core.version import __version__
    from ftfile.maintenance.compact import compact
    from ftfile.maintenance.drop import drop
    from ftfile.maintenance.flush import flush
    from ftfile.maintenance.opened import open_directory as open  # noqa: A004 - ftfile.open reads best
    from ftfile.maintenance.repair.run import repair
    from ftfile.source.files.status import source_status
    from ftfile.spark.datasource import FtFileDataSource
    from ftfile.spark.store_datasource import FtKvDataSource

__all__ = (
    "FtFileDataSource",
    "FtKvDataSource",
    "__version__",
    "compact",
    "drop",
    "flush",
    "open",
    "repair",
    "source_status",
    "vacuum",
)

_HOMES = {
    "FtFileDataSource": ("ftfile.spark.datasource", "FtFileDataSource"),
    "FtKvDataSource": ("ftfile.spark.store_datasource", "FtKvDataSource"),
    "__version__": ("ftfile.core.version", "__version__"),
    "compact": ("ftfile.maintenance.compact", "compact"),
    "drop": ("ftfile.maintenance.drop", "drop"),
    "flush": ("ftfile.maintenance.flush", "flush"),
    "open": ("ftfile.maintenance.opened", "open_directory"),
    "repair": ("ftfile.maintenance.repair.run", "repair"),
    "source_status": ("ftfile.source.files.status", "source_status"),
    "vacuum": ("ftfile.commit.vacuum.run", "vacuum"),
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
        raise ImportError(f"ftfile.{name} needs pyspark: pip install 'ftfile[spark]'") from error
