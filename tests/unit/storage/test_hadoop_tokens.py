"""Files of delegation tokens, which of them is for whom, and what only looks like one."""

from __future__ import annotations

import io
import pickle
import socket
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError
from ftfile.storage.hdfs.credentials import token_file as hadoop_tokens
from ftfile.storage.hdfs.credentials.tokens import find_token, lack_of_tokens
from ftfile.testing.context import open_filesystem
from tests.hdfs.servers import write_site

if TYPE_CHECKING:
    from pathlib import Path

RPC = "HDFS_DELEGATION_TOKEN"
WEB = "WEBHDFS delegation"


def field(data: str) -> bytes:
    return bytes([len(data)]) + data.encode()


def tokens(*services: str, kind: str = RPC) -> bytes:
    """Return the content of a file of tokens for these services."""
    each = (field("alias") + field("who") + field(f"S3CRET of {name}") + field(kind) + field(name) for name in services)
    return b"HDTS\x00" + bytes([len(services)]) + b"".join(each) + b"\x00"


def message(**fields: bytes) -> bytes:
    """Return a protobuf message of fields `f1`, `f2` and so on, each shorter than 128 bytes."""
    return b"".join(bytes([int(name[1:]) << 3 | 2, len(content)]) + content for name, content in fields.items())


def protobuf_tokens(*services: str) -> bytes:
    """Return the same in the form that `hadoop dtutil` writes."""
    each = (
        message(
            f1=b"alias",
            f2=message(f1=b"who", f2=f"S3CRET of {name}".encode(), f3=RPC.encode(), f4=name.encode()),
        )
        for name in services
    )
    content = b"".join(message(f1=one) for one in each) + message(f2=message(f1=b"key", f3=b"S3CRET"))
    return b"HDTS\x01" + bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content


CONTENT = tokens("namenode:8020")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    return tmp_path / "tokens"


