"""Servers whose answers are not those of S3, as a wrong endpoint, a proxy or a broken gateway sends them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Odd:
    """The answer to every request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


ODD = {
    "a redirect": Odd(301),
    "a redirect to nowhere": Odd(307, {"Location": "http://[::1"}, b"<Error><Code>TemporaryRedirect</Code></Error>"),
    "a redirect to no region": Odd(301, {"x-amz-bucket-region": "../a b"}),
    "a login page": Odd(403, {"Content-Type": "text/html"}, b"<html><body>Log in"),
    "no text": Odd(500, {}, b"\xff\xfe\x00"),
    "a length that is no number": Odd(200, {"Content-Length": "many"}),
    "a broken body": Odd(200, {"Transfer-Encoding": "chunked"}, b"zz\r\nabc"),
    "a time that is none": Odd(200, {"Last-Modified": "yesterday"}, b"abcd"),
}


@contextmanager
def odd_server(answer: Odd) -> Iterator[str]:
    """A server that sends one answer to every request; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(answer.status)
            length = {} if "Transfer-Encoding" in answer.headers else {"Content-Length": str(len(answer.body))}
            for name, text in (length | answer.headers).items():
                self.send_header(name, text)
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_HEAD = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def endless_server() -> Iterator[tuple[str, threading.Event]]:
    """A server that sends headers without end, one byte per second.

    Yields:
        The server's URL, and the event of its first request.
    """
    is_closing, is_asked = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            is_asked.set()
            self.send_response(200)
            self.flush_headers()
            while not is_closing.wait(1.0):
                self.wfile.write(b"x")

        do_GET = do_PUT = do_POST = do_HEAD = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", is_asked
        is_closing.set()
        server.shutdown()
