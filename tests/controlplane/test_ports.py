"""Ports and addresses for servers that start side by side."""

import socket
import subprocess
import sys

import pytest

from hack import ports


def in_another_process(expression: str) -> str:
    program = f"from hack import ports; print({expression})"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_port_goes_to_one_process_only():
    (port,) = ports.free_ports(1)
    assert in_another_process(f"ports._take('127.0.0.1', {port})") == "False"
    assert not ports._take("127.0.0.1", port)


def test_all_that_were_asked_for_differ():
    assert len(set(ports.free_ports(50))) == 50


def test_an_address_goes_to_one_process_only():
    ip = ports.free_address(8123)
    assert in_another_process(f"ports._take('{ip}', 8123)") == "False"
    assert in_another_process(f"ports._take('{ip}', 8124)") == "True"


def test_an_address_with_one_taken_port_is_not_taken_at_all():
    ip = ports.free_address(8125)
    assert not ports._take(ip, 8126, 8125)
    assert ports._take(ip, 8126)


def test_a_server_listens_there_as_often_as_it_likes():
    (port,) = ports.free_ports(1)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port)).close()


def test_it_is_said_when_there_is_none(monkeypatch: pytest.MonkeyPatch):
    (port,) = ports.free_ports(1)
    monkeypatch.setattr(ports, "_BELOW_OUTGOING", range(port, port + 1))
    with pytest.raises(OSError, match=f"no free port .* {port}"):
        ports.free_ports(1)
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        port = everywhere.getsockname()[1]
        with pytest.raises(OSError, match=f"{port}.*0.0.0.0"):
            ports.free_address(port)
