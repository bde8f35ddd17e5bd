"""Engines on loopback, to which no API server proxies, are queried from here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenantzone_cli.api import Api
from tenantzone_cli.live import EngineAnswer, ask_engines
from tenantzone_cli.resources import Pod, Pool
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.cli.reports import engine_report

NO_API_SERVER = Api(Path("/nowhere"))


@pytest.fixture
def admin_port() -> Iterator[int]:
    server = AdminServer("127.0.0.1", 0, engine_report, access=AdminAccess(None))
    server.start()
    yield server.port
    server.stop()


def ask(ip: str, port: int) -> EngineAnswer:
    pool = Pool("shop", "demo", 1, None, {"adminPort": port}, {}, {})
    (answer,) = ask_engines(NO_API_SERVER, [(pool, Pod("shop", "engine-0", True, "", {}, ip))])
    return answer


def test_an_engine_on_loopback_is_asked_without_the_api_server(admin_port: int):
    answer = ask("127.0.0.1", admin_port)

    assert answer.report is not None
    assert answer.report.pod == "engine-0"
    assert answer.asked_at is not None


@pytest.mark.parametrize("ip", ["192.0.2.10", "10.0.0.7", "", "::ffff:192.0.2.10", "engine-0"])
def test_every_other_one_through_the_api_server(admin_port: int, ip: str):
    assert ask(ip, admin_port).error == "[Errno 2] No such file or directory"


def test_one_that_wants_a_token_which_can_not_be_read_is_named_with_the_secret(tmp_path: Path):
    server = AdminServer("127.0.0.1", 0, engine_report, access=AdminAccess(tmp_path))
    server.start()
    answer = ask("127.0.0.1", server.port)
    server.stop()

    assert answer.report is None
    assert answer.error.startswith("its admin port asks for the token in the Secret shop/tenantzone-admin-demo: ")


def test_one_that_is_not_there_is_named_with_its_address(admin_port: int):
    answer = ask("127.0.0.2", admin_port)

    assert answer.report is None
    assert answer.error == f"127.0.0.2:{admin_port} on this machine: [Errno 111] Connection refused"
