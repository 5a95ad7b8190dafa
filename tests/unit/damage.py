"""Damage to files: bytes that change, go or come, and values of JSON in the place of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("damaged", "forged")

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Other bytes than these: a few pieces of them are changed, cut out, or there twice; or nothing of them is left."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(changed)))
        end = draw(st.integers(start, min(len(changed), start + 9)) | st.integers(start, len(changed)))
        changed[start:end] = draw(st.binary(max_size=9) | st.just(bytes(changed[start:end] * 2)))
    return bytes(changed) if changed != data else b""


@st.composite
def forged(draw: st.DrawFn, value: Any) -> Any:
    """The value with another one in the place of one within it, or without it."""
    place = draw(st.sampled_from(list(_places(value))))
    if not place:
        return draw(JSON)
    changed = _copied(value)
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    if draw(st.booleans()):
        holder[place[-1]] = draw(JSON)
    else:
        del holder[place[-1]]
    return changed


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    within = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in within:
        yield from ((key, *place) for place in _places(inner))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
