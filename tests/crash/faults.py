"""The faults that are injected at every call."""

from __future__ import annotations

from ftfile.core.errors import OutcomeUnknown, OutOfSpace, PermissionDenied, Unavailable
from ftfile.testing.fs.faulty import STANDARD_FAULTS, Fault

__all__ = ("FAULTS",)

FOR_EVER = 10**9
FAULTS = {
    **{f"{fault.error.__name__} {fault.effect}": fault for fault in STANDARD_FAULTS},
    "Unavailable from then on": Fault(Unavailable, times=FOR_EVER),
    "PermissionDenied from then on": Fault(PermissionDenied, times=FOR_EVER),
    "OutOfSpace from then on": Fault(OutOfSpace, times=FOR_EVER),
    "replies lost from then on": Fault(OutcomeUnknown, "after", times=FOR_EVER),
}
