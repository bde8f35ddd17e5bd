"""The runtime config: reading returns what was written, and errors are named."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.config import ConfigError, PoolConfig, Watermarks, ZoneConfig
from tenantzone_contract.zone_config.config_text import content_hash, dump_config, make_config, parse_config
from tenantzone_contract.zone_config.tiers import TIER_NAMES, CpuTier, DiskTier, PoolTiers, TierName, TierShare
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle, Lending, Release, Retention

POOL = PoolConfig(namespace="models", name="main")
TIERS = PoolTiers(cpu=CpuTier(bytes=2**30), disk=DiskTier(folder="/data", bytes=2**40))
names = st.text(min_size=1, max_size=253)
seconds = st.floats(min_value=0, max_value=1e9)
int32 = st.integers(-(2**31), 2**31 - 1)
releases = st.tuples(st.integers(1, 100), st.floats(min_value=1, max_value=1e9)).map(
    lambda steps: Release(share=f"{steps[0]}%", every_seconds=steps[1])
)


@st.composite
def shares(draw: st.DrawFn) -> dict[str, Any]:
    """A reservation and a limit that agree."""
    if draw(st.booleans()):
        low, high = sorted(draw(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9))))
        return {"reserved": low, "limit": draw(st.sampled_from([high, None]))}
    low, high = sorted(draw(st.tuples(st.integers(0, 100), st.integers(0, 100))))
    return {"reserved": f"{low}%", "limit": draw(st.sampled_from([f"{high}%", None, 0]))}


@st.composite
def tier_shares(draw: st.DrawFn) -> tuple[TierShare, ...]:
    times = st.none() | st.floats(min_value=0.1, max_value=1e9)
    names: list[TierName] = draw(st.lists(st.sampled_from(TIER_NAMES), unique=True))
    return tuple(TierShare(tier=name, ttl_seconds=draw(times), **draw(shares())) for name in names)


@st.composite
def zones(draw: st.DrawFn) -> tuple[ZoneConfig, ...]:
    tenants = draw(st.lists(names, unique=True, max_size=4))
    return tuple(
        ZoneConfig(
            name=tenant,
            tenant=tenant,
            generation=draw(st.integers(0)),
            priority=draw(int32),
            weight=draw(st.integers(1, 2**31 - 1)),
            lending=Lending(
                lendable=draw(st.sampled_from([0, "0%", "100%"])), max_loan_seconds=draw(st.none() | seconds)
            ),
            idle=Idle(
                after_seconds=draw(seconds),
                evict_after_seconds=draw(st.none() | seconds),
                release=draw(st.none() | releases),
            ),
            scrub=draw(st.sampled_from(["OnTransfer", "Never"])),
            tiers=draw(tier_shares()),
            offload=draw(st.sampled_from(["All", "Prompt", "Never"])),
            **draw(shares()),
        )
        for tenant in tenants
    )


@st.composite
def levels(draw: st.DrawFn) -> tuple[TenantLevel, ...]:
    patterns = st.lists(st.sampled_from(["acme", "gold-*", "*", "A.b_c-"]), min_size=1, max_size=3)
    return tuple(
        TenantLevel(
            name=name,
            tenants=draw(patterns),
            weight=draw(st.integers(1, 2**31 - 1)),
            priority=draw(int32),
            **draw(shares()),
        )
        for name in draw(st.lists(names, unique=True, max_size=3))
    )


@st.composite
def pools(draw: st.DrawFn) -> PoolConfig:
    low, high = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    template = UnknownTenantTemplate(limit=draw(st.sampled_from([None, 5, "10%"])), priority=draw(int32))
    return PoolConfig(
        namespace=draw(names),
        name=draw(names),
        watermarks=Watermarks(low=low, high=high),
        unknown_tenants=UnknownTenants(
            mode=draw(st.sampled_from(["Reject", "AutoRegister"])), template=template, levels=draw(levels())
        ),
        tiers=draw(st.sampled_from([PoolTiers(), TIERS, PoolTiers(cpu=CpuTier(bytes=1))])),
    )


@given(st.integers(1), pools(), zones())
def test_what_is_dumped_is_what_is_parsed(generation, pool, declared):
    config = make_config(generation, pool, declared)
    assert parse_config(dump_config(config)) == config


@given(pools(), zones())
def test_the_hash_depends_on_the_content_alone(pool, declared):
    assert make_config(1, pool, declared).hash == make_config(2, pool, declared).hash == content_hash(pool, declared)


@given(zones(), st.data())
def test_a_file_that_was_cut_off_is_refused(declared, data):
    text = dump_config(make_config(1, POOL, declared))
    with pytest.raises(ConfigError):
        parse_config(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.text())
def test_whatever_the_text_it_is_parsed_or_refused(text):
    with pytest.raises(ConfigError):
        parse_config(text)


def raw() -> dict[str, Any]:
    zone = ZoneConfig(name="acme", tenant="acme", generation=1, reserved=10, limit=50)
    other = ZoneConfig(name="burst", tenant="burst", generation=1, limit="60%")
    return json.loads(dump_config(make_config(3, POOL, (zone, other))))


def changed(path: str, value: object) -> str:
    """The config's text with one field set."""
    config = raw()
    *parents, last = path.split(".")
    target: Any = config
    for part in parents:
        target = target[int(part)] if part.isdigit() else target[part]
    target[last] = value
    return json.dumps(config)


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        ("generation", 0, "generation: "),
        ("generation", "soon", "generation: "),
        ("hash", None, "hash: "),
        ("pool", None, "pool: "),
        ("pool.name", "", "pool.name: "),
        ("pool.namespace", 7, "pool.namespace: "),
        ("pool.watermarks", {"low": 0.5, "high": 0.1}, "pool.watermarks: low (0.5) must not exceed high (0.1)"),
        ("pool.watermarks.high", 1.5, "pool.watermarks.high: "),
        ("pool.unknownTenants.mode", "Ignore", "pool.unknownTenants.mode: "),
        ("pool.unknownTenants.template.limit", "150%", "pool.unknownTenants.template.limit: "),
        ("pool.unknownTenants.levels", [{"name": "gold", "tenants": []}], "pool.unknownTenants.levels[0].tenants: "),
        ("pool.unknownTenants.levels", [{"name": "gold", "tenants": ["g*d"]}], "pool.unknownTenants.levels[0].tenants"),
        ("pool.unknownTenants.levels", [{"name": "gold", "tenants": ["g\n"]}], "pool.unknownTenants.levels[0].tenants"),
        ("pool.unknownTenants.levels", [{"name": "gold", "tenants": ["**"]}], "pool.unknownTenants.levels[0].tenants"),
        (
            "pool.unknownTenants.levels",
            [{"name": "gold", "tenants": ["*"], "reserved": "20%", "limit": "10%"}],
            "pool.unknownTenants.levels[0]: reserved (20%) must not exceed limit (10%)",
        ),
        (
            "pool.unknownTenants.levels",
            2 * [{"name": "gold", "tenants": ["*"]}],
            "pool.unknownTenants: levels: two levels have the name 'gold'",
        ),
        ("zones", {}, "zones: "),
        ("zones.1.name", "acme", "zones: two zones have the name 'acme'"),
        ("zones.1.tenant", "acme", "zones: two zones have the tenant 'acme'"),
        ("zones.0.tenant", "x" * 254, "zones[0].tenant: "),
        ("zones.0.generation", -1, "zones[0].generation: "),
        ("zones.0.priority", 2**31, "zones[0].priority: "),
        ("zones.0.reserved", -1, "zones[0].reserved: expected a whole number that is not negative"),
        ("zones.0.reserved", True, "zones[0].reserved: expected a whole number or a percentage"),
        ("zones.0.reserved", 1.5, "zones[0].reserved: expected a whole number or a percentage"),
        ("zones.1.limit", "101%", 'zones[1].limit: expected a whole percentage from "0%" to "100%"'),
        ("zones.1.limit", "٥%", "zones[1].limit: "),
        ("zones.1.limit", "5%\n", "zones[1].limit: "),
        ("zones.0.reserved", 51, "zones[0]: reserved (51) must not exceed limit (50)"),
        ("zones.1.reserved", "61%", "zones[1]: reserved (61%) must not exceed limit (60%)"),
        ("zones.0.weight", 0, "zones[0].weight: "),
        ("zones.0.lending.lendable", "x", "zones[0].lending.lendable: "),
        ("zones.0.lending.lendable", 11, "zones[0]: lending.lendable (11) must not exceed reserved (10)"),
        ("zones.0.lending.maxLoanSeconds", -1, "zones[0].lending.maxLoanSeconds: "),
        ("zones.0.idle.afterSeconds", "long", "zones[0].idle.afterSeconds: "),
        ("zones.0.idle.release", {"share": "0%", "everySeconds": 1}, "zones[0].idle.release.share: "),
        ("zones.0.idle.release", {"share": "5%\n", "everySeconds": 1}, "zones[0].idle.release.share: "),
        ("zones.0.idle.release", {"share": 25, "everySeconds": 1}, "zones[0].idle.release.share: "),
        ("zones.0.idle.release", {"share": "25%", "everySeconds": 0.9}, "zones[0].idle.release.everySeconds: "),
        ("zones.0.idle.release", {"share": "25%"}, "zones[0].idle.release.everySeconds: "),
        ("zones.0.scrub", "Always", "zones[0].scrub: "),
        ("zones.0.tiers", [{"tier": "tape"}], "zones[0].tiers[0].tier: "),
        ("zones.0.tiers", [{"tier": "cpu", "reserved": -1}], "zones[0].tiers[0].reserved: "),
        ("zones.0.tiers", [{"tier": "cpu", "limit": "101%"}], "zones[0].tiers[0].limit: "),
        ("zones.0.tiers", [{"tier": "cpu", "ttlSeconds": 0}], "zones[0].tiers[0].ttlSeconds: "),
        (
            "zones.0.tiers",
            [{"tier": "cpu", "reserved": 9, "limit": 8}],
            "zones[0].tiers[0]: reserved (9) must not exceed limit (8)",
        ),
        ("zones.0.tiers", 2 * [{"tier": "cpu"}], "zones[0]: tiers: cpu is named twice"),
        ("zones.0.offload", "Sometimes", "zones[0].offload: "),
        ("pool.tiers", {"cpu": {"bytes": 0}}, "pool.tiers.cpu.bytes: "),
        ("pool.tiers", {"cpu": {"bytes": 2**53}}, "pool.tiers.cpu.bytes: "),
        ("pool.tiers", {"disk": {"bytes": 1}}, "pool.tiers.disk.folder: "),
        ("pool.tiers", {"disk": {"bytes": 1, "folder": "data"}}, "pool.tiers.disk.folder: "),
        ("pool.tiers", {"tape": {"bytes": 1}}, "pool.tiers.tape: "),
        ("zones.0.colour", "red", "zones[0].colour: "),
        ("schemaVersion", 3, "schemaVersion: 3 is newer than 2, the newest version that this runtime reads; upgrade"),
        ("schemaVersion", 2, "schemaVersion: "),
        ("schemaVersion", 0, "schemaVersion: "),
        ("schemaVersion", "1", "schemaVersion: "),
        ("extra", 1, "extra: "),
    ],
)
def test_a_bad_field_is_named(path, value, error):
    with pytest.raises(ConfigError) as refused:
        parse_config(changed(path, value))
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("path", ["generation", "hash", "pool", "zones.0.name", "zones.0.tenant", "zones.0.generation"])
def test_a_missing_field_is_named(path):
    config = raw()
    target: Any = config
    *parents, last = path.split(".")
    for part in parents:
        target = target[int(part)] if part.isdigit() else target[part]
    del target[last]
    with pytest.raises(ConfigError, match=last):
        parse_config(json.dumps(config))


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_is_called_empty(text):
    with pytest.raises(ConfigError, match="the config is empty"):
        parse_config(text)


