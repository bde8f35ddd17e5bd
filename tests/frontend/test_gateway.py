"""The shipped configuration of Envoy, in front of a real frontend: whatever clients claim, Envoy's header counts."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from hack.ports import free_ports
from hack.third_party.envoy import envoy
from tenantzone_contract.zone_config.identity import IdentityConfig, Proof, SecretHeader, TrustedHeader
from tests.frontend.harness import PROMPT, eventually, frontend, give_keys, give_zones, serving, tenant_seen
from tests.frontend.identities import SECRET, bearer, give_files, key_set, token

SHIPPED = Path(__file__).parents[2] / "manifests" / "gateways" / "envoy.yaml"
TENANT, PROOF = "x-llm-d-inference-fairness-id", "x-tenantzone-gateway"
IDENTITY = IdentityConfig(
    trusted_header=TrustedHeader(name=TENANT, proof=Proof(secret_header=SecretHeader(name=PROOF)))
)
ISSUER = "https://login.example.com"


def configured(folder: Path, port: int, engine_port: int) -> Path:
    """The shipped configuration, except for addresses and the location of the issuer's keys."""
    config = yaml.safe_load(SHIPPED.read_text())
    (listener,), (cluster,) = config["static_resources"]["listeners"], config["static_resources"]["clusters"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    endpoint["endpoint"]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": engine_port}
    text = yaml.safe_dump(config).replace("/etc/envoy/jwks.json", str(folder / "jwks.json"))
    (folder / "jwks.json").write_text(key_set())
    (folder / "envoy.yaml").write_text(text)
    return folder / "envoy.yaml"


@contextmanager
def running(folder: Path, engine_url: str) -> Iterator[str]:
    """Envoy in front of a frontend."""
    (port,) = free_ports(1)
    config = configured(folder, port, httpx.URL(engine_url).port)
    command = [envoy(), "--config-path", config, "--base-id", str(os.getpid()), "--concurrency", "1"]
    with (folder / "envoy.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GATEWAY_SECRET": SECRET})
        try:
            eventually(lambda: answers(f"http://127.0.0.1:{port}", process, folder / "envoy.log"), seconds=60)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def answers(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return httpx.get(url, timeout=5).status_code == 401
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URLs of Envoy and of the frontend itself."""
    folder = tmp_path_factory.mktemp("gateway")
    give_keys(folder, burst="burst-key")
    give_zones(folder, "acme", "burst", identity=IDENTITY)
    give_files(folder, secret=SECRET)
    with serving(frontend(folder)) as engine, running(folder, engine) as gateway:
        yield gateway, engine


def ask(url: str, *headers: tuple[str, str]) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=PROMPT, headers=list(headers), timeout=30)


def shown(**claims: object) -> tuple[str, str]:
    return ("authorization", bearer(token(iss=ISSUER, **claims))["authorization"])


def test_the_token_says_who_asks(urls: tuple[str, str]):
    answer = ask(urls[0], shown(tenant="burst"))
    assert tenant_seen(answer) == "burst"
    assert "authorization" not in answer.json()["headers"]
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param([(TENANT, "burst")], id="the tenant"),
        pytest.param([(TENANT, "burst"), (TENANT, "acme")], id="the tenant twice"),
        pytest.param([(TENANT.upper(), "burst")], id="in capitals"),
        pytest.param([(PROOF, "guessed")], id="the secret"),
        pytest.param([(TENANT, "burst"), (PROOF, SECRET)], id="the tenant, and the secret itself"),
        pytest.param([("x-gateway-inference-fairness-id", "burst")], id="the older name"),
        pytest.param([("x-api-key", "burst-key")], id="another tenant's API key"),
        pytest.param([("connection", f"{TENANT}, {PROOF}")], id="headers for this hop alone"),
    ],
)
def test_what_a_client_forges_never_wins(urls: tuple[str, str], forged: list[tuple[str, str]]):
    for headers in ([shown(), *forged], [*forged, shown()]):
        answer = ask(urls[0], *headers)
        assert tenant_seen(answer) == "acme"
        seen = answer.json()["headers"]
        assert {"burst", "guessed"}.isdisjoint(seen.values())
        assert PROOF not in seen
    for headers in ([*forged, shown(tenant=None)], [*forged, shown(aud="others")], forged):
        assert ask(urls[0], *headers).status_code in (401, 403)


def test_names_with_underscores_are_no_way_in(urls: tuple[str, str]):
    assert ask(urls[0], shown(), (TENANT.replace("-", "_"), "burst")).status_code == 400


def test_past_the_gateway_no_header_is_believed(urls: tuple[str, str]):
    assert ask(urls[1], (TENANT, "acme")).status_code == 401
    assert ask(urls[1], shown()).status_code == 401
    assert ask(urls[1], (TENANT, "acme"), (PROOF, SECRET)).status_code == 200, "this is what the gateway says"
