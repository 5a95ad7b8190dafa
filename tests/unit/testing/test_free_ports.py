"""Ports of servers of tests: no client and no other process of tests gets one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import guarded
from tests.guarded import CannotStart, free_ports

ROOT = Path(__file__).resolve().parents[3]
MANY = 400
OTHER = f"from tests.guarded import free_ports; print(*free_ports({MANY}), flush=True); input()"


@pytest.mark.slow
def test_processes_get_different_ports() -> None:
    command = [sys.executable, "-c", OTHER]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        before = len(guarded.RESERVING)
        ours = free_ports(MANY)
        other.communicate("\n")
        for each in guarded.RESERVING[before:]:
            each.close()
        del guarded.RESERVING[before:]
    assert len(theirs) == len(set(ours)) == MANY
    assert theirs.isdisjoint(ours)


def test_a_client_gets_none_of_them() -> None:
    [port] = free_ports(1)
    with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as client:
        assert client.getsockname()[1] != port
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert port not in range(first, last + 1) or first < 2 * guarded.FIRST_PORT


def test_ports_in_use_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 64
    monkeypatch.setattr(guarded, "_first_of_clients", lambda: guarded.FIRST_PORT + few)
    monkeypatch.setattr(guarded, "RESERVING", [])
    with contextlib.ExitStack() as stack:
        [port] = free_ports(1)
        stack.enter_context(socket.create_server(("127.0.0.1", port)))
        guarded.RESERVING.pop().close()
        with pytest.raises(CannotStart, match=f"fewer than {few} ports from {guarded.FIRST_PORT} on are free"):
            free_ports(few)
        reserved = {each.getsockname()[1] for each in guarded.RESERVING}
        assert reserved
        assert port not in reserved
    for each in guarded.RESERVING:
        each.close()
