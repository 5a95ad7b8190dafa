"""The places by name: a new place is a module with a class derived from `Place`, and a row of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.connect import ConnectPlace
from tests.soak.on_hdfs import HdfsPlace
from tests.soak.on_kafka import KafkaPlace
from tests.soak.on_s3 import S3Place
from tests.soak.on_yarn import YarnPlace
from tests.soak.pipelines import PipelinesPlace
from tests.soak.place import Place
from tests.soak.standalone import StandalonePlace
from tests.soak.steady import SteadyPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("PLACES",)

_ALL = (Place, HdfsPlace, S3Place, ConnectPlace, PipelinesPlace, StandalonePlace, YarnPlace, KafkaPlace, SteadyPlace)
PLACES: Mapping[str, type[Place]] = {each.name: each for each in _ALL}
