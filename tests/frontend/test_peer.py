"""A client's certificate, from a real TLS connection to the frontend."""

import ssl
from pathlib import Path

import httpx
import pytest
import uvicorn

from tenantzone_runtime.engine.plugin import register
from tenantzone_runtime.frontend.transport.peer import PeerProtocol
from tests.frontend.harness import PROMPT, echo, frontend, give_zones, serving, tenant_seen
from tests.frontend.identities import BY_CERTIFICATE, Authority, give_files

AUTHORITY = Authority()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Certificates and keys of a server, its gateway and another party, as files."""
    found = {"ca": tmp_path / "ca.pem"}
    found["ca"].write_text(AUTHORITY.pem)
    for name, dns in (("server", "localhost"), ("gateway", "gateway.example"), ("tenant", "tenant.example")):
        found[name] = tmp_path / f"{name}.pem"
        found[name].write_text("".join(AUTHORITY.issue(dns)))
    return found


def client_with(files: dict[str, Path], name: str | None) -> httpx.Client:
    trusting = ssl.create_default_context(cafile=str(files["ca"]))
    trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if name is not None:
        trusting.load_cert_chain(str(files[name]))
    return httpx.Client(verify=trusting, timeout=60)


@pytest.mark.parametrize(("name", "status"), [("gateway", 200), ("tenant", 401), (None, 401)])
def test_only_the_gateways_certificate_opens_the_frontend(
    tmp_path: Path, files: dict[str, Path], name: str, status: int
):
    give_zones(tmp_path, "acme", identity=BY_CERTIFICATE)
    give_files(tmp_path, ca_crt=AUTHORITY.pem)
    tls = {
        "ssl_certfile": str(files["server"]),
        "ssl_keyfile": str(files["server"]),
        "ssl_ca_certs": str(files["ca"]),
        "ssl_cert_reqs": ssl.CERT_OPTIONAL,
    }
    register()
    with serving(frontend(tmp_path, echo), **tls) as url, client_with(files, name) as client:
        answers = [
            client.post(f"{url}/v1/completions", json=PROMPT, headers={"x-tenant": "acme"}, timeout=30)
            for _ in range(2)
        ]
    assert [answer.status_code for answer in answers] == [status, status]
    if status == 200:
        assert tenant_seen(answers[1]) == "acme"


def test_vllm_serves_with_a_protocol_that_shows_peers():
    register()
    config = uvicorn.Config(echo)
    config.load()
    assert issubclass(config.http_protocol_class, PeerProtocol)
