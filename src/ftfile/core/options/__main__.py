"""Write docs/options.md to standard output: `python -m ftfile.core.options`."""

from __future__ import annotations

import sys

from ftfile.core.options.document import to_markdown

sys.stdout.write(to_markdown())
