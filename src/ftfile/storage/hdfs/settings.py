"""Settings of both HDFS drivers, and the environment of Hadoop's clients: configuration, NameNodes, user, tokens.

Spark's driver sends its environment to executors, whose hosts can have another one. Spark does the same for Hadoop.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import pwd
import re
import socket
import urllib.parse
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ftfile.core.errors import ConfigError, Unsupported
from ftfile.storage.paths import check_path, read_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.storage.paths import Location


_SETTINGS = ("filePermission", "directoryPermission", "replication", "blockSize", "user", "timeout", "patience")
# The setting that contains the environment of Spark's driver.
FROM_DRIVER = "handedOver"
USER = "HADOOP_USER_NAME"
_DEFAULT = "fs.defaultFS"
# Properties for the location of a cluster and its connections. All of them are sent, except for secrets.
_HANDED_PREFIXES = ("dfs.", _DEFAULT, "fs.viewfs.", "hadoop.rpc.protection", "hadoop.security.authentication")
_SECRETS = re.compile("oauth|password|secret|credential|token|keystore|truststore", re.IGNORECASE)
_AUTHENTICATION = "hadoop.security.authentication"
_RPC, _HTTP, _HTTPS = "dfs.namenode.rpc-address", "dfs.namenode.http-address", "dfs.namenode.https-address"
_MEMBERS = "dfs.ha.namenodes"
_RESOLVED = "dfs.client.failover.resolve-needed"
# HDFS cannot store a name with a colon.
FORBIDDEN = ":"
_RESERVED = ".snapshot"
_FILE_MODE, _DIRECTORY_MODE = 0o644, 0o755
_MODE = re.compile("0?[01]?[0-7]{3}")


@dataclass(frozen=True, slots=True)
class HadoopSettings:
    """Checked settings; the server decides settings that are None."""

    user: str | None = None  # without ticket and token; None for the user of the environment
    timeout_s: float = 60.0  # timeout of a call without data
    patience_s: float = 30.0  # for a NameNode that is down, in standby or in safe mode
    replication: int | None = None
    block_size: int | None = None  # in bytes
    file_mode: int = _FILE_MODE
    directory_mode: int = _DIRECTORY_MODE
    handed: Mapping[str, str] = field(default_factory=dict)  # properties of Spark's driver, which override this host's
    handed_user: str | None = None  # the user of Spark's driver

    @property
    def of_files(self) -> tuple[int | None, int | None, int] | None:
        """Return replication, block size and permissions for new files, or None if none of them is set."""
        asked = self.replication, self.block_size, self.file_mode
        if asked == (None, None, _FILE_MODE):
            return None
        return asked

    @classmethod
    def of(cls, location: Location) -> HadoopSettings:
        """Read the settings of a location, or raise `ConfigError`, also if only Spark's driver has a token."""
        settings = dict(location.settings)
        handed, handed_user = settings_from_driver(settings.pop(FROM_DRIVER, None))
        values = replace(location, settings=settings).known_settings(*_SETTINGS)
        return cls(
            user=values.get("user"),
            timeout_s=read_seconds(values, "timeout", "60"),
            patience_s=read_seconds(values, "patience", "30", zero=True),
            replication=_count(values, "replication"),
            block_size=_count(values, "blockSize"),
            file_mode=_mode(values, "filePermission", _FILE_MODE),
            directory_mode=_mode(values, "directoryPermission", _DIRECTORY_MODE),
            handed=handed,
            handed_user=handed_user,
        )


