"""The admin port over real HTTP."""

import http.client
import json
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from msgspec import structs

from tenantzone_contract.reports.report import ConfigStatus, EngineReport, parse_report
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_runtime.admin_port.admin import AdminServer, _Server
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.reported import SETTINGS
from tests.runtime import scraping
from tests.slow_clients import HALF_A_BODY, is_closed_within
from tests.slow_clients import connect as slow_connect
from tests.waiting import await_that

PUBLISHED = 1_000.0

ACME = ZoneReport(
    name="acme-zone",
    tenant="acme",
    generation=3,
    state="Active",
    reserved=40,
    limit=100,
    in_use=10,
    cached=25,
    waiting_requests=2,
    running_requests=1,
    prefix_query_tokens=400,
    prefix_hit_tokens=300,
    prompt_tokens=500,
    generation_tokens=60,
    evictions={"own": 7},
    preemptions=4,
)


def report() -> EngineReport:
    return EngineReport(
        engine_version="0.32.0",
        pod="engine-0",
        capacity_blocks=255,
        block_size_tokens=16,
        free_blocks=220,
        config=ConfigStatus(applied_generation=5, applied_hash="sha256:00", applied_unix_time=990.0),
        **SETTINGS,
        zones=(ACME,),
        started_unix_time=900.0,
        published_unix_time=PUBLISHED,
    )


@contextmanager
def serving(
    read_report: Callable[[], EngineReport] = report,
    *,
    access: AdminAccess = scraping.EVERYBODY,
    now: float = PUBLISHED,
    max_age: float = 5.0,
) -> Iterator[str]:
    server = AdminServer("127.0.0.1", 0, read_report, access=access, max_age=max_age, now=lambda: now)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str, **headers: str) -> tuple[int, str, str]:
    status, content_type, body = scraping.get(url, **headers)
    return status, content_type, body.decode()


def test_the_report_is_served_as_it_was_published():
    with serving() as url:
        status, content_type, body = get(f"{url}/report")
    assert (status, content_type) == (200, "application/json")
    assert parse_report(body) == report()


def test_each_request_reads_the_newest_report():
    published = iter([structs.replace(report(), free_blocks=count) for count in (1, 2)])
    with serving(lambda: next(published)) as url:
        assert [json.loads(get(f"{url}/report")[2])["freeBlocks"] for _ in range(2)] == [1, 2]


def test_healthy_while_reports_are_young():
    with serving(now=PUBLISHED + 5.0, max_age=5.0) as url:
        assert get(f"{url}/healthz")[0] == 200


def test_unhealthy_when_no_report_was_published_for_too_long():
    with serving(now=PUBLISHED + 5.1, max_age=5.0) as url:
        status, _, body = get(f"{url}/healthz")
    assert status == 503
    assert "5.1 s old" in body


def test_head_answers_without_a_body():
    with serving() as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"HEAD /report HTTP/1.0\r\n\r\n")
            head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"Content-Length: " in head
    assert body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_it_is_read_only(method):
    with serving() as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        connection.request(method, "/report", body=b"{}")
        response = connection.getresponse()
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        connection.close()


def test_an_unknown_path_names_the_known_ones():
    with serving() as url:
        status, _, body = get(f"{url}/reports")
    assert status == 404
    assert "/report, /healthz, /metrics" in body


def test_a_port_in_use_is_named_with_what_to_change():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=rf"127\.0\.0\.1:{port} can't be opened .*; choose another port with --admin-port"
        ):
            AdminServer("127.0.0.1", port, report, access=AdminAccess(None))


def test_a_host_that_is_not_here_is_named():
    with pytest.raises(OSError, match="check --admin-host"):
        AdminServer("192.0.2.1", 0, report, access=AdminAccess(None))


def test_stopping_frees_the_port_and_leaves_no_thread():
    before = set(threading.enumerate())
    with serving() as url:
        get(f"{url}/report")
        port = int(url.rpartition(":")[2])
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    assert set(threading.enumerate()) <= before
    socket.create_server(("127.0.0.1", port)).close()


def test_stopping_before_starting_frees_the_port():
    server = AdminServer("127.0.0.1", 0, report, access=AdminAccess(None))
    server.stop()
    socket.create_server(("127.0.0.1", server.port)).close()


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_client_that_trickles_makes_room_for_others(monkeypatch):
    monkeypatch.setattr(_Server, "max_connections", 3)
    with serving() as url, ExitStack() as clients:
        slow = [clients.enter_context(closing(connect(url))) for _ in range(8)]
        for number in range(2):
            for client in slow[-3:]:
                client.sendall(b"GE"[number : number + 1])
        assert [client.recv(1) for client in slow[:5]] == [b""] * 5
        assert get(f"{url}/healthz")[0] == 200
        assert slow[5].recv(1) == b""
        slow[7].sendall(b"T /healthz HTTP/1.0\r\n\r\n")
        assert slow[7].recv(12) == b"HTTP/1.0 200"


def test_a_client_that_trickles_comes_to_an_end(monkeypatch):
    monkeypatch.setattr(_Server, "connection_seconds", 0.5)
    with serving() as url, closing(connect(url)) as client:
        client.settimeout(0.05)
        client.sendall(b"GET /")
        while not is_closed(client):
            with suppress(ConnectionError):
                client.sendall(b"a")


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch, method):
    monkeypatch.setattr(_Server, "connection_seconds", 0.5)
    with serving() as url:
        port = int(url.rpartition(":")[2])
        assert is_closed_within(port, HALF_A_BODY.replace(b"POST", method.encode()), b"a")


def test_a_client_that_never_reads_comes_to_an_end(monkeypatch):
    monkeypatch.setattr(_Server, "connection_seconds", 0.5)
    answered = threading.Event()

    def dump(_: object) -> bytes:
        answered.set()
        return b"a" * 2**23

    monkeypatch.setattr("tenantzone_runtime.admin_port.admin.dump_report", dump)
    before = answering()
    with serving() as url, closing(slow_connect(int(url.rpartition(":")[2]), receive_bytes=4096)) as client:
        client.sendall(b"GET /report HTTP/1.0\r\n\r\n")
        assert answered.wait(60)
        await_that(lambda: not answering() - before, "its thread has ended")


def answering() -> set[threading.Thread]:
    """The threads that are answering a request."""
    return {thread for thread in threading.enumerate() if "process_request" in thread.name}


def test_many_may_come_at_once():
    with serving() as url, ExitStack() as clients:
        for _ in range(60):
            clients.enter_context(closing(connect(url))).sendall(b"G")
        assert get(f"{url}/healthz")[0] == 200


def test_a_client_that_goes_is_no_error(capsys, caplog):
    with serving() as url, caplog.at_level(logging.DEBUG):
        for _ in range(5):
            client = connect(url)
            client.sendall(b"GET /report HTTP/1.0\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        await_that(lambda: caplog.text.count("has disconnected") == 5, "a line for each of them")
    assert capsys.readouterr().err == ""
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_page_that_fails_is_logged(caplog):
    def fail() -> EngineReport:
        raise RuntimeError("no report")

    with serving(fail) as url, closing(connect(url)) as client:
        client.sendall(b"GET /report HTTP/1.0\r\n\r\n")
        assert client.recv(1) == b""
    assert "no report" in caplog.text
