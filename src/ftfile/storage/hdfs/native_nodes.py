"""The NameNodes of one URL, with the client of the active one.

hdfs-native 0.14 has no timeout for connections and answers: if the host of a NameNode is down, all calls of a client
hang for minutes. So a short call tests the client during a long call. Without an answer, each NameNode is tested by a
separate connection, and the active one gets a new client.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import socket
import threading
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.answers import wait_for
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import OnePerKey, PerProcess
from ftfile.storage.calls import NoThreadError, run_within, start
from ftfile.storage.hdfs.configuration import (
    USER,
    configuration_directory,
    current_user,
    find_service,
    read_configuration,
)
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE
from ftfile.storage.hdfs.credentials.tokens import rpc_token
from ftfile.storage.hdfs.java_errors import IPC_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    import hdfs_native

    from ftfile.core.answers import Answer
    from ftfile.core.options.parsing import Settings
    from ftfile.storage.hdfs.configuration import NameService
    from ftfile.storage.hdfs.credentials.keytab import Login
    from ftfile.storage.hdfs.credentials.token_file import DelegationToken
    from ftfile.storage.hdfs.settings import HadoopSettings

    _Key: TypeAlias = tuple[str, Settings, Login | None, tuple[str | None, ...]]


# In seconds.
CONNECT_TIMEOUT_S = 10.0
# A short call that takes longer counts as unanswered.
PULSE_S = 2.0
# An answer is not checked again for this time.
BELIEVED_S = 2.0
# The bytes of a web server's answer that are inspected.
_ANSWER_BYTES = 512
# A call without an answer after this time waits on a connection that the client has abandoned, if others are answered.
STUCK_S = 12.0

# The library reads these variables.
_VARIABLES = (USER, "HADOOP_PROXY_USER", FILE_VARIABLE, "KRB5CCNAME", "KRB5_CONFIG")

# The driver waits and retries. hdfs-native 0.14 would retry for minutes, beyond every timeout.
_CONFIGURATION = {
    "dfs.client.failover.max.attempts": "2",
    "dfs.client.failover.sleep.base.millis": "50",
    "dfs.client.failover.sleep.max.millis": "500",
}

ACTIVE, STANDBY, SILENT = "active", "in standby", "silent"

Result = TypeVar("Result")

# The messages of the library for a server that closed the connection: it died, or does not speak the RPC protocol.
_HUNG_UP = re.compile("RPC listener disconnected|Broken pipe|Connection reset by peer")

_log = get_logger(__name__)


class SilentError(OSError):
    """A call was abandoned: its NameNode does not answer and another one is active, or none can be reached."""


class WebPortError(OSError):
    """The address is the address of a web server, which has changed nothing."""


class NoConfigurationError(OSError):
    """A server closed the connections of a process that has no configuration; no request was executed."""


class NoNameNodeError(OSError):
    """No NameNode answers; no request was sent."""


class _Contact:
    """The client of a process, and the answers of the NameNodes to it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.client: hdfs_native.Client | None = None
        # NameNodes that have not answered yet.
        self.asked: dict[str, Answer[str]] = {}
        self.found: dict[str, str] = {}
        self.pulse: Answer[object] | None = None
        self.looked_s = float("-inf")
        self.verdict = ""


def _in_fork(parent: _Contact) -> _Contact:
    if parent.client is not None:
        # Its threads do not exist here, and its destructor would wait for them for ever: it is never destroyed, also
        # not at the end of the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(parent.client))
    return _Contact()


