"""The previous release and this one read each other's configs and reports, and ignore or refuse what is newer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenantzone_contract.keys.admin_token import admin_token
from tenantzone_contract.reports.report import ConfigStatus, dump_report, parse_report
from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, RuntimeConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_signature import SIGNATURE_KEY, sign_config
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_contract.zone_config.tiers import CpuTier, PoolTiers, TierShare
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import (
    Fairness,
    Idle,
    LatencyTargets,
    QueueBounds,
    Release,
    RequestLimits,
    RequestPriority,
    Retention,
    SeatShare,
)
from tenantzone_operator.engines.views import view
from tests.operator.objects import report, zone_report
from tests.operator.previous import is_known, unpack_previous
from tests.runtime.folders import project

pytestmark = pytest.mark.skipif(not is_known(), reason="no history of the previous release here: git fetch --unshallow")

# The programs import from the modules of the previous release, which may be elsewhere now.
READ = """
import sys
from tenantzone_contract import config, config_text
try:
    print(config_text.parse_config(sys.stdin.read()).hash)
except config.ConfigError as error:
    print(error)
"""

READ_FOLDER = """
import sys
from pathlib import Path
from tenantzone_runtime import reload
source = reload.ConfigSource(Path(sys.argv[1]), tokens=lambda: (sys.argv[2].encode(),))
source.poll()
print(source.rejection.error if source.rejection else source.config.hash)
"""

READ_REPORT = """
import sys
from tenantzone_operator.engines import reports, views
seen = views.view(reports.read_report_text(sys.stdin.buffer.read()))
zone = seen.zones["acme"]
print(seen.applied_hash, zone.cached, zone.blocks_evicted, zone.evicted_by_ttl, zone.waiting_for)
"""

WRITE_REPORT = """
from tenantzone_contract.report import ConfigStatus, EngineReport, IdentityReport, ZoneReport, dump_report
from tenantzone_contract.report import AdminPortStatus, SaltKeyStatus
zone = ZoneReport(
    name="acme", tenant="acme", generation=1, state="Idle", reserved=0, limit=9, in_use=0, cached=3,
    evictions={"ttl": 4, "own": 1}, waits_for="seats",
)
report = EngineReport(
    engine_version="0.32.0", capacity_blocks=9, block_size_tokens=16, free_blocks=6, zones=(zone,),
    config=ConfigStatus(applied_generation=7, applied_hash="sha256:x", demands_signature=True),
    salt_key=SaltKeyStatus(id="0123456789abcdef"), admin_port=AdminPortStatus(),
    identity=IdentityReport(kind="APIKeys", digest="sha256:y"), started_unix_time=0.0, published_unix_time=1.0,
)
print(dump_report(report).decode())
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path on which Python finds the previous release."""
    return unpack_previous(tmp_path_factory.mktemp("previous"))


def run(previous: str, program: str, *arguments: str, given: str = "") -> str:
    """What a program prints with the modules of the previous release."""
    folder = previous.partition(os.pathsep)[0].rpartition(os.sep)[0]
    check = f"import tenantzone_contract\nassert tenantzone_contract.__file__.startswith({folder!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", check + program, *arguments],
        input=given,
        env={"PYTHONPATH": previous},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def config_of(*zones: ZoneConfig, pool: dict[str, Any] | None = None) -> RuntimeConfig:
    fields = {"watermarks": Watermarks(low=0.1, high=0.2), "unknown_tenants": UnknownTenants(mode="AutoRegister")}
    return make_config(7, PoolConfig(namespace="models", name="main", **fields | (pool or {})), zones)


WHOLE = ZoneConfig(
    name="acme",
    tenant="acme",
    generation=3,
    priority=5,
    reserved="25%",
    limit="50%",
    weight=2,
    idle=Idle(after_seconds=10.0, evict_after_seconds=20.0, release=Release(share="25%", every_seconds=60)),
    eviction_policy="LFU",
    scrub="OnTransfer",
    queue=QueueBounds(requests=9),
    request_limits=RequestLimits(choices=2),
    request_priority=RequestPriority(min=0),
    retention=Retention(ttl_seconds=900.0),
    latency=LatencyTargets(token_time_seconds=0.05),
    fairness=Fairness(header="x-user-id"),
    seats=SeatShare(limit=4),
    adapters=(),
    tiers=(TierShare(tier="cpu"),),
    offload="Never",
    purge="one",
)
TEMPLATE = UnknownTenantTemplate(limit="10%", idle=Idle(forget_after_seconds=60.0))
LEVELS = (TenantLevel(name="gold", tenants=("gold-*",)),)
UNKNOWN = UnknownTenants(mode="AutoRegister", template=TEMPLATE, levels=LEVELS)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(config_of(ZoneConfig(name="acme", tenant="acme", generation=3, reserved="25%")), id="a small one"),
        pytest.param(
            config_of(WHOLE, pool={"unknown_tenants": UNKNOWN, "tiers": PoolTiers(cpu=CpuTier(bytes=1))}),
            id="a whole one",
        ),
    ],
)
def test_its_engine_reads_what_this_operator_writes(previous: str, config: RuntimeConfig):
    assert run(previous, READ, given=dump_config(config)) == config.hash


def test_its_engine_refuses_a_field_that_it_does_not_know_by_name(previous: str):
    content = json.loads(dump_config(config_of(WHOLE)))
    content["zones"][0]["novel"] = 1
    found = run(previous, READ, given=json.dumps(content))
    assert found.startswith("zones[0].novel: Extra inputs are not permitted")


def test_its_engine_trusts_what_this_operator_signs(previous: str, tmp_path: Path):
    config, token = config_of(WHOLE), admin_token(b"k" * 32, "models", "main")
    files = {CONFIG_KEY: dump_config(config).encode()}
    project(tmp_path, files | {SIGNATURE_KEY: sign_config(files, [token], "2026-01-01T00:00:00Z")})
    assert run(previous, READ_FOLDER, str(tmp_path), token) == config.hash


def test_its_operator_reads_what_this_engine_reports(previous: str):
    zone = zone_report("acme", cached=3, evictions={"ttl": 4, "novel": 1}, waits_for="novelty")
    sent = report("engine-0", config=ConfigStatus(applied_generation=7, applied_hash="sha256:x"), zones=(zone,))
    assert run(previous, READ_REPORT, given=dump_report(sent).decode()) == "sha256:x 3 5 4 novelty"


def test_its_plugin_reads_what_this_engine_reports(previous: str):
    zone = zone_report("acme", cached=3, evictions={"ttl": 4, "novel": 1}, waits_for="novelty")
    sent = report("engine-0", config=ConfigStatus(applied_generation=7, applied_hash="sha256:x"), zones=(zone,))
    program = "import sys\nfrom tenantzone_contract.report import parse_report\nread = parse_report(sys.stdin.read())\n"
    shown = "print(read.config.applied_hash, read.zones[0].cached, read.zones[0].waits_for)"
    assert run(previous, program + shown, given=dump_report(sent).decode()) == "sha256:x 3 novelty"


def test_this_operator_reads_what_its_engine_reports(previous: str):
    seen = view(parse_report(run(previous, WRITE_REPORT)))
    zone = seen.zones["acme"]
    assert (seen.applied_hash, seen.salt_key_id, seen.identity) == ("sha256:x", "0123456789abcdef", "sha256:y")
    assert (zone.cached, zone.blocks_evicted, zone.evicted_by_ttl, zone.waiting_for) == (3, 5, 4, "seats")
