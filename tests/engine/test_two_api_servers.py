"""Two API servers in front of one engine (``--api-server-count 2``): each has its own frontend, and both are alike."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenantzone_contract.reports.report import EngineReport
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.identity import SECRET_FILE, IdentityConfig, Proof, SecretHeader, TrustedHeader
from tenantzone_contract.zone_config.zone_terms import QueueBounds
from tests.engine.real_engine import API_PORT, FRONTEND_DELAY_SECONDS, RealEngine, StartingEngine
from tests.processes import descendants

pytestmark = pytest.mark.flagged_engine

SECRET = "a-secret-of-the-gateways"
BY_HEADER = IdentityConfig(
    trusted_header=TrustedHeader(name="x-tenant", proof=Proof(secret_header=SecretHeader(name="x-proof")))
)
REFUSED = "tenantzone_door_refused_requests_total"


@pytest.fixture(scope="module")
def identity_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


@pytest.fixture(scope="module")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def engine(identity_folder: Path, state_folder: Path) -> Iterator[RealEngine]:
    starting = StartingEngine(
        lambda address, folder: [
            "--num-gpu-blocks-override", "256", "--max-model-len", "4096", "--api-server-count", "2",
        ],
        TENANTZONE_OPEN_ROUTES="/metrics",
        TENANTZONE_IDENTITY_DIR=str(identity_folder),
        TENANTZONE_STATE_DIR=str(state_folder),
    )  # fmt: skip
    try:
        engine = starting.await_health()
        engine.add_keys("acme", "burst", "stranger")
        yield engine
    finally:
        starting.stop()


def zone(tenant: str, **fields: object) -> ZoneConfig:
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **fields)


@contextmanager
def both(engine: RealEngine) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """A client of each API server, over a persistent connection."""
    found: dict[int, httpx.Client] = {}
    with ExitStack() as opened:
        for _ in range(100):
            client = opened.enter_context(httpx.Client(base_url=f"http://{engine.address}:{API_PORT}", timeout=60))
            stream = client.get("/health").extensions["network_stream"]
            found.setdefault(_server_of(engine, stream.get_extra_info("client_addr")), client)
            if len(found) == 2:
                first, second = found.values()
                yield first, second
                return
    raise AssertionError("all connections are of one API server")


def _server_of(engine: RealEngine, client: tuple[str, int]) -> int:
    """The process that answers on a connection."""
    for process, connections in descendants(engine.pid, "net_connections"):
        if any(each.raddr and tuple(each.raddr) == tuple(client) for each in connections):
            return process.pid
    raise AssertionError(f"no process has the connection of {client}")


def ask(client: httpx.Client, tenant: str, prompt: str = "hello", **headers: str) -> httpx.Response:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
    shown = headers or {"authorization": f"Bearer key-of-{tenant}"}
    return client.post("/v1/completions", json=body, headers=shown)


def statuses(engine: RealEngine, tenant: str, **headers: str) -> list[int]:
    with both(engine) as clients:
        return [ask(client, tenant, **headers).status_code for client in clients]


def eventually_both(engine: RealEngine, status: int, tenant: str, **headers: str) -> None:
    """Waits until both frontends answer with this status."""
    engine.wait(lambda: statuses(engine, tenant, **headers) == [status] * 2, f"both answer {status}")


def test_each_frontend_knows_who_asks(engine: RealEngine):
    engine.declare(zone("acme"), zone("burst"))
    assert statuses(engine, "acme") == [200, 200]
    assert statuses(engine, "unknown") == [401, 401]
    assert statuses(engine, "", accept="*/*") == [401, 401]
    assert statuses(engine, "stranger") == [403, 403]
    with both(engine) as clients:
        assert [client.get("/metrics/").status_code for client in clients] == [404, 404]
        assert [client.get("/health", headers={"x": "x" * 70_000}).status_code for client in clients] == [431, 431]


def test_a_key_counts_and_is_revoked_at_both(engine: RealEngine):
    engine.declare(zone("acme"), zone("newcomer"))
    engine.add_keys("newcomer")
    eventually_both(engine, 200, "newcomer")
    (engine.keys_folder / "newcomer").unlink()
    eventually_both(engine, 401, "newcomer")
    assert statuses(engine, "acme") == [200, 200]


def test_both_go_by_the_config_that_the_engine_enforces(engine: RealEngine):
    engine.declare(zone("acme"), zone("burst"))
    engine.write(dump_config(engine.config(zone("burst", eviction_policy="Unheard"))))
    engine.wait(lambda: engine.report().config.rejected is not None, "the engine refuses it")
    time.sleep(FRONTEND_DELAY_SECONDS)
    assert statuses(engine, "acme") == [200, 200]
    engine.declare(zone("burst"))
    eventually_both(engine, 403, "acme")
    assert statuses(engine, "burst") == [200, 200]


def test_what_one_has_computed_is_found_through_the_other_and_by_no_other_tenant(engine: RealEngine):
    engine.declare(zone("acme"), zone("burst"))
    prompt = "what acme asked the first of them. " * 10

    def cached(client: httpx.Client, tenant: str) -> int:
        return ask(client, tenant, prompt).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    with both(engine) as (first, second):
        assert cached(first, "acme") == 0
        assert [cached(client, "burst") for client in (second, first)] == [0, 320]
        assert [cached(client, "acme") for client in (first, second)] == [320, 320]
    engine.renew_salt_key()
    with both(engine) as (first, second):
        assert [cached(first, "acme"), cached(second, "acme")] == [0, 320], "both have the new key"


def test_each_hears_of_the_queue_what_the_engine_says(engine: RealEngine):
    """The queue is the engine's, and its answers reach the API server that asked."""
    engine.declare(zone("acme", queue=QueueBounds(requests=1)), zone("burst"))
    # They arrive faster than the steps that have to compute them.
    prompts = [f"{number}: " + "waiting " * 240 for number in range(30)]
    body = {"model": "tiny", "prompt": prompts, "max_tokens": 1}
    headers = {"authorization": "Bearer key-of-acme"}
    with both(engine) as clients:
        for client in clients:
            eventually_both(engine, 200, "acme")  # refused requests are sent again once there is room
            answer = client.post("/v1/completions", json=body, headers=headers)
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert "the queue of zone acme is full" in answer.json()["error"]["message"]
        assert [ask(client, "burst").status_code for client in clients] == [200, 200]


