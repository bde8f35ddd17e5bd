"""kopf's logins: as often as its credentials are refused, and for as long as it takes."""

import asyncio
import logging
from pathlib import Path

import pytest

from tenantzone_operator.kube.credentials import login
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.login import KopfLogin
from tests.operator.test_kubeconfig import write

CLUSTER = {"server": "http://one:6443"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "PAUSE_SECONDS", 0.01)


async def test_the_same_token_is_another_login(tmp_path: Path):
    logins = KopfLogin(Connection(str(write(tmp_path / "config", {"token": "same"}, CLUSTER))))

    first, second = await logins.log_in(), await logins.log_in()

    assert first.token == second.token == "same"
    assert first.server == "http://one:6443"
    # kopf refuses what is among the refused credentials.
    assert second not in [first]


async def test_it_is_tried_until_it_can_be_done(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    config = write(tmp_path / "config", {"tokenFile": "token"}, CLUSTER)
    complained = asyncio.Event()

    def complains(_: logging.LogRecord) -> bool:
        complained.set()
        return True

    caplog.handler.addFilter(complains)

    with caplog.at_level(logging.WARNING):
        found = asyncio.create_task(KopfLogin(Connection(str(config))).log_in())
        await complained.wait()
        (tmp_path / "token").write_text("there")

        assert (await found).token == "there"

    assert "can't log in to the API server" in caplog.text
    assert caplog.text.count("No such file") == 1
