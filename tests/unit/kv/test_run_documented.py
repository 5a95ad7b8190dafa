"""docs/internals/format.md has the trailer of a run as the code writes it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from ftfile.kv.run.directory import TRAILER

PAGE = (Path(__file__).parents[3] / "docs/internals/format.md").read_text()


def test_the_trailer_is_that_of_the_code() -> None:
    (rows,) = re.findall(r"<!-- trailer -->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
    documented = [tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows.splitlines()]
    assert documented == [(name, str(struct.calcsize(f"<{kind}"))) for name, kind in TRAILER.items()]
    assert sum(int(size) for _, size in documented) == 72
