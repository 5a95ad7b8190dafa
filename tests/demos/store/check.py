"""The comparison of a store with the independent count of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile import kv

if TYPE_CHECKING:
    from collections import Counter

    from tests.demos.files.report import Console

__all__ = ("check_words",)


def check_words(console: Console, name: str, store: object, counts: Counter[str]) -> bool:
    """Print the comparison of a store with the independent count; return True if they are equal."""
    with kv.open(str(store)) as reader:
        rows = {row["word"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}
    wrong = {word for word in rows.keys() | counts.keys() if rows.get(word) != counts[word]}
    verdict = f"{len(wrong)} words with a WRONG count" if wrong else "every word as often as it occurs"
    painted = console.paint(verdict, good=not wrong)
    console.line(f"independent count of {name}: {painted} ({sum(rows.values()):,} words)")
    return not wrong
