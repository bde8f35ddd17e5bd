"""Orders to the admin port, over real HTTP; and the command that gives them before a pod ends."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tenantzone_contract.cache.migration import (
    LONGEST_ORDER,
    MigrationError,
    MigrationOrder,
    MigrationReport,
    State,
    Work,
    parse_migration,
)
from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, ADMIN_TOKEN_HEADER
from tenantzone_contract.reports.report import ConfigStatus, EngineReport
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tenantzone_runtime.admin_port.admin_migration import MigrationPage
from tenantzone_runtime.commands import hand_down
from tests.reported import SETTINGS
from tests.runtime import scraping

TOKEN = "t" * 40
ORDER = MigrationOrder(order="hand-down", tenant="acme", bytes_per_second=100.0)


class Mover:
    """An engine's part that notes its calls; an order is done when it has been polled twice."""

    def __init__(self) -> None:
        self.orders: list[MigrationOrder] = []
        self.asked: list[tuple[str, bool]] = []
        self.error = ""
        self.refused: set[str] = set()
        """Tenants whose zones can't be moved."""
        self.moves = ""
        """The tenant whose zone another client moves: no other zone can be moved until that is stopped."""
        self.left = 0
        """Chunks of each zone that no storage has at the end."""
        self.others: list[tuple[Work, State]] = []
        """Later work on a zone; it is reported instead of the order."""

    def do(self, order: MigrationOrder) -> None:
        self.orders.append(order)
        if order.order == "stop":
            self.moves = "" if self.moves == order.tenant else self.moves
        elif self.error or order.tenant in self.refused or self.moves not in ("", order.tenant):
            raise MigrationError(self.error or "another zone is being moved")
        self.asked.clear()

    def report(self, tenant: str, with_prompts: bool) -> MigrationReport:
        self.asked.append((tenant, with_prompts))
        work, state = "hand-down", "Done" if len(self.asked) > 2 else "Running"
        if len(self.asked) > 1 and self.others:
            work, state = self.others.pop()
        amounts = {"chunk_bytes": 10, "chunk_tokens": 2, "moved": 3, "left": self.left}
        return MigrationReport(tenant=tenant, work=work, state=state, **amounts)


@pytest.fixture
def mover() -> Mover:
    return Mover()


@pytest.fixture
def port(mover: Mover) -> Iterator[int]:
    with serving(MigrationPage(mover.do, mover.report)) as port:
        yield port


@contextmanager
def serving(page: MigrationPage | None, access: AdminAccess = scraping.EVERYBODY) -> Iterator[int]:
    server = AdminServer("127.0.0.1", 0, engine_report, access=access, migration=page)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


def engine_report() -> EngineReport:
    empty = {"generation": 1, "state": "Evicted", "reserved": 0, "limit": 100, "in_use": 0, "cached": 0}
    zones = [ZoneReport(name=name, tenant=name, **empty) for name in ("acme", "burst")]
    guest = ZoneReport(name="guest", tenant="guest", auto_registered=True, **empty)
    return EngineReport(
        engine_version="simulated",
        pod="engine-0",
        capacity_blocks=100,
        block_size_tokens=16,
        free_blocks=50,
        config=ConfigStatus(),
        **SETTINGS,
        zones=(*zones, guest),
        started_unix_time=0.0,
        published_unix_time=0.0,
    )


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def dumped(order: MigrationOrder) -> bytes:
    return order.model_dump_json(by_alias=True).encode()


def test_an_order_is_taken_and_reported(port: int, mover: Mover):
    status, body = ask(port, "POST", "/migration", dumped(ORDER))
    assert (status, mover.orders) == (200, [ORDER])
    assert parse_migration(body).is_running
    status, body = ask(port, "GET", "/migration?tenant=acme&prompts=true")
    assert (status, mover.asked[-1]) == (200, ("acme", True))
    assert json.loads(body)["tenant"] == "acme"


def test_what_can_not_be_done_now_says_why(port: int, mover: Mover):
    mover.error = "another zone is being moved"
    assert ask(port, "POST", "/migration", dumped(ORDER)) == (409, b"another zone is being moved\n")


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"{}", {}, 400, b"the body is not a valid migration order"),
        (b"", {"Content-Length": str(LONGEST_ORDER + 1)}, 413, b"at most 8,388,608 bytes"),
        (b"", {"Content-Length": "9" * 5000}, 413, b"at most 8,388,608 bytes"),
        (b"", {"Content-Length": "-1"}, 411, b"Content-Length"),
        (b"", {"Content-Length": "many"}, 411, b"Content-Length"),
    ],
)
def test_what_is_no_order_is_not_taken(port: int, mover: Mover, body: bytes, headers, status: int, words: bytes):
    reported, text = ask(port, "POST", "/migration", body, **headers)
    assert (reported, mover.orders) == (status, [])
    assert words in text


