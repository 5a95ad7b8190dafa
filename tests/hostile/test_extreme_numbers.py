"""Public calls on directories in whose records all numbers of one name are the greatest number.

Sums of these numbers, loops over them and times from them then have no bound. `make long` tries every name, the suite
some.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.hostile import bases
from tests.hostile.extremes import number_names
from tests.hostile.test_mutations import play_on

if TYPE_CHECKING:
    from pathlib import Path

THOROUGH = bool(os.environ.get("FTFILE_THOROUGH"))
# Of this many names, the suite tries one drawn by the seed. It always tries the names of byte and row counts.
SHARE = 12


@pytest.mark.slow
@pytest.mark.parametrize("base", ["json", "parquet", "store"])
def test_calls_return_or_raise_errors_of_ftfile(tmp_path: Path, base: str, seed: int) -> None:
    bases.make(base, tmp_path / "place")
    names = number_names(tmp_path / "place")
    shutil.rmtree(tmp_path / "place")
    always = [names.index(name) for name in ("lengthBytes", "rows")]
    numbers = range(len(names)) if THOROUGH else sorted({*always, *range(seed % SHARE, len(names), SHARE)})
    home = tmp_path / "home"
    home.mkdir()
    results = play_on(home, base, ["numbers", *numbers], len(numbers))
    assert [result for result in results if result["wrong"]] == []
    assert [result["mutation"] for result in results] == [[names[number]] for number in numbers]