@pytest.fixture(autouse=True)
def names_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts and this one, and no other hosts; one of the two has an unusual second name."""
    known = {"namenode": "10.0.0.1", "10.0.0.1": "10.0.0.1", "other": "10.0.0.2", "10.0.0.2": "10.0.0.2"}
    known |= {"ha-hdfs": "10.0.0.1", "::1": "::1", "0:0:0:0:0:0:0:1": "::1"}

    def look(host: str, port: int, **_: Any) -> list[Any]:
        if host.lower() not in known:
            raise socket.gaierror(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host.lower()], port))]

    monkeypatch.setattr(socket, "getaddrinfo", look)


@pytest.mark.parametrize(
    ("services", "name", "addresses", "native", "expected"),
    [
        (["namenode:8020"], "namenode:8020", ["namenode:8020"], True, "namenode:8020"),
        (["10.0.0.1:8020"], "namenode:8020", ["namenode:8020"], True, "10.0.0.1:8020"),
        (["other:8020", "10.0.0.1:8020"], "namenode:8020", ["namenode:8020"], True, "10.0.0.1:8020"),
        (["10.0.0.1:8021"], "namenode:8020", ["namenode:8020"], True, None),
        (["ha-hdfs:a", "ha-hdfs:b"], "b", ["namenode:9870"], False, "ha-hdfs:b"),
        (["ha-hdfs:a", "ha-webhdfs:b"], "b", ["namenode:9870"], False, "ha-webhdfs:b"),
        (["ha-hdfs:a", "ha-hdfs:b"], "c", ["namenode:9870"], False, None),
        (["ha-hdfs:a"], "b", ["namenode:9870"], False, None),
        (["other:8020", "namenode:8020"], "namenode:9870", ["namenode:9870"], False, "namenode:8020"),
        (["10.0.0.2:8020", "10.0.0.1:8020"], "namenode:9870", ["namenode:9870"], False, "10.0.0.1:8020"),
        # Two clusters of one host that only the configuration can distinguish.
        (["namenode:8020", "namenode:8120"], "namenode:9870", ["namenode:9870"], False, None),
        (["namenode:8020", "namenode:8120"], "ns", ["namenode:9870", "namenode:8120"], False, "namenode:8120"),
        (["unknown:8020"], "namenode:9870", ["namenode:9870"], False, None),
        (["namenode:8020", "namenode:9870"], "namenode:9870", ["namenode:9870"], False, "namenode:9870"),
        (["namenode:8020", "namenode:8120"], "namenode:8120", ["namenode:8120"], True, "namenode:8120"),
        (["10.0.0.1:8020", "namenode:8120"], "namenode:8120", ["namenode:8120"], True, "namenode:8120"),
        (["namenode:8020"], "NameNode:8020", ["NameNode:8020"], True, "namenode:8020"),
        (["ha-hdfs:B"], "b", ["namenode:9870"], False, None),
        # As Java spells it.
        (["0:0:0:0:0:0:0:1:8020"], "[::1]:8020", ["[::1]:8020"], True, "0:0:0:0:0:0:0:1:8020"),
        (["0:0:0:0:0:0:0:1:8020"], "[::1]:8021", ["[::1]:8021"], True, None),
        # A name service is not a host, even if its name looks like a host name.
        (["ha-hdfs:8020"], "namenode:8020", ["namenode:8020"], True, None),
        (["ha-hdfs:8020"], "namenode:9870", ["namenode:9870"], False, None),
        (["ha-hdfs:namenode:8020"], "namenode:8020", ["namenode:8020"], True, None),
        (["ha-hdfs:namenode"], "namenode", [], True, None),
    ],
)
def test_the_token_of_a_service_is_the_one_and_no_other(
    file: Path, services: list[str], name: str, addresses: list[str], native: bool, expected: str | None
) -> None:
    file.write_bytes(tokens(*services))
    found = find_token(name, addresses, native=native, near=not native)
    assert (None if found is None else found.service) == expected


def test_tokens_of_webhdfs_are_not_for_the_other_protocol(file: Path) -> None:
    file.write_bytes(tokens("namenode:8020", kind=WEB))
    assert find_token("namenode:8020", ["namenode:8020"]) is not None
    assert find_token("namenode:8020", ["namenode:8020"], native=True) is None


def test_others_tokens_are_an_error_that_lists_them_and_shows_none(file: Path) -> None:
    file.write_bytes(tokens("ha-hdfs:clusterA", "ha-hdfs:clusterB"))
    with pytest.raises(ConfigError, match="'ha-hdfs:clusterA', 'ha-hdfs:clusterB'") as caught:
        open_filesystem("webhdfs://namenode:9870/out")
    assert "S3CRET" not in str(caught.value) + repr(find_token("clusterA", [])) + lack_of_tokens()
    file.write_bytes(tokens("ha-hdfs:clusterA"))
    with pytest.raises(ConfigError, match="'ha-hdfs:clusterA'"):
        open_filesystem("webhdfs://namenode:9870/out")


def test_tokens_of_other_kinds_are_nobodys(file: Path) -> None:
    file.write_bytes(tokens("namenode:8020", kind="kms-dt"))
    assert find_token("namenode:8020", ["namenode:8020"]) is None
    open_filesystem("webhdfs://namenode:9870/out")


def test_another_cluster_of_the_host_gets_no_token_where_the_own_address_is_known(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(tokens("namenode:8120"))
    open_filesystem("webhdfs://namenode:9870/out")  # for all that is known
    addresses = {"http": "namenode:9870", "rpc": "namenode:8020"}
    settings = {f"dfs.namenode.{kind}-address.ns.one": address for kind, address in addresses.items()}
    write_site(tmp_path / "hdfs-site.xml", {"dfs.ha.namenodes.ns": "one", **settings})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="only tokens for 'namenode:8120'"):
        open_filesystem("webhdfs://ns/out")
    file.write_bytes(tokens("namenode:8120", "10.0.0.1:8020"))
    open_filesystem("webhdfs://ns/out")


def test_a_token_for_an_address_that_is_no_part_of_a_url_is_left_to_the_library(file: Path) -> None:
    pytest.importorskip("hdfs_native")  # the oldest Python is tested without it
    file.write_bytes(tokens("0:0:0:0:0:0:0:1:8020"))
    fs: Any = open_filesystem("hdfs://[::1]:8020/out")
    assert repr(fs.inner) == "NativeHdfsFileSystem('hdfs://[::1]:8020', '/out')"


def test_nobody_shows_a_token(file: Path) -> None:
    file.write_bytes(tokens("namenode:8020"))
    token = find_token("namenode:8020", ["namenode:8020"])
    fs: Any = open_filesystem("webhdfs://namenode:9870/out")
    assert token is not None
    client = fs.inner._client  # noqa: SLF001
    session = client._session  # noqa: SLF001
    assert session.params == {"delegation": token.text()}
    for each in (token, fs, fs.inner, client, client.nodes, session):
        assert not any(part in f"{each!r} {each}" for part in ("S3CRET", token.text()))
    assert not any(part in pickle.dumps(fs.inner) for part in (b"S3CRET", token.text().encode()))


def test_both_forms_say_the_same(file: Path) -> None:
    file.write_bytes(protobuf_tokens("other:8020", "namenode:8020"))
    found = find_token("namenode:8020", ["namenode:8020"], native=True)
    file.write_bytes(tokens("other:8020", "namenode:8020"))
    assert found is not None
    assert found == find_token("namenode:8020", ["namenode:8020"], native=True)


@pytest.mark.parametrize("length", [0, 111, 112, 127, 128, 255, 256, 70_000])
def test_lengths_are_read_as_they_are_written(length: int) -> None:
    written = hadoop_tokens._number(length)  # noqa: SLF001
    assert hadoop_tokens._read_number(io.BytesIO(written)) == length  # noqa: SLF001
    assert (len(written) == 1) == (length < 128), "Hadoop itself writes it so"


@pytest.mark.parametrize("content", [CONTENT, protobuf_tokens("namenode:8020")], ids=["java", "protobuf"])
def test_what_is_cut_short_has_no_token_and_says_so(file: Path, content: bytes) -> None:
    # The count of secret keys, at the end, is not read.
    for length in range(len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(ConfigError, match="HADOOP_TOKEN_FILE_LOCATION"):
            find_token("namenode:8020", ["namenode:8020"])


@pytest.mark.parametrize("number", [b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01", b"\xff" * 100_000, b"\xff" * 4])
def test_a_length_beyond_the_file_is_refused(number: bytes) -> None:
    for message in (number, b"\x04\x0a" + number):
        with pytest.raises(ValueError, match=r"truncated|without an end"):
            hadoop_tokens.read_tokens(b"HDTS\x01" + message)
    assert hadoop_tokens.DelegationToken(b"\x8c" + number, RPC, "").dates_ms() is None
