"""Records as bytes: pure, bytes in and values out.

A record is text: a line of JSON with everything but the adds, removes and due jobs, a line with those (or, for
a large record, the name of the companion file that holds that line), and a line with the checksum of
all before it. See docs/internals/protocol.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ftfile.commit.format.model import (
    Add,
    Author,
    DueJob,
    Fingerprint,
    JobAuthor,
    MaintenanceAuthor,
    Origin,
    Record,
    Remove,
    SourceRange,
    StreamAuthor,
    Transaction,
)
from ftfile.core.checksum import checksum
from ftfile.core.errors import ConfigError, CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "IS_SEALED",
    "RECORD_FORMAT",
    "UNREADABLE",
    "Companion",
    "EncodedRecord",
    "add_from_json",
    "add_to_json",
    "decode_record",
    "due_from_json",
    "due_to_json",
    "encode_record",
    "fingerprint_from_json",
    "fingerprint_to_json",
    "from_checked_text",
    "remove_from_json",
    "remove_to_json",
    "to_checked_text",
)

RECORD_FORMAT = 1
# What comes of fields that are missing, or of another type than they have.
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
COMPANION_FROM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Companion:
    """The file beside a large record that holds its adds and removes."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A record's bytes, and its companion if it needs one."""

    content: bytes
    companion: Companion | None


def encode_record(record: Record, companion_path: str, companion_from: int = COMPANION_FROM_BYTES) -> EncodedRecord:
    """Encode; adds, removes and jobs of `companion_from` bytes or more go to the companion at `companion_path`."""
    changes = _compact(_changes_to_json(record))
    header = _header_to_json(record)
    if len(changes) < companion_from:
        return EncodedRecord(to_checked_text([_compact(header), changes]), None)
    content = changes + b"\n"
    header["companion"] = {"path": companion_path, "length": len(content), "checksum": checksum(content)}
    return EncodedRecord(to_checked_text([_compact(header)]), Companion(companion_path, content))


def decode_record(content: bytes, path: str, read_companion: Callable[[str], bytes]) -> Record:
    """Decode and check a record; `read_companion` is called at most once, with the companion's path.

    Raises:
        CorruptData: a checksum does not match, or the text is no record of a known format.
    """
    lines = from_checked_text(content, path)
    try:
        header = json.loads(lines[0])
        _check_format(header, path)
        companion = header.get("companion")
        if companion is not None:
            changes = _checked_companion(companion, read_companion(companion["path"]))
        else:
            changes = json.loads(lines[1])
        return _record_from_json(header, changes)
    except UNREADABLE as error:
        raise CorruptData(path, "a record of the log", f"unreadable fields ({error!r})", _ADVICE) from error


_ADVICE = "The log is damaged, not merely cut short: restore the file from a copy of the directory"

IS_SEALED = (
    "this directory is encrypted, and no keys are known: write to it with encryption and keyProvider as others do, and "
    "read it with keyProvider"
)


def to_checked_text(lines: list[bytes]) -> bytes:
    """Join lines and end them with the line of their checksum."""
    body = b"".join(line + b"\n" for line in lines)
    return body + checksum(body).encode() + b"\n"


def from_checked_text(content: bytes, path: str, advice: str = _ADVICE) -> list[bytes]:
    """Check the last line against all before it and return the lines before it.

    Raises:
        ConfigError: it ends in the MAC of an encrypted directory, and no keys are known here.
        CorruptData: the checksum line is missing or does not match.
    """
    body, _, last = content.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    found = checksum(body)
    if last.startswith(b"hmac-"):
        raise ConfigError(IS_SEALED)
    if not content.endswith(b"\n") or last.decode("ascii", "replace") != found:
        raise CorruptData(path, f"a text that ends in its checksum {found}", repr(last[-40:]), advice)
    return body.split(b"\n")[:-1]


def add_to_json(add: Add) -> dict[str, Any]:
    """Return an add as plain JSON; fields at their defaults are left out."""
    text: dict[str, Any] = {
        "id": add.id,
        "kind": add.kind,
        "path": add.path,
        "finalPath": add.final_path,
        "length": add.length,
        "logicalLength": add.logical_length,
        "checksum": add.checksum,
        "rows": add.rows,
        "bucket": add.bucket,
        "encoding": add.encoding,
        "origin": [add.origin.query_id, add.origin.first_batch, add.origin.last_batch],
    }
    if add.offset:
        text["offset"] = add.offset
    if add.filters:
        text["filters"] = list(add.filters)
    if add.ranges:
        text["ranges"] = [[r.add_id, r.unit, r.start, r.end] for r in add.ranges]
    if add.skip_rows:
        text["skipRows"] = add.skip_rows
    if add.marks:
        text["marks"] = add.marks
    return text


def add_from_json(text: dict[str, Any]) -> Add:
    """Return the add that `add_to_json` wrote."""
    return Add(
        id=text["id"],
        kind=text["kind"],
        path=text["path"],
        final_path=text["finalPath"],
        length=text["length"],
        logical_length=text["logicalLength"],
        checksum=text["checksum"],
        rows=text["rows"],
        bucket=text["bucket"],
        encoding=text["encoding"],
        origin=Origin(*text["origin"]),
        offset=text.get("offset", 0),
        filters=tuple(text.get("filters", ())),
        ranges=tuple(SourceRange(*r) for r in text.get("ranges", ())),
        skip_rows=text.get("skipRows", 0),
        marks=text.get("marks", {}),
    )


