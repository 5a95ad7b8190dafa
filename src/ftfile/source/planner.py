"""Planning of the next batch from a listing and the known files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftfile.core.codecs import codec_of, filters_of_name
from ftfile.core.errors import CorruptData, NotFound, SourceError, StorageError
from ftfile.core.logs import get_logger
from ftfile.core.retries import RetryPolicy
from ftfile.source.copies import Contents, Originals, match_content
from ftfile.source.extend import CHANGED, Extension, PlanBuilder, extend, extend_unread, park
from ftfile.source.file_table import Table
from ftfile.source.known_rows import KEY_BYTES, KnownFile, has_unread, packed_rows
from ftfile.source.listing import list_files
from ftfile.source.listing_schedule import ListingSchedule
from ftfile.source.matching import IdentityRule, known_probes, match_known, match_unchanged
from ftfile.source.plan import Late, Refused
from ftfile.source.probes import ContentProbes, FileMemory
from ftfile.storage.calls import THREADS_MAX, parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.core.context import Context
    from ftfile.source.file_table import Row
    from ftfile.source.known_files import KnownFiles
    from ftfile.source.listing import Listing
    from ftfile.source.matching import Match
    from ftfile.source.plan import SourcePlan
    from ftfile.source.settings import SourceSettings
    from ftfile.storage.api import FileSystem

    Extend: TypeAlias = Callable[[FileSystem, SourceSettings, Match, float, int | None], Extension]


_log = get_logger(__name__)

_RETRY = RetryPolicy(attempts=None, delay_s=1.0, delay_s_max=900.0)
_REFUSED_MAX = 100  # maximum of files that a plan names


class _LossOfData(NamedTuple):
    """Bytes of a deleted or truncated file that were never read."""

    path: str  # empty if unknown
    size_bytes: int


class Planner:
    """Plans the next batch: lists the root and compares the listing with the known files. Caches probes between plans.

    Args:
        fs: the file system of the root.
        settings: the settings of the source.
        context: has the clock.
        wait_s: maximum wait for a change without new content, in seconds.
    """

    def __init__(self, fs: FileSystem, settings: SourceSettings, context: Context, wait_s: float = 0.0) -> None:
        self._fs = fs
        self._settings = settings
        self._clock = context.clock
        self._schedule = ListingSchedule(
            clock=context.clock,
            watch=fs.watch(),
            scan_interval_s=settings.scan_interval,
            idle_wait_s=wait_s,
        )
        self._listing: Listing | None = None
        self._before: Listing | None = None  # the previous listing
        self._late_in: Listing | None = None  # the listing whose late files were reported
        self._table: Table | None = None  # of the last plan
        self._planned_ms = 0  # time of the newest plan
        self._memories: dict[bytes, FileMemory] = {}  # by key
        self._listings = 0  # number of listings
        self._probes = ContentProbes(fs, self._memory)
        self._untried: set[bytes] | None = None  # keys of files that were parked before the first plan of this process
        self._mismatched: set[bytes] = set()  # keys of paths whose content differs from the known content
        self._refused_paths: frozenset[str] = frozenset()  # of the files that were refused in the last plan
        self._cut_off: dict[bytes, str] = {}  # paths of files that the last listing shows truncated, by known keys
        self._report: dict[str, Any] = {}

    def list(self) -> Listing:
        """List all files at once, without regard to the schedule; see `list_files`."""
        began_s = self._schedule.begin()
        listing = list_files(self._fs, self._settings, before=self._listing, now_s=began_s, watch=self._schedule.watch)
        self._schedule.end(began_s)
        self._before, self._listing, self._cut_off = self._listing, listing, {}
        for key, memory in list(self._memories.items()):
            if memory.used_in < self._listings:
                del self._memories[key]
        self._listings += 1
        return listing

    def plan(self, known: KnownFiles, listing: Listing | None = None, *, limited: bool = True) -> SourcePlan | None:
        """Return the next plan; None without new content, or if the next listing is not due yet.

        The plan is based on `listing`. By default, it is based on the last listing, or on a new listing if
        `scanInterval` is over or the storage reports a change. The call waits for a change for up to `wait_s` seconds.
        `known` must be the files known after the previous plan.

        Raises:
            StorageError: a directory cannot be listed.
            SourceError: a file with unread bytes was deleted or truncated, and `failOnDataLoss=true`.
        """
        self._schedule.is_fixed = listing is not None
        self._planned_ms = known.planned_ms
        listing = listing or self._current()
        if listing is None:
            return None
        mismatched, self._mismatched = self._mismatched, set()
        if self._untried is None:
            self._untried = known.parked_keys()
        self._table = table = Table(listing, known, mismatched=mismatched, untried=self._untried, before=self._table)
        is_start = not known.is_begun and self._settings.starting_offsets == "latest"
        builder = PlanBuilder(table, self._settings, is_limited=limited and not is_start)
        for key in mismatched & self._memories.keys():
            self._memories[key].begin(None)
        matches = self._match(table)
        decisions = dict(matches)
        self._fill(builder, decisions, extend_unread if is_start else extend)
        behind = np.array(builder.behind, np.intp)
        builder.add_unread(matches.values())
        for match in decisions.values():
            _log.debug("%r is %s: from byte %d", match.row.path, match.rule.value, match.position)
        is_undecided = self._is_undecided(table, decisions, behind)
        missing = self._missing_losses(table, builder, is_undecided=is_undecided)
        self._check_losses((*self._cut_off_losses(matches.values()), *missing))
        refused = self._list_refused(listing, behind)
        plan = builder.plan(self._list_late(table), refused[:_REFUSED_MAX], self._clock.now_ms())
        self._report = {
            "known": len(known),
            "parked": len(known.parked_keys()),
            "refused": len(refused),
            "late": known.late,
            "filesBehind": len(behind),
            "bytesBehind": builder.bytes_behind(),
            "oldestUnread": int(listing.times[behind].min()) if len(behind) else None,
        }
        has_new_refusals = self._log_refusals(refused)
        if is_start or has_new_refusals or not plan.is_empty:
            return plan
        return None

    def report(self) -> dict[str, Any]:
        """Return counts of the last plan: known, parked, refused and late files, and the unread content after it.

        Keys: `known`, `parked`, `refused`, `late`, `filesBehind`, `bytesBehind`, and `oldestUnread`, the time of the
        oldest file with unread bytes in ms since 1970 UTC, or None.
        """
        return dict(self._report)

    def _current(self) -> Listing | None:
        if self._schedule.is_due():
            return self.list()
        if self._schedule.has_more:
            return self._listing
        return None

    def _match(self, table: Table) -> dict[int, Match]:
        """Return the matches of files that may not be the known files at their paths, by place in the listing."""
        rows = table.suspects()
        known = table.known_by_identity(rows)
        answers = self._probes.answers_to(known_probes(rows, known), self._clock.monotonic_s())
        keeps_truncated = self._settings.file_identity == "content"
        matches = match_known(rows, known, answers, keeps_truncated=keeps_truncated)
        for match in matches.values():
            row = match.row
            if match.rule is IdentityRule.TRUNCATED and row.known is not None:
                self._cut_off |= dict.fromkeys([row.known.key, row.known.displaced_key()], row.path)
        return matches

    def _fill(self, builder: PlanBuilder, decisions: dict[int, Match], extend_file: Extend) -> None:
        """Fill a plan up to its limits.

        `decisions` contains the matches of `match_known` by place. The matches of all other examined files are added.
        """
        is_by_content = self._settings.file_identity == "content" and extend_file is extend
        originals = None
        if is_by_content:
            originals = Originals(builder.table, dict(decisions), self._cut_off)
        contents = Contents()
        places = builder.table.places.tolist()
        threads = max(1, min(self._fs.capabilities.concurrency, THREADS_MAX))
        while places:
            if builder.is_full:
                builder.has_more = True
                builder.behind += places
                break
            # Not more files are opened at once than the plan can accept.
            step = int(min(threads, builder.files_left))
            due = []
            for place in places[:step]:
                match = decisions.get(place) or match_unchanged(builder.table.row(place))
                wait_s = self._wait_s(match.row)
                if wait_s is None:
                    due.append(match)
                elif math.isfinite(wait_s):
                    builder.behind.append(place)
            del places[:step]
            if originals is not None:
                due = list(self._match_content(due, originals, contents))
            decisions |= {match.row.place: match for match in due}
            due = _without_changing(due, builder)
            calls = list(zip(due, builder.budgets(due), strict=True))
            extensions = parallel(self._fs, lambda call: self._extend(extend_file, *call), calls)
            for match, extension in zip(due, extensions, strict=True):
                self._take(builder, match, extension)
        self._schedule.has_more = builder.has_more
        self._mismatched |= contents.mismatched

    def _match_content(self, matches: Sequence[Match], originals: Originals, contents: Contents) -> Iterable[Match]:
        """Return matches in their order, changed for copies. Compressed files are compared when they are complete."""
        compared = []
        for match in matches:
            if originals.may_be_copy(match) and not self._is_growing(match.row):
                compared.append(match)
        decided = self._probes.run(match_content(compared, originals.starting, contents))
        by_place = {match.row.place: match for match in decided}
        return [by_place.get(match.row.place, match) for match in matches]

    def _is_growing(self, row: Row) -> bool:
        """Return True if a compressed or encrypted file may be incomplete."""
        is_young = self._unchanged_s(row) < self._settings.min_file_age
        return is_young and bool(filters_of_name(row.path)) and self._fs.capabilities.visible_at != "at_close"

    def _extend(self, extend_file: Extend, match: Match, bytes_max: int | None) -> Extension:
        """Return a file's part of the plan.

        Opening a file is retried without limit, at growing intervals. A damaged file is parked after `maxRetries`
        failures.
        """
        row, error, memory = match.row, match.error, self._memory(match.row)
        if error is None:
            try:
                extension = extend_file(self._fs, self._settings, match, self._unchanged_s(row), bytes_max)
            except (StorageError, CorruptData) as caught:
                error = caught
            else:
                memory.failures = 0
                if extension.is_mismatch:
                    self._mismatched.add(row.key)
                return extension
        if isinstance(error, NotFound):
            return CHANGED  # deleted since the listing
        memory.failures, memory.error = memory.failures + 1, str(error)
        if isinstance(error, CorruptData) and memory.failures > self._settings.max_retries:
            return park(self._settings, match, f"it cannot be read: {error}")
        return Extension(wait_s=_RETRY.delay_after_s(memory.failures) or 0)

    def _list_refused(self, listing: Listing, places: NDArray[np.intp]) -> tuple[Refused, ...]:
        """Return the files that failed more than `maxRetries` times. Reset the failures of files that do not wait."""
        failing = {key: memory for key, memory in self._memories.items() if memory.failures}
        if not failing:
            return ()
        highs = np.frombuffer(b"".join(failing), "<u8")[::2]
        waiting_places = places[np.isin(listing.keys[places, 0], highs)].tolist()
        waiting = {listing.keys[place].tobytes() for place in waiting_places}
        refused = []
        for key, memory in failing.items():
            if key not in waiting:
                memory.failures = 0
            elif memory.failures > self._settings.max_retries:
                refused.append(Refused(memory.path, memory.error))
        return tuple(refused)

    def _log_refusals(self, refused: Sequence[Refused]) -> bool:
        """Log a warning for each file that was not refused in the last plan, and return True if there are any."""
        new = [file for file in refused if file.path not in self._refused_paths]
        for file in new[:_REFUSED_MAX]:
            _log.warning("%r cannot be read, and is tried again at growing intervals: %s", file.path, file.reason)
        self._refused_paths = frozenset(file.path for file in refused)
        return bool(new)

    def _take(self, builder: PlanBuilder, match: Match, extension: Extension) -> None:
        """Add the parts of a file to the plan if they fit, and update the memory of the file."""
        row, entry = match.row, extension.entry
        is_parked = entry is not None and bool(entry.parked)
        if is_parked and row.known is not None and row.known.is_parked and not row.is_changed:
            extension = Extension()  # its parked state does not change
        if not builder.add(match, extension):
            return
        if extension.warning:
            _log.warning("%r %s", row.path, extension.warning)
        if entry is not None and is_parked:
            _log.warning("%r is skipped until it changes: %s", row.path, entry.parked)
        memory = self._memory(row)
        if extension.is_empty:
            memory.until_s = self._clock.monotonic_s() + extension.wait_s
            if math.isfinite(extension.wait_s):
                return
        memory.failures = 0  # also for a parked file
        if match.displaces and row.known is not None and not extension.is_empty:
            self._memories[row.known.displaced_key()] = FileMemory(path=row.path, used_in=self._listings)

    def _memory(self, row: Row) -> FileMemory:
        """Return the memory of a listed file, cleared if the file has another state."""
        memory = self._memories.setdefault(row.key, FileMemory())
        memory.begin(row.state)
        memory.path, memory.missing_since, memory.is_reported, memory.used_in = row.path, None, False, self._listings
        return memory

    def _wait_s(self, row: Row) -> float | None:
        """Return the seconds until the next probe of a file can have a new result; None if it can now."""
        wait_s = self._memory(row).until_s - self._clock.monotonic_s()
        if wait_s > 0:
            return wait_s
        return None

    def _unchanged_s(self, row: Row) -> float:
        """Return the seconds for which a file has certainly not changed, by this process and the newest plan.

        The modification time may stay the same while a file is written, and the storage's clock may be wrong. The time
        only counts for a file of the first listing that is read as a whole, or if no other listing follows.
        """
        durations_s = [self._clock.monotonic_s() - row.since_s]
        if self._schedule.is_first(row.since_s):
            now_ms = self._clock.now_ms()
            if row.known is not None and not row.is_changed:
                durations_s.append((now_ms - self._planned_ms) / 1000)
            is_whole = not self._settings.reads_lines(row.path)
            if (is_whole or self._schedule.is_fixed) and not row.has_stale_time:
                durations_s.append((now_ms - row.modified_ms) / 1000)
        return max(durations_s)

    def _is_undecided(self, table: Table, matches: Mapping[int, Match], behind: NDArray[np.intp]) -> bool:
        """Return True if a missing file may still be found: in a file that waits or that cannot be opened now."""
        is_undecided = any(match.rule is IdentityRule.UNDECIDED for match in matches.values())
        return is_undecided or (self._settings.file_identity == "content" and table.has_new(behind))

    def _cut_off_losses(self, matches: Iterable[Match]) -> Iterator[_LossOfData]:
        """Yield the unread bytes of truncated files. With `fileIdentity=content`, another file may contain them."""
        for match in matches:
            file, path = match.row.known, match.row.path
            is_lost = (
                match.rule is IdentityRule.TRUNCATED
                and self._settings.file_identity == "native"
                and self._settings.reads_lines(path)
            )
            if is_lost and file is not None and file.position < file.size_bytes and not file.is_parked:
                yield _LossOfData(path, file.size_bytes - file.position)

    def _missing_losses(self, table: Table, builder: PlanBuilder, *, is_undecided: bool) -> Sequence[_LossOfData]:
        """Return the losses of deleted files, after a second listing has confirmed that they are missing."""
        rows = table.missing
        losses, claimed = [], builder.claimed
        for row in packed_rows(rows[has_unread(rows)]):
            memory = self._memories.setdefault(row[:KEY_BYTES], FileMemory())
            memory.used_in = self._listings
            if is_undecided or row[:KEY_BYTES] in claimed:
                continue
            memory.missing_since = memory.missing_since or self._listings
            if not memory.is_reported and (self._schedule.is_fixed or memory.missing_since < self._listings):
                memory.is_reported = True
                file = KnownFile.unpack(row)
                losses.append(_LossOfData(memory.path, file.size_bytes - file.position))
        return losses

    def _check_losses(self, losses: Sequence[_LossOfData]) -> None:
        """Log a warning for losses, or raise, depending on `failOnDataLoss`."""
        if not losses:
            return
        size_bytes = sum(loss.size_bytes for loss in losses)
        path = next((loss.path for loss in losses if loss.path), "")
        such = f", such as {path!r}," if path else ""
        text = f"{len(losses)} files{such} were deleted or truncated, and {size_bytes} bytes of them were not read"
        if self._settings.fail_on_data_loss:
            raise SourceError(f"{text}. failOnDataLoss=false continues without them")
        _log.warning("%s", text)

    def _list_late(self, table: Table) -> tuple[Late, ...]:
        """Return files that appeared since the previous listing and are older than all tracked files.

        A renamed file has an identity of the previous listing, and a compressed file has a time of it. Neither is late.
        """
        listing, before, places = table.listing, self._before, table.old
        if before is None or self._late_in is listing or not len(places):
            return ()
        self._late_in = listing
        is_renamed = (listing.hashes[places] != 0) & np.isin(listing.hashes[places], before.hashes)
        places = places[~is_renamed & ~np.isin(listing.keys[places, 0], before.keys[:, 0])]
        has_time = np.isin(listing.times[places], before.times)
        late = []
        for place, is_there in zip(places.tolist(), has_time.tolist(), strict=True):
            path = listing.paths[place]
            if not (is_there and codec_of(path)):
                late.append(Late(path, int(listing.times[place])))
        if late:
            _log.warning("%d files arrived too late and are not read (maxFileAge), such as %r", len(late), late[0].path)
        return tuple(late)


def _without_changing(matches: Iterable[Match], builder: PlanBuilder) -> list[Match]:
    """Return the files that can be read. Files that only changed stay behind: the next listing can decide them."""
    steady = []
    for match in matches:
        if match.is_changing:
            builder.behind.append(match.row.place)
        else:
            steady.append(match)
    return steady
