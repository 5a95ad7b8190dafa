"""Declarations of options: type checkers find mistakes, and words are read from the annotation."""

from __future__ import annotations

from typing import Literal

import pytest

from ftfile.core.options import kinds
from ftfile.core.options.declaration import option, words
from ftfile.core.options.typed import Options, SinkOptions, StoreSinkOptions


class Mistakes(Options):
    """Wrong declarations; if mypy misses a mistake, it reports an unused comment."""

    unknown_word: Literal["fail", "accept"] = words("acept")  # type: ignore[arg-type]
    no_default: Literal["fail", "accept"] = words(None)  # type: ignore[arg-type]
    text_for_number = option(kinds.SIZE, default="7")  # type: ignore[misc]
    number_for_text = option(kinds.TEXT, default=7)  # type: ignore[misc]
    other_type: str | None = option(kinds.SIZE)  # type: ignore[assignment]


def unknown_word(options: SinkOptions) -> bool:
    return options.on_gap == "acept"  # type: ignore[comparison-overlap]


def number_or_none(options: SinkOptions) -> int:
    return options.max_record_bytes  # type: ignore[return-value]


class Example(Options):
    when_late: Literal["failNow", "wait"] | None = words(None, never="wait")
    row_limit = option(kinds.COUNT, default=5)
    as_utf = option(kinds.BOOLEAN, name="asUTF")


class Other(Options):
    row_limit = Example.row_limit


def test_names_follow_from_attributes() -> None:
    assert [*Example.BY_NAME] == ["whenLate", "rowLimit", "asUTF", "path", "keyProvider"]
    assert Other.BY_NAME["rowLimit"] is Example.BY_NAME["rowLimit"]
    assert (Example().row_limit, Other().row_limit, Example().when_late) == (5, 5, None)


def test_words_are_those_of_the_annotation() -> None:
    late = Example.BY_NAME["whenLate"].kind
    assert (late.accepts, late.argument) == ("one of `failNow`, `wait`", 'Literal["failNow", "wait"]')
    assert [late.parse(text) for text in ("FAILNOW", " wait ", "never")] == ["failNow", "wait", "wait"]
    with pytest.raises(ValueError, match="later"):
        late.parse("later")
    assert StoreSinkOptions.BY_NAME["compression"].kind.accepts == "one of `none`, `lz4`, `zstd`"
