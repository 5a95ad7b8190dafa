"""Directories of files, and the kind of any directory."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

from ftfile.core.extensions import UPPER_PLACES, is_name_of_code
from ftfile.formats.binary_records import UserEncoder
from ftfile.log.directory import store_of
from ftfile.operate.kinds import Kind
from ftfile.writing.files.assembly_plan import owner_of, plan_of
from ftfile.writing.files.rolling_groups import key_of, stats_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Literal

    from ftfile.log.format.model import Add, Job
    from ftfile.log.state import LogState


class FileKind(Kind):
    """Directories of files."""

    name: Literal["files", "store"] = "files"

    def count_open(self, head: LogState) -> int:
        """Return the number of open files."""
        return len({(segment.origin.query_id, *key_of(segment)) for segment in head.segments.values()})

    def committed_ms(self, segment: Add) -> int:
        """Return the commit time of a segment."""
        return stats_of(segment).committed_ms

    def check_job(self, job: Job) -> None:
        """Raise `CorruptData` for a plan that is not of this kind, or a job without inputs."""
        owner_of(job)
        plan_of(job)

    def code_of(self, encoding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the encoder of records, if it is code."""
        encoder = encoding.get("format", {}).get("encoder")
        if encoder is not None and is_name_of_code(name := UserEncoder.from_definition(encoder).name):
            yield "encoder", name


FILES = FileKind()


def kind_of(head: LogState) -> Kind:
    """Return the kind of a directory. The kind of stores is in a folder above this one: see `UPPER_PLACES`."""
    if store_of(head) is None:
        return FILES
    kind: Kind = pkgutil.resolve_name(UPPER_PLACES["kind of a store"])
    return kind
