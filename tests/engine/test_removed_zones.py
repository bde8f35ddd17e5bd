"""A removed zone leaves nothing in memory, whatever features it used."""

import gc
from collections import Counter, deque
from itertools import chain, combinations
from random import Random
from types import ModuleType

import pytest
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.request import Request, RequestStatus

from hack.harness.scheduler import compiled, give_encoder, prompt, vllm_config
from tenantzone_contract.zone_config.config import Watermarks, ZoneConfig
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import (
    Fairness,
    Idle,
    LatencyTargets,
    Lending,
    QueueBounds,
    Release,
    Retention,
    SeatShare,
)

# vLLM loads these by name, and they read the test's clock only if they were imported before it takes effect.
from tenantzone_runtime.engine.tiers import (
    offloading_connector,  # noqa: F401
    offloading_spec,  # noqa: F401
    tier_manager,  # noqa: F401
)
from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES
from tenantzone_runtime.zones.model.zone import Zone
from tests.engine.tiered_driver import TieredEngine

ZONES = 2000
ZONES_AT_ONCE = 40
CAPACITY = 100
MONTH = 30 * 86400.0
REMOVED = "removed-"
"""The prefix of the tenants of all zones that are removed in the end."""

FEATURES = {
    "reserved": [0, 1, 3],
    "limit": [None, 6, CAPACITY],
    "priority": [0, 1],
    "weight": [1, 3],
    "lending": [
        Lending(),
        Lending(borrowers="AnyPriority"),
        Lending(max_loan_seconds=0.5, grace_seconds=0.5),
        Lending(max_loan_seconds=MONTH),
    ],
    "idle": [
        Idle(after_seconds=0.0),
        Idle(after_seconds=MONTH),
        Idle(after_seconds=0.0, evict_after_seconds=MONTH),
        Idle(after_seconds=0.0, release=Release(share="30%", every_seconds=1.0)),
    ],
    "eviction_policy": list(EVICTION_POLICIES),
    "scrub": ["Never", "OnTransfer"],
    "queue": [QueueBounds(), QueueBounds(requests=2)],
    "retention": [Retention(), Retention(ttl_seconds=MONTH), Retention(no_store=True)],
    "latency": [
        LatencyTargets(),
        LatencyTargets(token_time_seconds=0.001),
        LatencyTargets(token_time_seconds=1.0, first_token_seconds=0.001),
    ],
    "fairness": [Fairness(), Fairness(header="x-user")],
    "seats": [SeatShare(), SeatShare(limit=1), SeatShare(reserved=1)],
    "tiers": [(), (TierShare(tier="cpu", reserved="1%"),), (TierShare(tier="cpu", limit="3%", ttl_seconds=MONTH),)],
    "offload": ["All", "Prompt", "Never"],
    # Otherwise its tenant is unknown to the config, and the zone is registered with its first request.
    "declared": [True, False],
    "purged": [False, True],
    "prompt_blocks": [1, 3, 8],
    "max_tokens": [1, 6],
    "adapter": [None, 1, 2, 3],
    "image": [False, True],
    "grammar": [False, True],
    "ending": ["finished", "aborted while it waits", "aborted while it runs", "runs while the zone is removed"],
}


@pytest.fixture
def engine(tmp_path):
    config = vllm_config(tmp_path, sequences=16, max_batched_tokens=512)
    config.lora_config = LoRAConfig(max_loras=2, max_lora_rank=8)
    # Older objects can't refer to the zones of this engine, and would take long to scan each time.
    gc.collect()
    gc.freeze()
    engine = TieredEngine(config, CAPACITY, chunks=200)
    engine.scheduler._scrub_blocks = True
    give_encoder(engine.scheduler, budget=64, cache=256)
    yield engine
    engine.scheduler.shutdown()
    gc.unfreeze()


def test_nothing_of_zones_that_are_gone_stays_in_memory(engine, clock):
    chance = Random(39)
    drawn: set[tuple[object, ...]] = set()
    for first in range(0, ZONES, ZONES_AT_ONCE):
        features = {
            f"{REMOVED}{number}": {name: chance.choice(values) for name, values in FEATURES.items()}
            for number in range(first, first + ZONES_AT_ONCE)
        }
        for of_zone in features.values():
            drawn.update(combinations([(name, repr(value)) for name, value in of_zone.items()], 2))
        live(engine, clock, chance, features)
        assert remains(engine.scheduler) == {}, f"after {first + ZONES_AT_ONCE} zones"
    assert len(drawn) == number_of_pairs(), "some pair of features was never together in one zone"


def number_of_pairs():
    sizes = [len(values) for values in FEATURES.values()]
    return sum(one * other for one, other in combinations(sizes, 2))


