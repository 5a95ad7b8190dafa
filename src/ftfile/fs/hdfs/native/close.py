"""Closing a file by `hdfs-native` without the half second that the library waits.

The NameNode completes a file only when a DataNode has reported its last block, some milliseconds after the DataNode
told the writer. The library asks at once, is refused, and sleeps for half a second. Its first request has said what the
block is, though: when the report has come nothing is missing but the end of the lease, and recovering the lease of a
file whose blocks are all complete closes it as it is. The library's own second request finds it closed, and succeeds.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import wait
from typing import TYPE_CHECKING

from ftfile.core.errors import StorageError
from ftfile.fs.calls.deadline import start
from ftfile.fs.hdfs.native.errors import NativeErrorTranslator

if TYPE_CHECKING:
    from concurrent.futures import Future

    import hdfs_native
    from hdfs_native._internal import RawFileWriter

__all__ = ("close_early",)

# After these the file is left to the library, which asks again half a second after it began.
WAITS_S = (0.003, 0.003, 0.004, 0.01, 0.02, 0.04, 0.08, 0.16)
# Each is a thread that sleeps.
LEFT_BEHIND_MAX = 256

# Calls of the library that will find their file closed.
_left_behind: set[Future[None]] = set()

# Threads do not survive a fork.
os.register_at_fork(after_in_child=_left_behind.clear)


def close_early(client: hdfs_native.Client, full: str, writer: RawFileWriter, size_bytes: int) -> None:
    """Close a file, and return as soon as it is closed; raises what the library does, or `NoThreadError`.

    Args:
        client: of the library.
        full: absolute path of the file.
        writer: of the file.
        size_bytes: all that was written to it.
    """
    closing = start(writer.close)
    if size_bytes and len(_left_behind) < LEFT_BEHIND_MAX:
        # Whatever is said here, the library's own answer is the one that counts.
        with contextlib.suppress(StorageError), NativeErrorTranslator("close", full, "HDFS"):
            if _is_released(client, full, size_bytes, closing):
                _left_behind.add(closing)
                closing.add_done_callback(_left_behind.discard)
                return
    closing.result()


def _is_released(client: hdfs_native.Client, full: str, size_bytes: int, closing: Future[None]) -> bool:
    """Return True if the file was closed here, and not by the library."""
    space_bytes = None
    for wait_s in WAITS_S:
        wait([closing], wait_s)
        if closing.done():
            return False
        if space_bytes is None:
            status = client.get_file_info(full)
            if not status.blocksize or not status.replication or size_bytes % status.blocksize == 0:
                return False
            space_bytes = size_bytes * status.replication
        # A block that is not complete counts as a full one: to ask any earlier would begin a recovery of the block.
        if client.get_content_summary(full).space_consumed == space_bytes:
            return client.recover_lease(full)
    return False
