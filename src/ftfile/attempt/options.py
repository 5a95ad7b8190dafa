"""Checks of options that files and stores have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format.model import Transaction
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from ftfile.core.options import ParsedOptions

__all__ = ("column_named", "refuse_in_stream", "transaction_of")


def column_named(
    option: str,
    name: str,
    schema: pa.Schema,
    is_right: Callable[[pa.DataType], bool] | None = None,
    needed: str = "",
    advice: str = "",
) -> str:
    """Return a column in its schema's spelling; a ConfigError if there is none, or its type is not right."""
    spelling: dict[str, str] = {known.lower(): known for known in schema.names}
    if name.lower() not in spelling:
        raise ConfigError(f"{option} names no column: {name!r}; the columns are {', '.join(schema.names)}{advice}")
    column = spelling[name.lower()]
    kind = schema.field(column).type
    if is_right is not None and not is_right(kind):
        raise ConfigError(f"{option}: column {column!r} is {kind}, and {needed} is needed")
    return column


def transaction_of(parsed: ParsedOptions) -> Transaction | None:
    """Return the user's own identity of a batch write; None without `txnAppId` and `txnVersion`."""
    app_id, version = parsed["txnAppId"], parsed["txnVersion"]
    if (app_id is None) != (version is None):
        given, missing = ("txnAppId", "txnVersion") if version is None else ("txnVersion", "txnAppId")
        raise ConfigError(f"{given} without {missing}: together they say which write this is; set both or neither")
    if app_id == "":
        raise ConfigError("option txnAppId='': it takes a name, such as that of the application")
    return Transaction(app_id, version) if app_id is not None and version is not None else None


def refuse_in_stream(transaction: Transaction | None) -> None:
    """Raise a ConfigError for an identity that the user gives the batches of a stream."""
    if transaction is not None:
        raise ConfigError(
            "txnAppId and txnVersion are for batch writes, as in foreachBatch: a stream's query and batch ids "
            "already make each batch exactly once. Leave both out"
        )
