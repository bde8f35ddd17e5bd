"""Reports and scrapes are copied in slices: steps run in between, and each zone is reported as of one moment."""

import gc
import threading

import pytest

from hack.harness.scheduler import Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.reports.parts import MAX_SECONDS
from tenantzone_contract.reports.report import ConfigStatus, dump_report, parse_report
from tenantzone_contract.zone_config.unknown_tenants import UnknownTenants, UnknownTenantTemplate
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_runtime.housekeeping.report import copying
from tenantzone_runtime.housekeeping.report.reporting import make_figures, make_report
from tenantzone_runtime.zones.model.outcomes import TargetOutcome
from tests.engine.measured import abort, zone
from tests.engine.pauses import in_each_pause

CAPACITY = 100
NAMES = [f"tenant-{number}" for number in range(4)]
REGISTERING = UnknownTenants(
    mode="AutoRegister", template=UnknownTenantTemplate(idle=Idle(after_seconds=0, forget_after_seconds=0))
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"), max_batched_tokens=256)


@pytest.fixture
def driver(config):
    return Driver(make_scheduler(config, CAPACITY))


def report_of(driver):
    return make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)


def figures_of(driver):
    return make_figures(driver.served, ConfigStatus(), {}, pod="p", started_unix_time=0.0)


@pytest.mark.parametrize("measure", [report_of, figures_of])
def test_steps_are_made_while_zones_are_copied(driver, monkeypatch, measure):
    driver.declare(*map(zone, NAMES))
    driver.send(NAMES[0], prompt(2), max_tokens=50)
    steps = []
    with in_each_pause(monkeypatch, lambda: steps.append(driver.step()), at_once=2):
        reported = measure(driver)
    assert [each.tenant for each in reported.zones] == NAMES
    assert len(steps) == 2
    assert all(steps), "the request ran in each"


@pytest.mark.parametrize("measure", [report_of, figures_of])
def test_a_zones_own_amounts_are_of_one_moment(driver, monkeypatch, measure):
    """Its requests wait, run and end while the others are copied, and their blocks become cached."""
    driver.declare(*map(zone, NAMES))
    for name in NAMES:
        for _ in range(3):
            driver.send(name, prompt(5), max_tokens=3)
    moments = [amounts(driver)]

    def step():
        driver.step()
        moments.append(amounts(driver))

    with in_each_pause(monkeypatch, step):
        reported = measure(driver)
    for number, each in enumerate(reported.zones):
        found = each.in_use, each.cached, each.running_requests, each.waiting_requests
        assert found == moments[number][each.tenant]
    assert len({tuple(moment.values()) for moment in moments}) > len(NAMES), "each step changed something"


def amounts(driver):
    running = [request.zone for request in driver.scheduler.running]
    return {
        zone.spec.tenant: (zone.in_use, len(zone.cached), running.count(zone), zone.requests - running.count(zone))
        for zone in driver.scheduler.tenancy.ledger.zones.values()
    }


@pytest.mark.parametrize("measure", [report_of, figures_of])
def test_a_zone_that_leaves_meanwhile_and_one_that_comes_are_left_out(driver, monkeypatch, measure):
    driver.declare(zone("acme"), zone("burst"), unknown_tenants=REGISTERING)
    running = driver.send("burst", prompt(5), max_tokens=50)
    driver.step()

    def change():
        if "guest" not in driver.scheduler.tenancy.ledger.zones:
            driver.send("guest", prompt(1))
            driver.declare(zone("acme"))

    with in_each_pause(monkeypatch, change):
        assert [each.tenant for each in measure(driver).zones] == ["acme"]
    assert "burst" in driver.scheduler.tenancy.ledger.zones, "its request runs"
    abort(driver, running)
    assert [each.tenant for each in measure(driver).zones] == ["acme"]


