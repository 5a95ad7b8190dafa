"""Logs of random records, with the snapshot after each record as plain dictionaries."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from msgspec import structs

from ftfile.log.format import layout
from ftfile.log.format.model import Add, Origin, Record, Remove, SourceRange, StreamAuthor
from ftfile.log.format.record import encode_record
from ftfile.testing.fs.memory import MemoryFileSystem

QUERY = "0f0f0f0f-1111-2222-3333-444444444444"
DIRECTORIES = ("", "a=1", "a=2/b=ü", "a=*")


@dataclass
class RandomLog:
    """Records, and the live files after each version; version -1 is the empty log.

    Args:
        seed: equal seeds make equal logs.
        versions: number of records.
    """

    seed: int
    versions: int
    records: list[Record] = field(default_factory=list)
    snapshots: dict[int, dict[str, Add]] = field(default_factory=lambda: {-1: {}})
    schemas: dict[int, str | None] = field(default_factory=lambda: {-1: None})

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        for version in range(self.versions):
            self._append(version)

    def storage(self, name: str, log_start: int = 0) -> MemoryFileSystem:
        """Return storage with the records from `log_start` on; the last record declares the earlier records deleted."""
        MemoryFileSystem.drop(name)
        fs = MemoryFileSystem(name)
        for directory in layout.DIRECTORIES:
            fs.make_directories(directory)
        for record in self.records[log_start:]:
            fs.create_exclusive(layout.record_path(record.version), encode_record(record).content)
        return fs

    def _append(self, version: int) -> None:
        live = self.snapshots[version - 1]
        adds = tuple(self._add(version, number) for number in range(self.random.choice((0, 1, 2, 5))))
        share = self.random.choice((0.0, 0.0, 0.3, 1.0))
        ended = [add for add in live.values() if self.random.random() < share]
        schema = f"s{self.random.randrange(3)}" if self.random.random() < 0.5 else None
        record = Record(
            version,
            f"n{version}",
            StreamAuthor("q", "r", version),
            0,
            adds=adds,
            removes=tuple(Remove.of(add) for add in ended),
            lineage_start=None if version else 0,
            schema=schema,
            definitions={f"e{version}": {"text": version}} | ({schema: schema} if schema else {}),
            previous_nonce=f"n{version - 1}" if version else "",
        )
        self.records.append(record)
        gone = {add.id for add in ended}
        left = {add_id: add for add_id, add in live.items() if add_id not in gone}
        self.snapshots[version] = left | {add.id: forgetting(add) for add in adds}
        self.schemas[version] = schema or self.schemas[version - 1]

    def _add(self, version: int, number: int) -> Add:
        draw = self.random
        add_id = f"{draw.getrandbits(128):032x}"
        segment = draw.random() < 0.3
        directory = f"{layout.STAGED}/q/{version}"
        directory = draw.choice(DIRECTORIES)
        name = draw.choice((f"part-{version}-{number}-{add_id[:12]}.json", f"{add_id}.x", f"odd//{version}*{number}"))
        return Add(
            id=add_id,
            kind="segment" if segment else "part",
            path=f"{directory}/0-0-{version}.spool" if segment else f"{directory}/{add_id}/{add_id}.staged",
            final_path=None if segment else f"{directory}/{name}",
            length=draw.randrange(10**6),
            logical_length=draw.randrange(10**6),
            checksum=f"crc32:{draw.getrandbits(32):08x}",
            rows=draw.randrange(1000),
            directory_key=directory,
            encoding=f"e{draw.randrange(version + 1)}",
            origin=Origin("q", draw.randrange(version + 1), version),
            offset=100 * number if segment else 0,
            filters=draw.choice(((), ("zstd",), ("zstd", "aead"))),
            ranges=() if segment else draw.choice(((), (SourceRange("x", "rows", 1, 2),))),
        )


def plain_record(version: int, files: int) -> Record:
    """Return a record of a batch as the sink writes it."""
    draw = random.Random(version)
    adds = []
    for number in range(files):
        add_id = f"{draw.getrandbits(128):032x}"
        path = f"{layout.staged_directory(QUERY)}/{number:05d}-0-{add_id}.staged"
        name = f"part-{version:010d}-{number:05d}-{add_id[:12]}.json"
        crc, origin = f"crc32:{draw.getrandbits(32):08x}", Origin(QUERY, version, version)
        adds.append(Add(add_id, "part", path, name, 1000, 1000, crc, 10, "", "e", origin))
    author = StreamAuthor(QUERY, "r", version)
    definitions = {"e": {"format": {"name": "json"}}, "s": "{}"} if version == 0 else {}
    start = 0 if version == 0 else None
    return Record(
        version,
        f"n{version}",
        author,
        0,
        adds=tuple(adds),
        lineage_start=start,
        schema="s",
        definitions=definitions,
        previous_nonce=f"n{version - 1}" if version else "",
    )


def forgetting(add: Add) -> Add:
    """Return the add as ranges have it: where its rows come from is left to its record."""
    return structs.replace(add, ranges=())
