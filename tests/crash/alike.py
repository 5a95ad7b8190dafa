"""Selects disks to try: the suite tries the first of each group of similar disks and a share of the rest.

Disks are similar if the log leads to the same files in both. `make long` tries all disks. Most files that differ after
a power cut are named nowhere: temporary files, or files of an attempt without a record. Only vacuum reads such files.
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
    """Return a number that is equal, in this process, for similar disks.

    Staged files count only if the log contains their names. In an encrypted log names are not visible: all files except
    temporary ones count.
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
    """Decides which states to try: the first of each group of similar states, and a drawn share of the rest.

    Args:
        seed: of the share.
        every: try all states.
    """

    def __init__(self, seed: int, *, every: bool = THOROUGH) -> None:
        self.tried = 0
        self._every = every
        self._rng = random.Random(seed)
        self._told: set[tuple[int, tuple[str, ...]]] = set()

    def is_tried(self, state: CrashState) -> bool:
        """Return True if the state must be tried."""
        known = len(self._told)
        self._told.add((told(state.disk), state.notes))
        is_tried = self._every or len(self._told) > known or self._rng.random() < SHARE
        self.tried += is_tried
        return is_tried