def test_the_overflow_loses_nothing_that_a_member_counted_before_it_left(driver, monkeypatch):
    driver.scheduler.tenancy.ledger.overflow.max_apart = 0
    driver.declare(zone("acme"), unknown_tenants=REGISTERING)
    for tenant in ("one", "two"):
        driver.ask(tenant, prompt(3), max_tokens=2)
    assert figures_of(driver).zones[-1].counters.requests == {"length": 2}
    driver.ask("two", prompt(3), max_tokens=2)
    with in_each_pause(monkeypatch, driver.scheduler.let_time_pass):
        reported = figures_of(driver)
    assert set(driver.scheduler.tenancy.ledger.zones) == {"acme"}, "they are forgotten"
    assert (reported.zones[-1].tenant, reported.zones[-1].counters.requests) == ("overflow", {"length": 3})


def test_what_zones_lend_and_borrow_agrees_with_the_reported_loans(driver, monkeypatch):
    quiet = Idle(after_seconds=0)
    driver.declare(*(zone(name, reserved=25, idle=quiet) for name in NAMES[:3]), zone("burst"), zone("flood"))
    driver.scheduler.let_time_pass()
    for tenant in ("burst", "flood"):
        driver.ask(tenant, prompt(45))
    driver.scheduler.let_time_pass()
    assert len(report_of(driver).loans) == 4

    def take_back():
        if not driver.scheduler.requests:
            driver.send(NAMES[2], prompt(24), max_tokens=500)
        for _ in range(3):
            driver.step()
        driver.scheduler.let_time_pass()

    with in_each_pause(monkeypatch, take_back):
        reported = report_of(driver)
    lent = {each.tenant: each.lent for each in reported.zones if each.lent}
    borrowed = {each.tenant: each.borrowed for each in reported.zones if each.borrowed}
    assert lent == summed(reported.loans, "lender")
    assert borrowed == summed(reported.loans, "borrower")
    assert all(loan.blocks for loan in reported.loans)
    assert set(lent) == set(NAMES[:2]), "the third's was over when its turn came"


def summed(loans, side):
    blocks = {}
    for loan in loans:
        blocks[getattr(loan, side)] = blocks.get(getattr(loan, side), 0) + loan.blocks
    return blocks


class CountingLock:
    """Counts the containers created while it is held, as Python's collector does."""

    def __init__(self):
        self._lock = threading.RLock()
        self.before = []
        self.made = []

    def __enter__(self):
        self._lock.acquire()
        self.before.append(gc.get_count()[0])

    def __exit__(self, *error):
        self.made.append(gc.get_count()[0] - self.before[-1])
        self._lock.release()


@pytest.fixture
def counting(driver):
    """A counting lock of a scheduler with exactly as many zones as a slice. The collector is off."""
    names = [f"tenant-{number}" for number in range(copying.ZONES_AT_ONCE)]
    driver.declare(*map(zone, names))
    for name in names:
        driver.send(name, prompt(1), max_tokens=2)
    driver.run()
    driver.scheduler.zone_lock = CountingLock()
    gc.collect()
    gc.disable()
    yield driver.scheduler.zone_lock
    gc.enable()


@pytest.mark.parametrize("measure", [report_of, figures_of])
def test_a_slice_makes_hardly_anything_that_the_collector_counts(driver, counting, measure):
    measure(driver)
    assert max(counting.made) < 10


@pytest.mark.parametrize("measure", [report_of, figures_of])
def test_a_collection_that_is_almost_due_is_made_before_the_lock_is_taken(driver, counting, measure):
    threshold, *_ = gc.get_threshold()
    newest = [[] for _ in range(threshold - gc.get_count()[0])]
    measure(driver)
    assert len(newest) > threshold // 2, "they were almost enough"
    assert all(before + 40 < threshold for before in counting.before)


def test_a_time_that_no_clock_can_have_measured_costs_no_report(driver):
    driver.declare(zone("acme"))
    driver.zone("acme").outcomes = {"first_token": TargetOutcome(0.5, 1.8e9, False, "Neighbours")}
    reported = parse_report(dump_report(report_of(driver)))
    (latency,) = (zone.latency for zone in reported.zones if zone.tenant == "acme")
    assert latency.first_token.actual_seconds == MAX_SECONDS
