"""The writers of a keyed store, with the interface that Spark calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.kv.config import StoreConfig
from ftfile.kv.driver import recorded_definition
from ftfile.kv.writer import StoreSink
from ftfile.spark.settings import absolute_options, check_shared
from ftfile.spark.writers import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType


class FtKvStreamWriter(StreamWriter[StoreConfig]):
    """Upserts, merges and deletes the rows of a micro-batch. In complete mode, they replace the rows of the store."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(StoreSink(), _store_config(options, schema, overwrite=overwrite, stream=True))


class FtKvBatchWriter(BatchWriter[StoreConfig]):
    """Upserts, merges and deletes the rows of a DataFrame in one commit, or replaces the store with them."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(StoreSink(), _store_config(options, schema, overwrite=overwrite, stream=False))


def _store_config(options: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> StoreConfig:
    raw = absolute_options(options)
    if overwrite:
        recorded = None
    else:
        recorded = recorded_definition(raw, SYSTEM)
    config = StoreConfig.from_options(raw, schema.json(), overwrite=overwrite, stream=stream, recorded=recorded)
    check_shared(config.log(SYSTEM).fs, config.path)
    return config
