"""Exports on object stores: other programs read the same rows by URL with their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyiceberg.table import StaticTable

import ftfile
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from tests.object_stores.servers import Storage

KEYS = ["a b", "x/y%", "ü?", None, "a+b", "#"]


def test_on_s3(each_storage: Storage) -> None:
    url, settings, client = f"{each_storage.url}/e t", each_storage.settings, each_storage.environment_at("")
    named = {f"storage.{name}": value for name, value in settings.items()}
    query = MicroBatch(url, {"id": "long", "k": "string"}, {"partitionBy": "k", **named})

    def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: row["id"])

    options = client | {"AWS_ENDPOINT_URL": each_storage.endpoint, "AWS_REGION": settings["region"]}
    properties = {
        "s3.endpoint": each_storage.endpoint, "s3.region": settings["region"],
        "s3.access-key-id": client["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": client["AWS_SECRET_ACCESS_KEY"],
    }  # fmt: skip
    for batch in range(2):
        query.run(batch, [[{"id": 10 * batch + at, "k": key} for at, key in enumerate(KEYS)]])
        if batch:
            ftfile.compact(url, storage=settings)
        for to in ("delta", "iceberg"):
            ftfile.export(url, to, storage=settings)
        expected = in_order(ftfile.open(url, storage=settings).to_arrow().to_pylist())
        delta = DeltaTable(url, storage_options=options | {"AWS_ALLOW_HTTP": "true"})
        assert in_order(delta.to_pyarrow_table().to_pylist()) == expected
        table = StaticTable.from_metadata(f"{url}/_iceberg", properties)
        assert in_order(table.scan().to_arrow().to_pylist()) == expected