def _count(values: Mapping[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"{name}={text!r}: it must be a number of 1 or more")
    return int(text)


def _mode(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name, f"{default:o}")
    if not _MODE.fullmatch(text):
        raise ConfigError(f"{name}={text!r}: it must be permissions as octal digits, such as {default:o}")
    return int(text, 8)


def check_hdfs_name(operation: str, path: str) -> None:
    """Raise `Unsupported` for a path that no driver supports (`check_path`), or that HDFS cannot store."""
    check_path(operation, path)
    if FORBIDDEN in path:
        raise Unsupported(operation, path, "HDFS does not allow a colon in names; replace it")
    if _RESERVED in path.split("/"):
        raise Unsupported(operation, path, f"{_RESERVED!r} is a name reserved by HDFS; choose another name")


def settings_for_executors(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with the environment of this process, Spark's driver, for executors."""
    configuration = read_configuration({})
    handed = {name: text for name, text in configuration.items() if _is_handed_over(name)}
    # With Kerberos, the ticket or the token names the user.
    if is_kerberos(configuration):
        user = None
    else:
        user = current_user()
    return {**settings, FROM_DRIVER: json.dumps([handed, user, bool(os.environ.get(FILE_VARIABLE))])}


def _is_handed_over(name: str) -> bool:
    return name.startswith(_HANDED_PREFIXES) and not _SECRETS.search(name)


def settings_from_driver(text: str | None) -> tuple[dict[str, str], str | None]:
    """Return properties and user of a text of `settings_for_executors`."""
    if text is None:
        return {}, None
    try:
        handed, user, has_token = json.loads(text)
        handed = dict(handed)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"ftfile sets storage.{FROM_DRIVER} itself: omit it") from error
    if has_token and not os.environ.get(FILE_VARIABLE):
        raise ConfigError(
            f"the driver has delegation tokens ({FILE_VARIABLE}), and an executor on the host "
            f"{socket.gethostname()!r} has none: ship the file with the application (spark-submit --files /…/tokens) "
            f"and set spark.executorEnv.{FILE_VARIABLE}=./tokens"
        )
    return handed, user


def is_kerberos(configuration: Mapping[str, str]) -> bool:
    """Return True if the cluster requires Kerberos."""
    return configuration.get(_AUTHENTICATION, "simple").lower() == "kerberos"


def current_user() -> str | None:
    """Return the user that Hadoop's clients would use; None for a user id without a name."""
    if named := os.environ.get(USER):
        return named
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def read_configuration(handed: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of core-site.xml and hdfs-site.xml here, overridden by properties that were sent."""
    home = os.environ.get("HADOOP_HOME")
    directory = os.environ.get("HADOOP_CONF_DIR") or (home and os.path.join(home, "etc/hadoop"))
    properties: dict[str, str] = {}
    if directory:
        properties |= _read_properties(os.path.join(directory, "core-site.xml"))
        properties |= _read_properties(os.path.join(directory, "hdfs-site.xml"))
    return properties | dict(handed)


def _read_properties(path: str) -> dict[str, str]:
    """Return the properties in a file of Hadoop's configuration; none if there is no such file."""
    if not os.path.exists(path):
        return {}
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 - the administrator's own file
    except (ElementTree.ParseError, OSError) as error:
        raise ConfigError(f"Hadoop's configuration {path!r} cannot be read: {error}") from error
    properties = {}
    for element in root.iter("property"):
        name = element.findtext("name")
        if name:
            properties[name.strip()] = (element.findtext("value") or "").strip()
    return properties


class NameService:
    """One NameNode, or the NameNodes of one name; an empty authority is the default file system."""

    def __init__(self, authority: str, configuration: Mapping[str, str]) -> None:
        # Of the service, or `host:port`; empty if unknown.
        self.name = authority or urllib.parse.urlsplit(configuration.get(_DEFAULT, "")).netloc
        self._configuration = configuration
        listed = configuration.get(f"{_MEMBERS}.{self.name}", "").split(",") if self.name else ()
        # Names of the NameNodes of the service; empty for a single NameNode.
        self.members = [name.strip() for name in listed if name.strip()]
        self.members_property = f"{_MEMBERS}.{self.name}"

    def rpc_addresses(self) -> dict[str, str]:
        """Return the `host:port` of each NameNode's RPC server, by name; empty if only Hadoop's client knows."""
        if self._configuration.get(f"{_RESOLVED}.{self.name}", "").lower() == "true" and self.members:
            return {}  # one DNS name for several hosts
        return self._addresses(_RPC)

    def web_addresses(self, *, tls: bool) -> dict[str, str]:
        """Return the `host:port` of the web server of each NameNode, by name."""
        return self._addresses(_HTTPS if tls else _HTTP)

    def _addresses(self, property_name: str) -> dict[str, str]:
        if not self.members:
            host, _, port = self.name.rpartition(":")
            if host and port.isdigit():
                return {self.name: self.name}
            return {}
        addresses = {}
        for name in self.members:
            address = self._configuration.get(f"{property_name}.{self.name}.{name}", "")
            if address:
                addresses[name] = address
        return addresses


def find_service(scheme: str, authority: str, configuration: Mapping[str, str]) -> NameService:
    """Return the name service of a URL's authority; raises `ConfigError` for several hosts, or a name with a port."""
    service = NameService(authority, configuration)
    if authority:
        written = f"{scheme}://{authority}"
    else:
        written = f"fs.defaultFS={configuration.get(_DEFAULT, '')}"
    host, _, port = service.name.rpartition(":")
    if "," in service.name:
        raise ConfigError(
            f"{written} names several NameNodes: write the name of their service, {scheme}://NAME/path, and set "
            "HADOOP_CONF_DIR to the directory of the hdfs-site.xml that lists them in dfs.ha.namenodes.NAME"
        )
    if port.isdigit() and f"{_MEMBERS}.{host}" in configuration:
        raise ConfigError(
            f"{written}: {host!r} is a name service in Hadoop's configuration, and takes no port: write "
            f"{scheme}://{host}/path"
        )
    return service


FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
_MAGIC = b"HDTS"
_NATIVE_KIND = "HDFS_DELEGATION_TOKEN"
_KINDS = (_NATIVE_KIND, "WEBHDFS delegation", "SWEBHDFS delegation")
_LOGICAL = ("ha-hdfs", "ha-webhdfs", "ha-swebhdfs")
# The only kind of field in the protobuf form.
_LENGTH_DELIMITED = 2
# Hadoop's `VInt`: these numbers are one byte. In other numbers, the first byte has the sign and the number of bytes.
_ONE_BYTE_MIN, _ONE_BYTE_MAX, _POSITIVE_MIN = -112, 127, -120


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """One delegation token; its bytes are secret."""

    content: bytes
    kind: str
    service: str

    def text(self) -> str:
        """Return the text of the token for URLs."""
        return base64.urlsafe_b64encode(self.content).rstrip(b"=").decode()


def find_token(name: str, addresses: Sequence[str], *, native: bool = False, near: bool = False) -> Token | None:
    """Return the token of this process for a name service, or for `host:port`, whose servers have these addresses.

    Returns None if there is no such token, and raises `ConfigError` for a malformed token file.

    Args:
        name: the name service, or `host:port`.
        addresses: of the servers.
        native: the token is for the RPC protocol of a single NameNode.
        near: a token for another port of the same host is accepted if there is only one.
    """
    if native and not os.path.exists(os.environ.get(FILE_VARIABLE, "")):
        return None  # there may be a ticket
    tokens = _own_tokens()
    services = {*addresses}
    if native:
        tokens = [token for token in tokens if token.kind == _NATIVE_KIND]
    else:
        services.update(f"{kind}:{name}" for kind in _LOGICAL)
    for token in tokens:
        if token.service in services:
            return token
    if tokens:
        return _token_of_place(tokens, addresses, near=near)
    return None


def _token_of_place(tokens: Sequence[Token], addresses: Sequence[str], *, near: bool) -> Token | None:
    """Return the token for an IP address and port of `addresses`; if `near`, also for another port, if it is unique."""
    places = set(itertools.chain.from_iterable(map(_places, addresses)))
    hosts = {host for host, _ in places}
    of_other_ports: list[Token] = []
    for token in tokens:
        token_places = _places(token.service)
        if places & token_places:
            return token
        if any(host in hosts for host, _ in token_places):
            of_other_ports.append(token)
    if near and len({token.service for token in of_other_ports}) == 1:
        return of_other_ports[0]
    return None


def has_tokens() -> bool:
    """Return True if this process has tokens for any HDFS; raises like `find_token`."""
    return bool(_own_tokens())


def lack_of_tokens() -> str:
    """Return why this process has no token for an HDFS that requires one."""
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return f"{FILE_VARIABLE} is not set"
    if not os.path.exists(path):
        state = "does not exist"
    else:
        services = sorted({repr(token.service) for token in _own_tokens()})
        state = f"has no valid token for it, only tokens for {', '.join(services) or 'no HDFS'}"
    return f"the file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, {state}"


def _own_tokens() -> list[Token]:
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return []
    try:
        with open(path, "rb") as file:
            tokens = _read_tokens(file.read())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the token file {os.path.abspath(path)!r}, which {FILE_VARIABLE} names, cannot be read: {error}"
        ) from error
    return [token for token in tokens if token.kind in _KINDS]


def _places(address: str) -> set[tuple[str, str]]:
    """Return the IP addresses of `host:port` with the port; none for other texts, such as a name service."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or host in _LOGICAL:
        return set()
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, OverflowError):
        return {(host, port)}
    return {(str(place[4][0]), port) for place in addresses}


def _read_tokens(data: bytes) -> list[Token]:
    """Return the tokens of Hadoop's `Credentials`, in either form; raises `ValueError`."""
    form = _FORMS.get(data[4:5])
    if data[:4] != _MAGIC or form is None:
        raise ValueError("it is not a token file of Hadoop")
    return form(data[5:])


def _tokens_of_java(data: bytes) -> list[Token]:
    """Return the tokens in the form that Spark and YARN write: a count, then name and token of each."""
    stream = io.BytesIO(data)
    tokens = []
    for _ in range(_read_number(stream)):
        _read_bytes(stream)  # the alias
        start = stream.tell()
        _read_bytes(stream)  # identifier
        _read_bytes(stream)  # password
        kind, service = _read_bytes(stream).decode(), _read_bytes(stream).decode()
        tokens.append(Token(stream.getvalue()[start : stream.tell()], kind, service))
    return tokens


def _tokens_of_protobuf(data: bytes) -> list[Token]:
    """Return the tokens in the form that `hadoop dtutil` writes: one message after its length."""
    stream = io.BytesIO(data)
    tokens: list[Token] = []
    # CredentialsProto.tokens, CredentialsKVProto.token, and the four fields of TokenProto.
    for named_tokens in _fields(_read(stream, _read_varint(stream))).get(1, ()):
        tokens += map(_token_of_protobuf, _fields(named_tokens).get(2, ()))
    return tokens


def _token_of_protobuf(message: bytes) -> Token:
    fields = _fields(message)
    parts = [fields.get(number, [b""])[-1] for number in (1, 2, 3, 4)]
    content = b"".join(_number(len(part)) + part for part in parts)
    return Token(content, kind=parts[2].decode(), service=parts[3].decode())


_FORMS = {b"\0": _tokens_of_java, b"\1": _tokens_of_protobuf}


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Return the fields of a protobuf message of strings, bytes and messages, by number."""
    stream, fields = io.BytesIO(message), dict[int, list[bytes]]()
    while stream.tell() < len(message):
        key = _read_varint(stream)
        if key & 7 != _LENGTH_DELIMITED:
            raise ValueError("it has unknown fields")
        fields.setdefault(key >> 3, []).append(_read(stream, _read_varint(stream)))
    return fields


def _read_varint(stream: io.BytesIO) -> int:
    value = shift = 0
    while (byte := _read(stream, 1)[0]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value | byte << shift


def _read_bytes(stream: io.BytesIO) -> bytes:
    return _read(stream, _read_number(stream))


def _read(stream: io.BytesIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise ValueError("it is truncated")
    return data


def _read_number(stream: io.BytesIO) -> int:
    first = int.from_bytes(_read(stream, 1), "big", signed=True)
    if first >= _ONE_BYTE_MIN:
        return first
    if first < _POSITIVE_MIN:
        raise ValueError("a length is negative")
    return int.from_bytes(_read(stream, _ONE_BYTE_MIN - first), "big")


def _number(value: int) -> bytes:
    """Return the bytes that `_read_number` reads."""
    if value <= _ONE_BYTE_MAX:
        return bytes([value])
    size = (value.bit_length() + 7) // 8
    return bytes([(_ONE_BYTE_MIN - size) & 0xFF]) + value.to_bytes(size, "big")
