"""An emulator of Google Cloud Storage, for the client gcsfs."""

from __future__ import annotations

import contextlib
import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.object_stores.servers import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ("ENVIRONMENT", "GcsStorage", "fake_gcs", "what_is_missing")

SERVER = Path(__file__).parents[2] / ".servers" / "gcs" / "fake-gcs-server"
BUCKET = "bucket"
# Otherwise gcsfs connects to a server of Google by gRPC and TLS.
ENVIRONMENT = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


class GcsStorage(Storage):
    """The emulator over a temporary directory, with one bucket.

    Args:
        tls: files of its certificate and key for TLS; then it has no bucket.
    """

    def __init__(self, *tls: str) -> None:
        more = ("-cert-location", tls[0], "-private-key-location", tls[1]) if tls else ()
        scheme = "https" if tls else "http"
        where = ("-scheme", scheme, "-host", "127.0.0.1", "-port", "{port}", "-filesystem-root", "{data}")
        super().__init__(str(SERVER), *where, *more, "-log-level", "error", scheme=scheme)

    @property
    def url(self) -> str:
        """Return the root of its bucket."""
        return f"gs://{BUCKET}"

    def settings_at(self, endpoint: str) -> dict[str, str]:
        """Return the driver's settings for another address of the server."""
        return {"endpoint_url": endpoint, "token": "anon", "project": "project"}

    def environment_at(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - it is all the same
        """Return the environment variables that a process needs for these settings."""
        return ENVIRONMENT

    @property
    def credentials(self) -> tuple[str, ...]:
        """Return no credentials, because the emulator requires none."""
        return ()

    def start(self) -> None:
        """Start the server and wait until it responds."""
        super().start()
        if self._scheme == "http" and BUCKET not in {
            each["name"] for each in self.ask("GET", "b?project=project").get("items", ())
        }:
            self.ask("POST", "b?project=project", {"name": BUCKET})

    def names(self, directory: str) -> set[str]:
        """Return all names in a directory, read without the driver."""
        prefix = urllib.parse.quote(f"{directory}/", safe="")
        found, token = set(), ""
        while True:
            page = self.ask("GET", f"b/{BUCKET}/o?prefix={prefix}{token}")
            found |= {each["name"].removeprefix(f"{directory}/") for each in page.get("items", ())}
            if "nextPageToken" not in page:
                return found
            token = f"&pageToken={page['nextPageToken']}"

    def content(self, name: str) -> bytes:
        """Return the content of an object, read without the driver."""
        with self._send("GET", f"b/{BUCKET}/o/{urllib.parse.quote(name, safe='')}?alt=media") as answer:
            found: bytes = answer.read()
            return found

    def ask(self, verb: str, what: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request to its JSON interface and return the response."""
        with self._send(verb, what, body) as answer:
            return json.load(answer)

    def _send(self, verb: str, what: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        url = f"{self.endpoint}/storage/v1/{what}"
        return urllib.request.urlopen(urllib.request.Request(url, data, headers, method=verb), timeout=600)


def what_is_missing() -> str:
    """Return the reason why the emulator cannot run; empty if it can."""
    return "" if SERVER.exists() else "no emulator of GCS is built, and GCS is left out: .ci/gcs-server builds one"


@contextlib.contextmanager
def fake_gcs(*tls: str) -> Iterator[GcsStorage]:
    """Start the emulator; for the arguments see `GcsStorage`."""
    storage = GcsStorage(*tls)
    try:
        storage.start()
        yield storage
    finally:
        storage.remove()
