"""The functions of `pyarrow.compute`, imported at first use.

The import takes 25 ms, and most writers need no function.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as many types as names
    import pyarrow.compute  # noqa: PLC0415

    function = globals()[name] = getattr(pyarrow.compute, name)
    return function
