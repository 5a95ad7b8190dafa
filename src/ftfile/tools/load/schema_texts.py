"""The option `--schema` for a column, as errors show it."""

from __future__ import annotations

import json
import re
import shlex

from ftfile.rows.spark_types import quoted_name

_PLAIN_NAME = re.compile(r"[^\s`,(){}]+")


def schema_option(column: str, kind: str) -> str:
    """Return the option with the type of a column, as a shell reads it."""
    if not column:  # which has no SQL
        return "--schema " + shlex.quote(json.dumps({"type": "struct", "fields": [{"name": "", "type": kind}]}))
    name = column if _PLAIN_NAME.fullmatch(column) else quoted_name(column)
    return "--schema " + shlex.quote(f"{name} {kind}")
