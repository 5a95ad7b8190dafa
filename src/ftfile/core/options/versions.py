"""The options that name versions: of a user's own batch writes, and of the directory to be read."""

from __future__ import annotations

from ftfile.core.options.kinds import TEXT, TIME, VERSION
from ftfile.core.options.option import READ, Option

__all__ = ("VERSIONS",)

VERSIONS: tuple[Option, ...] = (
    Option(
        "txnAppId",
        TEXT,
        None,
        "The writer of this batch, in your own words; with `txnVersion`, a repeated batch write is written once, "
        "as in `foreachBatch`. Not for streams, which are exactly once by themselves.",
        "guarantees",
    ),
    Option(
        "txnVersion",
        VERSION,
        None,
        "The number of this write of `txnAppId`, such as the batch id. One not above the last recorded counts as "
        "written already: equal rows are not written again, and other rows are an error, unless "
        "`onReplayMismatch=keep` drops them.",
        "guarantees",
    ),
    Option(
        "versionAsOf",
        VERSION,
        None,
        "Read the directory as it was at this version of its log.",
        "reading",
        used_by=READ,
        default_text="the newest",
    ),
    Option(
        "timestampAsOf",
        TIME,
        None,
        "Read the newest version that was created at or before this time, as the store's clock tells.",
        "reading",
        used_by=READ,
        default_text="the newest",
    ),
)
