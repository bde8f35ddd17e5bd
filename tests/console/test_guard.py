"""What the console's port refuses, over real HTTP."""

import http.client
import json
import socket
from collections.abc import Callable
from urllib.parse import quote

import pytest

from tenantzone_operator.console.guard import is_own_host
from tests.console.served import FREE, Engine, ServedConsole

PATHS = ("/", "/page/style.css", "/page/main.js", "/api/pools", "/nowhere")


def ask(console: ServedConsole, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    connection.request(method, path, headers={"Host": f"localhost:{console.port}"} | headers)
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost:8082", True),
        ("LOCALHOST", True),
        ("127.0.0.1:1", True),
        ("[::1]:8082", True),
        ("[::1]", True),
        ("", False),
        ("localhost.evil.example:8082", False),
        ("evil.example", False),
        ("10.0.0.7:8082", False),
        ("localhost:8082:1", False),
        ("localhost:x", False),
        ("[::2]:8082", False),
    ],
)
def test_only_names_of_this_very_machine_are_its_own(host: str, is_own: bool):
    assert is_own_host(host) is is_own


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_name_that_points_here_gets_nothing(console: ServedConsole, path: str):
    status, headers, body = ask(console, path, Host="evil.example:8082")
    assert status == 403
    assert b"port-forward" in body
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
@pytest.mark.parametrize("path", ["/", "/api/pools"])
def test_it_is_read_only(console: ServedConsole, method: str, path: str):
    status, headers, _ = ask(console, path, method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_pages_of_other_sites_are_refused_and_links_are_followed(console: ServedConsole):
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert ask(console, "/api/pools", **foreign)[0] == 403
    assert ask(console, "/api/pools", **{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"})[0] == 403
    assert ask(console, "/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})[0] == 200
    assert ask(console, "/api/pools", **{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"})[0] == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_every_answer_has_the_headers_that_protect_it(console: ServedConsole, method: str, path: str):
    status, headers, body = ask(console, path, method, Origin="http://evil.example")
    assert status == (404 if path == "/nowhere" else 200)
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert not any(name.startswith("access-control-") for name in headers)
    assert bool(body) is (method == "GET")


def test_it_listens_on_one_loopback_address_only(console: ServedConsole):
    socket.create_connection(("127.0.0.1", console.port), timeout=60).close()
    # A listener on all addresses has this one, too.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", console.port), timeout=60).close()


@pytest.mark.parametrize("cells", ["0", "4097", "-1", "x", "", "1e3", "²", "9" * 30])
def test_a_picture_of_a_senseless_size_is_refused(console: ServedConsole, engine_of: Callable[..., Engine], cells: str):
    engine_of([FREE])
    status, _, body = ask(console, f"/api/pools/default/demo/blocks/engine-0?cells={quote(cells)}")
    assert status == 400
    assert "from 1 to 4096" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "path", ["/api/pools/default/missing", "/api/pools/default/demo/blocks/engine-9", "/page/../server.py", "/page/"]
)
def test_what_is_not_there_is_not_found(console: ServedConsole, engine_of: Callable[..., Engine], path: str):
    engine_of([FREE])
    assert ask(console, path)[0] == 404


@pytest.mark.parametrize("tier", ["CPU", "cpu/..", "a&b=c", "-", "x" * 64])
def test_a_picture_of_what_can_be_no_tier_is_refused(
    console: ServedConsole, engine_of: Callable[..., Engine], tier: str
):
    engine_of([FREE])
    status, _, body = ask(console, f"/api/pools/default/demo/blocks/engine-0?tier={quote(tier)}")
    assert (status, json.loads(body)) == (400, {"error": "tier must be the name of a tier"})


def test_a_picture_of_a_tier_that_is_not_there_says_so(console: ServedConsole, engine_of: Callable[..., Engine]):
    engine_of([FREE])
    assert ask(console, "/api/pools/default/demo/blocks/engine-0?tier=disk")[0] == 502
