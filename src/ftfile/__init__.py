"""ftfile: a fault-tolerant, exactly-once file sink for Spark Structured Streaming, in Python, without a jar.

    df.writeStream.format("ftfile").option("path", "/data/out").option("checkpointLocation", "...").start()
    ftfile.open("/data/out").to_arrow()

Importing this package imports nothing of weight: names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.lazy import lazy_names

if TYPE_CHECKING:
    from ftfile import errors, kv, spark
    from ftfile.commit.vacuum.run import expire, vacuum
    from ftfile.core.version import __version__
    from ftfile.exporting.run import export
    from ftfile.maintenance.compact import compact
    from ftfile.maintenance.doctor import doctor
    from ftfile.maintenance.drop import drop
    from ftfile.maintenance.flush import flush
    from ftfile.maintenance.migrate.run import migrate
    from ftfile.maintenance.migrate.undo import undo_migration
    from ftfile.maintenance.opened import open_directory as open  # noqa: A004 - ftfile.open reads best
    from ftfile.maintenance.repair.run import repair
    from ftfile.maintenance.restore import restore
    from ftfile.monitoring.monitor import monitor
    from ftfile.reporting.run import report
    from ftfile.source.files.status import source_status
    from ftfile.spark.datasource import FtFileDataSource, FtKvDataSource

__all__ = (
    "FtFileDataSource",
    "FtKvDataSource",
    "__version__",
    "compact",
    "doctor",
    "drop",
    "errors",
    "expire",
    "export",
    "flush",
    "kv",
    "migrate",
    "monitor",
    "open",
    "repair",
    "report",
    "restore",
    "source_status",
    "spark",
    "undo_migration",
    "vacuum",
)

__getattr__ = lazy_names(
    __name__,
    {
        "FtFileDataSource": "ftfile.spark.datasource",
        "FtKvDataSource": "ftfile.spark.datasource",
        "__version__": "ftfile.core.version",
        "compact": "ftfile.maintenance.compact",
        "doctor": "ftfile.maintenance.doctor",
        "drop": "ftfile.maintenance.drop",
        "errors": "ftfile.errors:",
        "expire": "ftfile.commit.vacuum.run",
        "export": "ftfile.exporting.run",
        "flush": "ftfile.maintenance.flush",
        "kv": "ftfile.kv:",
        "migrate": "ftfile.maintenance.migrate.run",
        "monitor": "ftfile.monitoring.monitor",
        "open": "ftfile.maintenance.opened:open_directory",
        "repair": "ftfile.maintenance.repair.run",
        "report": "ftfile.reporting.run",
        "restore": "ftfile.maintenance.restore",
        "source_status": "ftfile.source.files.status",
        "spark": "ftfile.spark:",
        "undo_migration": "ftfile.maintenance.migrate.undo",
        "vacuum": "ftfile.commit.vacuum.run",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
