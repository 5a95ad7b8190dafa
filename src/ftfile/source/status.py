"""The implementation of `ftfile.source_status`, for processes other than the stream."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftfile.core.arguments import check_arguments
from ftfile.core.context import SYSTEM, absolute_path
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import FilesOptions
from ftfile.log.commit_log import CommitLog
from ftfile.log.places import list_or_empty
from ftfile.log.read.snapshot import read_records
from ftfile.log.read.times import created_ms
from ftfile.source.file_table import Table
from ftfile.source.known_rows import PARKED, key_of
from ftfile.source.listing import list_files
from ftfile.source.matching import likely_answers, match_known
from ftfile.source.plan_log import PlanLog, plan_of
from ftfile.source.settings import SourceSettings, split_path
from ftfile.source.stream import SourceConfig, open_state, state_location
from ftfile.storage.paths import parse
from ftfile.storage.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ftfile.core.context import Context
    from ftfile.source.known_files import KnownFiles
    from ftfile.source.listing import Listing
    from ftfile.source.plan import Late, Refused, SourcePlan


_PLACES = frozenset({"checkpointlocation", "statelocation"})


class Parked(NamedTuple):
    """A file that is skipped until it changes: it is damaged or unencrypted, or its length is unknown."""

    path: str
    reason: str
    size_bytes: int
    modified_ms: int  # in ms since 1970 UTC


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of one source of files: its newest plan, and the content that is unread after it."""

    id: str  # of the source, also the name of its directory in the state location
    path: str  # URL of the source
    plan: int  # the newest plan, counted from 0
    # of that plan, in ms since 1970 UTC by the clock of the state's storage; None if the record is deleted
    time_ms: int | None
    known: int  # number of known files
    parked: tuple[Parked, ...]  # files that are skipped until they change, with the reasons
    refused: tuple[Refused, ...]  # listed files that could not be opened for the newest plan; they are retried
    late: int  # number of all files that arrived too late to be read
    late_files: tuple[Late, ...]  # the late files that kept plans name
    files_behind: int  # number of files with unread content, computed from their sizes
    bytes_behind: int  # unread bytes, including unfinished last lines
    # modification time of the oldest of these files, in ms since 1970 UTC; None without unread files
    oldest_unread_ms: int | None


@check_arguments
def source_status(path: str | os.PathLike[str], **options: object) -> tuple[SourceStatus, ...]:
    """Return the status of each source that reads files at a path and has its state in the given location.

    The call reads the state, lists the files and changes nothing. It can be called while queries run. A log that was
    copied or compressed counts as unread until the next plan recognizes it.

    Args:
        path: the path that the stream loads.
        options: `checkpointLocation` or `stateLocation` of the stream. The state contains its other options; options
            given here replace them. `storage.<name>` is not in the state and must be given.

    Raises:
        ConfigError: an option is wrong, or the files belong to a directory that ftfile writes.
        CorruptData: the state is damaged.
    """
    given = {"path": os.fspath(path)}
    for name, value in options.items():
        given[name] = str(value)
        if name.lower() in _PLACES:
            given[name] = absolute_path(given[name])
    parsed = parse_options(given, FilesOptions)
    location = state_location(parsed)
    state = open_state(location, normalise(parsed.required_path()), parsed.options_with_prefix("storage"), SYSTEM)
    listings: dict[SourceSettings, Listing] = {}
    log_ids = sorted(entry.path for entry in list_or_empty(state, "") if entry.is_directory)
    statuses = []
    for log_id in log_ids:
        status = status_of(location, log_id, given=given, context=SYSTEM, listings=listings)
        if status is not None:
            statuses.append(status)
    return tuple(statuses)


def status_of(
    location: str, log_id: str, given: Mapping[str, str], context: Context, listings: dict[SourceSettings, Listing]
) -> SourceStatus | None:
    """Return the status of one source; None if it has no plan, or reads another path than the given path.

    Given options replace the options in the state. Settings of a file system apply to all URLs with the same scheme. A
    missing listing is created and added to `listings`.
    """
    watched = normalise(given.get("path", location))  # `given` contains the settings of its file system
    fs = open_state(
        location,
        watched,
        storage=parse_options(given, FilesOptions).options_with_prefix("storage"),
        context=context,
        log_id=log_id,
    )
    plans, log = PlanLog(fs, log_id, ""), CommitLog(fs)
    known, recorded = plans.read_known(), [plan_of(record) for record in read_records(log)]
    if plans.head is None or plans.head.plan < 0 or not recorded:
        return None
    options = plans.options | {"stateLocation": location} | dict(given)
    root, _ = split_path(options.get("path"))
    if recorded[-1].root != root:
        return None  # the plans of another stream, for which the given options may be wrong
    config = SourceConfig.from_options(parse_options(options, FilesOptions), "{}")
    settings = config.settings
    if settings not in listings:
        storage = None
        if parse(root).scheme == parse(watched).scheme:
            storage = config.storage
        listings[settings] = list_files(open_filesystem(root, context, storage), settings)
    listing = listings[settings]
    unread = _list_unread(listing, known, keeps_truncated=settings.file_identity == "content")
    late_files: list[Late] = []
    for plan in recorded:
        late_files += plan.late
    return SourceStatus(
        id=log_id,
        path=settings.shown,
        plan=plans.head.plan,
        time_ms=created_ms(log, plans.head.plan),
        known=len(known),
        parked=_list_parked(recorded, listing, known),
        refused=_list_refused(recorded[-1], listing),
        late=known.late,
        late_files=tuple(late_files),
        files_behind=len(unread),
        bytes_behind=int(unread["bytes"].sum()),
        oldest_unread_ms=int(unread["time"].min()) if len(unread) else None,
    )


def _list_unread(listing: Listing, files: KnownFiles, *, keeps_truncated: bool) -> NDArray[Any]:
    """Return the bytes and the time of each file with unread content. No content is read."""
    table = Table(listing, files)
    sizes = dict(zip(table.places.tolist(), table.unread_bytes(table.places).tolist(), strict=True))
    rows = table.suspects()
    by_identity = table.known_by_identity(rows)
    answers = likely_answers(rows, by_identity)
    for place, match in match_known(rows, by_identity, answers, keeps_truncated=keeps_truncated).items():
        sizes[place] = max(0, match.row.size_bytes - match.position)
    unread = []
    for place, size_bytes in sizes.items():
        if size_bytes:
            unread.append((size_bytes, listing.times[place]))
    return np.array(unread, [("bytes", "<i8"), ("time", "<i8")])


def _list_refused(plan: SourcePlan, listing: Listing) -> tuple[Refused, ...]:
    """Return the listed files that a plan names as refused."""
    if plan.refused:
        paths = set(listing.paths)
    else:
        paths = set()
    return tuple(file for file in plan.refused if file.path in paths)


def _list_parked(plans: list[SourcePlan], listing: Listing, known: KnownFiles) -> tuple[Parked, ...]:
    """Return the listed files that are parked. If the plan that parked a file was trimmed, the reason is unknown."""
    reasons: dict[bytes, str] = {}
    for plan in plans:
        for entry in plan.files:
            if entry.parked:
                reasons[key_of(plan.root, entry.path)] = entry.parked
    index = known.find(listing.keys[:, 0], listing.keys[:, 1])
    files = []
    for place in np.flatnonzero(index >= 0).tolist():
        row = known.rows[index[place]]
        if row["flags"] & PARKED:
            reason = reasons.get(listing.keys[place].tobytes(), "its reason is no longer kept")
            files.append(Parked(listing.paths[place], reason, int(row["size"]), int(row["modified"])))
    return tuple(files)
