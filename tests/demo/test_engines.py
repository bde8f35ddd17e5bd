"""Engines side by side, each with its own cores."""

import os
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import httpx
import pytest

from hack.demo import engines
from hack.demo.engines import Engine, cores_for, reach_directly
from hack.ports import free_address, free_ports


@pytest.mark.parametrize(
    ("cores", "shares"),
    [
        pytest.param({0, 1}, ["0", "1"], id="two cores: one each"),
        pytest.param({2, 3, 6, 7}, ["2,3", "6,7"], id="the cores that the process may use, in halves"),
        pytest.param({5}, ["5", "5"], id="a single core is shared"),
    ],
)
def test_engines_share_the_cores(monkeypatch: pytest.MonkeyPatch, cores: set[int], shares: list[str]):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
    assert [cores_for(index, 2) for index in (0, 1)] == shares


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    (port,) = free_ports(1)
    monkeypatch.setattr(engines, "API_PORT", port)
    found = Engine("engine", free_address(port))
    server = ThreadingHTTPServer((found.ip, port), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("others", ["", "somewhere"])
def test_no_proxy_is_asked_for_an_engine(monkeypatch: pytest.MonkeyPatch, engine: Engine, others: str):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        # No process listens on this port.
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, others)
    # An earlier caller in this process has created one for the environment of that time.
    monkeypatch.setattr(urllib.request, "_opener", None)
    with pytest.raises(OSError, match="refused"):
        urlopen(engine.health_url)

    reach_directly(engine)

    with urlopen(engine.health_url) as answer:
        assert answer.status == 200
    assert httpx.get(engine.health_url, timeout=60).status_code == 200
    assert os.environ["NO_PROXY"].startswith(others)
