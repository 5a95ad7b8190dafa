"""Which NameNode is asked, by either driver, when one is silent: without a server of HDFS."""

from __future__ import annotations

import re
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError
from ftfile.storage import calls as deadline
from ftfile.storage.hdfs import native_nodes as hdfs_native_nodes
from ftfile.storage.hdfs import webhdfs_nodes
from ftfile.storage.hdfs.configuration import NameService, find_service
from ftfile.storage.hdfs.native_nodes import NameNodes, NoConfigurationError, NoNameNodeError, SilentError
from ftfile.storage.hdfs.webhdfs_nodes import SilentNodeError, WebNodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ADDRESSES = {"nn1": "one:8020", "nn2": "two:8020"}
# A call that must be abandoned takes some hundredths of a second, and this long if the code is wrong.
LIMIT_S = 100.0
STANDBY = RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "not now")')


class Servers:
    """The NameNodes' answers; a silent one answers when the test is over."""

    def __init__(self) -> None:
        self.active = "nn1"
        self.silent: set[str] = set()
        self.refusing: set[str] = set()
        self.over = threading.Event()
        self.made: list[list[str]] = []
        self.hang_ups = 0  # connections that are closed without an answer

    def connect(self, names: Sequence[str]) -> Any:
        self.made.append([*names])
        return Client(self, [*names])


