"""Files of delegation tokens, and what only looks like one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError
from ftfile.fs.hadoop_tokens import find_token

if TYPE_CHECKING:
    from pathlib import Path

NAMENODE = "http://namenode:9870"


def field(data: bytes) -> bytes:
    return bytes([len(data)]) + data


TOKEN = field(b"who") + field(b"password") + field(b"HDFS_DELEGATION_TOKEN") + field(b"namenode:8020")
CONTENT = b"HDTS\x00" + b"\x01" + field(b"alias") + TOKEN + b"\x00"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    return tmp_path / "tokens"


def test_a_token_is_found(file: Path) -> None:
    file.write_bytes(CONTENT)
    assert find_token([NAMENODE])


def test_what_is_cut_short_has_no_token_and_says_so(file: Path) -> None:
    # The count of secret keys, at the end, is not read.
    for length in range(len(CONTENT) - 1):
        file.write_bytes(CONTENT[:length])
        with pytest.raises(ConfigError, match="HADOOP_TOKEN_FILE_LOCATION"):
            find_token([NAMENODE])
