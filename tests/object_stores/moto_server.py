"""Moto's S3 server, which handles one request at a time.

Moto itself reads an object's content and computes its tag with one file position. It checks that a name is free before
it takes the name, and it shows an object before the object has metadata. So of two concurrent requests for one object,
one may see a part of the data, or none, and both may take one name.
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
        # The body is read before the turn, because it may arrive slowly.
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        with turn:
            return [b"".join(moto(environ, start_response))]

    run_simple("127.0.0.1", port, answer, threaded=True, request_handler=MotoRequestHandler)