def test_content_that_does_not_fit_its_hash_is_refused():
    with pytest.raises(ConfigError, match=r"hash: the content's hash is sha256:\w+, but the file states sha256:\w+"):
        parse_config(changed("zones.0.priority", 5))


def test_a_zone_list_that_was_cut_short_is_refused():
    with pytest.raises(ConfigError, match="hash: "):
        parse_config(changed("zones", raw()["zones"][:1]))


def test_two_zones_of_one_tenant_can_not_be_made_into_a_config():
    zone = ZoneConfig(name="acme", tenant="acme", generation=1)
    with pytest.raises(ConfigError, match="two zones have the tenant 'acme'"):
        make_config(1, POOL, (zone, zone.model_copy(update={"name": "other"})))


def test_unset_newest_fields_are_not_written_so_that_engines_that_do_not_know_them_read_it():
    written = raw()
    assert "release" not in written["zones"][0]["idle"]
    assert set(written["pool"]["unknownTenants"]) == {"mode", "template"}
    assert "release" not in written["pool"]["unknownTenants"]["template"]["idle"]
    release = Release(share="25%", every_seconds=60)
    zone = ZoneConfig(name="acme", tenant="acme", generation=1, idle=Idle(release=release))
    (written,) = json.loads(dump_config(make_config(1, POOL, (zone,))))["zones"]
    assert written["idle"]["release"] == {"share": "25%", "everySeconds": 60.0}


