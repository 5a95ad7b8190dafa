"""The findings of verify for each damaged file, and their repair: the table of docs/internals/format.md (`make docs`).

A cell has the severity and the code of the worst finding, and the repair. `mended` is a repair without arguments,
`request` a repair with an argument, and `copy` a copy of the file. The cell is empty if there is no finding. It is `not
opened` if the error at opening names the remedy.
"""

from __future__ import annotations

HARMS = ("deleted", "emptied", "a wrong bit", "another directory's")

_MISSING_RECORD = "error missing-record request"
_DAMAGED_RECORD = "error damaged-record request"
_DAMAGED_PART = "error damaged-part request"
_DAMAGED_SEGMENT = "error damaged-segment request"
_WINDOWS = "error damaged-windows copy"
_NOTHING = ("",) * 4
_OLD = ("info damaged-old-file copy",) * 4
_SEGMENT = ("error missing-segment request", *[_DAMAGED_SEGMENT] * 3)
_PART = ("error missing-part request", *[_DAMAGED_PART] * 3)

# A cell for each harm, by the kind of the file.
MATRIX = {
    "`directory/_format`": ("error missing-format mended", *["error bad-format mended"] * 2, ""),
    "`directory/_marker`": ("", *["warning bad-marker mended"] * 2, ""),
    "record": (*[_MISSING_RECORD] * 3, "error foreign-record request"),
    "newest record": ("error lost-records request", *[_DAMAGED_RECORD] * 2, "error foreign-record request"),
    "companion of a record": (_MISSING_RECORD,) * 4,
    "log checkpoint": ("", *["warning bad-checkpoint mended"] * 3),
    "compacted log": ("", *["warning bad-compacted-log mended"] * 3),
    "`hints/_published`": ("", *["warning bad-hint mended"] * 3),
    "`hints/_clock`": _NOTHING,
    "published part": _PART,
    "committed part, not published": _PART,
    "spool of an open file": _SEGMENT,
    "spool that is used up": _OLD,
    "file of a lost attempt": _NOTHING,
    "note of such a file": _NOTHING,
    "retired part": _OLD,
    "dead letters": ("", *["error damaged-letters copy"] * 3),
    "file in quarantine": _NOTHING,
    "note in quarantine": _NOTHING,
    "log of a migrated table": _NOTHING,
    "run of a store": _SEGMENT,
    "run of a store that is merged": _OLD,
    "windows of a store": (_WINDOWS,) * 4,
    "newest windows of a store": ("", *[_WINDOWS] * 3),
}
# The cells of encrypted directories that differ.
ENCRYPTED = {
    "`directory/_format`": (*["error not opened copy"] * 3, "error bad-format copy"),
    "record": (_MISSING_RECORD,) * 4,
    "newest record": ("error lost-records request", *[_DAMAGED_RECORD] * 3),
}
