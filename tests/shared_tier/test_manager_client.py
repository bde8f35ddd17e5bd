"""Whatever answers instead of the manager, a call ends in time, and buffers at most the size of an answer."""

import re
import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import msgspec
import pytest

from hack.controlplane.credentials import Authority
from tenantzone_manager.server.messages import MAX_KEYS, GetCacheLocationRequest
from tenantzone_runtime.shared.manager.client import LONGEST_ANSWER, ManagerClient, ManagerError

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def listening(serve, tls=None):
    """A socket that a thread serves for as long as the block runs. Gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.getsockname()[1]}"
        finally:
            # A connection that has not arrived by now never will: a busy machine may have used up the time before it.
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def answering(*answers, tls=None):
    """A server that reads a request of each connection, and leaves the rest to its answer. Gives its URL."""

    def serve(server):
        for answer in answers:
            with suppress(OSError):
                connection, _ = server.accept()
                with tls.wrap_socket(connection, server_side=True) if tls else connection as open_one:
                    take(open_one)
                    answer(open_one)

    with listening(serve, tls) as url:
        yield url


def take(connection):
    """Reads one whole request, and returns it."""
    came = b""
    while (found := re.search(rb"Content-Length: ([0-9]+).*?\r\n\r\n(.*)", came, re.DOTALL)) is None or len(
        found[2]
    ) < int(found[1]):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the client has left")
        came += part
    return came


@pytest.fixture(params=[False, True], ids=["http", "https"])
def tls(request, tmp_path, monkeypatch):
    """The server's certificate that the client trusts; None: no TLS."""
    if not request.param:
        return None
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue_server("manager"))
    return context


@pytest.mark.parametrize(
    ("begun", "dripped"),
    [
        (OK + b"X: ", b"x"),
        (b"HTTP/1.1 200 ", b"O"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OK + b"Content-Length: 1000000\r\n\r\n", b" "),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X: y\r\n"),
    ],
    ids=["a header", "the first line", "interim answers", "a body", "chunks", "trailers"],
)
def test_an_answer_that_comes_byte_by_byte_is_not_waited_for(tls, begun, dripped):
    is_over, has_hung = threading.Event(), threading.Event()

    def answer(connection):
        connection.sendall(begun)
        for _ in range(6000):
            connection.sendall(dripped)
            if is_over.wait(0.01):
                return
        # A minute: the client waits as long as something arrives.
        has_hung.set()

    with answering(answer, tls=tls) as url:
        client = ManagerClient(url)
        with pytest.raises(ManagerError) as failed:
            client.list_instances(0.2)
        is_over.set()
        assert not has_hung.is_set()
        assert failed.value.is_failure


def test_an_answer_longer_than_any_of_a_manager_is_a_failed_call():
    part = b" " * 2**20
    length = LONGEST_ANSWER + len(part)

    def answer(connection):
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n{}" % (length + 2))
        for _ in range(length // len(part)):
            connection.sendall(part)

    with answering(answer) as url:
        client = ManagerClient(url)
        with pytest.raises(ManagerError, match="longer than") as failed:
            client.list_instances(60)
        assert failed.value.is_failure


def test_the_longest_answer_is_read_and_the_connection_goes_on(tls):
    asked = []

    def answer(connection):
        body = b'{"blocks": 3}'.ljust(LONGEST_ANSWER)
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        asked.append(take(connection))
        connection.sendall(OK + b'Content-Length: 13\r\n\r\n{"blocks": 4}')

    with answering(answer, tls=tls) as url:
        client = ManagerClient(url)
        assert client.trim_cache("x", 1.0, 60).blocks == 3
        assert client.trim_cache("x", 2.0, 60).blocks == 4
        assert b"/v1/TrimCache" in asked[0]


def test_a_connection_that_the_manager_has_closed_meanwhile_fails_no_call(tls):
    has_closed = threading.Event()

    def answer(connection):
        connection.sendall(OK + b'Content-Length: 13\r\n\r\n{"blocks": 3}')

    def answer_and_close(connection):
        answer(connection)
        # Like a killed process: no sign that the answer ends here.
        connection.close()
        has_closed.set()

    with answering(answer_and_close, answer, tls=tls) as url:
        client = ManagerClient(url)
        assert client.trim_cache("x", 1.0, 60).blocks == 3
        assert has_closed.wait(60)
        assert client.trim_cache("x", 2.0, 60).blocks == 3


def test_a_server_whose_first_words_come_byte_by_byte_is_not_waited_for(tls):
    """They are those of TLS, or of no protocol."""
    is_over, has_hung = threading.Event(), threading.Event()

    def drip(server):
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\x00")
                for _ in range(6000):
                    connection.sendall(b"\0")
                    if is_over.wait(0.01):
                        return
            has_hung.set()

    with listening(drip, tls) as url:
        client = ManagerClient(url)
        with pytest.raises(ManagerError):
            client.list_instances(0.2)
        is_over.set()
    assert not has_hung.is_set()


def test_of_a_longer_prompt_as_many_blocks_are_asked_for_as_a_call_may_name():
    keys = [index.to_bytes(4, "big") for index in range(MAX_KEYS + 1)]
    asked = []

    def serve(server):
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                body = take(connection).partition(b"\r\n\r\n")[2]
                asked.append(msgspec.json.decode(body, type=GetCacheLocationRequest))
                connection.sendall(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")

    with listening(serve) as url:
        client = ManagerClient(url)
        client.get_cache_location("chat", keys, 60)
        client.get_hit("chat", keys, [(b"x", 1)], 60)
    assert [request.block_keys for request in asked] == [keys[:MAX_KEYS]] * 2
