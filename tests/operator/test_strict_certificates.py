"""An API server whose certificates have no key identifiers, as Python 3.13 and newer see it."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from hack.controlplane import credentials
from tenantzone_operator.kube.api import explain
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.login import KopfLogin
from tenantzone_operator.kube.rest import Rest
from tests.operator.test_kubeconfig import write


def without_identifiers(subject: x509.Name, issuer: x509.Name, key: Any, issuer_key: Any) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
    )


@pytest.fixture
async def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The kubeconfig of a server with such a certificate, in a Python whose contexts are strict."""
    monkeypatch.setattr(credentials, "_builder", without_identifiers)
    authority = credentials.Authority(tmp_path / "pki")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue_server("server"))

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"fine": True})

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    (_, port), *_ = runner.addresses

    lenient = ssl.create_default_context

    def strict(*arguments: Any, **named: Any) -> ssl.SSLContext:
        made = lenient(*arguments, **named)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", strict)
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority.certificate)}
    yield write(tmp_path / "config", {"token": "any"}, cluster)
    await runner.cleanup()


async def test_the_error_says_what_is_wrong_and_how_to_allow_it(kubeconfig: Path):
    async with Rest(Connection(str(kubeconfig)).for_kopf) as rest:
        with pytest.raises(aiohttp.ClientConnectorCertificateError) as refused:
            await rest.call("GET", "/")

    said = explain(refused.value)
    assert "Missing Authority Key Identifier" in said or "Missing Subject Key Identifier" in said
    assert "renew the certificates of the API server and its CA with key identifiers" in said
    assert "--allow-missing-key-identifiers" in said


async def test_it_can_be_allowed(kubeconfig: Path):
    async with Rest(Connection(str(kubeconfig), is_lenient=True).for_kopf) as rest:
        assert await rest.call("GET", "/") == {"fine": True}


@pytest.mark.parametrize("is_lenient", [True, False])
async def test_kopfs_client_gets_the_same_error(kubeconfig: Path, is_lenient: bool):
    found = await KopfLogin(Connection(str(kubeconfig), is_lenient)).log_in()

    assert bool(found.as_ssl_context().verify_flags & ssl.VERIFY_X509_STRICT) is not is_lenient
    assert found != await KopfLogin(Connection(str(kubeconfig), is_lenient)).log_in()
