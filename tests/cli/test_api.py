"""How the plugin handles an API server's answers."""

import http.server
import json
import socketserver
import threading
from contextlib import contextmanager

import pytest

from tenantzone_cli.api import Api, ApiError


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextmanager
def api_server(path, *answers):
    """An API server at a socket that gives these answers, each a status and a body, one after another."""
    left = iter(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = next(left)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def address_string(self):
            return "a socket"

    with _Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Api(path)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("details", [{"retryAfterSeconds": 0}, {"retryAfterSeconds": -5}])
def test_it_asks_again_when_the_api_server_says_later(tmp_path, details):
    later = 429, {"kind": "Status", "message": "later", "details": details}
    with api_server(tmp_path / "socket", later, later, (200, {"kind": "Pod"})) as api:
        assert api.ask("GET", "/x").json() == {"kind": "Pod"}


@pytest.mark.parametrize("details", [None, [], "soon", {"retryAfterSeconds": None}, {"retryAfterSeconds": "soon"}])
def test_it_asks_again_where_later_is_said_without_a_time(tmp_path, details):
    later = 429, {"kind": "Status", "message": "later", "details": details}
    with api_server(tmp_path / "socket", later, (200, {"kind": "Pod"})) as api:
        assert api.ask("GET", "/x").json() == {"kind": "Pod"}


def test_who_says_later_again_and_again_is_believed(tmp_path):
    later = 429, {"kind": "Status", "message": "later", "details": {"retryAfterSeconds": 0}}
    with api_server(tmp_path / "socket", *[later] * 4) as api, pytest.raises(ApiError, match="later"):
        api.ask("GET", "/x")
