"""Implements ``explain ZONE``, which says why a zone is not ready, and shows its loans and waiting requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenantzone_cli.advice import advice
from tenantzone_cli.api import Api, ApiError, Outcome, attempt
from tenantzone_cli.live import EngineAnswer, ask_engines, own_engine_pods
from tenantzone_cli.resources import Condition, Pod, Pool, Zone, read_pool, read_zone
from tenantzone_cli.table import duration, render
from tenantzone_cli.views.engine_lines import engine_table, latency_lines, loan_lines, request_lines, tier_table
from tenantzone_cli.views.tier_reservations import tier_reservations
from tenantzone_contract.kube_names import API, POOLS, ZONES, resource_path
from tenantzone_contract.zone_config.share import floor_blocks
from tenantzone_contract.zone_config.specs import Body

_GOOD_IF_FALSE = ("NotEnforced", "Stalled", "Reconciling")


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that ``explain`` uses: about the zone, its pool, other zones and the pool's engines."""

    zone: Zone
    pool: Pool | None
    siblings: Outcome[Sequence[Zone]]
    """All zones of the namespace, including this one."""
    pods: Outcome[Sequence[Pod]]
    """Pods that the pool selects, except for pods that an older pool selects; empty if the pool does not exist."""
    answers: Sequence[EngineAnswer]
    """One answer for each ready pod in ``pods``."""
    now: float
    """Current Unix time."""


def gather(api: Api, namespace: str, name: str, now: float) -> Facts:
    """Request all facts about one zone from the API server and the pool's engines.

    Raises:
        ApiError: the zone does not exist, or the user may not read it.
        Unreachable: the API server does not answer.
    """
    zone = read_zone(api.get(resource_path(API, namespace, ZONES, name)))
    body = attempt(api.get, resource_path(API, namespace, POOLS, zone.pool))
    pool = read_pool(body) if not isinstance(body, ApiError) else None
    pods: Outcome[Sequence[Pod]] = attempt(own_engine_pods, api, pool) if pool is not None else []
    ready = [pod for pod in pods if pod.ready] if not isinstance(pods, ApiError) else []
    return Facts(
        zone=zone,
        pool=pool,
        siblings=attempt(_zones, api, namespace),
        pods=pods,
        answers=ask_engines(api, [(pool, pod) for pod in ready]) if pool is not None else [],
        now=now,
    )


def _zones(api: Api, namespace: str) -> list[Zone]:
    return [read_zone(body) for body in api.list(resource_path(API, namespace, ZONES))]


def explain(facts: Facts) -> list[str]:
    """Returns the explanation of a zone's state as lines of text."""
    sections = [
        list(_head(facts)),
        list(_conditions(facts)),
        list(_advice(facts)),
        list(_why_not_accepted(facts)),
        list(_pods(facts)),
        list(loan_lines(facts.zone, facts.answers)),
        list(request_lines(facts.zone.name, facts.answers)),
        list(latency_lines(facts.zone.name, facts.answers)),
        list(engine_table(facts.zone, facts.answers)),
        list(tier_table(facts.zone.name, facts.answers)),
        list(_unheard(facts)),
    ]
    return [line for section in sections if section for line in (*section, "")][:-1]


def _head(facts: Facts) -> Iterator[str]:
    zone = facts.zone
    yield f"TenantZone {zone.namespace}/{zone.name}: {_decision(zone)}"
    limit = "none" if zone.limit is None else str(zone.limit)
    yield (
        f"  tenant {zone.tenant}, pool {zone.pool}, priority {zone.priority}, reserved {zone.reserved}, limit {limit}, "
        f"generation {zone.generation}" + (f", age {duration(facts.now - zone.created)}" if zone.created else "")
    )
    if zone.tiers:
        yield f"  tiers: {'; '.join(map(_share, zone.tiers))}; offload {zone.spec.get('offload', 'All')}"


def _share(share: Body) -> str:
    limit = f", limit {share['limit']}" if "limit" in share else ""
    return f"{share['tier']} reserved {share.get('reserved', 0)}{limit}"


def _decision(zone: Zone) -> str:
    ready = zone.condition("Ready")
    if ready is None:
        return "not Ready, because the operator has not handled it yet"
    if zone.observed_generation != zone.generation:
        seen = f"the operator has only seen generation {zone.observed_generation}"
        return f"{seen}, not {zone.generation}; the following describes the older generation"
    if ready.status == "True":
        return "Ready"
    # The first condition that is not True contains the cause; later conditions are consequences of it.
    cause = next(entry for entry in zone.conditions if entry.status != "True")
    return f"{'not Ready' if ready.status == 'False' else 'perhaps not Ready'} ({cause.reason})"


