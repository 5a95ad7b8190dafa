"""Disks that are alike in all that the log tells: of those, the suite tries the first one and a share, `make long` all.

Most of what a power cut leaves in one way or another is named nowhere: a temporary file, what an attempt staged before
there was a record of it. Nobody opens such a file, and only vacuum looks for it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ftfile.log.commit_log import LAYOUT_VERSION
from ftfile.log.format import layout
from ftfile.log.format.record import to_checked_text
from ftfile.testing.fs.tree import DIRECTORY
from tests.crash.share import SHARE, THOROUGH

if TYPE_CHECKING:
    from ftfile.testing.fs.crashing import CrashState
    from ftfile.testing.fs.disk import Disk


def told(disk: Disk) -> int:
    """Return a number that is equal, in this process, for disks alike: staged files count if the log has their names.

    In a log that is encrypted, names cannot be seen: all but temporary files count.
    """
    contents = {
        path: None if number == DIRECTORY else disk.inodes[number].content
        for path, number in disk.tree.walk()
        if not path.endswith(".tmp")
    }
    plain = to_checked_text([LAYOUT_VERSION])
    if contents.get(layout.FORMAT_FILE, plain) == plain:
        staged = [path for path, content in contents.items() if content is not None and layout.is_staged(path)]
        text = b"".join(
            content
            for path, content in contents.items()
            if content is not None and path.startswith(f"{layout.META}/") and not layout.is_staged(path)
        )
        for path in staged:
            if path.rpartition("/")[2].encode() not in text:
                del contents[path]
    return hash(frozenset(contents.items()))


class Alike:
    """Tells which states to try: the first of those that are alike, and of the others a share that the seed draws.

    Args:
        seed: of the share.
        every: all are to be tried.
    """

    def __init__(self, seed: int, *, every: bool = THOROUGH) -> None:
        self.tried = 0
        self._every = every
        self._rng = random.Random(seed)
        self._told: set[tuple[int, tuple[str, ...]]] = set()

    def is_tried(self, state: CrashState) -> bool:
        """Return True if the state is to be tried."""
        known = len(self._told)
        self._told.add((told(state.disk), state.notes))
        is_tried = self._every or len(self._told) > known or self._rng.random() < SHARE
        self.tried += is_tried
        return is_tried
