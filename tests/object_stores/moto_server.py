"""Moto's server of S3, which takes one request after the other.

By itself moto reads the content of an object, and computes its tag, at one position of one file; it looks whether a
name is free before it takes it; and it shows an object before it has metadata. So of two requests for one object at
once, one may see less than is there, or nothing, and two may both take one name.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ("serve",)


def serve(port: int) -> None:
    """Serve on the loopback address until the process is killed."""
    moto = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # Before its turn: it may come slowly.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        with turn:
            return [b"".join(moto(environ, start_response))]

    run_simple("127.0.0.1", port, answer, threaded=True, request_handler=MotoRequestHandler)
