"""The faults that `python -m tests.architecture` plants can be planted."""

from __future__ import annotations

from tests.architecture.__main__ import ROOT, changed, faults
from tests.architecture.test_docs import is_program


def test_each_fault_can_be_planted_and_has_a_test() -> None:
    planted = faults()
    assert len({fault.name for fault in planted}) == len(planted) > 40
    assert all(changed(fault, ROOT) for fault in planted)
    assert not [fault.name for fault in planted if not is_program(fault.test)]
