"""What follows from a sink's settings alone is found out once, where thousands of batches have the same ones."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import pickle
from typing import TYPE_CHECKING, Any
from unittest import mock

from ftfile.writing.files import file_writer as writer
from ftfile.writing.files import prepared_files
from ftfile.writing.files.file_options import SinkConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.storage.api import Capabilities

KEPT = 1_000


@contextlib.contextmanager
def settled_once() -> Iterator[None]:
    """Within the block, settings are made, suited to a storage system, pickled and checked once if they are equal."""
    checked: set[tuple[SinkConfig, Capabilities, str]] = set()
    check_paths, from_options = prepared_files.check_paths, SinkConfig.from_options

    @functools.lru_cache(KEPT)
    def made(options: tuple[tuple[str, str], ...], schema_json: str, **kind: bool) -> SinkConfig:
        return from_options(dict(options), schema_json, **kind)

    def made_once(options: Mapping[str, str], schema_json: str, **kind: bool) -> SinkConfig:
        return made(tuple(options.items()), schema_json, **kind)

    def check_paths_once(config: SinkConfig, storage: Capabilities, planned_ms: int) -> None:
        asked = (config, storage, config.directories.only_directory(planned_ms))
        if asked not in checked:
            check_paths(config, storage, planned_ms)
            checked.add(asked)

    with contextlib.ExitStack() as stack:
        for owner, name, once in (
            (SinkConfig, "from_options", made_once),
            (SinkConfig, "for_storage", functools.lru_cache(KEPT)(SinkConfig.for_storage)),
            (prepared_files, "_definitions", functools.lru_cache(KEPT)(prepared_files._definitions)),  # noqa: SLF001
            (writer, "check_paths", check_paths_once),
        ):
            stack.enter_context(mock.patch.object(owner, name, once))
        stack.enter_context(mock.patch.dict(copyreg.dispatch_table, {SinkConfig: _reduced}))
        yield


def _reduced(config: SinkConfig) -> tuple[Any, ...]:
    return _unpickled, (_pickled(config),)


@functools.lru_cache(KEPT)
def _pickled(config: SinkConfig) -> bytes:
    """Return settings pickled as outside the block."""
    content = io.BytesIO()
    pickler = pickle.Pickler(content, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {kind: how for kind, how in copyreg.dispatch_table.items() if kind is not SinkConfig}
    pickler.dump(config)
    return content.getvalue()


@functools.lru_cache(KEPT)
def _unpickled(content: bytes) -> SinkConfig:
    config: SinkConfig = pickle.loads(content)
    return config
