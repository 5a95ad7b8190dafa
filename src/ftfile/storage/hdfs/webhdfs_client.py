"""The requests of WebHDFS to the active NameNode.

A change whose response was lost is never sent to another NameNode.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import urllib.parse
from typing import TYPE_CHECKING, Any

import requests
import urllib3.exceptions
from hdfs.util import HdfsError

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, OutcomeUnknown, StorageError, Unavailable
from ftfile.core.logs import redact
from ftfile.storage.api import READING
from ftfile.storage.calls import DATA_BYTES, NoThreadError, limit_s, run_within
from ftfile.storage.connections import CancellableConnection, cancellable_pools, limit_first_word
from ftfile.storage.hdfs.java_errors import IPC_PORT, error_of_expired, no_ticket, remote_error
from ftfile.storage.hdfs.web_security import NoTicketError, check_tls, kerberos_auth
from ftfile.storage.hdfs.webhdfs_files import UNAUTHORISED, Upload, connect_timeout_s, refusal
from ftfile.storage.hdfs.webhdfs_nodes import UNHEARD_MAX, SilentNodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.hdfs.credentials.keytab import Login
    from ftfile.storage.hdfs.webhdfs_nodes import WebNodes


# The timeout of a short request that tests if a server answers.
PULSE_S = 2.0
CONNECTIONS = 32
PIECE_BYTES = 64 << 10
_PREFIX = "/webhdfs/v1"
_HEADERS = {"content-type": "application/octet-stream"}  # HttpFS requires this type
_NOT_ACTIVE = frozenset({"RetriableException", "StandbyException"})


class _ReplyLost(Exception):
    """A change was sent, and its outcome is unknown."""


class _ShortError(requests.RequestException):
    """Fewer bytes arrived than were announced."""


class _HeldUpError(requests.RequestException):
    """A connection to a DataNode that waits for a silent NameNode was abandoned; other connections can succeed."""


class _Session(requests.Session):
    """Moves the client to the next NameNode only if a request cannot have had an effect; see mtth/hdfs#142.

    Answers arrive complete and in time, or not at all. Raises `ConnectTimeout` for a request that was never sent.
    """

    def __init__(self, timeout_s: float, nodes: WebNodes) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self._nodes = nodes

    def request(self, method: str, url: str, **more: Any) -> requests.Response:  # type: ignore[override] # noqa: ANN401
        node = self._nodes.node_of(url)
        try:
            response = self._read_whole(
                functools.partial(super().request, method, url, **{**more, "stream": True}), node
            )
        except requests.RequestException as error:
            if error.request is None:
                asked_url = url
            else:
                asked_url = str(error.request.url)
            check_tls(asked_url, error)
            # The text and the cause of this error contain the URL with the token.
            text = redact(str(error))
            asked = self._nodes.node_of(asked_url)
            if not asked:
                if isinstance(error, requests.Timeout) and (first_word_s := self._nodes.first_word_s()):
                    self._nodes.note_unheard()
                    place = urllib.parse.urlsplit(asked_url).netloc
                    raise _HeldUpError(
                        f"DataNode {place} does not respond: no data within {first_word_s:.1f} s"
                    ) from None
                # Another NameNode does not know a better DataNode.
                raise (_ShortError if isinstance(error, _ShortError) else requests.RequestException)(text) from None
            self._nodes.note_silence(asked)
            was_never_sent = _was_never_sent(error)
            if method != "GET" and not was_never_sent and not isinstance(error, requests.Timeout):
                self._check_http(asked)
            # The NameNode creates nothing: it redirects to a DataNode.
            if was_never_sent or more.get("params", {}).get("op") == "CREATE":
                raise requests.ConnectTimeout(text) from None
            if method == "GET":
                raise type(error)(text) from None
            raise _ReplyLost(text) from None
        if response.ok:
            self._nodes.note_answer(node)
        if response.history:
            self._nodes.note_heard(response.elapsed.total_seconds())
        return response

    def get_redirect_target(self, response: requests.Response) -> str | None:
        """Return the target of a redirect."""
        place = super().get_redirect_target(response)
        if place and (first_word_s := self._nodes.first_word_s()):
            limit_first_word(first_word_s)
        if not place:
            return None
        url = str(response.url)
        try:
            return self._nodes.direct(self._nodes.node_of(url), urllib.parse.urljoin(url, place))
        except ConfigError:
            response.close()
            raise

    def check_answers(self, node: str) -> None:
        """Return if a NameNode answers; see `WebNodes.check_answers`."""
        self._nodes.check_answers(node, self._is_active)

    def _is_active(self, node: str) -> bool:
        """Return True if a NameNode answers as the active one."""
        answer = self._answer(node)
        return answer is not None and answer.ok

    def _check_http(self, node: str) -> None:
        """Raise `HdfsError` if a server that closed the connection is for hdfs://, as its answer to a GET shows."""
        answer = self._answer(node)
        if answer is not None and IPC_PORT in answer.text:
            raise refusal("the NameNode", answer.status_code, answer.content)

    def _answer(self, node: str) -> requests.Response | None:
        """Return the answer of a NameNode to a short request; None if it does not answer in time."""
        more: dict[str, Any] = {"timeout": PULSE_S, "headers": {"Connection": "close"}}
        ask = functools.partial(super().request, "GET", f"{node}/webhdfs/v1/?op=GETFILESTATUS", **more)
        line = CancellableConnection(PULSE_S)
        try:
            return run_within(PULSE_S, functools.partial(line.carry, ask), cut=line.cut)
        except (requests.RequestException, OSError):
            return None

    def _read_whole(self, send: Callable[[], requests.Response], node: str) -> requests.Response:
        """Return a complete answer, or raise `RequestException`."""
        line = CancellableConnection(self._timeout_s)
        carry = functools.partial(line.carry, send)
        look = functools.partial(self.check_answers, node)
        try:
            response = run_within(self._timeout_s, carry, forget=requests.Response.close, cut=line.cut, look=look)
        except SilentNodeError as error:
            raise (requests.ConnectTimeout if line.socket is None else requests.ReadTimeout)(str(error)) from error
        except NoThreadError as error:
            raise requests.ConnectTimeout(str(error)) from error
        except TimeoutError as error:
            raise requests.ReadTimeout(str(error)) from error
        promised = response.headers.get("Content-Length")
        try:
            content = self._content(response, line, promised)
        except requests.RequestException as error:
            error.request = response.request
            raise
        except TimeoutError as error:
            raise requests.ReadTimeout(str(error), request=response.request) from error
        except NoThreadError as error:
            raise requests.ConnectionError(str(error), request=response.request) from error
        # urllib3 before 2 does not check the length: urllib3/urllib3#2514.
        if promised is not None and "Content-Encoding" not in response.headers and len(content) != int(promised):
            raise _ShortError(f"{len(content)} of {promised} bytes were received", request=response.request)
        return response

    def _content(self, response: requests.Response, line: CancellableConnection, promised: str | None) -> bytes:
        if promised is not None:

            def read_content() -> bytes:
                return response.content

            return run_within(limit_s(self._timeout_s, int(promised)), read_content, cut=line.cut)
        # Each portion of this number of bytes has a separate timeout.
        pieces, content = response.iter_content(PIECE_BYTES), bytearray()
        read_portion = functools.partial(_join, pieces, DATA_BYTES)
        while more := run_within(limit_s(self._timeout_s, DATA_BYTES), read_portion, cut=line.cut):
            content += more
        response._content = bytes(content)  # noqa: SLF001 - what it says from now on
        return response.content


