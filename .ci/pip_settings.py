"""Run a command of uv with the settings of pip: its variables and configuration files.

Usage: pip_settings.py COMMAND... Run it with a Python that has pip. uv only reads its own settings: without this
program, a machine with a package index would need both. Variables of uv take precedence.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

# Sections of pip's configuration, in ascending precedence. `:env:` are its variables.
SECTIONS = ("global", "install", ":env:")
# Settings with one value.
VALUES = {
    "index-url": "UV_DEFAULT_INDEX",
    "timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
}
# Settings with several values: the variable, and its separator.
LISTS = {
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "constraint": ("UV_CONSTRAINT", " "),
}
SWITCHES = {
    "no-index": ("UV_NO_INDEX", "true"),
    "no-cache-dir": ("UV_NO_CACHE", "true"),
    "pre": ("UV_PRERELEASE", "allow"),
}
TRUE = {"1", "true", "yes", "on"}
# Other variables that pip reads.
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def settings() -> dict[str, str]:
    """Return pip's settings by name, as ``pip config list`` prints them."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in printed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            found[section][key.removeprefix("default-")] = str(ast.literal_eval(value))  # also `default-timeout`
    return {key: value for section in SECTIONS for key, value in found[section].items()}


def variables(given: dict[str, str]) -> dict[str, str]:
    """Return uv's variables for settings of pip."""
    made = {variable: given[key] for key, variable in VALUES.items() if given.get(key)}
    for key, (variable, separator) in LISTS.items():
        values = given.get(key, "").split()
        if key == "find-links":  # pip ignores a missing directory, and uv fails
            values = [value for value in values if "://" in value or Path(value).exists()]
        if values:
            made[variable] = separator.join(values)
    for key, (variable, value) in SWITCHES.items():
        if given.get(key, "").lower() in TRUE:
            made[variable] = value
    if "UV_INDEX" in made:  # as in pip: the best version of all indexes
        made["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return made


def main(*command: str) -> None:
    """Replace this process by the command."""
    bundle = next((os.environ[name] for name in BUNDLES if os.environ.get(name)), None)
    certificates = {"SSL_CERT_FILE": bundle} if bundle else {}
    # The certificates of the system, which pip also trusts.
    made = certificates | {"UV_SYSTEM_CERTS": "true"} | variables(settings())
    own = {name: value for name, value in os.environ.items() if name not in made or name.startswith("UV_")}
    os.execvpe(command[0], list(command), made | own)


if __name__ == "__main__":
    main(*sys.argv[1:])