class NameNodes:
    """The NameNodes of one name service, or one NameNode, and the client of this process.

    Addresses are `host:port` by name. If there are no addresses, only the library knows them. `connect` creates a
    client that tries the named NameNodes in this order, and sends no request yet. `find_token` returns the current
    token of this process. `is_configured` is False for a process without Hadoop's configuration.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        connect: Callable[[Sequence[str]], hdfs_native.Client],
        *,
        find_token: Callable[[], DelegationToken | None] = lambda: None,
        is_configured: bool = True,
    ) -> None:
        self._addresses = dict(addresses)
        self._connect = connect
        self.find_token = find_token
        self._is_configured = is_configured
        self._has_answered = False
        self._contacts = PerProcess(_Contact, _in_fork)

    @property
    def _contact(self) -> _Contact:
        return self._contacts.here

    def client(self) -> hdfs_native.Client:
        """Return the client; at first use, after a NameNode has answered, or raise `NoNameNodeError`."""
        with self._contact.lock:
            if self._contact.client is None:
                self._contact.client = self._connect(self._order())
            return self._contact.client

    def run(
        self, limit_s: float, call: Callable[[], Result], client: hdfs_native.Client, *, is_short: bool = False
    ) -> Result:
        """Run a call by a client, and abandon it if no answer can be expected.

        Args:
            client: of the active NameNode.
            call: takes the client.
            limit_s: timeout in seconds.
            is_short: the call returns soon if other calls are answered.

        Raises:
            SilentError: the NameNode does not answer and another one is active, or no NameNode can be reached.
            TimeoutError: the call took longer than `limit_s`.
            WebPortError: the address is the address of a web server.
            NoConfigurationError: the NameNode accepts no connection of a process without configuration.
        """
        if client is not self._contact.client:
            raise SilentError(self._contact.verdict)
        began_s = SYSTEM.clock.monotonic_s()

        def look() -> None:
            self.check_answers(client)
            waited_s = SYSTEM.clock.monotonic_s() - began_s
            if is_short and len(self._addresses) > 1 and not self._contact.verdict and waited_s > STUCK_S:
                raise SilentError(f"no response within {waited_s:.0f} s, although the NameNode responds to other calls")

        try:
            result = run_within(limit_s, call, look=look)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {self._contact.verdict}" if self._contact.verdict else str(error)) from None
        except OSError as error:
            if not _HUNG_UP.search(str(error)):
                raise
            web = next(filter(_is_web_server, self._addresses.values()), None)
            if web is not None:
                raise WebPortError(
                    f"{web} is the address of a web server; use hdfs://host:8020 (dfs.namenode.rpc-address), or "
                    "webhdfs://"
                ) from error
            if self._needs_configuration():
                raise NoConfigurationError(
                    "the NameNode closed the connection before its first response, and this process has no Hadoop "
                    "configuration. A cluster with Kerberos accepts no client without it: set HADOOP_CONF_DIR to the "
                    "directory of core-site.xml and hdfs-site.xml"
                ) from error
            raise
        self._has_answered = True
        return result

    def _needs_configuration(self) -> bool:
        """Return True if a second connection, like the first one, is closed without an answer."""
        if self._is_configured or self._has_answered:
            return False
        try:
            self._connect([*self._addresses]).get_file_info("/")
        except OSError as error:
            return _HUNG_UP.search(str(error)) is not None
        except BaseException:
            # All other errors are answers.
            return False
        return False

    def check_answers(self, client: hdfs_native.Client) -> None:
        """Raise `SilentError` like `run`, unless the NameNode of `client` answers, or can still answer in time."""
        with self._contact.lock:
            if client is not self._contact.client:
                raise SilentError(self._contact.verdict)
            if SYSTEM.clock.monotonic_s() - self._contact.looked_s < BELIEVED_S:
                return
            try:
                self._look(client)
            except NoThreadError:
                return
            finally:
                self._contact.looked_s = SYSTEM.clock.monotonic_s()

    def _look(self, client: hdfs_native.Client) -> None:
        if not self._addresses or self._has_pulse(client):
            self._contact.verdict = ""
            return
        active = self._find_active(PULSE_S)
        self._contact.found |= dict.fromkeys(self._contact.asked, SILENT) if active is not None else {}
        self._contact.verdict = self._describe()
        if active is not None:
            self._contact.client, self._contact.pulse = self._connect(self._in_order(active)), None
            self._contact.verdict += f"; continuing with {active} on a new connection"
            _log.warning("a call was abandoned: %s", self._contact.verdict)
        elif any(self._contact.found[name] in (STANDBY, SILENT) for name in self._addresses):
            return
        raise SilentError(self._contact.verdict)

    def _has_pulse(self, client: hdfs_native.Client) -> bool:
        """Return True if a short call of the client gets any answer."""
        if self._contact.pulse is None or self._contact.pulse.is_set():
            self._contact.pulse = start(functools.partial(client.get_file_info, "/"))
        return wait_for([self._contact.pulse], PULSE_S)

    def _order(self) -> list[str]:
        """Return the names, the active NameNode first, or raise `NoNameNodeError`."""
        names = [*self._addresses]
        if len(names) > 1:
            active = self._find_active(CONNECT_TIMEOUT_S)
            if active is None:
                raise NoNameNodeError(f"no NameNode is active: {self._describe()}")
            return self._in_order(active)
        for name in names:
            why = _why_unreachable(self._addresses[name])
            if why:
                raise NoNameNodeError(f"NameNode {self._addresses[name]}: {why}")
        return names

    def _in_order(self, active: str) -> list[str]:
        standby, silent = [], []
        for name in self._addresses:
            if name == active:
                continue
            if self._contact.found.get(name) == STANDBY:
                standby.append(name)
            else:
                silent.append(name)
        return [active, *standby, *silent]

    def _find_active(self, timeout_s: float) -> str | None:
        """Test all NameNodes at once, and return the first active one; None after `timeout_s`."""
        self._take_answers()
        for name in self._addresses.keys() - self._contact.asked.keys():
            self._contact.asked[name] = start(functools.partial(self._ask, name))
        deadline_s = SYSTEM.clock.monotonic_s() + timeout_s
        answered: set[str] = set()
        while self._contact.asked and SYSTEM.clock.monotonic_s() < deadline_s:
            wait_for(self._contact.asked.values(), deadline_s - SYSTEM.clock.monotonic_s(), first=True)
            answered |= self._take_answers()
            for name in self._addresses:
                if name in answered and self._contact.found[name] == ACTIVE:
                    return name
        for name in self._contact.asked:
            if self._contact.found.get(name) in (ACTIVE, STANDBY, None):
                self._contact.found[name] = SILENT
        return None

    def _take_answers(self) -> set[str]:
        """Store the answers of NameNodes, and return the names of the NameNodes that answered."""
        answered = {name for name, asked in self._contact.asked.items() if asked.is_set()}
        self._contact.found |= {name: self._contact.asked.pop(name).result() for name in answered}
        return answered

    def _ask(self, name: str) -> str:
        """Return the state of a NameNode, or why it cannot be reached."""
        why = _why_unreachable(self._addresses[name])
        if why:
            return why
        try:
            self._connect([name]).get_file_info("/")
        except OSError as error:
            return f"no connection: {error}"
        except BaseException as error:
            # The waiting call gets all other errors as well.
            if "StandbyException" in str(error):
                return STANDBY
            return ACTIVE
        return ACTIVE

    def _describe(self) -> str:
        sentences = []
        for name, address in self._addresses.items():
            server = name
            if name != address:
                server = f"{name} ({address})"
            sentences.append(f"NameNode {server} is {self._contact.found.get(name, 'not asked')}")
        return ", ".join(sentences)


def _why_unreachable(address: str) -> str:
    """Return why a server cannot be connected; empty if it can."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except TimeoutError:
        return f"silent: no connection within {CONNECT_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:
        return f"away: {error}"
    return ""