def _join(pieces: Iterator[bytes], size_bytes: int) -> bytes:
    """Return this number of bytes, or slightly more; fewer at the end."""
    joined = bytearray()
    while len(joined) < size_bytes and (piece := next(pieces, b"")):
        joined += piece
    return bytes(joined)


def _was_never_sent(error: requests.RequestException) -> bool:
    if isinstance(error, requests.ConnectTimeout):
        return True
    cause = error.args[0] if error.args else None
    reason = getattr(cause, "reason", None)
    return isinstance(reason, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)


class WebClient:
    """The requests of WebHDFS that the driver needs, each one call of the server.

    Raises `HdfsError` if a server refuses a request, and the errors of the session.
    """

    def __init__(self, nodes: WebNodes, session: _Session, timeout_s: float) -> None:
        self.nodes = nodes
        self._session = session
        # A connection that cannot be established fails before the timeout of the request.
        self._limits_s = connect_timeout_s(timeout_s), timeout_s

    def use_token(self, token: str) -> None:
        """Send a token with all later requests."""
        self._session.auth = None
        self._session.params = {"delegation": token}

    def _ask(self, method: str, operation: str, path: str, **parameters: str | int) -> requests.Response:
        """Return the answer of the active NameNode; a NameNode that is not active or not reachable is skipped."""
        failure: Exception = HdfsError("no NameNode is available")
        for node in self.nodes.in_order():
            try:
                response = self._session.request(
                    method,
                    f"{node}{_PREFIX}{urllib.parse.quote(path, '/=')}",
                    params={"op": operation, **parameters},
                    headers=_HEADERS,
                    timeout=self._limits_s,
                    allow_redirects=operation != "CREATE",
                )
            except (requests.ReadTimeout, requests.ConnectionError) as error:
                failure = error
            else:
                if response.ok:
                    return response
                refused = refusal("the NameNode", response.status_code, response.content)
                if refused.exception not in _NOT_ACTIVE:
                    raise refused
                failure = refused
            self.nodes.pass_over(node)
        raise failure

    def _fetch(self, operation: str, path: str, **parameters: str | int) -> requests.Response:
        """Return the answer of a DataNode; if one connection is held up, another one is opened at once."""
        for _ in range(UNHEARD_MAX):
            with contextlib.suppress(_HeldUpError):
                return self._ask("GET", operation, path, **parameters)
        return self._ask("GET", operation, path, **parameters)

    def status(self, path: str) -> dict[str, Any]:
        """Return the `FileStatus`."""
        status_json: dict[str, Any] = self._ask("GET", "GETFILESTATUS", path).json()["FileStatus"]
        return status_json

    def has(self, path: str) -> bool:
        """Return True if the path exists."""
        try:
            self.status(path)
        except HdfsError as error:
            if error.exception == "FileNotFoundException":
                return False
            raise
        return True

    def children(self, path: str) -> list[dict[str, Any]]:
        """Return the `FileStatus` of each child; for a file, one with an empty `pathSuffix`."""
        entries: list[dict[str, Any]] = self._ask("GET", "LISTSTATUS", path).json()["FileStatuses"]["FileStatus"]
        return entries

    def checksum(self, path: str) -> dict[str, Any]:
        """Return the `FileChecksum`, which a DataNode computes."""
        checksum_json: dict[str, Any] = self._fetch("GETFILECHECKSUM", path).json()["FileChecksum"]
        return checksum_json

    def make_directories(self, path: str, mode: int) -> bool:
        """Return the response."""
        return _boolean(self._ask("PUT", "MKDIRS", path, permission=f"{mode:o}"))

    def remove(self, path: str) -> bool:
        """Delete a file or an empty directory; return True if it existed."""
        return _boolean(self._ask("DELETE", "DELETE", path, recursive="false"))

    def move(self, source: str, target: str) -> bool:
        """Rename without overwriting; older servers only support the rename that answers false for every failure."""
        return _boolean(self._ask("PUT", "RENAME", source, destination=target, renameoptions="NONE"))

    def content(self, path: str, offset: int, length: int | None, bytes_max: int | None = None) -> bytes:
        """Return the bytes of a file from `offset`: `length` existing ones, or all, but at most `bytes_max` + 1."""
        length_max = length
        if bytes_max is not None:
            length_max = bytes_max + 1
        if length_max is None:
            more = {}
        else:
            more = {"length": length_max}
        data: bytes = self._fetch("OPEN", path, offset=offset, **more).content
        if length is not None and len(data) != length:
            raise _ShortError(f"{len(data)} bytes were received from position {offset} instead of {length}")
        return data

    def upload(self, path: str, parameters: dict[str, str], timeout_s: float, first_word_s: float) -> Upload:
        """Start to send the content of a new file to the DataNode that the NameNode names; see `Upload`."""
        response = self._ask("PUT", "CREATE", path, createparent="false", **parameters)
        place = response.headers.get("Location")
        if place is None:
            raise HdfsError(f"the NameNode returned no DataNode, but status {response.status_code}")
        url = str(response.url)
        node = self.nodes.node_of(url)
        look = functools.partial(self._session.check_answers, node)
        place_url = urllib.parse.urljoin(url, str(place))
        began_s = SYSTEM.clock.monotonic_s()
        try:
            upload = Upload(self.nodes.direct(node, place_url), timeout_s, look, first_word_s)
        except requests.ConnectTimeout:
            self.nodes.note_unheard()
            raise
        if first_word_s:
            self.nodes.note_heard(SYSTEM.clock.monotonic_s() - began_s)
        return upload


