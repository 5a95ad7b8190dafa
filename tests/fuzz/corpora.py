"""The inputs of targets in git: a packed corpus of each target, and inputs that found a defect, each in a file."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KEPT = Path(__file__).parent / "corpus"
PACKED_NAME = "inputs.xz"
# Of the inputs of a target, before compression; small inputs are kept first.
INPUTS_BYTES_MAX = 200_000
PACKED_BYTES_MAX = 12_000
_LENGTH_BYTES = 4
_SOME = 0.8


def kept_inputs(target: str) -> Iterator[bytes]:
    """Yield the inputs of a target in git."""
    folder = KEPT / target
    packed = folder / PACKED_NAME
    if packed.exists():
        yield from unpacked(packed.read_bytes())
    for path in sorted(folder.glob("found-*")):
        yield path.read_bytes()


def keep(target: str, inputs: Iterable[bytes]) -> int:
    """Replace the packed corpus of a target by the smallest of these inputs, and return their number."""
    chosen, size = [], 0
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        size += len(data)
        if size > INPUTS_BYTES_MAX:
            break
        chosen.append(data)
    while len(content := packed(chosen)) > PACKED_BYTES_MAX:
        chosen = chosen[: int(_SOME * len(chosen))]
    folder = KEPT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PACKED_NAME).write_bytes(content)
    return len(chosen)


def packed(inputs: Iterable[bytes]) -> bytes:
    """Return inputs as compressed bytes."""
    content = b"".join(len(data).to_bytes(_LENGTH_BYTES, "big") + data for data in inputs)
    return lzma.compress(content, preset=9)


def unpacked(content: bytes) -> Iterator[bytes]:
    """Yield the inputs of `packed`."""
    plain, start = lzma.decompress(content), 0
    while start < len(plain):
        end = start + _LENGTH_BYTES + int.from_bytes(plain[start : start + _LENGTH_BYTES], "big")
        yield plain[start + _LENGTH_BYTES : end]
        start = end