def _is_web_server(address: str) -> bool:
    """Return True if a server answers HTTP, other than by the hint of an RPC port."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PULSE_S) as connection:
            connection.sendall(f"GET / HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                answer_bytes = answer.read(_ANSWER_BYTES)
    except (OSError, ValueError):
        return False
    return answer_bytes.startswith(b"HTTP/") and IPC_PORT.encode() not in answer_bytes


def name_nodes(url: str, settings: HadoopSettings) -> NameNodes:
    """Return the NameNodes of a URL in this process (empty: the default file system), or raise `ConfigError`."""
    if settings.user is not None:
        raise ConfigError("hdfs:// takes its user from HADOOP_USER_NAME or a ticket; omit storage.user")
    if settings.handed_user is not None and settings.handed_user != current_user():
        os.environ[USER] = settings.handed_user  # the library has no other way to name a user
    environment = (configuration_directory(), *(os.environ.get(name) for name in _VARIABLES))
    return _nodes.of((url, tuple(sorted(settings.handed.items())), settings.login, environment))


def _open_nodes(key: _Key) -> NameNodes:
    url, handed, login, (directory, *_) = key
    service = find_service("hdfs", url.partition("//")[2], read_configuration(dict(handed)))
    addresses = service.rpc_addresses()
    find = functools.partial(_used_token, login, service, addresses)
    # The library compares services as texts: it uses a token only for the address in the token.
    token = None if service.members else find()
    if token is None or token.service.count(":") > 1:
        address = url
    else:
        address = f"hdfs://{token.service}"

    def connect(names: Sequence[str]) -> hdfs_native.Client:
        if names and service.members:
            order = {service.members_property: ",".join(names)}
        else:
            order = {}
        return _connect(address, {**dict(handed), **order, **_CONFIGURATION}, directory, login)

    connect([*addresses])  # raises errors of the configuration
    return NameNodes(addresses, connect, find_token=find, is_configured=bool(directory or handed))


def _used_token(login: Login | None, service: NameService, addresses: Mapping[str, str]) -> DelegationToken | None:
    """Return the token that the library uses, which prefers a login."""
    if login is not None:
        return None
    return rpc_token(service, addresses)


def _connect(url: str, configuration: dict[str, str], directory: str | None, login: Login | None) -> hdfs_native.Client:
    try:
        import hdfs_native  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            f"hdfs:// needs a package that is not installed ({error}): pip install 'ftfile[hdfs]'; or use webhdfs://, "
            "which needs no package"
        ) from error
    try:
        if login is None:
            return hdfs_native.Client(url or None, configuration, directory)
        return hdfs_native.Client(
            url or None,
            configuration,
            directory,
            kerberos_principal=login.principal,
            kerberos_keytab=login.keytab,
        )
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"{url or 'hdfs://'!r} cannot be opened ({error}): write hdfs://namenode:8020/path, or set "
            "HADOOP_CONF_DIR to the directory of hdfs-site.xml"
        ) from error


_nodes = OnePerKey(_open_nodes)
