"""An engine of the previous release reads what this one's operator writes, if it uses nothing new."""

import subprocess
import sys
from pathlib import Path

import pytest

from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, RuntimeConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_signature import SIGNATURE_KEY, sign_config
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.tiers import CpuTier, PoolTiers, TierShare
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import (
    Fairness,
    Idle,
    Latency,
    Queue,
    Release,
    RequestLimits,
    RequestPriority,
    Retention,
    SeatShare,
)
from tests.operator.previous import is_known, unpack_previous
from tests.runtime.folders import project

pytestmark = pytest.mark.skipif(not is_known(), reason="no history of the previous release here: git fetch --unshallow")

READ = """
import sys
from tenantzone_contract import config
assert config.__file__.startswith(sys.argv[1]), config.__file__
try:
    print(config.parse_config(sys.stdin.read()).hash)
except config.ConfigError as error:
    print(error)
"""


READ_FOLDER = """
import sys
from pathlib import Path
from tenantzone_runtime import reload
assert reload.__file__.startswith(sys.argv[1]), reload.__file__
source = reload.ConfigSource(Path(sys.argv[2]))
source.poll()
assert source.rejection is None
print(source.config.hash)
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path on which Python finds the previous release."""
    return unpack_previous(tmp_path_factory.mktemp("previous"))


def read_by(previous: str, config: RuntimeConfig) -> str:
    """The hash of the config as the previous release reads it, or why it refuses the config."""
    folder = str(Path(previous.partition(":")[0]).parent)
    reported = subprocess.run(
        [sys.executable, "-c", READ, folder],
        input=dump_config(config),
        env={"PYTHONPATH": previous},
        capture_output=True,
        text=True,
        check=True,
    )
    return reported.stdout.strip()


def config_of(*zones: ZoneConfig, **unknown: object) -> RuntimeConfig:
    pool = PoolConfig(
        namespace="models",
        name="main",
        watermarks=Watermarks(low=0.1, high=0.2),
        unknown_tenants=UnknownTenants(mode="AutoRegister", **unknown),
    )
    return make_config(7, pool, zones)


def test_what_it_knows_it_reads(previous: str):
    zone = ZoneConfig(
        name="acme",
        tenant="acme",
        generation=3,
        priority=5,
        reserved="25%",
        limit="50%",
        weight=2,
        idle=Idle(after_seconds=10.0, evict_after_seconds=20.0),
        eviction_policy="Clock",
        scrub="OnTransfer",
    )
    config = config_of(zone, template=UnknownTenantTemplate(limit="10%", idle=Idle(forget_after_seconds=60.0)))
    assert read_by(previous, config) == config.hash


def test_an_engine_of_that_release_ignores_the_signature(previous: str, tmp_path: Path):
    config = config_of(ZoneConfig(name="acme", tenant="acme", generation=3, reserved="25%"))
    files = {CONFIG_KEY: dump_config(config).encode()}
    project(tmp_path, files | {SIGNATURE_KEY: sign_config(files, ["a" * 43], "2026-01-01T00:00:00Z")})
    folder = str(Path(previous.partition(":")[0]).parent)
    read = subprocess.run(
        [sys.executable, "-c", READ_FOLDER, folder, str(tmp_path)],
        env={"PYTHONPATH": previous},
        capture_output=True,
        text=True,
        check=True,
    )
    assert read.stdout.strip() == config.hash


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        pytest.param(
            config_of(
                ZoneConfig(
                    name="acme", tenant="acme", generation=1, idle=Idle(release=Release(share="25%", every_seconds=60))
                )
            ),
            "zones[0].idle.release: Extra inputs are not permitted",
            id="a release in steps",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, eviction_policy="LFU")),
            "zones[0].evictionPolicy: Input should be 'LRU' or 'Clock'",
            id="a policy that is newer",
        ),
        pytest.param(
            config_of(
                ZoneConfig(name="acme", tenant="acme", generation=1, retention=Retention(ttl_seconds=900.0)),
            ),
            "zones[0].retention: Extra inputs are not permitted",
            id="a ttl",
        ),
        pytest.param(
            config_of(
                ZoneConfig(name="acme", tenant="acme", generation=1, latency=Latency(token_time_seconds=0.05)),
            ),
            "zones[0].latency: Extra inputs are not permitted",
            id="a latency target",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, fairness=Fairness(header="x-user-id"))),
            "zones[0].fairness: Extra inputs are not permitted",
            id="users",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, purge="one")),
            "zones[0].purge: Extra inputs are not permitted",
            id="a purge",
        ),
        pytest.param(
            config_of(levels=(TenantLevel(name="gold", tenants=("gold-*",)),)),
            "pool.unknownTenants.levels: Extra inputs are not permitted",
            id="levels of unknown tenants",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, queue=Queue(requests=9))),
            "zones[0].queue: Extra inputs are not permitted",
            id="a bound on the queue",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, request_limits=RequestLimits(choices=2))),
            "zones[0].requestLimits: Extra inputs are not permitted",
            id="bounds on requests",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, request_priority=RequestPriority(min=0))),
            "zones[0].requestPriority: Extra inputs are not permitted",
            id="a range of priorities",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, adapters=())),
            "zones[0].adapters: Extra inputs are not permitted",
            id="adapters",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, seats=SeatShare(limit=4))),
            "zones[0].seats: Extra inputs are not permitted",
            id="seats",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, tiers=(TierShare(tier="cpu"),))),
            "zones[0].tiers: Extra inputs are not permitted",
            id="tiers",
        ),
        pytest.param(
            config_of(ZoneConfig(name="acme", tenant="acme", generation=1, offload="Never")),
            "zones[0].offload: Extra inputs are not permitted",
            id="what goes on in tiers",
        ),
        pytest.param(
            make_config(1, PoolConfig(namespace="models", name="main", tiers=PoolTiers(cpu=CpuTier(bytes=1))), ()),
            "pool.tiers: Extra inputs are not permitted",
            id="tiers of a pool",
        ),
    ],
)
def test_what_it_does_not_know_it_refuses_by_name(previous: str, config: RuntimeConfig, refusal: str):
    assert read_by(previous, config).startswith(refusal)
