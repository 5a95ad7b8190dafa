"""An object store with the interface of `fsspec`: a separate memory file system. Closed files appear in it."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

__all__ = ("ObjectFile", "Objects", "known_as")


class ObjectFile(AbstractBufferedFile):  # type: ignore[misc] # fsspec has no types
    """Collects parts, and makes an object of them on the condition of its mode."""

    def _initiate_upload(self) -> None:
        self.parts: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts.append(self.buffer.getvalue())
        if final:
            self.fs.make(self.path, b"".join(self.parts), is_new="x" in self.mode)
        return True

    def discard(self) -> None:
        self.parts = []


class Objects(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """All instances of one class see the same objects."""

    protocol = "objects"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    lock = threading.RLock()
    file = ObjectFile

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.store, cls.pseudo_dirs = {}, [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = path.rpartition("://")[2].strip("/")
        return f"/{path}" if path else ""

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        if mode == "rb":
            return super()._open(path, mode, block_size, **kwargs)
        return self.file(self, path, mode, block_size or "default")

    def make(self, path: str, content: bytes, *, is_new: bool) -> None:
        with self.lock:
            if is_new and path in self.store:
                raise FileExistsError(path)
            self.store[path] = MemoryFile(self, path, content)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:  # noqa: ARG002
        self.make(self._strip_protocol(path), value, is_new=mode == "create")


def known_as(scheme: str, kind: type) -> None:
    """Make fsspec know a class by a scheme."""
    fsspec.register_implementation(scheme, kind, clobber=True)