def remove_to_json(remove: Remove) -> list[Any]:
    """Return a remove as plain JSON."""
    if remove.kind == "segment":
        return [remove.id, remove.kind]
    return [remove.id, remove.kind, remove.final_path, remove.length, remove.checksum]


def remove_from_json(text: list[Any]) -> Remove:
    """Return the remove that `remove_to_json` wrote."""
    return Remove(*text)


def due_to_json(job: DueJob) -> list[Any]:
    """Return a due job as plain JSON."""
    return [job.id, [add_to_json(add) for add in job.inputs], job.reason, job.attempts, job.payload]


def due_from_json(text: list[Any]) -> DueJob:
    """Return the job that `due_to_json` wrote."""
    return DueJob(text[0], tuple(add_from_json(add) for add in text[1]), text[2], text[3], text[4])


def fingerprint_to_json(fingerprint: Fingerprint | None) -> list[Any] | None:
    """Return a fingerprint as plain JSON."""
    return [fingerprint.kind, fingerprint.digest, fingerprint.covers_content] if fingerprint else None


def fingerprint_from_json(text: list[Any] | None) -> Fingerprint | None:
    """Return the fingerprint that `fingerprint_to_json` wrote."""
    return Fingerprint(*text) if text else None


def _changes_to_json(record: Record) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "adds": [add_to_json(add) for add in record.adds],
        "removes": [remove_to_json(remove) for remove in record.removes],
    }
    if record.letters:
        changes["letters"] = [add_to_json(letter) for letter in record.letters]
    if record.due:
        changes["due"] = [due_to_json(job) for job in record.due]
    return changes


def _header_to_json(record: Record) -> dict[str, Any]:
    header: dict[str, Any] = {
        "ftfile": RECORD_FORMAT,
        "version": record.version,
        "nonce": record.nonce,
        "timeMs": record.time_ms,
        "author": _author_to_json(record.author),
        "tasks": record.tasks,
    }
    optional = {
        "after": record.after,
        "overwrite": record.overwrite or None,
        "lineageStart": record.lineage_start,
        "horizonMs": record.horizon_ms,
        "logStart": record.log_start,
        "schema": record.schema,
        "settings": record.settings,
        "encoding": record.encoding,
        "definitions": record.definitions or None,
        "fingerprint": fingerprint_to_json(record.fingerprint),
        "metrics": record.metrics or None,
        "memory": record.memory or None,
    }
    return header | {name: value for name, value in optional.items() if value is not None}


def _record_from_json(header: dict[str, Any], changes: dict[str, Any]) -> Record:
    return Record(
        version=header["version"],
        nonce=header["nonce"],
        author=_author_from_json(header["author"]),
        time_ms=header["timeMs"],
        adds=tuple(add_from_json(text) for text in changes["adds"]),
        removes=tuple(remove_from_json(text) for text in changes["removes"]),
        overwrite=header.get("overwrite", False),
        letters=tuple(add_from_json(text) for text in changes.get("letters", ())),
        due=tuple(due_from_json(text) for text in changes.get("due", ())),
        tasks=header["tasks"],
        after=header.get("after"),
        lineage_start=header.get("lineageStart"),
        horizon_ms=header.get("horizonMs"),
        log_start=header.get("logStart"),
        schema=header.get("schema"),
        settings=header.get("settings"),
        encoding=header.get("encoding"),
        definitions=header.get("definitions", {}),
        fingerprint=fingerprint_from_json(header.get("fingerprint")),
        metrics=header.get("metrics", {}),
        memory=header.get("memory", {}),
    )


def _author_to_json(author: Author) -> dict[str, Any]:
    if isinstance(author, StreamAuthor):
        text: dict[str, Any] = {
            "kind": "stream",
            "queryId": author.query_id,
            "runId": author.run_id,
            "batchId": author.batch_id,
        }
        if author.offsets_hash is not None:
            text |= {"offsetsHash": author.offsets_hash, "offsets": author.offsets}
        return text
    if isinstance(author, JobAuthor):
        text = {"kind": "job", "jobId": author.job_id}
        if author.transaction is not None:
            text |= {"txnAppId": author.transaction.app_id, "txnVersion": author.transaction.version}
        return text
    return {"kind": "maintenance", "operation": author.operation, "jobId": author.job_id}


def _author_from_json(text: dict[str, Any]) -> Author:
    if text["kind"] == "stream":
        return StreamAuthor(
            text["queryId"], text["runId"], text["batchId"], text.get("offsetsHash"), text.get("offsets")
        )
    if text["kind"] == "job":
        transaction = Transaction(text["txnAppId"], text["txnVersion"]) if "txnAppId" in text else None
        return JobAuthor(text["jobId"], transaction)
    if text["kind"] == "maintenance":
        return MaintenanceAuthor(text["operation"], text["jobId"])
    raise ValueError(f"unknown author {text['kind']!r}")


def _checked_companion(companion: dict[str, Any], content: bytes) -> dict[str, Any]:
    if len(content) != companion["length"] or checksum(content) != companion["checksum"]:
        raise CorruptData(
            companion["path"],
            f"{companion['length']} bytes with {companion['checksum']}",
            f"{len(content)} bytes with {checksum(content)}",
            _ADVICE,
        )
    changes: dict[str, Any] = json.loads(content)
    return changes


def _check_format(header: dict[str, Any], path: str) -> None:
    if header.get("ftfile") != RECORD_FORMAT:
        _refuse_format(header.get("ftfile"), path)


def _refuse_format(found: object, path: str) -> NoReturn:
    raise CorruptData(
        path, f"record format {RECORD_FORMAT}", f"format {found!r}", "A newer ftfile wrote it: read it with that one"
    )


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
