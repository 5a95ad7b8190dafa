"""The principal and keytab by which a process logs in to Kerberos."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping


KEYTAB, PRINCIPAL = "keytab", "principal"
_KEYTAB_VARIABLE, _PRINCIPAL_VARIABLE = "FTFILE_KEYTAB", "FTFILE_PRINCIPAL"
# Spark's properties in a container of YARN. The keytab itself is only in the container of the driver.
_SPARK_PROPERTIES = "__spark_conf__/__spark_conf__.properties"
_SPARK_KEYTAB, _SPARK_PRINCIPAL = "spark.kerberos.keytab", "spark.kerberos.principal"


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Login:
    """A principal, with the absolute path of a keytab that has its key."""

    principal: str
    keytab: str
    is_optional: bool = False  # found, not set by the user: if it fails, tokens are used

    def __str__(self) -> str:
        return f"the login of {self.principal!r} with the keytab {self.keytab!r}"


_failed: PerProcess[set[Login]] = PerProcess(set)


def login_from(settings: Mapping[str, str], *, is_executor: bool) -> Login | None:
    """Return the login of this process by settings, by variables, or by Spark's keytab in a container of YARN, or None.

    An executor without the keytab uses tokens, so it returns None. Raises `ConfigError` if only one of keytab and
    principal is set, or if the driver cannot read the keytab.
    """
    if KEYTAB in settings or PRINCIPAL in settings:
        names, values = (f"storage.{KEYTAB}", f"storage.{PRINCIPAL}"), (settings.get(KEYTAB), settings.get(PRINCIPAL))
    elif _KEYTAB_VARIABLE in os.environ or _PRINCIPAL_VARIABLE in os.environ:
        names = (_KEYTAB_VARIABLE, _PRINCIPAL_VARIABLE)
        values = (os.environ.get(_KEYTAB_VARIABLE), os.environ.get(_PRINCIPAL_VARIABLE))
    else:
        return _login_of_spark()
    keytab, principal = values
    if not keytab or not principal:
        raise ConfigError(f"{names[0]} and {names[1]} belong together, and only one of them is set: set both")
    path = os.path.abspath(keytab)
    if os.access(path, os.R_OK):
        return Login(principal, path)
    if is_executor:
        return None
    raise ConfigError(f"{names[0]}={keytab!r}: this process cannot read the file {path!r}")


def _login_of_spark() -> Login | None:
    """Return the login by the keytab that `spark-submit --keytab` sent to the driver of an application on YARN."""
    if not os.environ.get("CONTAINER_ID"):
        return None
    try:
        with open(_SPARK_PROPERTIES, encoding="utf-8") as file:
            properties = dict(map(_property, file))
    except OSError:
        return None
    keytab, principal = properties.get(_SPARK_KEYTAB), properties.get(_SPARK_PRINCIPAL)
    if not keytab or not principal or not os.access(keytab, os.R_OK):
        return None
    login = Login(principal, os.path.abspath(keytab), is_optional=True)
    if login in _failed.here:
        return None
    return login


def give_up(login: Login) -> None:
    """Do not use an optional login in this process again, because it failed."""
    _log.warning("%s failed, so tokens are used. Python processes need a krb5.conf with the KDC of the realm", login)
    _failed.here.add(login)


def _property(line: str) -> tuple[str, str]:
    """Return name and value of a line of a Java properties file, in which a backslash protects the next character."""
    name, _, text = line.strip().partition("=")
    return name.replace("\\", ""), text.replace("\\", "")
