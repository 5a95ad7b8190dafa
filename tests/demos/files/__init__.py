"""The demonstration: real data, a stream that is killed again and again, and a reader that counts every row.

Run it with ``python -m tests.demos.files`` (``--help`` lists the options). It needs Python and a JDK.
"""

from __future__ import annotations

__all__ = ()