def test_tiers_are_written_where_they_were_set():
    written = raw()
    assert "tiers" not in written["pool"]
    assert not {"tiers", "offload"} & set(written["zones"][0])
    zone = ZoneConfig(
        name="acme", tenant="acme", generation=1, offload="Never", tiers=(TierShare(tier="disk", reserved="0%"),)
    )
    written = json.loads(dump_config(make_config(1, POOL.model_copy(update={"tiers": TIERS}), (zone,))))
    assert written["pool"]["tiers"] == {"cpu": {"bytes": 2**30}, "disk": {"folder": "/data", "bytes": 2**40}}
    assert written["zones"][0]["offload"] == "Never"
    assert written["zones"][0]["tiers"] == [{"tier": "disk", "reserved": "0%", "limit": None, "ttlSeconds": None}]


def test_no_tier_keeps_anything_longer_than_the_zone_says():
    share = TierShare(tier="disk", ttl_seconds=61.0)
    with pytest.raises(ValueError, match=r"the ttl of disk \(61 s\) must not exceed retention.ttl \(60 s\)"):
        ZoneConfig(name="acme", tenant="acme", generation=1, retention=Retention(ttl_seconds=60.0), tiers=(share,))


def test_a_config_from_a_writer_that_does_not_know_the_newest_fields_is_read():
    declared = (ZoneConfig(name="acme", tenant="acme", generation=1, reserved="25%"),)
    written = json.loads(dump_config(make_config(1, POOL, declared)))
    for zone in written["zones"]:
        del zone["evictionPolicy"], zone["lending"]["graceSeconds"]
    content = {"schemaVersion": 1, "pool": written["pool"], "zones": written["zones"]}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    written["hash"] = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    assert parse_config(json.dumps(written)).zones == declared