def live(engine, clock, chance, features):
    """Adds zones, lets them use their features, and removes them."""
    declare(engine, features, purge="")
    requests = {tenant: send(engine, chance, tenant, of_zone) for tenant, of_zone in features.items()}
    engine.send("stays", prompt(2), max_tokens=5)
    abort(engine, features, requests, "aborted while it waits")
    steps(engine, clock, 2)
    declare(engine, features, purge="first")
    steps(engine, clock, 2)
    abort(engine, features, requests, "aborted while it runs")
    steps(engine, clock, 2)
    unfinished = {tenant: of for tenant, of in features.items() if of["ending"].startswith("runs")}
    declare(engine, unfinished, purge="first")
    steps(engine, clock, 2)
    declare(engine, {}, purge="")
    for _ in range(2000):
        if not engine.scheduler.has_requests():
            break
        steps(engine, clock, 2)
    assert not engine.scheduler.has_requests()
    # Registered zones are forgotten, and the journal reads their events.
    clock.seconds += 2.0
    for _ in range(2):
        engine.scheduler.let_time_pass()
    engine.scheduler.tenancy.usage()
    engine.scheduler.tenancy.ledger.trail.collect()
    assert list(engine.scheduler.tenancy.ledger.zones) == ["stays"]
    forget_what_the_harness_knows(engine)


def declare(engine, features, purge):
    zones = [
        ZoneConfig(
            name=tenant,
            tenant=tenant,
            generation=1,
            purge=purge if of["purged"] else "",
            **{name: of[name] for name in FEATURES if name in ZoneConfig.model_fields},
        )
        for tenant, of in features.items()
        if of["declared"]
    ]
    template = UnknownTenantTemplate(limit=30, idle=Idle(after_seconds=0.0, forget_after_seconds=1.0))
    engine.declare(
        ZoneConfig(name="stays", tenant="stays", generation=1, reserved=10),
        *zones,
        unknown_tenants=UnknownTenants(mode="AutoRegister", template=template),
        watermarks=Watermarks(low=0.05, high=0.1),
    )


def send(engine, chance, tenant, of):
    tokens = prompt(of["prompt_blocks"])
    return [
        engine.send(
            tenant,
            tokens if chance.random() < 0.5 else prompt(of["prompt_blocks"]),
            max_tokens=of["max_tokens"],
            user=chance.choice(["", "one", "other"]),
            grammar=compiled() if of["grammar"] else None,
            adapter=None if of["adapter"] is None else adapter(of["adapter"]),
            images=[(f"image of {tenant}", 0, 16)] if of["image"] else [],
        )
        for _ in range(chance.choice([1, 1, 2]))
    ]


def adapter(number):
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


def abort(engine, features, requests, ending):
    for tenant, of in features.items():
        if of["ending"] == ending:
            names = [request.request_id for request in requests.pop(tenant)]
            engine.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)


def steps(engine, clock, count):
    for _ in range(count):
        engine.step()
        clock.seconds += 0.02
    engine.scheduler.let_time_pass()


def forget_what_the_harness_knows(engine):
    worker = engine.worker
    for kept in (engine.finished, engine.stop_reasons, engine._cached_tokens, worker.blocks, worker.chunks):
        kept.clear()


def remains(scheduler):
    """Remains of removed zones in memory: the number of objects, by the attribute through which they are reached."""
    gc.collect()
    left = {id(each) for each in gc.get_objects() if is_of_removed_zone(each)}
    return Counter(attributes_above(scheduler, left)) if left else {}


def is_of_removed_zone(each):
    # Not `isinstance`: it makes lazy objects import what they stand for.
    if type(each) is Zone:
        return each.spec.tenant.startswith(REMOVED)
    return type(each) is Request and each.request_id.startswith(REMOVED)


def attributes_above(root, wanted):
    """For each wanted object, by id, the last attribute on the shortest path to it from one of our objects."""
    seen, front, missing = {id(root)}, deque([(root, "")]), set(wanted)
    while front and missing:
        each, attribute = front.popleft()
        if id(each) in missing:
            missing.remove(id(each))
            yield attribute
        for part, name in (*parts_by_name(each), *((part, attribute) for part in gc.get_referents(each))):
            if id(part) not in seen and gc.is_tracked(part) and not isinstance(part, type | ModuleType):
                seen.add(id(part))
                front.append((part, name))
    yield from ("not reached from the scheduler" for _ in missing)


def parts_by_name(each):
    slots = chain.from_iterable(getattr(kind, "__slots__", ()) for kind in type(each).__mro__)
    names = [*getattr(each, "__dict__", ()), *slots]
    return [(getattr(each, name, None), f"{type(each).__name__}.{name}") for name in names if isinstance(name, str)]
