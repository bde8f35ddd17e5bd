"""The tables of docs/algebra.md, row by row: the document says what the code does."""

from collections import Counter
from pathlib import Path

import pytest

from tenantzone_contract.zone_config.unknown_tenants import TenantLevel, UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.zones.blocks.eviction import make_room
from tenantzone_runtime.zones.model.fair_queue import Account, FairQueue
from tenantzone_runtime.zones.model.zone import EARLY_TENANT
from tenantzone_runtime.zones.schedule import preemption
from tests.zones.core import Core, Request, declare
from tests.zones.small_engine import SmallEngine
from tests.zones.test_configure import spec_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "algebra.md"


def table(first_column):
    """The rows, without the header, of the table whose first column has this heading."""
    lines = iter(DOCUMENT.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {first_column} |"):
            next(lines)
            break
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows, f"no table begins with {first_column}"
    return rows


def build(zones):
    """``pool 80; acme: reserved 40, quiet; gold``: a core with these zones."""
    parts = [part.strip() for part in zones.split(";")]
    capacity = int(parts.pop(0).removeprefix("pool ")) if parts[0].startswith("pool ") else 100
    core = Core(capacity)
    for part in parts:
        name, _, terms = part.partition(":")
        fields = {}
        for term in filter(None, (term.strip() for term in terms.split(","))):
            key, _, value = term.partition(" ")
            fields[key] = True if not value else int(value) if value.lstrip("-").isdigit() else value
        overdue = fields.pop("overdue", 0)
        zone = core.early(**fields) if name == "(before)" else core.zone(name, **fields)
        zone.overdue = overdue
    return core


def outcome(core, zone, count):
    """The content of the column *who pays*."""
    if count > core.takeable(zone):
        running = [Request(other) for other in core.ledger.zones.values() if other.in_use]
        victim = preemption.choose_victim(running, zone, entitled=True) if zone.is_entitled_to(count) else None
        if victim is not None:
            return f"preempts {victim.zone.spec.tenant}"
        return f"waits: {core.wait_reason(zone, count)}"
    make_room(core.ledger, zone, count, core.free)
    paid = [f"{note.zone} {note.blocks} {note.reason}" for note in core.events("evicted")]
    return ", ".join(paid) or "none"


@pytest.mark.parametrize(
    ("zones", "asks", "may_take", "who_pays"),
    [pytest.param(*row[1:], id=row[0]) for row in table("Situation")],
)
def test_examples(zones, asks, may_take, who_pays):
    core = build(zones)
    tenant, count = asks.split()
    zone = core.ledger.zones[EARLY_TENANT if tenant == "(before)" else tenant]
    assert core.takeable(zone) == int(may_take)
    assert outcome(core, zone, int(count)) == who_pays


def running(zones):
    """Like ``build``, with the number of running requests of each zone: those terms are removed first."""
    counts, kept = {}, []
    for part in zones.split(";"):
        name, _, terms = part.strip().partition(":")
        others = [term.strip() for term in terms.split(",") if not term.strip().startswith("runs ")]
        counts[name] = sum(int(term.split()[1]) for term in terms.split(",") if term.strip().startswith("runs "))
        kept.append(f"{name}: {', '.join(others)}" if any(others) else name)
    return "; ".join(kept), counts


@pytest.mark.parametrize(
    ("seats", "zones", "waits", "give_up"), [pytest.param(*row, id="; ".join(row[:3])) for row in table("Seats")]
)
def test_seats(seats, zones, waits, give_up):
    zones, counts = running(zones)
    core = build(zones)
    engine = SmallEngine(core, seats=int(seats))
    for name, count in counts.items():
        for _ in range(count):
            engine.run(core.ledger.zones[name], 1)
    tenant, count = waits.split()
    for _ in range(int(count)):
        engine.wait(core.ledger.zones[tenant], 1)

    engine.step()

    given_up = Counter(work.zone.spec.tenant for work in engine.preempted)
    assert (", ".join(f"{name} {count}" for name, count in given_up.items()) or "none") == give_up


def computed(engine, names):
    """Tokens that the last step computed for each zone."""
    counts = Counter()
    for work, count in engine.computed.items():
        counts[work.zone.spec.tenant] += count
    return [counts[name] for name in names]


@pytest.mark.parametrize(
    ("tokens", "zones", "step", "after"), [pytest.param(*row, id=row[1]) for row in table("Tokens")]
)
def test_tokens(tokens, zones, step, after):
    core = Core(1000)
    engine = SmallEngine(core, seats=1000, step_tokens=int(tokens))
    names = []
    for part in zones.split("; "):
        name, _, terms = part.partition(": ")
        terms = {key: int(value) for key, value in (term.split() for term in terms.split(", "))}
        zone = core.zone(name, weight=terms.get("weight", 1))
        names.append(name)
        if "prompt" in terms:
            engine.run(zone, 1, tokens=terms["prompt"])
        for _ in range(terms.get("generates", 0)):
            engine.run(zone, 0)

    engine.step()

    assert ", ".join(f"{name} {count}" for name, count in zip(names, computed(engine, names), strict=True)) == step
    for expected in filter(None, after.split(", ")):
        for work in [work for work in engine.running if work.tokens and work.computed >= work.tokens]:
            engine.end(work)
        engine.step()
        assert " ".join(map(str, computed(engine, names))) == expected


@pytest.mark.parametrize(
    ("zones", "denied", "relief"),
    [pytest.param(*row[1:], id=row[0]) for row in table("Who needs others' caches")],
)
def test_relief(zones, denied, relief):
    core = build(zones)
    tenant, count = denied.split()
    zone = core.ledger.zones[tenant]
    assert core.takeable(zone) < int(count)
    assert core.wait_reason(zone, int(count)) == "reserved"
    core.settle_evictions(core.tenancy.evict_surplus_for(zone, int(count), core.free))
    evicted = [f"{note.zone} {note.blocks} {note.reason}" for note in core.events("evicted")]
    assert (", ".join(evicted) or "nothing") == relief
    assert (core.takeable(zone) >= int(count)) == bool(evicted)


@pytest.mark.parametrize("row", table("Engine"))
def test_rounding(row):
    capacity, quarter, third, limit, lendable = map(int, row)
    assert spec_of(capacity, reserved="25%").quota.reserved == quarter
    assert spec_of(capacity, limit="33%").quota.limit == limit
    quota = spec_of(capacity, reserved="33%", lending={"lendable": "50%"}).quota
    assert (quota.reserved, quota.lendable) == (third, lendable)


def test_the_timeline_of_a_loan():
    core = Core()
    core.zone("acme", reserved=50, quiet=True, max_loan=60.0, grace=30.0)
    burst = core.zone("burst", in_use=70, cached=10)
    core.tenancy.request_arrived(burst, 0.0)
    for second, _, lent, uses, caches, overdue, may_take, may_grow in table("Second"):
        core.upkeep(float(second))
        while core.tenancy.past_grace():
            core.release(burst, kept=25)
            core.tenancy.loans.settle(core.free)
            core.settle_evictions(core.tenancy.collect_due(core.free))
        assert sum(loan.blocks for loan in core.tenancy.loans) == int(lent), second
        assert (burst.in_use, len(burst.cached), burst.overdue) == (int(uses), int(caches), int(overdue)), second
        assert core.takeable(burst) == int(may_take), second
        assert core.takeable(burst, growing=True) == int(may_grow), second


def test_the_steps_of_a_release():
    core = Core()
    acme = core.zone("acme", cached=50, after=60.0, release=(30, 10.0))
    core.tenancy.request_arrived(acme, 0.0)
    core.tenancy.request_finished(acme, 0.0)
    for time, happens, keeps, state in table("Without a request for"):
        core.upkeep(float(time.removesuffix(" s")))
        if " takes " in happens:
            core.settle_evictions([(acme, core.ledger.evict(acme, 10, "quiet"))])
        assert (acme.held, acme.state) == (int(keeps), state), time


def test_who_has_what_its_level_reserves():
    core = Core()
    template = UnknownTenantTemplate(idle=Idle(forget_after_seconds=60.0))
    levels = (TenantLevel(name="gold", tenants=("gold-*",), reserved=30),)
    unknown = UnknownTenants(mode="AutoRegister", template=template, levels=levels)
    tenants = ("gold-1", "gold-2", "gold-3")
    for comes, declared, *expected in table("What comes"):
        if comes.startswith("a config"):
            core.apply(declare("acme", reserved=int(declared)), unknown_tenants=unknown)
        elif comes.startswith("three tenants"):
            for tenant in tenants:
                core.tenancy.request_arrived(core.tenancy.zone_for(tenant, 0.0), 0.0)
        else:
            gone = core.ledger.zones[comes.split("`")[1]]
            core.tenancy.request_finished(gone, 0.0)
            core.upkeep(60.0)
        assert core.ledger.zones["acme"].spec.quota.reserved == int(declared)
        assert [said_of(core.ledger.zones.get(tenant)) for tenant in tenants] == expected, comes


def said_of(zone):
    """The table's text for a registered zone's reservation."""
    if zone is None:
        return ""
    return f"awaits {zone.spec.awaited}" if zone.spec.awaited else str(zone.spec.quota.reserved)


def test_the_turns_of_two_weights():
    queue = FairQueue()
    accounts = {"gold": Account(weight=2), "lead": Account(weight=1)}
    for account in accounts.values():
        queue.enter(account)
    for turn, served, gold, lead in table("Turn"):
        account = queue.next(lambda account: True)
        assert account is accounts[served], turn
        account.charge(120)
        queue.end_round()
        assert (accounts["gold"].service, accounts["lead"].service) == (float(gold), float(lead)), turn
