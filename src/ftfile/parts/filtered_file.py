"""Between an encoder and storage: frames, filters, and how large a file will be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.encoding.registry import format_from_definition
from ftfile.filters.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.encoding.api import ByteWriter
    from ftfile.keys.keys import Keys


def chain_of(encoding: Mapping[str, Any], keys: Keys | None = None) -> Chain:
    """Return the filters of files of an encoding; without keys, those that encrypt only have a name."""
    return Chain.from_definition(encoding["filters"], keys)


def extension_of(encoding: Mapping[str, Any]) -> str:
    """Return the ending of names of files of an encoding."""
    return format_from_definition(encoding["format"]).extension + chain_of(encoding).extension


class FilteredFile:
    """A file, or a piece of one, that takes plain bytes.

    They are collected to frames, so that no file being written needs a compressor of its own, files can be joined, and
    the length of a file is known after every frame. The envelope around the frames of a file sees them as one stream.
    Without filters, bytes go straight to the target. For the identity, see `Filter.encoder`.
    """

    def __init__(self, target: ByteWriter, chain: Chain, identity: str) -> None:
        self.position = 0  # of plain bytes
        self._target = target
        self._chain = chain
        self._start = target.position
        self._frame_bytes = max(1, chain.frame_bytes) if chain.framing else 0
        self._envelope = chain.sealer(identity) if chain.framing != chain.filters else None
        self._sealed_bytes = 0  # taken by the envelope
        self._held_bytes = 0  # and not come out of it, where nothing better is known
        self._open = bytearray()  # of the next frame
        self._framed_plain_bytes = 0
        self._framed_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Return the number of plain bytes in no frame yet."""
        return len(self._open)

    @property
    def size_bytes(self) -> int:
        """Return the length that the file would have if it ended now; an estimate while a frame is open."""
        return self.size_bytes_with(round(len(self._open) * self._ratio))

    def size_bytes_with(self, framed_bytes: int) -> int:
        """Return the length of the file with more bytes of frames and its end."""
        size = self._envelope.size_of(self._sealed_bytes + framed_bytes) if self._envelope is not None else None
        return self._target.position - self._start + self._held_bytes + framed_bytes if size is None else size

    def framed_room(self, limit_bytes: int) -> int:
        """Return the bytes of frames that fit below that size, below 0 for too long a file; no frame is open."""
        room = limit_bytes - self.size_bytes
        return room - (self.size_bytes_with(room) - limit_bytes) if room > 0 else room

    def size_bytes_max(self, plain_bytes: int) -> int:
        """Return the greatest length of the file with more plain bytes: noise becomes longer."""
        unframed = len(self._open) + plain_bytes
        return self.size_bytes_with(unframed + unframed // 32 + 640)

    def room(self, limit_bytes: int) -> int:
        """Return the plain bytes that bring the file to about that size; at least one."""
        return max(1, int((limit_bytes - self.size_bytes) / self._ratio))

    def reaches(self, limit_bytes: int) -> bool:
        """Return True if the file is that long; if that is an estimate, end the frame and measure."""
        if self.size_bytes < limit_bytes:
            return False
        self.flush()
        return self.size_bytes >= limit_bytes

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append plain bytes and return how many they are."""
        view = memoryview(data).cast("B")
        self.position += view.nbytes
        if not self._frame_bytes:
            self._append(view)
            return view.nbytes
        start = 0
        if self._open:
            start = self._frame_bytes - len(self._open)
            self._open += view[:start]
            if len(self._open) == self._frame_bytes:
                self.flush()
        while view.nbytes - start >= self._frame_bytes:
            self._write_frame(view[start : start + self._frame_bytes])
            start += self._frame_bytes
        self._open += view[start:]
        return view.nbytes

    def write_frames(self, frames: bytes, plain_bytes: int) -> None:
        """Append whole frames of other files of this chain, with that many plain bytes in them."""
        self.flush()
        self._append(frames)
        self.position += plain_bytes
        self._count(plain_bytes, len(frames))

    def write_beside(self, append: Callable[[], object], plain_bytes: int) -> None:
        """Count the bytes, plain or frames of this chain, that `append` writes to the target around the envelope."""
        self.flush()
        before = self._target.position
        append()
        self.position += plain_bytes
        self._count(plain_bytes, self._target.position - before)

    def flush(self) -> None:
        """End the open frame, if there is one."""
        if self._open:
            frame, self._open = self._open, bytearray()
            self._write_frame(frame)

    def finish(self) -> None:
        """End the open frame and the envelope; the target stays open."""
        self.flush()
        if self._envelope is not None:
            self._target.write(self._envelope.finish())
            self._held_bytes, self._envelope = 0, None

    @property
    def _ratio(self) -> float:
        # At first nothing is known, and no estimate may be too small.
        return self._framed_bytes / self._framed_plain_bytes if self._framed_bytes else 1.0

    def _write_frame(self, data: bytearray | memoryview) -> None:
        frame = self._chain.frame(data)
        self._append(frame)
        self._count(len(data), len(frame))

    def _count(self, plain_bytes: int, framed_bytes: int) -> None:
        self._framed_plain_bytes += plain_bytes
        self._framed_bytes += framed_bytes

    def _append(self, data: bytes | memoryview) -> None:
        if self._envelope is None:
            self._target.write(data)
            return
        self._sealed_bytes += len(data)
        out_bytes = sum(map(self._target.write, self._envelope.pieces(data)))
        self._held_bytes = self._held_bytes + len(data) if not out_bytes else 0