def connect(
    nodes: WebNodes, timeout_s: float, user: str | None, token: str | None, *, kerberos: bool, login: Login | None
) -> WebClient:
    """Return a client of NameNodes, or raise `ConfigError` if the package for Kerberos is missing.

    A token or the ticket of Kerberos names the user; otherwise, `user` does.
    """
    session = _Session(timeout_s, nodes)
    for scheme in ("http://", "https://"):
        adapter = requests.adapters.HTTPAdapter(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS)
        adapter.poolmanager.pool_classes_by_scheme = cancellable_pools(adapter.poolmanager.pool_classes_by_scheme)
        session.mount(scheme, adapter)
    if token is not None:
        session.params = {"delegation": token}
    elif kerberos:
        session.auth = kerberos_auth(login)
    else:
        session.params = {"user.name": user}
    return WebClient(nodes, session, timeout_s)


_ERRORS = (
    HdfsError,
    requests.RequestException,
    _ReplyLost,
    SilentNodeError,
    NoTicketError,
    OSError,
    http.client.HTTPException,
)


@contextlib.contextmanager
def web_errors(operation: str, path: str, where: str) -> Iterator[None]:
    """Translate errors of the servers and the network within the block."""
    try:
        yield
    except _ERRORS as error:
        raise _translate_error(operation, path, where, error) from error


def _translate_error(operation: str, path: str, where: str, error: Exception) -> StorageError:
    if isinstance(error, NoTicketError):
        refused = no_ticket
        if "expired" in str(error):
            refused = error_of_expired
        return refused(operation, path, where, reason=str(error))
    if isinstance(error, HdfsError) and error.exception == UNAUTHORISED:
        return no_ticket(operation, path, where, reason="401, Authentication required")
    if isinstance(error, HdfsError):
        return remote_error(operation, path, java_class=error.exception or "", message=error.message)
    if isinstance(error, _ShortError) and operation in READING:
        return Unavailable(operation, path, f"a response of {where} was truncated: {error}")
    if isinstance(error, requests.ConnectTimeout | ConnectionRefusedError) or operation in READING:
        detail = f"{where} does not respond: {error}; check that NameNode and DataNodes run"
        return Unavailable(operation, path, detail)
    return OutcomeUnknown(operation, path, f"the reply of {where} was lost: {error}")


def _boolean(response: requests.Response) -> bool:
    """Return the answer of the server; an empty one means success."""
    if response.content:
        return bool(response.json()["boolean"])
    return True
