"""Arguments of `ftfile.write` that `--option` of the command `write` names, although the sink has no such options."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.operate.writers.sink_arguments import SinkArguments
from tests.unit.tools.cli.running import invoke, run

if TYPE_CHECKING:
    from pathlib import Path


def given(folder: Path) -> str:
    path = folder / "a.csv"
    path.write_text("id\n1\n")
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", inspect.signature(ftfile.write).parameters)
def test_every_argument_is_an_option_or_refused(name: str, tmp_path: Path) -> None:
    result = invoke(["write", str(tmp_path / "out"), given(tmp_path), "-o", f"{name}=x"])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in {0, 2}
    if name not in SinkArguments.__annotations__:
        assert result.exit_code == 2
        assert name in result.stderr


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("mode", "use --mode"),
        ("replace_where", "use --replace-where"),
        ("replaceWhere", "use --replace-where"),
        ("app_id", "use --app-id"),
        ("txnAppId", "use --app-id"),
        ("version", "use --version"),
        ("txnVersion", "use --version"),
        ("partitionOverwriteMode", "use --mode"),
        ("threads", "use --threads"),
        ("storage", "use --storage"),
        ("storage.endpoint", "use --storage"),
        ("keyProvider", "use --key-provider"),
        ("at_least_version", "use --at-least-version"),
        ("path", "the first argument of the command"),
        ("data", "only an argument of Python"),
        ("context", "only an argument of Python"),
        ("checkpointLocation", "for queries of Spark"),
    ],
)
def test_the_remedy(name: str, remedy: str, tmp_path: Path) -> None:
    error = run("write", tmp_path / "out", given(tmp_path), "-o", f"{name}=3", code=2).stderr
    assert remedy in " ".join(error.split())
    assert not (tmp_path / "out").exists()
