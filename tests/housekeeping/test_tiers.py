"""Housekeeping's reports of tiers below an engine's blocks: in the report, in a scrape, in the journal."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenantzone_contract.reports.zone_report import ZoneTierReport
from tenantzone_contract.zone_config.tiers import TierShare
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.disk.figures import Receipt
from tenantzone_runtime.disk.files.sealing import ZoneSeal
from tenantzone_runtime.journal.bill import Period, make_bill
from tenantzone_runtime.shared.figures import SharedFigures
from tenantzone_runtime.shared.spaces import SharedZone, Space
from tenantzone_runtime.zones.tiers.tier_counts import QuestionOutcome, TierCounts, TierTotals
from tests.disk.disks import instance
from tests.housekeeping.driven import CAPACITY
from tests.housekeeping.house import House
from tests.housekeeping.simulated import CHUNK_BYTES, SimulatedEngine
from tests.journal.journals import eventually, kinds, records
from tests.runtime.folders import zone

CPU = TierShare(tier="cpu", reserved=20 * CHUNK_BYTES, limit="60%")
DISK = TierShare(tier="disk", reserved="25%")


@pytest.fixture
def engine() -> SimulatedEngine:
    return SimulatedEngine(CAPACITY, {"cpu": 50, "disk": 200})


@pytest.fixture
def house(engine: SimulatedEngine, tmp_path: Path) -> Iterator[House]:
    with House(engine, tmp_path) as house:
        yield house
    for served in engine.tiers:
        served.tier.check()


def tiers_of(house: House, tenant: str) -> dict[str, ZoneTierReport]:
    (found,) = [each for each in house.report().zones if each.tenant == tenant]
    return {reported.tier: reported for reported in found.tiers}


def await_tier(house: House, tenant: str, tier: str, **fields: int) -> ZoneTierReport:
    """The first report of a zone in a tier with all given values."""
    eventually(lambda: all(getattr(tiers_of(house, tenant)[tier], name) == value for name, value in fields.items()))
    return tiers_of(house, tenant)[tier]


def test_an_engine_without_tiers_says_nothing_of_any(tmp_path: Path) -> None:
    with House(SimulatedEngine(CAPACITY), tmp_path) as house:
        house.enforce(zone("acme", tiers=(CPU,)))
        report = house.report()
    assert (report.tiers, report.zones[0].tiers) == ((), ())


def test_what_a_zone_has_of_each_tier_is_reported(engine: SimulatedEngine, house: House) -> None:
    house.enforce(zone("acme", tiers=(CPU, DISK)), zone("burst"))
    acme = tiers_of(house, "acme")
    assert (acme["cpu"].reserved_bytes, acme["cpu"].limit_bytes) == (20_000, 30_000)
    assert (acme["disk"].reserved_bytes, acme["disk"].limit_bytes) == (50_000, 200_000)
    burst = tiers_of(house, "burst")
    assert (burst["cpu"].reserved_bytes, burst["cpu"].limit_bytes) == (0, 50_000)


def test_what_is_stored_loaded_and_refused_is_reported(engine: SimulatedEngine, house: House) -> None:
    house.enforce(zone("acme", tiers=(CPU, DISK)), zone("burst"))
    stored = engine.offload("cpu", "acme", 25)
    engine.load("cpu", "acme", stored[:4])
    engine.offload("cpu", "acme", 40)
    acme = await_tier(house, "acme", "cpu", writes_refused=10)
    assert (acme.held_bytes, acme.hits, acme.evictions) == (30_000, 4, 25)
    disk = tiers_of(house, "acme")["disk"]
    assert (disk.held_bytes, disk.hits) == (0, 0)
    assert tiers_of(house, "burst")["cpu"].held_bytes == 0
    reported = [(tier.tier, tier.capacity_bytes, tier.held_bytes, tier.is_full) for tier in house.report().tiers]
    assert reported == [("cpu", 50_000, 30_000, False), ("disk", 200_000, 0, False)]
    assert {tier.chunk_bytes for tier in house.report().tiers} == {CHUNK_BYTES}


class SharedByTwo:
    """A tier of storages that another engine uses, too."""

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []

    @property
    def zones(self) -> dict[str, SharedZone]:
        seal = ZoneSeal(b"k" * 32, instance("acme"), "")
        space = Space("acme", seal, "acme.0.1", ())
        counts = TierCounts(hits=3, refused_writes={"room": 2}, corrupt=1)
        return {"acme": SharedZone("acme", "", space, False, None, counts, held_bytes=5 * CHUNK_BYTES)}

    def figures(self) -> SharedFigures:
        questions: dict[QuestionOutcome, int] = {"answered": 7, "late": 2}
        return SharedFigures(CHUNK_BYTES, 5 * CHUNK_BYTES, "it is far away", questions, TierTotals())

    def take_receipts(self) -> list[Receipt]:
        receipts, self.receipts = self.receipts, []
        return receipts


def test_a_shared_tier_is_reported_as_others_are(engine: SimulatedEngine, house: House) -> None:
    shared = SharedByTwo()
    engine.shared_tiers.append(shared)
    house.enforce(zone("acme"), zone("burst"))
    acme = await_tier(house, "acme", "shared", held_bytes=5 * CHUNK_BYTES)
    assert (acme.hits, acme.writes_refused, acme.corrupt, acme.reserved_bytes) == (3, 2, 1, 0)
    assert "shared" not in tiers_of(house, "burst"), "it has nothing there"
    reported = next(tier for tier in house.report().tiers if tier.tier == "shared")
    assert (reported.held_bytes, reported.capacity_bytes, reported.problem) == (5 * CHUNK_BYTES, 0, "it is far away")
    house.await_metric(2, "tier_questions_total", tier="shared", outcome="late")
    with engine.zone_lock:
        shared.receipts.append(Receipt("acme", "once", chunks=4, files=4, is_complete=True))
    eventually(lambda: [each for each in records(house.journal) if each["kind"] == "tier_receipt"])


def test_a_floor_that_is_not_held_is_reported(engine: SimulatedEngine, house: House) -> None:
    house.enforce(zone("acme", tiers=(CPU,)), zone("burst"))
    engine.offload("cpu", "burst", 0, begin=50)
    engine.offload("cpu", "acme", 25)
    acme = await_tier(house, "acme", "cpu", writes_refused=25)
    assert acme.writes_refused_within_reservation == 20
    assert house.report().tiers[0].is_full


def test_what_a_tier_is_too_small_for_is_reported(house: House) -> None:
    large = TierShare(tier="cpu", reserved=30 * CHUNK_BYTES)
    house.enforce(zone("old", tiers=(large,)), zone("young", tiers=(large,)))
    assert (tiers_of(house, "old")["cpu"].reserved_bytes, tiers_of(house, "old")["cpu"].awaited_bytes) == (30_000, 0)
    young = tiers_of(house, "young")["cpu"]
    assert (young.reserved_bytes, young.awaited_bytes) == (0, 30_000)


def test_a_tier_that_fails_says_why(engine: SimulatedEngine, house: House) -> None:
    engine.tiers[1].problem = "writes fail: no space left"
    report = house.await_report(lambda report: report.tiers[1].problem)
    assert [reported.problem for reported in report.tiers] == ["", "writes fail: no space left"]


def test_the_journal_has_what_was_held_of_each_tier_and_its_bill_adds_it_up(
    engine: SimulatedEngine, house: House
) -> None:
    house.enforce(zone("acme", tiers=(CPU, DISK)), zone("burst"), zone("late"))
    engine.offload("cpu", "acme", 10)
    engine.offload("disk", "acme", 20)
    engine.offload("cpu", "burst", 1)
    eventually(lambda: tiers_of(house, "acme")["disk"].byte_seconds > 2_000)
    reported = tiers_of(house, "acme")
    house.enforce(zone("burst"), zone("late"))
    house.stop()
    billed = make_bill([house.journal], Period()).tiers
    assert billed.keys() == {("acme", "cpu"), ("acme", "disk"), ("burst", "cpu")}
    for tier in ("cpu", "disk"):
        # A journal has a resolution of thousandths.
        assert billed["acme", tier].byte_seconds > reported[tier].byte_seconds - 0.002
    assert billed["burst", "cpu"].byte_seconds > 0
    # And no chunks as blocks.
    assert set(kinds(house.journal)) == {"started", "lifecycle", "config_applied", "tier_usage"}


def test_a_purge_is_in_the_journal_for_each_tier_and_so_is_the_receipt(engine: SimulatedEngine, house: House) -> None:
    house.enforce(zone("acme", tiers=(CPU, DISK)), zone("burst"))
    engine.offload("cpu", "acme", 10, begin=3)
    engine.offload("disk", "acme", 20)
    house.enforce(zone("acme", purge="one"), zone("burst"))
    with engine.zone_lock:
        engine.tiers[1].receipts += [Receipt("acme", "one", 20, 21, True), Receipt("gone", "", 1, 2, True)]
    house.stop()
    fields = {
        "tier_purged": ("tier", "zone", "id", "evicted", "withdrawn"),
        "tier_receipt": ("tier", "zone", "id", "chunks", "files"),
    }
    reported = [record for record in records(house.journal) if record["kind"] in fields]
    assert [tuple(record[name] for name in fields[record["kind"]]) for record in reported] == [
        ("cpu", "acme", "one", 10, 3),
        ("disk", "acme", "one", 20, 0),
        ("disk", "acme", "one", 20, 21),
        ("disk", "gone", None, 1, 2),
    ]


def test_without_a_journal_tiers_pile_nothing_up(engine: SimulatedEngine, tmp_path: Path) -> None:
    with House(engine, tmp_path, TENANTZONE_JOURNAL_DIR="") as house:
        house.enforce(zone("acme"))
        engine.offload("cpu", "acme", 10)
        eventually(lambda: not engine.tier("cpu").ledger.trail._notes.balances)


def test_a_picture_shows_which_zone_has_which_chunk(engine: SimulatedEngine, house: House) -> None:
    lender = zone("lender", idle=Idle(after_seconds=0), tiers=(TierShare(tier="cpu", reserved="60%"),))
    house.enforce(zone("acme"), lender)
    engine.offload("cpu", "acme", 30, begin=5)
    house.await_report(lambda report: report.tiers[0].held_bytes == 35 * CHUNK_BYTES)
    eventually(lambda: any(kind.borrowed for kind in house.picture(50, "cpu").kinds))
    reported = house.picture(50, "cpu")
    assert (reported.tier, reported.capacity_blocks, reported.blocks_per_cell) == ("cpu", 50, 1)
    shown = Counter[tuple[str | None, str]]()
    for kind in reported.kinds:
        shown[kind.tenant, kind.use] += kind.blocks
    assert shown == {("acme", "cached"): 30, ("acme", "in_use"): 5, (None, "free"): 15}
    # The 35 that it holds, less the 20 that no zone has reserved.
    assert sum(kind.blocks for kind in reported.kinds if kind.borrowed) == 15
    assert {kind.use for kind in house.picture(50).kinds} == {"free"}, "and none of them is a block"


def test_a_tier_that_the_engine_has_not_has_no_picture(house: House) -> None:
    with pytest.raises(AssertionError, match="no such tier"):
        house.picture(50, "tape")


def test_what_came_before_any_zone_is_reported_for_no_zone(engine: SimulatedEngine, house: House) -> None:
    tier = engine.tier("cpu")
    early = tier.zone_for(None, 0.0)
    assert early is not None
    with engine.zone_lock:
        tier.store(early, [0, 1])
    report = house.await_report(lambda report: report.tiers[0].held_bytes)
    assert (report.tiers[0].held_bytes, report.zones) == (2 * CHUNK_BYTES, ())


def test_a_zone_that_leaves_is_no_longer_reported(engine: SimulatedEngine, house: House) -> None:
    house.enforce(zone("acme", tiers=(CPU,)), zone("burst"))
    engine.offload("cpu", "acme", 10)
    house.enforce(zone("burst"))
    report = house.report()
    assert ([each.tenant for each in report.zones], report.tiers[0].held_bytes) == (["burst"], 0)
