from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.rotating import RotatingLog

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.rotating import Rotation


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_nothing_that_was_written_is_lost(how: Rotation, compressed: bool, tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "logs" / "app.log", how=how, compressed=compressed)
    expected = []
    for number in range(11):
        lines = [f"{number} {line}" for line in range(number)]
        log.write(lines)
        expected += lines
        first = log.path.stat().st_ino
        rotated = log.rotate()
        ending = ".gz" if compressed else ""
        assert rotated == tmp_path / "logs" / f"app.log.1{ending}"
        assert (log.path.stat().st_ino == first) == (how == "copytruncate")
        assert log.size_bytes == 0
    log.write_text("half")
    assert log.lines() == expected
    log.write_text(" a line\n")
    assert log.lines() == [*expected, "half a line"]
    assert [path.name for path in log.files()][:2] == [f"app.log.11{ending}", f"app.log.10{ending}"]
    log.close()
