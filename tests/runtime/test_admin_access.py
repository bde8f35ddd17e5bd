"""Which callers may read the admin port, over real HTTP and with a real folder of tokens."""

import logging
import socket
import urllib.request
from pathlib import Path

import pytest

from tenantzone_contract.keys.admin_token import ADMIN_TOKEN_HEADER, admin_secret_data, admin_token
from tenantzone_contract.reports.report import AdminPortStatus
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.runtime.folders import project
from tests.runtime.scraping import get, scraped

NEW, OLD = (admin_token(key * 32, "models", "demo") for key in (b"n", b"o"))
PATHS = ("/report", "/metrics", "/blocks", "/nothing", "/report?cells=4", "//report", "/healthz/../report")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "admin"


def give(folder: Path, *tokens: str) -> None:
    """Projects tokens, as kubelet does with the pool's Secret."""
    project(folder, {name: content.decode() for name, content in admin_secret_data(tokens).items()})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer(NEW[:-1]),
        bearer(NEW + "A"),
        bearer(OLD),
        {"Authorization": NEW},
        {"Authorization": f"Basic {NEW}"},
        {ADMIN_TOKEN_HEADER: OLD},
        bearer("\xe4" * 43),
    ],
)
def test_nothing_is_shown_without_the_token(folder: Path, path: str, headers: dict[str, str]):
    give(folder, NEW)
    with scraped(access=AdminAccess(folder)) as url:
        status, _, body = get(url + path, **headers)
    assert status == 401
    assert b"tenantzone-admin-POOL" in body
    assert not {b"acme", b"engine-0", NEW.encode()} & set(body.split())
    assert NEW.encode() not in body


@pytest.mark.parametrize("headers", [bearer(NEW), {"Authorization": f"bearer  {NEW} "}, {ADMIN_TOKEN_HEADER: NEW}])
@pytest.mark.parametrize("path", ["/report", "/metrics"])
def test_a_caller_with_the_token_gets_an_answer(folder: Path, path: str, headers: dict[str, str]):
    give(folder, NEW)
    with scraped(access=AdminAccess(folder)) as url:
        assert get(url + path, **headers)[0] == 200


def test_health_is_answered_to_any_caller_and_names_no_tenants(folder: Path):
    with scraped(access=AdminAccess(folder)) as url:
        assert get(f"{url}/healthz")[::2] == (200, b"ok\n")


def test_a_refusal_names_our_realm(folder: Path):
    with scraped(access=AdminAccess(folder)) as url, pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{url}/report")
    assert raised.value.headers["WWW-Authenticate"] == 'Bearer realm="tenantzone"'


def test_without_a_file_of_tokens_the_port_is_closed_and_says_what_is_missing(folder: Path):
    access = AdminAccess(folder)
    with scraped(access=access) as url:
        status, _, body = get(f"{url}/report", **bearer(NEW))
    assert status == 401
    assert f"there is no token in {folder}/accepted".encode() in body
    assert access.status == AdminPortStatus(error=f"accepted is not in the folder {folder}")


def test_while_tokens_are_changed_two_are_in_force(folder: Path):
    give(folder, OLD)
    access = AdminAccess(folder)

    def admitted() -> list[bool]:
        access.poll()
        return [not access.refusal(f"Bearer {token}", "") for token in (NEW, OLD)]

    assert admitted() == [False, True]
    give(folder, NEW, OLD)
    assert admitted() == [True, True]
    give(folder, NEW)
    assert admitted() == [True, False]


@pytest.mark.parametrize("content", ["", "short", "a" * 31, "ä" * 40, f"{NEW}\n{OLD}\n{'x' * 43}", "a" * 257])
def test_a_file_that_breaks_takes_nothing_away(folder: Path, content: str):
    give(folder, OLD)
    access = AdminAccess(folder)
    project(folder, {"accepted": content})
    access.poll()
    assert access.refusal(f"Bearer {OLD}", "") == ""
    assert access.status.error.startswith("accepted: ")
    assert content == "" or content not in access.status.error


def test_a_secret_that_goes_takes_nothing_away_until_there_is_another(folder: Path):
    give(folder, OLD)
    access = AdminAccess(folder)
    project(folder, {})
    access.poll()
    assert access.refusal("", OLD) == ""
    assert "is not in the folder" in access.status.error
    give(folder, NEW)
    access.poll()
    assert access.refusal("", OLD) != ""
    assert access.status == AdminPortStatus()


def test_refusals_are_counted(folder: Path):
    give(folder, NEW)
    access = AdminAccess(folder)
    with scraped(access=access) as url:
        for headers in ({}, bearer(OLD), bearer(NEW)):
            get(f"{url}/report", **headers)
        get(f"{url}/healthz")
    assert access.refused == 2


def test_an_open_port_says_so(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        access = AdminAccess(None)
    assert "any client can read" in caplog.text
    assert access.status == AdminPortStatus(open=True)
    with scraped(access=access) as url:
        assert get(f"{url}/report")[0] == 200


def test_bytes_that_are_no_text_are_refused(folder: Path):
    give(folder, NEW)
    with scraped(access=AdminAccess(folder)) as url, socket.create_connection(("127.0.0.1", int(url[17:]))) as client:
        client.sendall(b"GET /report HTTP/1.0\r\nAuthorization: Bearer \xff\xfe\x00\r\n\r\n")
        assert b" 401 " in client.recv(4096)
