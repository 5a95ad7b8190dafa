"""The steps of a history, drawn from a seed in advance, so that any of them can be left out."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.kit.rolling import EVENT_RULES, FINAL_RULES, RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.testing.fs.volume import Storage


# The frequency of each kind of step, relative to the sum of all.
KINDS: dict[str, int] = {
    "batch": 90,
    "empty_batch": 6,
    "troubled_batch": 8,
    "forgotten_batch": 5,
    "late_batch": 4,
    "replay": 4,
    "zombie": 4,
    "restart": 6,
    "reconfigure": 2,
    "write": 4,
    "write_named": 4,
    "write_blocked": 2,
    "transaction": 4,
    "overwrite": 1,
    "change_settings": 2,
    "changed_repetition": 2,
    "stand_still": 3,
    "drop": 4,
    "drop_all": 1,
    "delete": 3,
    "compact": 4,
    "sort": 4,
    "read": 6,
    "read_old": 3,
    "flush": 8,
    "vacuum": 4,
    "vacuum_ahead": 1,
    "set_back": 2,
    "shift_clock": 3,
    "wait": 14,
    "publish_fails": 3,
    "storage_fails": 4,
    "take_part": 4,
    "put_foreign": 3,
    "remove_directory": 2,
    "remove_retired": 1,
    "remove_hints": 2,
    "remove_ranges": 1,
    "old_hint": 2,
    "wrong_hint": 2,
    "lose_record": 1,
    "damage_segment": 2,
    "damage_part": 1,
    "delete_spool": 1,
    "damage_range": 1,
    "replace": 3,
    "restore": 3,
    "undo": 2,
    "expire": 2,
    "inspect": 5,
    "repair": 2,
    "export": 3,
    "load": 10,
    "follow": 10,
    "tend_store": 3,
    "program_batch": 20,
    "program_restart": 3,
    "program_zombie": 5,
    "program_interrupted": 15,
    "program_forks": 3,
    "program_write": 4,
}
# Steps of `ftfile.writer` and `ftfile.write`.
OF_PROGRAMS = (
    "program_batch",
    "program_restart",
    "program_zombie",
    "program_interrupted",
    "program_forks",
    "program_write",
)
# Steps after which a person must act or rows are lost.
HARM = (
    "write_blocked",
    "take_part",
    "put_foreign",
    "remove_directory",
    "damage_segment",
    "damage_part",
    "delete_spool",
)
# The frequency of each kind of event, relative to the sum of all.
EVENTS: dict[str, int] = {
    "kill": 4,
    "power cut": 6,
    "fault": 4,
    "lost answer": 4,
    "interrupt": 4,
    "fork": 1,
    "second thread": 2,
    "other process": 4,
    "late process": 2,
    "twin": 3,
    "clock step": 2,
    "newer version": 2,
}
# Steps that an event can happen to. The other ones have events of their own, or call nothing of the product.
_EVENTFUL = (
    "batch",
    "empty_batch",
    "troubled_batch",
    "forgotten_batch",
    "late_batch",
    "replay",
    "write",
    "write_named",
    "transaction",
    "overwrite",
    "change_settings",
    "drop",
    "drop_all",
    "delete",
    "compact",
    "sort",
    "read",
    "read_old",
    "flush",
    "vacuum",
    "replace",
    "restore",
    "undo",
    "expire",
    "inspect",
    "repair",
    "export",
    "load",
    "follow",
    "tend_store",
    "program_batch",
    "program_restart",
    "program_write",
)
# No job has the identity of another one, and no process has the writer of another one.
_NO_TWINS = {
    "write",
    "write_named",
    "overwrite",
    "replace",
    "undo",
    "change_settings",
    "load",
    "follow",
    "tend_store",
    "program_batch",
    "program_restart",
}
# `program_interrupted` interrupts them, and reacts.
_NOT_INTERRUPTED = {"program_batch", "program_restart"}
_EVENTS_PER_STEP = 0.3
STORAGE_KINDS: tuple[Storage | None, ...] = (None, None, "disk", "hdfs", "webhdfs", "s3")

KEYS = "env:FTFILE_KEYS_OF_HISTORIES"
# By the shape of the rows. Files of the formats of `_BLOCKS` consist of compressed blocks.
_FORMATS = {
    "text": ("text", "text", "csv"),
    "json": ("json", "json", "parquet", "avro"),
    "event": ("json", "parquet"),
    "final": ("text",),
}
_BLOCKS = {"parquet", "avro"}
_HOOK = {"onPublish": "tests.histories.hook:hear"}
_MORE: tuple[dict[str, str], ...] = ({}, {}, {}, {"partPrefix": "p" * 150}, {"partFileName": "{name}-{number}{ext}"})


@dataclass(frozen=True, slots=True)
class Event:
    """What happens during the first call of the product in a step."""

    kind: str  # key of `EVENTS`
    call: int  # the call of the storage at which it happens, from 1
    draws: tuple[int, ...]  # below 2**30


@dataclass(frozen=True, slots=True)
class Step:
    """One action. `draws` select its objects, even if earlier steps were left out."""

    kind: str  # key of `KINDS`
    query: int  # modulo the number of queries
    draws: tuple[int, ...]  # below 2**30
    event: Event | None = None

    def pick(self, place: int, among: int) -> int:
        """Return the choice at a place as a number below `among`."""
        return self.draws[place] % among


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The options of a query, and the options of its other starts."""

    options: Mapping[str, str]
    other_options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class History:
    """A history and its environment."""

    seed: int  # equal seeds create equal histories
    storage: Storage | None  # the model of the disk; None for plain memory
    columns: Mapping[str, Any]
    format_options: Mapping[str, str]  # of all writers
    queries: tuple[QueryPlan, ...]
    directories: int  # number of directories that rows are written to
    rows_max: int  # per task of a batch
    small_limits: bool  # set small limits in the product, so that a short history exceeds them
    threads: int  # of the program that writes by `ftfile.writer`
    program_options: Mapping[str, str]  # of this program, besides the options of all writers
    steps: tuple[Step, ...]

    def with_steps(self, steps: tuple[Step, ...]) -> History:
        """Return the same environment with other steps."""
        return replace(self, steps=steps)

    def __str__(self) -> str:
        world = f"storage {self.storage or 'memory'}, {self.directories} directories, small limits {self.small_limits}"
        queries = "\n".join(f"query {number}: {plan}" for number, plan in enumerate(self.queries))
        steps = "\n".join(f"  {step.kind} of query {step.query} {step.draws}" for step in self.steps)
        return f"{world}, {dict(self.format_options)}\n{queries}\n{steps}"