class Client:
    def __init__(self, servers: Servers, names: list[str]) -> None:
        self._servers, self._names = servers, names

    def get_file_info(self, path: str) -> str:
        assert path == "/"
        name = self._names[0]
        if name in self._servers.silent:
            assert self._servers.over.wait(LIMIT_S), f"{name} was asked, which is silent, and nobody gave up"
        if self._servers.hang_ups:
            self._servers.hang_ups -= 1
            raise OSError("RPC listener disconnected")
        if name in self._servers.refusing:
            raise OSError("Connection refused (os error 111)")
        if name != self._servers.active and len(self._names) == 1:
            raise STANDBY
        return name


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(hdfs_native_nodes, "_why_unreachable", lambda _: "")
    monkeypatch.setattr(hdfs_native_nodes, "PULSE_S", 0.05)
    monkeypatch.setattr(hdfs_native_nodes, "CONNECT_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(hdfs_native_nodes, "BELIEVED_S", 0.0)
    monkeypatch.setattr(deadline, "LOOK_S", 0.02)
    found = Servers()
    yield found
    found.over.set()


def first_of(client: Any) -> str:
    """Return the name of the NameNode that a client asks first."""
    return str(client.get_file_info("/"))


def nodes(servers: Servers) -> NameNodes:
    return NameNodes(ADDRESSES, servers.connect)


class TestNative:
    def test_the_active_one_is_asked_first(self, servers: Servers) -> None:
        servers.active = "nn2"
        assert first_of(nodes(servers).client()) == "nn2"

    def test_a_new_process_does_not_wait_for_the_silent_one(self, servers: Servers) -> None:
        servers.active, servers.silent = "nn2", {"nn1"}
        assert first_of(nodes(servers).client()) == "nn2"
        assert servers.made[-1] == ["nn2", "nn1"]

    def test_a_call_of_a_silent_one_is_given_up_for_the_other(self, servers: Servers) -> None:
        found = nodes(servers)
        client = found.client()
        servers.active, servers.silent = "nn2", {"nn1"}
        with pytest.raises(SilentError, match=r"nn1 \(one:8020\) is silent, .*nn2 \(two:8020\) is active"):
            found.run(LIMIT_S, lambda: client.get_file_info("/"), client)
        assert first_of(found.client()) == "nn2"
        # What belongs to the client that was, such as an open file, is not begun.
        with pytest.raises(SilentError):
            found.run(LIMIT_S, lambda: pytest.fail("it was begun"), client)

    @pytest.mark.slow
    def test_it_is_not_while_no_other_is_active(self, servers: Servers) -> None:
        found = nodes(servers)
        client = found.client()
        servers.active, servers.silent = "nobody", {"nn1"}
        # The other one may be late itself.
        verdict = r"no response within 5 s; .*nn1 \(one:8020\) is silent, .*nn2 .* is (in standby|silent)"
        with pytest.raises(TimeoutError, match=verdict):
            found.run(5.0, lambda: client.get_file_info("/"), client)
        assert found.client() is client

    @pytest.mark.slow
    def test_a_long_call_of_one_that_answers_is_left_alone(
        self, servers: Servers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hdfs_native_nodes, "PULSE_S", 5.0)  # on a busy machine, too
        found = nodes(servers)
        client = found.client()
        waiting = threading.Event()
        assert found.run(LIMIT_S, lambda: waiting.wait(0.5), client) is False
        assert found.client() is client

    @pytest.mark.slow
    def test_a_call_that_alone_has_no_answer_is_given_up(
        self, servers: Servers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The library itself switches to the other NameNode, and leaves calls pending at the first."""
        monkeypatch.setattr(hdfs_native_nodes, "PULSE_S", 5.0)  # on a busy machine, too
        monkeypatch.setattr(hdfs_native_nodes, "STUCK_S", 0.1)
        found = nodes(servers)
        client = found.client()
        with pytest.raises(SilentError, match="although the NameNode responds to other calls"):
            found.run(LIMIT_S, servers.over.wait, client, is_short=True)
        assert found.client() is client
        waiting = threading.Event()
        single = NameNodes({"nn1": "one:8020"}, servers.connect)
        assert single.run(LIMIT_S, lambda: waiting.wait(0.5), single.client(), is_short=True) is False

    def test_it_is_when_nobody_can_be_reached(self, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
        found = nodes(servers)
        client = found.client()
        servers.silent = {"nn1"}
        monkeypatch.setattr(hdfs_native_nodes, "_why_unreachable", lambda address: f"silent: {address} is away")
        with pytest.raises(SilentError, match=r"one:8020 is away.*two:8020 is away"):
            found.run(LIMIT_S, lambda: client.get_file_info("/"), client)

    @pytest.mark.parametrize(
        ("hang_ups", "is_configured", "has_answered", "error"),
        [
            (2, False, False, NoConfigurationError),
            (1, False, False, OSError),  # the NameNode ended, and answers again
            (2, False, True, OSError),
            (2, True, False, OSError),
        ],
    )
    def test_connections_that_are_closed_without_an_answer(
        self, servers: Servers, hang_ups: int, is_configured: bool, has_answered: bool, error: type[OSError]
    ) -> None:
        """A cluster with Kerberos closes the connections of clients without configuration."""
        single = NameNodes({"one:8020": "one:8020"}, servers.connect, is_configured=is_configured)
        client = single.client()
        servers.active = "one:8020"
        if has_answered:
            single.run(LIMIT_S, lambda: client.get_file_info("/"), client)
        servers.hang_ups = hang_ups
        with pytest.raises(OSError, match=r"RPC listener disconnected|no Hadoop configuration") as caught:
            single.run(LIMIT_S, lambda: client.get_file_info("/"), client)
        assert type(caught.value) is error

    def test_without_an_active_one_nothing_is_sent(self, servers: Servers) -> None:
        servers.active, servers.refusing = "nobody", {"nn1"}
        with pytest.raises(NoNameNodeError, match=r"nn1 .*Connection refused.*nn2 .*in standby"):
            nodes(servers).client()

    @pytest.mark.slow
    def test_one_that_was_silent_is_asked_again_when_it_has_answered(self, servers: Servers) -> None:
        found = nodes(servers)
        client = found.client()
        servers.active, servers.silent = "nn2", {"nn1"}
        with pytest.raises(SilentError):
            found.run(LIMIT_S, lambda: client.get_file_info("/"), client)
        second = found.client()
        servers.active, servers.silent = "nn1", {"nn2"}
        servers.over.set()
        servers.over = threading.Event()
        with pytest.raises(SilentError, match="continuing with nn1"):
            found.run(LIMIT_S, servers.over.wait, second)
        assert first_of(found.client()) == "nn1"


WEB = {"http://one:9870": "one:8020", "http://two:9870": "two:8020"}
PLACE = "http://data:9864/webhdfs/v1/a?op=CREATE&namenoderpcaddress=ns&createflag="


class TestWeb:
    def test_who_answered_is_asked_first_from_then_on(self) -> None:
        found = WebNodes(WEB)
        found.note_silence("http://one:9870")
        found.note_answer("http://two:9870")
        assert found.in_order()[0] == "http://two:9870"

    def test_a_silent_one_is_left_for_the_active_one(self) -> None:
        found = WebNodes(WEB)
        with pytest.raises(SilentNodeError, match="one:9870 is silent, and http://two:9870 is active"):
            found.check_answers("http://one:9870", lambda node: "two" in node)
        assert found.in_order()[0] == "http://two:9870"

    @pytest.mark.parametrize("active", ["one", "nobody"])
    def test_it_is_not_otherwise(self, active: str) -> None:
        found = WebNodes(WEB)
        found.check_answers("http://one:9870", lambda node: active in node)
        assert found.in_order()[0] == "http://one:9870"

    def test_a_datanode_is_told_whom_to_ask_while_another_is_silent(self) -> None:
        found = WebNodes(WEB)
        assert found.direct("http://two:9870", PLACE) == PLACE
        found.note_silence("http://one:9870")
        told = urllib.parse.urlsplit(found.direct("http://two:9870", PLACE))
        query = dict(urllib.parse.parse_qsl(told.query, keep_blank_values=True))
        assert query == {"op": "CREATE", "namenoderpcaddress": "two:8020", "createflag": ""}
        found.note_answer("http://one:9870")
        assert found.direct("http://two:9870", PLACE) == PLACE

    def test_a_datanode_has_a_limit_for_some_time_after_one_was_silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = WebNodes(WEB)
        assert found.first_word_s() == 0
        found.note_silence("http://one:9870")
        assert found.first_word_s() == webhdfs_nodes.FIRST_WORD_MIN_S
        monkeypatch.setattr(webhdfs_nodes, "HELD_UP_S", 0.0)
        assert found.first_word_s() == 0

    def test_a_datanode_that_is_but_slow_is_given_longer(self) -> None:
        found = WebNodes(WEB)
        found.note_silence("http://one:9870")
        limits_s = []
        for _ in range(3 * webhdfs_nodes.UNHEARD_MAX):
            limits_s.append(found.first_word_s())
            found.note_unheard()
        # Up to three of four threads may be blocked, and their connections are served in sequence.
        assert set(limits_s[: webhdfs_nodes.UNHEARD_MAX + 1]) == {webhdfs_nodes.FIRST_WORD_MIN_S}
        assert limits_s[-1] == webhdfs_nodes.FIRST_WORD_MAX_S
        found.note_heard(0.001)
        assert found.first_word_s() == webhdfs_nodes.FIRST_WORD_MIN_S

    def test_one_that_was_slow_lately_is_given_longer_at_once(self) -> None:
        found = WebNodes(WEB)
        found.note_silence("http://one:9870")
        found.note_heard(0.5)
        assert found.first_word_s() == 2.0
        found.note_heard(60)
        assert found.first_word_s() == webhdfs_nodes.FIRST_WORD_MAX_S
        for _ in range(20):
            found.note_heard(0.001)
        assert found.first_word_s() == webhdfs_nodes.FIRST_WORD_MIN_S

    def test_the_only_namenode_holds_up_none(self) -> None:
        found = WebNodes({"http://one:9870": "one:8020"})
        found.note_silence("http://one:9870")
        assert found.first_word_s() == 0

    def test_one_without_an_rpc_address_is_not_named(self) -> None:
        found = WebNodes({"http://one:9870": "", "http://two:9870": ""})
        found.note_silence("http://one:9870")
        assert found.direct("http://two:9870", PLACE) == PLACE


def test_blanks_in_a_list_of_namenodes_are_none_of_their_names() -> None:
    service = NameService("ns", {"dfs.ha.namenodes.ns": "a, b", "dfs.namenode.rpc-address.ns.b": "two:8020"})
    assert service.members == ["a", "b"]
    assert service.rpc_addresses() == {"b": "two:8020"}


@pytest.mark.parametrize(
    ("authority", "default", "text"),
    [
        ("ns:8020", "", "hdfs://ns:8020: 'ns' is a name service"),
        ("", "hdfs://ns:8020", "fs.defaultFS=hdfs://ns:8020: 'ns' is a name service"),
        ("a:1,b:2", "hdfs://ns", "hdfs://a:1,b:2 names several NameNodes"),
        ("", "hdfs://a:1,b:2", "fs.defaultFS=hdfs://a:1,b:2 names several NameNodes"),
    ],
)
def test_what_is_no_name_is_refused_wherever_it_stands(authority: str, default: str, text: str) -> None:
    configuration = {"dfs.ha.namenodes.ns": "a,b", "fs.defaultFS": default}
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}"):
        find_service("hdfs", authority, configuration)
    assert find_service("hdfs", "", configuration | {"fs.defaultFS": "hdfs://ns"}).members == ["a", "b"]
