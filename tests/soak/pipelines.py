"""The place of a declarative pipeline, whose runs are killed and stopped."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tests import quick_spark
from tests.cluster.cluster import PYTHON_PROCESS, SPARK_HOME, command_of, java_processes
from tests.demos.files.process import SessionApp, SparkApp, session_members
from tests.soak import pipeline_job
from tests.soak.place import After, Place

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("PipelinesPlace",)


class PipelinesPlace(Place):
    """A pipeline of three flows on two cores and a local disk. Each query is a flow with a separate sink.

    The application runs the pipeline again if a run fails, so it continues after each kill, except of all processes.
    """

    name = "pipelines"
    patience_s = 120.0
    victims: ClassVar[Mapping[str, After]] = MappingProxyType(
        {
            "application": After.ENDS,
            "client": After.CONTINUES,
            "jvm": After.CONTINUES,
            "python": After.CONTINUES,
            "all pythons": After.CONTINUES,
        }
    )
    environment: Mapping[str, str] = MappingProxyType({"JAVA_TOOL_OPTIONS": quick_spark.java_options()})

    def start_application(self, argument: Path, log: Path, environment: Mapping[str, str]) -> SessionApp:
        """Start the script that runs the pipeline."""
        environment = {"SPARK_HOME": str(SPARK_HOME), **environment}
        return SparkApp(Path(pipeline_job.__file__), argument, log, environment)

    def roles(self, app: SessionApp) -> dict[str, list[int]]:
        """Return the living processes by role: `script`, `client`, `jvm`, `python`."""
        members = session_members(app.session)
        return {
            "script": [app.session],
            "client": pipeline_job.clients_in(members),
            "jvm": java_processes(members),
            "python": [number for number in members if PYTHON_PROCESS in command_of(number)],
        }

    def checkpoint(self, query: str) -> Path:
        """Return the checkpoint that the pipeline gives the flow of a query."""
        return self.home / "pipeline/_checkpoints" / query / pipeline_job.FLOWS[query] / "0"