def draw_history(
    seed: int, steps: int = 200, *, without: tuple[str, ...] = (), events: float = _EVENTS_PER_STEP
) -> History:
    """Return the history of a seed, without some kinds of steps, and with this share of steps with an event.

    Its first steps do not depend on `steps`.
    """
    draw = random.Random(seed)
    shape = draw.choice(("text", "text", "json", "json", "event", "final"))
    columns: dict[str, Any] = {"m": "string", "value": "string"}
    columns |= {"t": "timestamp"} if shape == "event" else {}
    columns |= {"last": "boolean"} if shape == "final" else {}
    options = {"fileFormat": draw.choice(_FORMATS[shape]), "partitionBy": "m"}
    compression, statistics = draw.choice(("none", "none", "none", "gzip")), draw.choice(("auto", "auto", "none"))
    if options["fileFormat"] not in _BLOCKS:
        options["compression"] = compression
    if options["fileFormat"] == "csv":
        options["nullValue"] = "\\N"
    options["statisticsColumns"] = statistics
    if draw.random() < 0.15:
        options |= {"encryption": "aes-gcm", "keyProvider": KEYS}
    options["onNewQuery"] = "continue"
    rules = RULES + {"event": EVENT_RULES * 3, "final": FINAL_RULES * 6}.get(shape, ())
    if shape == "final":
        rules = FINAL_RULES
    queries = tuple(_draw_query(draw, rules) for _ in range(draw.choice((1, 1, 2, 3))))
    wide = draw.random() < 0.15
    harm = draw.choice((0.0, 0.3, 1.0))
    world = History(
        seed=seed,
        storage=draw.choice(STORAGE_KINDS),
        columns=columns,
        format_options=options,
        queries=queries,
        directories=draw.choice((10, 20)) if wide else draw.choice((1, 2, 3, 5)),
        rows_max=draw.choice((2, 4, 4, 12)),
        small_limits=draw.random() < 0.6,
        threads=draw.choice((1, 2, 3)),
        program_options=draw.choice((draw.choice(rules), _draw_limit(draw, rules))) | draw.choice(({}, _HOOK)),
        steps=(),
    )
    weights = {kind: weight * (harm if kind in HARM else 1) for kind, weight in KINDS.items() if kind not in without}
    return world.with_steps(tuple(_draw_step(draw, weights, events) for _ in range(steps)))


def draw_program_history(seed: int, steps: int = 60) -> History:
    """Return a history of one program whose threads assemble files, and leave rests in spools of earlier batches."""
    kinds = (*OF_PROGRAMS, "compact", "flush", "storage_fails", "vacuum", "wait")
    history = draw_history(seed, steps, without=tuple(KINDS.keys() - set(kinds)))
    draw = random.Random(f"program {seed}")
    options = {"rolling": "policy", "maxRecordsPerFile": draw.choice(("2", "3", "5"))} | draw.choice(({}, _HOOK))
    if "last" in history.columns:
        options |= {"finalizeColumn": "last"}
    return replace(history, small_limits=True, rows_max=12, threads=draw.choice((2, 3)), program_options=options)


def _draw_limit(draw: random.Random, rules: tuple[dict[str, str], ...]) -> dict[str, str]:
    """Return the options of files that end within a batch: the rest of a batch stays open in its spool."""
    options = {"rolling": "policy"} | draw.choice(({"maxRecordsPerFile": "2"}, {"maxBytesPerFile": "50"}))
    if rules is FINAL_RULES:
        options |= {"finalizeColumn": "last"}
    return options


def _draw_query(draw: random.Random, rules: tuple[dict[str, str], ...]) -> QueryPlan:
    more = draw.choice(_MORE) | draw.choice(({}, _HOOK))
    return QueryPlan(draw.choice(rules) | more, draw.choice(rules) | more)


def _draw_step(draw: random.Random, weights: Mapping[str, float], events: float) -> Step:
    kind = draw.choices(list(weights), list(weights.values()))[0]
    step = Step(kind, draw.randrange(1 << 10), tuple(draw.getrandbits(30) for _ in range(6)))
    event = _draw_event(draw, kind, events)
    return replace(step, event=event) if kind in _EVENTFUL else step


def _draw_event(draw: random.Random, kind: str, share: float) -> Event | None:
    """Return the event of a step, or None. The number of draws is always the same."""
    has_event = draw.random() < share
    what = draw.choices(list(EVENTS), list(EVENTS.values()))[0]
    call = 1 + draw.randrange(draw.choice((4, 12, 40, 150)))
    draws = tuple(draw.getrandbits(30) for _ in range(6))
    is_possible = not (what == "twin" and kind in _NO_TWINS) and not (what == "interrupt" and kind in _NOT_INTERRUPTED)
    return Event(what, call, draws) if has_event and is_possible else None
