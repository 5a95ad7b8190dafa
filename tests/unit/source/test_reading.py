"""Reading a committed file that is not what the log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import CorruptData
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("content", "found"),
    [("c\ndd\n", "expected 4 bytes, found 5 bytes"), ("cdd\n", "expected 2 rows, found 1 rows")],
    ids=["another length", "other rows"],
)
def test_a_file_that_was_changed_is_an_error(tmp_path: Path, content: str, found: str) -> None:
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "a"}, {"value": "b"}]])
    (part,) = tmp_path.glob("part-*")
    part.write_text(content)
    with pytest.raises(CorruptData, match=found):
        ftfile.open(str(tmp_path)).to_arrow()
