"""The environment of Spark's driver for executors, whose hosts can have another one, as Spark sends it for Hadoop."""

from __future__ import annotations

import json
import os
import re
import socket
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.storage.hdfs.configuration import DEFAULT_FS, current_user, find_service, is_kerberos, read_configuration
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE
from ftfile.storage.hdfs.credentials.tokens import (
    has_token_sources,
    receive_tokens,
    rpc_token,
    warn_before_end,
    web_token,
)
from ftfile.storage.hdfs.webhdfs_nodes import find_nodes
from ftfile.storage.paths import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ftfile.storage.hdfs.credentials.token_file import DelegationToken


# The setting that contains the environment of Spark's driver.
FROM_DRIVER = "handedOver"
# The setting for sending tokens with each batch.
HAND_TOKENS = "handTokens"
# Properties for the location of a cluster and its connections. All of them are sent, except for secrets.
_HANDED_PREFIXES = ("dfs.", DEFAULT_FS, "fs.viewfs.", "hadoop.rpc.protection", "hadoop.security.authentication")
_SECRETS = re.compile("oauth|password|secret|credential|token|keystore|truststore", re.IGNORECASE)


class DriverEnvironment(str):
    """The text of the setting `FROM_DRIVER`. When it is pickled, the current token of the process for a URL is added.

    The process that unpickles it uses this token. The text itself, which is part of cache keys, contains no token.
    """

    __slots__ = ("_url",)
    _url: str

    def __new__(cls, text: str, url: str) -> DriverEnvironment:  # noqa: PYI034 - typing.Self comes with Python 3.11
        """Return the text for a directory."""
        environment = super().__new__(cls, text)
        environment._url = url
        return environment

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        token = _token_for(self._url)
        tokens = []
        if token is not None:
            warn_before_end(token)
            tokens.append(token)
        return _receive_environment, (str(self), self._url, tokens)


def _receive_environment(text: str, url: str, tokens: Sequence[DelegationToken]) -> DriverEnvironment:
    receive_tokens(tokens)
    return DriverEnvironment(text, url)


def hands_tokens(settings: Mapping[str, str]) -> bool:
    """Return True if the driver sends its tokens to executors; raises `ConfigError` for a malformed setting."""
    for name, text in settings.items():
        if name.lower() == HAND_TOKENS.lower():
            if text.lower() not in {"true", "false"}:
                raise ConfigError(f"storage.{HAND_TOKENS}={text!r}: it must be true or false")
            return text.lower() == "true"
    return True


def settings_for_executors(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with the environment of this process, Spark's driver, for executors.

    Unless `storage.handTokens` is false, they contain the current token of the URL's service whenever they are pickled.
    """
    configuration = read_configuration({})
    handed = {name: text for name, text in configuration.items() if _is_handed_over(name)}
    # With Kerberos, the ticket or the token names the user.
    if is_kerberos(configuration):
        user = None
    else:
        user = current_user()
    text = json.dumps([handed, user, _token_for(url) is not None])
    if hands_tokens(settings):
        text = DriverEnvironment(text, url)
    return {**settings, FROM_DRIVER: text}


def _is_handed_over(name: str) -> bool:
    return name.startswith(_HANDED_PREFIXES) and not _SECRETS.search(name)


def _token_for(url: str) -> DelegationToken | None:
    """Return the token of this process that the drivers use for a URL, or None."""
    if not has_token_sources():
        return None
    location, configuration = parse(url), read_configuration({})
    if location.scheme == "hdfs":
        service = find_service("hdfs", location.authority, configuration)
        return rpc_token(service, service.rpc_addresses())
    return web_token(*find_nodes(location.scheme, location.authority, configuration))


def settings_from_driver(text: str | None, *, needs_token: bool = True) -> tuple[dict[str, str], str | None]:
    """Return properties and user of a text of `settings_for_executors`."""
    if text is None:
        return {}, None
    try:
        handed, user, has_token = json.loads(text)
        handed = dict(handed)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"ftfile sets storage.{FROM_DRIVER} itself: omit it") from error
    if has_token and needs_token and not os.environ.get(FILE_VARIABLE) and not has_token_sources():
        raise ConfigError(
            f"the driver has a delegation token ({FILE_VARIABLE}), and an executor on the host "
            f"{socket.gethostname()!r} has none: omit storage.{HAND_TOKENS}=false, or ship the file with the "
            f"application (spark-submit --files /…/tokens) and set spark.executorEnv.{FILE_VARIABLE}=./tokens"
        )
    return handed, user
