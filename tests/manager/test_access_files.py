"""The files that say who may ask are taken away, broken and given back: the manager goes on, and needs no restart."""

import argparse
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from hack.controlplane.credentials import Authority
from tenantzone_contract.keys.tls import TlsFiles, server_context
from tenantzone_manager import starting
from tenantzone_manager.arguments import make_parser
from tenantzone_manager.manager import CacheManager
from tenantzone_manager.server.access import Authenticator, Reviewed, StaticTokens, Unauthenticated
from tenantzone_manager.server.token_review import ApiServerReview

POOL, OTHER = {"pool": "ml/chat"}, {"pool": "ml/other"}


def of_tokens(path: Path, _: CacheManager) -> Authenticator:
    return StaticTokens(path)


def of_service_accounts(path: Path, manager: CacheManager) -> Authenticator:
    options: argparse.Namespace = make_parser().parse_args(["--index", "unused", "--service-accounts", str(path)])
    return starting._authenticator(options)(manager.catalog)


@pytest.mark.parametrize("make", [of_tokens, of_service_accounts])
async def test_who_may_ask_is_read_again(
    make: Callable[[Path, CacheManager], Authenticator],
    manager: CacheManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def known(_: object, token: str, __: str) -> Reviewed:
        return Reviewed(token)

    monkeypatch.setattr(ApiServerReview, "__call__", known)
    file = tmp_path / "file"

    def put(content: dict[str, Any]) -> None:
        (tmp_path / "next").write_text(json.dumps(content))
        (tmp_path / "next").rename(file)

    put({"ml/one": POOL})
    access = make(file, manager)
    assert (await access.authenticate("ml/one")).pool == "ml/chat"
    file.unlink()
    assert (await access.authenticate("ml/one")).pool == "ml/chat", "what was read stays in force"
    file.write_bytes(b"\xff{")
    for _ in range(3):
        assert (await access.authenticate("ml/one")).pool == "ml/chat"
    put({"ml/one": OTHER, "ml/two": POOL})
    assert (await access.authenticate("ml/one")).pool == "ml/other"
    assert (await access.authenticate("ml/two")).pool == "ml/chat"
    put({"ml/two": POOL})
    with pytest.raises(Unauthenticated):
        await access.authenticate("ml/one")
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2, errors
    assert "file can't be read: No such file or directory; the previous files stay in use" in errors[0]


@pytest.mark.parametrize("make", [of_tokens, of_service_accounts])
@pytest.mark.parametrize("content", [None, "[]", '{"a": {"pol": "ml/chat"}}'])
async def test_a_manager_does_not_start_with_a_file_that_says_nothing(
    make: Callable[[Path, CacheManager], Authenticator], manager: CacheManager, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "file").write_text(content)
    with pytest.raises(ValueError, match="file"):
        make(tmp_path / "file", manager)


async def test_the_authorities_of_the_api_server_are_read_again(tmp_path: Path) -> None:
    """A cluster may change its CA; a pod's own token is read for each review."""
    credentials, port = tmp_path / "credentials", unused_port()
    credentials.mkdir()
    review = ApiServerReview(f"https://localhost:{port}", credentials)

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer own"
        user = {"username": "system:serviceaccount:ml:engine"}
        return web.json_response({"status": {"authenticated": True, "audiences": ["ours"], "user": user}})

    async def serve(authority: Authority) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        context = server_context(TlsFiles(*authority.issue_server("server")))
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        return runner

    def mount(authority: Authority) -> None:
        (credentials / "token").write_text("own\n")
        (credentials / "next").write_bytes(authority.certificate.read_bytes())
        (credentials / "next").rename(credentials / "ca.crt")

    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    runner = await serve(first)
    with pytest.raises(OSError, match="No such file"):
        await review("token", "ours")
    mount(first)
    assert await review("token", "ours") == Reviewed("ml/engine")
    (credentials / "token").unlink()
    with pytest.raises(OSError, match="No such file"):
        await review("token", "ours")
    await runner.cleanup()
    runner = await serve(second)
    mount(second)
    assert await review("token", "ours") == Reviewed("ml/engine")
    await review.close()
    await runner.cleanup()
