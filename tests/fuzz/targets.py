"""All targets by name; the modules are imported when they are needed, because instrumented imports are slow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.target import Target

__all__ = ("all_targets", "target_named")

_MODULES = ("text_targets", "store_targets", "log_targets", "file_targets", "source_targets")


def all_targets() -> dict[str, Target]:
    """Return all targets."""
    targets: dict[str, Target] = {}
    for module in _MODULES:
        targets |= _targets_in(module)
    return targets


def target_named(name: str) -> Target:
    """Return a target without importing the modules after its module; a LookupError if it does not exist."""
    for module in _MODULES:
        if name in (targets := _targets_in(module)):
            return targets[name]
    raise LookupError(name)


def _targets_in(module: str) -> dict[str, Target]:
    targets: dict[str, Target] = import_module(f"tests.fuzz.{module}").TARGETS
    return targets
