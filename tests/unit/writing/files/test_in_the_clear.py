"""What an encrypted directory shows to those without its keys, as the page on encryption lists it, and hides."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path

import ftfile
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.kv.stores import counting, rows
from tests.unit.writing.files.encrypted import files_of, out, ring

__all__ = ("out", "ring")

HIDDEN = "a-word-of-a-row"
TIME = datetime.datetime(2024, 7, 1, 12, 30, 1, tzinfo=datetime.timezone.utc)
COLUMNS = {"word": "string", "kind": "string", "at": "timestamp"}
PAGE = Path(__file__).parents[4] / "docs/encryption.md"


def stored(out: str) -> str:
    """Return all names and all bytes of a directory."""
    return "\n".join(f"{file}\n{file.read_bytes().decode('latin-1')}" for file in files_of(out))


def row(kind: str) -> dict[str, object]:
    return {"word": HIDDEN, "kind": kind, "at": TIME}


def test_a_directory_shows_what_the_page_lists_and_no_row(out: str, ring: Path) -> None:
    keys = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}", "fileFormat": "json", "partitionBy": "kind"}
    rolling = {"rolling": "policy", "eventTimeInterval": "at:1h", "finalizeColumn": "last"}
    query = MicroBatch(out, COLUMNS | {"last": "boolean"}, keys | rolling | {"userMetadata": "a-note-of-a-user"})
    query.run(0, [[row("a") | {"last": True}]])
    named = {"onNewQuery": "continue", "txnAppId": "an-application", "txnVersion": "7"}
    MicroBatch(out, COLUMNS, keys | named).run_batch_write("job", [[row("b")]])
    replaced = {"onNewQuery": "continue", "replaceWhere": "kind = 'c'"}
    MicroBatch(out, COLUMNS, keys | replaced, overwrite=True).run_batch_write("other", [[row("c")]])
    ftfile.drop(out, "kind = 'b'", key_provider=f"file:{ring}")
    text, page = stored(out), PAGE.read_text()
    hour_us = int(TIME.replace(minute=0, second=0).timestamp() * 1_000_000)
    event_us = int(TIME.timestamp() * 1_000_000)
    shown = {
        "userMetadata": "a-note-of-a-user",
        "txnAppId": "an-application",
        "replaceWhere": "kind = 'c'",
        "ftfile.drop": "kind = 'b'",
        "finalizeColumn": '"endsPart":true',
        "eventTimeInterval": f'"eventTimeUs":[{event_us},{event_us}],"windowUs":[{hour_us},{hour_us + 3_600_000_000}]',
        "segments of open files": '"logicalLengthBytes":',
    }
    for name, marker in shown.items():
        assert marker in text, name
        assert name in page
    assert HIDDEN not in text


def test_a_store_shows_what_the_page_lists_and_no_key(out: str, ring: Path) -> None:
    keys = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
    counting(out, **keys).run(0, [rows(HIDDEN)])
    text, page = stored(out), PAGE.read_text()
    for name, marker in {"keyColumns": '"keys":["k"]', "merge": '"merge":{"n":"sum"}'}.items():
        assert marker in text, name
        assert name in page
    assert HIDDEN not in text
    assert '"sealed":' in text
    assert base64.b64encode(HIDDEN.encode()).decode() not in text  # as the log has keys
