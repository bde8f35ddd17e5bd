"""Random configs, and what they mean for the reference."""

from hypothesis import strategies as st

from tenantzone_contract.zone_config.config import PoolConfig, Watermarks
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import LatencyTargets
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tests.zones.core import declare, releasing

CAPACITY = 20
TENANTS = ("acme", "burst", "calm", "dusk")
SECONDS = st.sampled_from([0.0, 5.0, 10.0, 20.0])
MAYBE_SECONDS = st.one_of(st.none(), SECONDS)
RELEASES = st.sampled_from([None, None, (30, 5.0), (50, 1.0), (100, 10.0)])
"""Pairs of a percentage and the seconds from one step to the next."""

RETENTIONS = st.sampled_from([{}, {}, {}, {"ttl": 5.0}, {"ttl": 12.0}, {"no_store": True}])

SEATS = st.one_of(
    st.just({}),
    st.builds(dict, reserved=st.sampled_from([0, 1, 2, "40%"])),
    st.builds(dict, limit=st.sampled_from([1, 2, "50%"])),
    st.builds(dict, reserved=st.sampled_from([1, 4]), limit=st.sampled_from([4, "60%"])),
)


@st.composite
def shares(draw, max_blocks, *, base=CAPACITY):
    """Shares in blocks, or as a percentage that comes to at most as many."""
    blocks = draw(st.integers(0, max_blocks))
    return f"{100 * blocks // base}%" if base and draw(st.booleans()) else blocks


LATENCIES = [
    *[LatencyTargets()] * 6,
    LatencyTargets(token_time_seconds=0.05, first_token_seconds=0.5),
    LatencyTargets(token_time_seconds=0.0125),
    LatencyTargets(token_time_seconds=0.001),
    LatencyTargets(first_token_seconds=0.001),
]
"""Latency targets: some leave others little, and some no step can meet."""


@st.composite
def zone_configs(draw, tenant, max_blocks):
    reserved = draw(shares(max_blocks))
    limit = None if draw(st.booleans()) else draw(st.integers(0, CAPACITY))
    if limit is not None and (isinstance(reserved, int) or draw(st.integers(0, 9))):
        limit = max(limit, blocks_of(reserved))
    lendable = draw(st.sampled_from(["0%", "50%", "100%"]))
    if isinstance(reserved, int) and draw(st.booleans()):
        lendable = draw(st.integers(0, reserved))
    return declare(
        tenant,
        reserved=reserved,
        limit=limit,
        lendable=lendable,
        priority=draw(st.integers(-2, 2)),
        weight=draw(st.integers(1, 3)),
        borrowers=draw(st.sampled_from(["SameOrHigherPriority", "AnyPriority"])),
        max_loan=draw(MAYBE_SECONDS),
        grace=draw(SECONDS),
        after=draw(SECONDS),
        evict_after=draw(st.sampled_from([None, None, 5.0, 20.0])),
        release=draw(RELEASES),
        eviction_policy=draw(st.sampled_from(list(EVICTION_POLICIES))),
        seats=draw(SEATS),
        purge=draw(st.sampled_from(["", "", "first", "second"])),
        latency=draw(st.sampled_from(LATENCIES)),
        **draw(RETENTIONS),
    )


@st.composite
def pools(draw):
    mode = draw(st.sampled_from(["Reject", "AutoRegister"]))
    template = UnknownTenantTemplate(
        limit=draw(st.one_of(st.none(), shares(CAPACITY))),
        priority=draw(st.integers(-1, 1)),
        idle={
            "after_seconds": draw(SECONDS),
            "forget_after_seconds": draw(MAYBE_SECONDS),
            "release": releasing(draw(RELEASES)),
        },
    )
    levels = [
        TenantLevel(
            name=f"level-{number}",
            tenants=draw(st.sampled_from([("acme", "b*"), ("calm", "dusk"), ("*",)])),
            reserved=draw(shares(CAPACITY)),
            limit=draw(st.sampled_from([None, "100%"])),
            weight=draw(st.integers(1, 3)),
            priority=draw(st.integers(-2, 2)),
        )
        for number in range(draw(st.integers(0, 2)))
    ]
    unknown = UnknownTenants(mode=mode, template=template, levels=levels)
    low, high = sorted((draw(st.integers(0, 10)), draw(st.integers(0, 10))))
    marks = Watermarks(low=low / 10, high=high / 10) if draw(st.booleans()) else Watermarks()
    return PoolConfig(namespace="n", name="p", unknown_tenants=unknown, watermarks=marks)


@st.composite
def configs(draw):
    """Configs whose reservations mostly fit; sometimes they add up to more than the pool has."""
    left = CAPACITY
    zones = []
    for tenant in draw(st.lists(st.sampled_from(TENANTS), unique=True)):
        zone = draw(zone_configs(tenant, left))
        left -= blocks_of(zone.reserved) if draw(st.integers(0, 19)) else 0
        zones.append(zone)
    return make_config(1, draw(pools()), tuple(zones))


def blocks_of(share, base=CAPACITY, *, up=False):
    """Returns the blocks that a share comes to, computed in exact fractions."""
    if isinstance(share, int):
        return share
    whole, rest = divmod(base * int(share[:-1]), 100)
    return whole + (1 if up and rest else 0)


def release_of(idle):
    return None if idle.release is None else (int(idle.release.share[:-1]), idle.release.every_seconds)


def lendable_of(lending, reserved):
    """Returns the lendable blocks: none where a loan would last less than 100 ms."""
    if lending.max_loan_seconds is not None and lending.max_loan_seconds + lending.grace_seconds < 0.1:
        return 0
    return min(reserved, blocks_of(lending.lendable, reserved))


def terms_of(zone):
    reserved = blocks_of(zone.reserved)
    return {
        "reserved": reserved,
        "limit": CAPACITY if zone.limit is None else min(CAPACITY, blocks_of(zone.limit, up=True)),
        "lendable": lendable_of(zone.lending, reserved),
        "priority": zone.priority,
        "weight": zone.weight,
        "any_priority": zone.lending.borrowers == "AnyPriority",
        "has_loan_time": zone.lending.max_loan_seconds is not None,
        "policy": zone.eviction_policy,
        "after": zone.idle.after_seconds,
        "evict_after": zone.idle.evict_after_seconds,
        "release": release_of(zone.idle),
        "forget_after": zone.idle.forget_after_seconds,
        "ttl": zone.retention.ttl_seconds,
        "no_store": zone.retention.no_store,
        "seats": (zone.seats.reserved, zone.seats.limit),
        "purge": zone.purge,
        "auto": False,
        "wanted": 0,
    }


def registered_terms(unknown, tenant):
    """Everything but the reservation, which depends on the other zones."""
    template = terms = unknown.template
    wanted, weight = 0, 1
    for level in reversed(unknown.levels):
        if {tenant, f"{tenant[0]}*", "*"} & set(level.tenants):
            terms, wanted, weight = level, blocks_of(level.reserved), level.weight
    return {
        "wanted": wanted,
        "limit": CAPACITY if terms.limit is None else min(CAPACITY, blocks_of(terms.limit, up=True)),
        "priority": terms.priority,
        "weight": weight,
        "any_priority": False,
        "has_loan_time": False,
        "policy": "LRU",
        "after": template.idle.after_seconds,
        "evict_after": template.idle.evict_after_seconds,
        "release": release_of(template.idle),
        "forget_after": template.idle.forget_after_seconds,
        "ttl": None,
        "no_store": False,
        "seats": (None, None),
        "purge": "",
        "auto": True,
    }
