"""The keys under which the log keeps definitions."""

from __future__ import annotations

import hashlib
import json


def definition_key(definition: object) -> str:
    """Return the key of a definition in the log: the same for the same content."""
    text = definition if isinstance(definition, str) else json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
