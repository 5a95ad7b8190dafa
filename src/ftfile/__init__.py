"""ftfile: a fault-tolerant, exactly-once file sink for Spark Structured Streaming, in Python, without a jar.

    df.writeStream.format("ftfile").option("path", "/data/out").option("checkpointLocation", "...").start()
    ftfile.open("/data/out").to_arrow()

Importing this package imports nothing of weight: names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.extensions import UPPER_PLACES, lazy_names

if TYPE_CHECKING:
    from ftfile import errors, kv, spark
    from ftfile.core import __version__
    from ftfile.log.vacuum import expire, vacuum
    from ftfile.operate.compact import compact
    from ftfile.operate.delete import delete, drop
    from ftfile.operate.doctor import doctor
    from ftfile.operate.export.export import export
    from ftfile.operate.flush import flush
    from ftfile.operate.open_directory import open_directory as open  # noqa: A004 - ftfile.open reads best
    from ftfile.operate.open_directory import status, verify
    from ftfile.operate.repair import repair
    from ftfile.operate.restore import restore, undo
    from ftfile.operate.writers.application_writer import writer
    from ftfile.operate.writers.one_commit import write
    from ftfile.source.status import source_status
    from ftfile.spark.datasource import FtFileDataSource, FtKvDataSource
    from ftfile.tools.migrate.migrate import migrate
    from ftfile.tools.migrate.undo import undo_migration
    from ftfile.tools.monitor.monitor import monitor
    from ftfile.tools.report.report import report


__all__ = (
    "FtFileDataSource",
    "FtKvDataSource",
    "__version__",
    "compact",
    "delete",
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
    "status",
    "undo",
    "undo_migration",
    "vacuum",
    "verify",
    "write",
    "writer",
)

UPPER_PLACES["kind of a store"] = "ftfile.kv.kind:STORE"

__getattr__ = lazy_names(
    __name__,
    {
        "FtFileDataSource": "ftfile.spark.datasource",
        "FtKvDataSource": "ftfile.spark.datasource",
        "__version__": "ftfile.core",
        "compact": "ftfile.operate.compact",
        "delete": "ftfile.operate.delete",
        "doctor": "ftfile.operate.doctor",
        "drop": "ftfile.operate.delete",
        "errors": "ftfile.errors:",
        "expire": "ftfile.log.vacuum",
        "export": "ftfile.operate.export.export",
        "flush": "ftfile.operate.flush",
        "kv": "ftfile.kv:",
        "migrate": "ftfile.tools.migrate.migrate",
        "monitor": "ftfile.tools.monitor.monitor",
        "open": "ftfile.operate.open_directory:open_directory",
        "repair": "ftfile.operate.repair",
        "report": "ftfile.tools.report.report",
        "restore": "ftfile.operate.restore",
        "source_status": "ftfile.source.status",
        "spark": "ftfile.spark:",
        "status": "ftfile.operate.open_directory",
        "undo": "ftfile.operate.restore",
        "undo_migration": "ftfile.tools.migrate.undo",
        "vacuum": "ftfile.log.vacuum",
        "verify": "ftfile.operate.open_directory",
        "write": "ftfile.operate.writers.one_commit",
        "writer": "ftfile.operate.writers.application_writer",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