def test_whose_zone_has_to_be_said(port: int):
    status, text = ask(port, "GET", "/migration")
    assert (status, text) == (400, b"name the zone's tenant with ?tenant=TENANT\n")


def test_orders_take_a_token(mover: Mover, tmp_path):
    (tmp_path / ACCEPTED_FILE).write_text(TOKEN)
    with serving(MigrationPage(mover.do, mover.report), AdminAccess(tmp_path)) as port:
        assert ask(port, "POST", "/migration", dumped(ORDER))[0] == 401
        assert ask(port, "GET", "/migration?tenant=acme")[0] == 401
        assert mover.orders == []
        assert ask(port, "POST", "/migration", dumped(ORDER), **{ADMIN_TOKEN_HEADER: TOKEN})[0] == 200
        assert mover.orders == [ORDER]
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path)])
        assert [each.tenant for each in mover.orders[1:]] == ["acme", "burst"]


def test_an_engine_without_storages_takes_none():
    with serving(None) as port:
        assert ask(port, "POST", "/migration", dumped(ORDER))[0] == 405
        assert ask(port, "GET", "/migration?tenant=acme")[0] == 404


def test_before_its_pod_ends_an_engine_hands_down_each_zone_of_its_config(port: int, mover: Mover, tmp_path, capsys):
    hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path), "--rate", "5M"])
    assert [(each.order, each.tenant, each.bytes_per_second) for each in mover.orders] == [
        ("hand-down", "acme", 5_000_000.0),
        ("hand-down", "burst", 5_000_000.0),
    ]
    assert capsys.readouterr().out.splitlines()[0] == "acme: Done, 3 chunks (0) moved in 0.0 s"


def test_a_zone_with_something_left_is_not_handed_down(port: int, mover: Mover, tmp_path, capsys):
    mover.left = 10
    with pytest.raises(SystemExit, match="hand-down: 2 of 2 zones were not handed down"):
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path)])
    assert (
        "acme: Done, 3 chunks (0) moved in 0.0 s, 10 chunks not moved, because requests use them"
        in capsys.readouterr().out
    )


def test_when_its_time_is_over_it_is_stopped(port: int, mover: Mover, tmp_path):
    mover.others = [("hand-down", "Running")] * 1000
    with pytest.raises(
        SystemExit, match="the time limit was reached when only 3 chunks of acme were moved; increase --for"
    ):
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path), "--for", "0.5"])
    assert [each.order for each in mover.orders] == ["hand-down", "stop"]


def test_no_zone_is_begun_when_the_time_is_over(port: int, mover: Mover, tmp_path):
    with pytest.raises(SystemExit, match="the time limit was reached before the zone of acme was handed down"):
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path), "--for", "0"])
    assert mover.orders == []


def test_an_engine_that_does_not_answer_is_not_awaited_for_longer_than_there_is_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = ["--admin-port", str(silent.getsockname()[1]), "--admin-token", str(tmp_path), "--for", "0"]
        began = time.monotonic()
        with pytest.raises(SystemExit, match="hand-down: timed out"):
            hand_down.main(command)
    assert time.monotonic() - began < hand_down.CALL_SECONDS


def test_what_an_engine_refuses_is_said(port: int, mover: Mover, tmp_path, capsys):
    mover.error = "another zone is being moved"
    with pytest.raises(SystemExit, match="hand-down: 2 of 2 zones were not handed down"):
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path)])
    assert capsys.readouterr().out == "acme: another zone is being moved\nburst: another zone is being moved\n"


def handed_down(mover: Mover) -> list[str]:
    return [each.tenant for each in mover.orders if each.order == "hand-down"]


def test_a_zone_that_can_not_be_moved_holds_up_no_other(port: int, mover: Mover, tmp_path, capsys):
    mover.refused = {"acme"}
    with pytest.raises(SystemExit, match="hand-down: 1 of 2 zones were not handed down"):
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path)])
    assert handed_down(mover)[-1] == "burst"
    assert capsys.readouterr().out.splitlines()[-1].startswith("burst: Done, 3 chunks")


def test_a_move_of_another_caller_ends_for_an_engine_that_ends(port: int, mover: Mover, tmp_path):
    mover.moves = "burst"
    hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path)])
    assert handed_down(mover) == ["acme", "acme", "burst"]


@pytest.mark.parametrize(
    "other", [("look", "Running"), ("look", "Done"), ("warm-up", "Done"), ("hand-down", "Stopped")]
)
def test_another_order_in_its_place_does_not_pass_for_it(port: int, mover: Mover, tmp_path, other: tuple[Work, State]):
    mover.others = [other]
    hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path)])
    assert handed_down(mover) == ["acme", "acme", "burst"]


def test_waiting_for_the_orders_of_others_has_an_end(port: int, mover: Mover, tmp_path):
    mover.others = [("look", "Done")] * 1000
    with pytest.raises(SystemExit, match="the time limit was reached"):
        hand_down.main(["--admin-port", str(port), "--admin-token", str(tmp_path), "--for", "0.5"])