def _conditions(facts: Facts) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    said: dict[str, str] = {}
    for entry in facts.zone.conditions:
        first = said.setdefault(entry.message, entry.type)
        message = entry.message if first == entry.type else f"the same as {first}"
        rows.append((f"  {entry.type}", entry.status, entry.reason, _age(entry, facts.now), message))
    if rows:
        yield from render(("  CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def _age(condition: Condition, now: float) -> str:
    return duration(now - condition.since) if condition.since is not None else "-"


def _advice(facts: Facts) -> Iterator[str]:
    if facts.zone.observed_generation != facts.zone.generation:
        yield "What to do"
        yield "  Check that the operator runs: kubectl tenantzone doctor"
        return
    texts = []
    for condition in facts.zone.conditions:
        is_good = condition.status == ("False" if condition.type in _GOOD_IF_FALSE else "True")
        text = None if is_good else advice(condition, facts.zone)
        if text is not None and text not in texts:
            texts.append(text)
    if texts:
        yield "What to do"
        yield from (f"  {text}" for text in texts)


def _why_not_accepted(facts: Facts) -> Iterator[str]:
    accepted = facts.zone.condition("Accepted")
    if accepted is None or isinstance(facts.siblings, ApiError):
        return
    neighbours = [zone for zone in facts.siblings if zone.pool == facts.zone.pool and zone.key != facts.zone.key]
    match accepted.reason:
        case "PoolOvercommitted":
            others = [zone for zone in neighbours if zone.is_("Accepted")]
            in_tiers = list(tier_reservations(facts.zone, facts.pool, others)) if facts.pool is not None else []
            yield from in_tiers or _reservations(facts, others)
        case "TenantConflict":
            holders = [zone.name for zone in neighbours if zone.tenant == facts.zone.tenant and zone.is_("Accepted")]
            yield f"Tenant {facts.zone.tenant} already has a zone: {', '.join(holders) or 'an older TenantZone'}"


def _reservations(facts: Facts, others: Sequence[Zone]) -> Iterator[str]:
    """Iterates over lines that show which accepted zones hold the pool's reservations, and how much is left."""
    capacity = facts.pool.capacity if facts.pool is not None else None
    if capacity is None:
        return
    yield f"Who holds the reservations of pool {facts.zone.pool}, with {capacity} planned blocks per engine"
    holders = sorted(others, key=lambda zone: zone.created or 0.0)
    blocks = {zone.name: floor_blocks(zone.reserved, capacity) for zone in holders}
    rows = [(f"  {zone.name}", str(zone.reserved), str(blocks[zone.name])) for zone in holders if blocks[zone.name]]
    rows.append(("  not reserved", "", str(capacity - sum(blocks.values()))))
    rows.append((f"  {facts.zone.name} asks for", str(facts.zone.reserved), str(_asked(facts.zone, capacity))))
    yield from render(("  ZONE", "RESERVED", "BLOCKS"), rows)


def _asked(zone: Zone, capacity: int) -> int:
    return floor_blocks(zone.reserved, capacity)


def _pods(facts: Facts) -> Iterator[str]:
    if facts.pool is None:
        return
    if isinstance(facts.pods, ApiError):
        yield f"The pool's pods can't be listed: {facts.pods.message}"
    elif not facts.pods and facts.pool.is_("SelectorOverlaps"):
        return  # The pool's conditions already name the other pools to which the pods belong.
    elif not facts.pods:
        yield f"No pod in namespace {facts.pool.namespace} has the labels {facts.pool.selector}"
    else:
        for pod in facts.pods:
            if not pod.ready:
                yield f"Engine {pod.name} is not ready: {pod.trouble}"


def _unheard(facts: Facts) -> Iterator[str]:
    """Iterates over lines that say what is unknown because engines did not answer, with the engines' errors."""
    if not facts.zone.is_("Accepted"):
        return
    errors: dict[str, list[str]] = {}
    for answer in facts.answers:
        if answer.report is None:
            errors.setdefault(answer.error, []).append(answer.pod)
    if errors:
        yield "Loans and the reasons why requests wait are unknown, because these engines did not answer"
        yield from (f"  {', '.join(pods)}: {error}" for error, pods in errors.items())
    if any(answer.is_forbidden for answer in facts.answers):
        yield "  Asking engines requires the right to get pods/proxy."