def test_their_figures_are_added_up(engine: RealEngine):
    engine.declare(zone("acme"))

    def refused() -> float:
        with both(engine) as (client, _):
            families = text_string_to_metric_families(client.get("/metrics").text)
            return sum(
                sample.value
                for family in families
                for sample in family.samples
                if sample.name == REFUSED and sample.labels["reason"] == "unknown_key"
            )

    before = refused()
    assert statuses(engine, "unknown") == [401, 401]
    assert refused() == before + 2


def reported(engine: RealEngine, holds: Callable[[EngineReport], object]) -> EngineReport:
    """A report of two API servers that enforce the engine core's config, once `holds` is true of it."""

    def found() -> bool:
        report = engine.report()
        servers = report.api_servers or ()
        enforced = report.config.applied_hash, report.identity.keys, report.salt_key.id
        agree = [(each.config_hash, each.keys, each.salt_key) == enforced for each in servers]
        return agree == [True, True] and bool(holds(report))

    engine.wait(found, "both API servers enforce what the engine core does")
    return engine.report()


def test_the_report_has_what_each_enforces_also_while_no_request_comes(engine: RealEngine, state_folder: Path):
    engine.declare(zone("acme"), zone("burst"))
    first = reported(engine, lambda report: report.identity.keys)
    assert len({each.process for each in first.api_servers}) == 2
    engine.add_keys("one-more")
    reported(engine, lambda report: report.identity.keys != first.identity.keys)
    engine.renew_salt_key()
    reported(engine, lambda report: report.salt_key.id != first.salt_key.id)
    shutil.rmtree(state_folder)
    engine.declare(zone("acme"))
    reported(engine, lambda report: report.config.applied_hash != first.config.applied_hash)
    assert {path.name for path in state_folder.iterdir()} == {
        "config.json",
        *(f"api-server-{each.process}.json" for each in first.api_servers),
    }


def test_both_go_over_to_another_identity(engine: RealEngine, identity_folder: Path):
    unfinished = identity_folder / ".unfinished"
    unfinished.write_text(SECRET)
    os.utime(unfinished, (0, 0))
    unfinished.rename(identity_folder / SECRET_FILE)
    config = make_config(
        10**7, PoolConfig(namespace="test", name="pool", identity=BY_HEADER), [zone("acme"), zone("burst")]
    )
    engine.write(dump_config(config))
    engine.wait(lambda: engine.report().config.applied_hash == config.hash, "the engine applied the config")
    named = {"x-tenant": "acme", "x-proof": SECRET}
    eventually_both(engine, 200, "", **named)
    assert statuses(engine, "acme") == [401, 401], "an API key counts no more"
    assert statuses(engine, "", **{**named, "x-proof": SECRET[:-1]}) == [401, 401]
