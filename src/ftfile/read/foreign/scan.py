"""Makes the next plan from a listing and the known files."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftfile.core.codecs import codec_of
from ftfile.core.context import RetryPolicy
from ftfile.core.errors import CorruptData, FtfileError, NotFound, SourceError, StorageError
from ftfile.core.logs import get_logger
from ftfile.read.foreign.copies import Copies, Copy
from ftfile.read.foreign.draft import Draft, Found, next_of, next_of_copy, parked, seen_at
from ftfile.read.foreign.known import KEY_BYTES, ROW, KnownFile
from ftfile.read.foreign.listing import list_files
from ftfile.read.foreign.plan import Late, Refused
from ftfile.read.foreign.survey import Resolution, Survey, is_equal
from ftfile.storage.calls import THREADS_MAX, parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.core.context import Context
    from ftfile.read.foreign.known import KnownFiles
    from ftfile.read.foreign.listing import Listing
    from ftfile.read.foreign.plan import Plan
    from ftfile.read.foreign.settings import FilesSettings
    from ftfile.read.foreign.survey import Candidate, Start
    from ftfile.storage.api import FileSystem

    Look: TypeAlias = Callable[[FileSystem, FilesSettings, Start, float, int | None], Found]
    LookAgain: TypeAlias = Callable[[Start, int | None], tuple[Start, Found]]
    FoundCopies: TypeAlias = Mapping[int, Copy | FtfileError]


_log = get_logger(__name__)

_RETRY = RetryPolicy(attempts=None, delay_s=1.0, delay_s_max=900.0)
_REMEMBERED_MIN = 1000  # candidates whose state is kept, whether or not they still are candidates
_REFUSED_MAX = 100  # files that a plan names
_LISTING_SHARE = 5  # listing takes at most one part in this many of the time


class _Loss(NamedTuple):
    """Bytes that were never read of a file that is gone, or was cut off."""

    path: str  # empty if it is not known any more
    size_bytes: int


class _Failure(NamedTuple):
    """A file that could not be read when it was last tried."""

    file: Refused
    tries: int  # that failed, one after the other


class Scanner:
    """Finds what is new below a root, in one process; it remembers what would only cost another look."""

    def __init__(self, fs: FileSystem, settings: FilesSettings, context: Context) -> None:
        self._fs = fs
        self._settings = settings
        self._clock = context.clock
        self._listing: Listing | None = None
        self._before: Listing | None = None  # the listing before
        self._late_in: Listing | None = None  # the listing of which late files were reported
        self._first_s = math.inf  # when the first listing of this process began
        self._list_again_s = -math.inf
        self._is_fixed = False  # all plans are made of one listing
        self._planned_ms = 0  # when the newest plan was made
        self._has_more = False  # of the last listing, beyond the limits of a plan
        self._settled: dict[bytes, tuple[object, float]] = {}  # by key: a state, and until when there is nothing in it
        self._equal: dict[bytes, tuple[object, bool]] = {}  # by key: a state, and if the file goes on in it
        self._unlisted: dict[bytes, Listing | None] = {}  # by key: since when a file is gone; None: that was reported
        self._names: dict[bytes, str] = {}  # of files that were not read to their ends, by key
        self._failures: dict[bytes, _Failure] = {}  # by key
        self._refused_paths: frozenset[str] = frozenset()  # of files that were refused when the last plan was made
        self._cut_off: dict[bytes, str] = {}  # paths of files that the last listing shows cut off, by known keys
        self._unopened: set[int] = set()  # places of files of which it is not known where they begin
        self._errors: dict[int, StorageError] = {}  # of files that could not be opened, by their places
        self._report: dict[str, Any] = {}

    def list(self) -> Listing:
        """List all files, whatever the time is; see `list_files`."""
        began_s = self._clock.monotonic_s()
        self._first_s = min(self._first_s, began_s)
        listing = list_files(self._fs, self._settings, self._listing, began_s)
        now_s = self._clock.monotonic_s()
        self._list_again_s = now_s + max(self._settings.scan_interval_s, (_LISTING_SHARE - 1) * (now_s - began_s))
        self._before, self._listing, self._cut_off = self._listing, listing, {}
        return listing

    def plan(self, known: KnownFiles, listing: Listing | None = None, *, limited: bool = True) -> Plan | None:
        """Return the next plan; None if there is nothing new, or it is too early for another listing.

        It is made of a listing, by default the last one, or a new one each `scanInterval`; `known` is after the plan
        before.

        Raises:
            StorageError: a directory cannot be listed.
            SourceError: a file is gone that was not read to its end, and `failOnDataLoss=true`.
        """
        self._is_fixed, self._planned_ms = listing is not None, known.planned_ms
        listing = listing or self._current()
        if listing is None:
            return None
        survey = Survey(listing, known)
        is_start = not known.is_begun and self._settings.starting_offsets == "latest"
        draft = Draft(self._settings, is_limited=limited and not is_start)
        self._forget(survey)
        starts = self._starts(survey)
        left = self._fill(draft, survey, starts, seen_at if is_start else next_of)
        draft.add_unread(starts.values())
        is_undecided = self._is_undecided(survey, left)
        missing = () if is_undecided else self._missing_losses(survey, draft)
        self._check_losses((*self._cut_off_losses(starts.values()), *missing))
        refused = self._refused(listing, left)
        plan = draft.plan(survey, self._late(survey), refused[:_REFUSED_MAX], left, self._clock.now_ms())
        self._report = {
            "known": len(known),
            "parked": int(np.count_nonzero(known.rows["position"] < 0)),
            "refused": len(refused),
            "late": known.late,
            "filesBehind": len(left),
            "bytesBehind": draft.bytes_behind(survey, left),
            "oldestUnread": int(listing.times[left].min()) if len(left) else None,
        }
        has_new_refusals = self._log_refusals(refused)
        return plan if is_start or has_new_refusals or not plan.is_empty else None

    def report(self) -> dict[str, Any]:
        """Return counts of the last look: files known, parked, refused, late, and what is left to read behind its plan.

        Keys: `known`, `parked`, `refused`, `late`, `filesBehind`, `bytesBehind`, and `oldestUnread`, the time of the
        oldest file with unread bytes in ms since 1970 UTC, or None.
        """
        return dict(self._report)

    def _current(self) -> Listing | None:
        if self._clock.monotonic_s() >= self._list_again_s:
            return self.list()
        return self._listing if self._has_more else None

    def _starts(self, survey: Survey) -> dict[int, Start]:
        """Return where files begin that may be others than their paths say, by their places in the listing."""
        self._errors, self._unopened = {}, set()
        resolution = Resolution(survey, survey.suspects(), lambda pairs: parallel(self._fs, self._goes_on, pairs))
        starts = {start.candidate.place: start for start in resolution.starts()}
        for start in starts.values():
            if start.is_cut_off and (file := start.candidate.known) is not None:
                self._cut_off |= dict.fromkeys([file.key, file.replaced_key()], start.candidate.path)
        return starts

    def _fill(self, draft: Draft, survey: Survey, starts: dict[int, Start], look: Look) -> NDArray[np.intp]:
        """Fill a plan up to its limits, and return the places of files with something left to read."""
        self._has_more = False
        is_by_content = self._settings.identity == "content" and look is next_of
        copies = Copies(self._fs, survey, starts, self._cut_off) if is_by_content else None
        left: list[int] = []
        places = survey.places.tolist()
        threads = max(1, min(self._fs.capabilities.concurrency, THREADS_MAX))
        at = 0
        while at < len(places):
            if draft.is_full:
                self._has_more = True
                return np.array(left + places[at:], np.intp)
            # No more files are opened at a time than the plan may take.
            step = int(min(threads, draft.files_left))
            due = []
            for place in places[at : at + step]:
                start = starts.get(place) or survey.start(place)
                wait_s = self._wait_s(start.candidate)
                if place in self._unopened and place not in self._errors:
                    left.append(place)  # its time came after it was passed over: it is not known where it begins
                elif wait_s is None:
                    due.append(start)
                elif math.isfinite(wait_s):
                    left.append(place)
            call = partial(self._look, look, self._find_copies(copies, due))
            for start, found in parallel(self._fs, partial(call, bytes_max=draft.bytes_left), due):
                if not self._take(draft, start, found, call):
                    left.append(start.candidate.place)
            at += step
        return np.array(left, np.intp)

    def _find_copies(self, copies: Copies | None, starts: Sequence[Start]) -> FoundCopies:
        """Return files as copies of known ones, or why they cannot be read, by place; compressed ones once complete."""
        if copies is None:
            return {}
        asked = [start for start in starts if self._may_be_copy(start.candidate)]
        found = zip(asked, copies.find(asked), strict=True)
        return {start.candidate.place: copy for start, copy in found if copy is not None}

    def _may_be_copy(self, candidate: Candidate) -> bool:
        is_young = self._unchanged_s(candidate) < self._settings.min_age_s
        is_growing = is_young and self._fs.capabilities.visible_at != "at_close"
        is_whole = candidate.size_bytes >= 0 and not (is_growing and codec_of(candidate.path))
        return is_whole and candidate.place not in self._errors

    def _look(self, look: Look, copies: FoundCopies, start: Start, bytes_max: int | None) -> tuple[Start, Found]:
        """Return where a file begins, and its part of the plan; one that cannot be opened is tried again, for ever."""
        candidate = start.candidate
        copy = copies.get(candidate.place)
        error = copy if isinstance(copy, FtfileError) else self._errors.get(candidate.place)
        if isinstance(copy, Copy):
            start = copy.start
        if error is None:
            try:
                unchanged_s = self._unchanged_s(candidate)
                if isinstance(copy, Copy) and (copy.original is not None or copy.codec):
                    finding = next_of_copy(self._settings, copy, unchanged_s)
                else:
                    finding = look(self._fs, self._settings, start, unchanged_s, bytes_max)
            except (StorageError, CorruptData) as caught:
                error = caught
            else:
                self._failures.pop(candidate.key, None)
                return start, finding
        if isinstance(error, NotFound):
            return start, Found(wait_s=0)  # gone since it was listed
        file = Refused(candidate.path, str(error))
        before = self._failures.get(candidate.key)
        failure = self._failures[candidate.key] = _Failure(file, 1 + (before.tries if before is not None else 0))
        if isinstance(error, CorruptData) and failure.tries > self._settings.retries_max:
            return start, parked(self._settings, start, f"it cannot be read: {error}")
        return start, Found(wait_s=_RETRY.delay_after_s(failure.tries) or 0)

    def _refused(self, listing: Listing, places: NDArray[np.intp]) -> tuple[Refused, ...]:
        """Return the files that were refused more often than `maxRetries`; drop failures of files that are gone."""
        if not self._failures:
            return ()
        highs = np.frombuffer(b"".join(self._failures), "<u8")[::2]
        waiting = {listing.keys[place].tobytes() for place in places[np.isin(listing.keys[places, 0], highs)].tolist()}
        self._failures = {key: failure for key, failure in self._failures.items() if key in waiting}
        failures = self._failures.values()
        return tuple(failure.file for failure in failures if failure.tries > self._settings.retries_max)

    def _log_refusals(self, refused: Sequence[Refused]) -> bool:
        """Warn of files that are refused since the last plan, and return True if there are any."""
        new = [file for file in refused if file.path not in self._refused_paths]
        for file in new[:_REFUSED_MAX]:
            _log.warning("%r cannot be read, and is tried again, ever more seldom: %s", file.path, file.reason)
        self._refused_paths = frozenset(file.path for file in refused)
        return bool(new)

    def _take(self, draft: Draft, start: Start, found: Found, look_again: LookAgain) -> bool:
        """Put into the plan what was found, and return True if nothing more is left of the file."""
        candidate = start.candidate
        is_something = found.range is not None or found.seen is not None or bool(found.parked)
        if found.range is not None and draft.is_full:
            self._has_more = True
            return False
        if is_something and not draft.add(start, found):
            # Others took their share of the limit meanwhile.
            found = look_again(start, draft.bytes_left)[1]
            if found.range is None or not draft.add(start, found):
                self._has_more = True
                return False
        if found.warning:
            _log.warning("%r %s", candidate.path, found.warning)
        if found.parked:
            _log.warning("%r is left out until it changes: %s", candidate.path, found.parked)
        self._names.pop(candidate.key, None)
        if is_something:
            self._failures.pop(candidate.key, None)  # also of one that is parked
            self._settled.pop(candidate.key, None)
            if start.is_replaced and candidate.known is not None:
                self._names[candidate.known.replaced_key()] = candidate.path
        read = found.range
        if read is not None and not read.whole and not found.seen and read.end < candidate.size_bytes:
            self._names[candidate.key] = candidate.path
            self._has_more = True
            return False
        if not is_something:
            self._settled[candidate.key] = candidate.state, self._clock.monotonic_s() + found.wait_s
        return is_something or math.isinf(found.wait_s)

    def _wait_s(self, candidate: Candidate) -> float | None:
        """Return the seconds until another look at a file makes sense; None if one does now."""
        state, until_s = self._settled.get(candidate.key, (None, 0.0))
        wait_s = until_s - self._clock.monotonic_s()
        return wait_s if state == candidate.state and wait_s > 0 else None

    def _unchanged_s(self, candidate: Candidate) -> float:
        """Return the seconds for which a file has certainly not changed, as this process and the newest plan saw it.

        The time that the store gives a file may stand still while it is written, and the store's clock may be wrong. It
        counts only for a file of the first listing that is read whole, or that no other listing follows.
        """
        durations_s = [self._clock.monotonic_s() - candidate.since_s]
        if candidate.since_s <= self._first_s:
            now_ms = self._clock.now_ms()
            if candidate.known is not None and not candidate.is_changed:
                durations_s.append((now_ms - self._planned_ms) / 1000)
            is_whole = not self._settings.reads_lines(candidate.path)
            if (is_whole or self._is_fixed) and not candidate.has_stale_time:
                durations_s.append((now_ms - candidate.modified_ms) / 1000)
        return max(durations_s)

    def _goes_on(self, pair: tuple[Candidate, KnownFile]) -> bool | None:
        """Return True if a file goes on where a known one ended; None if it cannot be opened now."""
        candidate, known = pair
        marks = candidate.state, known
        told, equal = self._equal.get(candidate.key, (None, False))
        if told == marks:
            return equal
        if self._wait_s(candidate) is not None:
            self._unopened.add(candidate.place)
            return None
        try:
            equal = is_equal(self._fs, candidate, known)
        except StorageError as error:
            self._errors[candidate.place] = error
            self._unopened.add(candidate.place)
            return None
        self._equal[candidate.key] = marks, equal
        return equal

    def _is_undecided(self, survey: Survey, left: NDArray[np.intp]) -> bool:
        """Return True if a file that is gone may yet be found in one that waits, or cannot be opened now."""
        return bool(self._unopened) or (self._settings.identity == "content" and survey.has_new(left))

    def _cut_off_losses(self, starts: Iterable[Start]) -> Iterator[_Loss]:
        """Yield what was not read of files that were cut off; by their content, they may lie elsewhere."""
        for start in starts:
            file, path = start.candidate.known, start.candidate.path
            is_lost = start.is_cut_off and self._settings.identity == "native" and self._settings.reads_lines(path)
            if is_lost and file is not None and file.position < file.size_bytes and not file.is_parked:
                yield _Loss(path, file.size_bytes - file.position)

    def _missing_losses(self, survey: Survey, draft: Draft) -> Iterator[_Loss]:
        """Yield what was not read of files that are gone, once the next listing has not shown them either."""
        rows = survey.missing
        rows = rows[(rows["position"] >= 0) & (rows["position"] < rows["size"])]
        unlisted: dict[bytes, Listing | None] = {}
        moved = draft.moved
        data = rows.tobytes()
        for row in (data[at : at + ROW.itemsize] for at in range(0, len(data), ROW.itemsize)):
            key = row[:KEY_BYTES]
            if key in moved:
                continue
            since = unlisted[key] = self._unlisted.get(key, survey.listing)
            if since is not None and (self._is_fixed or since is not survey.listing):
                unlisted[key] = None
                file = KnownFile.unpacked(row)
                yield _Loss(self._names.get(key, ""), file.size_bytes - file.position)
        self._unlisted = unlisted

    def _check_losses(self, losses: Sequence[_Loss]) -> None:
        """Warn of losses, or raise, as the settings say."""
        if not losses:
            return
        size_bytes = sum(loss.size_bytes for loss in losses)
        path = next((loss.path for loss in losses if loss.path), "")
        such = f", such as {path!r}," if path else ""
        text = f"{len(losses)} files{such} are gone, or were cut off, with {size_bytes} bytes that were not read"
        if self._settings.fail_on_data_loss:
            raise SourceError(f"{text}. failOnDataLoss=false goes on without them")
        _log.warning("%s", text)

    def _forget(self, survey: Survey) -> None:
        """Drop what is remembered of files that are no candidates any more, now and then."""
        memories: tuple[dict[bytes, Any], ...]
        memories = self._settled, self._equal, self._names
        if max(len(memory) for memory in memories) > 2 * len(survey.places) + len(self._unlisted) + _REMEMBERED_MIN:
            keys = {survey.listing.keys[place].tobytes() for place in survey.places} | self._unlisted.keys()
            for memory in memories:
                for key in memory.keys() - keys:
                    del memory[key]

    def _late(self, survey: Survey) -> tuple[Late, ...]:
        """Return files that have appeared since the listing before, older than all that is remembered.

        A file that was there under another name has its identity, and one that was compressed since its time.
        """
        listing, before, places = survey.listing, self._before, survey.old
        if before is None or self._late_in is listing or not len(places):
            return ()
        self._late_in = listing
        is_renamed = (listing.hashes[places] != 0) & np.isin(listing.hashes[places], before.hashes)
        places = places[~is_renamed & ~np.isin(listing.keys[places, 0], before.keys[:, 0])]
        has_time = np.isin(listing.times[places], before.times)
        late = tuple(
            Late(listing.paths[place], int(listing.times[place]))
            for place, is_there in zip(places.tolist(), has_time.tolist(), strict=True)
            if not (is_there and codec_of(listing.paths[place]))
        )
        if late:
            _log.warning("%d files came too late and are not read (maxFileAge), such as %r", len(late), late[0].path)
        return late
