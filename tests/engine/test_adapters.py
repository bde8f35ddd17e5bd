"""LoRA adapter slots (``--max-loras``) between zones: which zone gets one, and which gives one up."""

import pytest
from vllm.config.lora import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.request import RequestStatus

from hack.harness.scheduler import (
    Driver,
    make_scheduler,
    prompt,
    vllm_config,
    with_flags,
    without_prefix_caching,
)
from tenantzone_contract.reports.report import AdapterReport, ConfigStatus
from tenantzone_runtime.housekeeping.report.reporting import make_report
from tenantzone_runtime.zones.resources.adapter_turns import TURN_STEPS
from tests.engine.measured import zone

STEP_SECONDS = 0.5


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture
def driver(config):
    return with_slots(config, 1)


def with_slots(config, slots):
    driver = Driver(make_scheduler(config, 100))
    driver.scheduler.lora_config = LoRAConfig(max_loras=slots, max_lora_rank=8)
    return driver


def adapter(number):
    return LoRARequest(lora_name=f"adapter-{number}", lora_int_id=number, lora_path="/nowhere")


class Overlapping:
    """Two requests of one zone for one adapter, replaced whenever one ends."""

    def __init__(self, driver, tenant, number):
        self.driver, self.tenant, self.adapter = driver, tenant, adapter(number)
        self.live = []
        self.keep()

    def keep(self):
        self.live = [each for each in self.live if each.request_id not in self.driver.finished]
        while len(self.live) < 2:
            tokens = 31 if self.live else 20
            self.live.append(self.driver.send(self.tenant, prompt(3), max_tokens=tokens, adapter=self.adapter))


def steps_until(driver, clock, is_so, *loads, most):
    """The steps made until the condition holds."""
    for step in range(most):
        if is_so():
            return step
        for load in loads:
            load.keep()
        driver.step()
        clock.seconds += STEP_SECONDS
    raise AssertionError(f"it is not so after {most} steps")


def ended(driver, request):
    return lambda: request.request_id in driver.finished


def test_requests_that_overlap_do_not_keep_a_slot_from_a_zone_with_a_reservation(driver, clock):
    driver.declare(zone("gold", reserved=40, lending={"grace_seconds": 10}), zone("calm"))
    calm = Overlapping(driver, "calm", 1)
    driver.step()
    gold = driver.send("gold", prompt(4), max_tokens=3, adapter=adapter(2))
    # The running ones end within 31 steps, which is more than 10 seconds.
    assert steps_until(driver, clock, lambda: gold.num_computed_tokens, calm, most=100) <= 22
    assert driver.zone("calm").counters.preemptions > 0
    steps_until(driver, clock, ended(driver, gold), calm, most=10)
    steps_until(driver, clock, lambda: calm.live[0].status == RequestStatus.RUNNING, calm, most=10)


def test_while_an_entitled_zone_waits_no_request_begins_for_an_adapter_of_a_zone_without_entitlement(driver, clock):
    driver.declare(zone("gold", reserved=40, lending={"grace_seconds": 1000}), zone("calm"))
    calm = Overlapping(driver, "calm", 1)
    driver.step()
    running = list(calm.live)
    gold = driver.send("gold", prompt(4), max_tokens=3, adapter=adapter(2))
    base = driver.send("calm", prompt(4), max_tokens=3)
    # The running requests end within that time.
    steps_until(driver, clock, lambda: gold.num_computed_tokens, calm, most=33)
    assert all(each.request_id in driver.finished and not each.num_preemptions for each in running)
    assert driver.finished[base.request_id] == "length", "the model alone needs no slot"


def test_between_entitled_zones_a_slot_rotates_after_the_grace(driver, clock):
    grace = {"grace_seconds": 10}
    driver.declare(zone("gold", reserved=40, lending=grace), zone("lead", reserved=40, lending=grace))
    first = driver.send("gold", prompt(4), max_tokens=200, adapter=adapter(1))
    driver.step()
    second = driver.send("lead", prompt(4), max_tokens=200, adapter=adapter(2))
    turn = 10 / STEP_SECONDS + 2
    assert steps_until(driver, clock, lambda: second.num_computed_tokens, most=50) <= turn
    assert first.status == RequestStatus.PREEMPTED
    assert steps_until(driver, clock, lambda: first.status == RequestStatus.RUNNING, most=50) <= turn
    assert second.status == RequestStatus.PREEMPTED
    steps_until(driver, clock, ended(driver, first), most=1000)
    steps_until(driver, clock, ended(driver, second), most=1000)


def test_what_computes_nothing_twice_ends_however_often_its_slot_rotates(config, clock):
    driver = Driver(make_scheduler(without_prefix_caching(with_flags(config, max_num_batched_tokens=16)), 100))
    driver.scheduler.lora_config = LoRAConfig(max_loras=1, max_lora_rank=8)
    none = {"grace_seconds": 0}
    driver.declare(zone("gold", reserved=50, lending=none), zone("lead", reserved=50, lending=none))
    # Each prompt alone takes twice the minimum steps of an adapter's turn.
    both = [
        driver.send(tenant, prompt(2 * TURN_STEPS), max_tokens=5, adapter=adapter(number))
        for number, tenant in enumerate(("gold", "lead"), 1)
    ]
    for request in both:
        steps_until(driver, clock, ended(driver, request), most=1000)
    assert any(request.num_preemptions for request in both)


def test_a_zone_with_several_adapters_does_not_starve_itself(driver, clock):
    driver.declare(zone("gold", reserved=40, lending={"grace_seconds": 10}))
    load = Overlapping(driver, "gold", 1)
    driver.step()
    other = driver.send("gold", prompt(4), max_tokens=3, adapter=adapter(2))
    assert steps_until(driver, clock, lambda: other.num_computed_tokens, load, most=100) <= 10 / STEP_SECONDS + 2
    steps_until(driver, clock, ended(driver, other), load, most=10)
    steps_until(driver, clock, lambda: load.live[0].status == RequestStatus.RUNNING, load, most=10)


def test_zones_that_reserve_nothing_have_a_slot_in_turn(driver, clock):
    driver.declare(zone("acme"), zone("burst"))
    load = Overlapping(driver, "burst", 1)
    driver.step()
    waiting = driver.send("acme", prompt(4), max_tokens=3, adapter=adapter(2))
    steps_until(driver, clock, ended(driver, waiting), load, most=int(30 / STEP_SECONDS) + 6)


def test_no_zone_gives_up_a_slot_for_a_request_that_finds_no_blocks(driver, clock):
    driver.declare(zone("gold", reserved=10, lending={"grace_seconds": 0}), zone("calm"))
    calm = driver.send("calm", prompt(60), max_tokens=100, adapter=adapter(1))
    driver.step()
    gold = driver.send("gold", prompt(50), max_tokens=3, adapter=adapter(2))
    for _ in range(60):
        driver.step()
        clock.seconds += STEP_SECONDS
    assert (calm.num_preemptions, gold.num_computed_tokens) == (0, 0)


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_no_more_adapters_run_than_there_are_slots_also_of_requests_that_are_skipped_in_a_step(config, clock, slots):
    """vLLM 0.32 counts this for a step, 0.33 for all running requests."""
    driver = with_slots(config, slots)
    latency = {"token_time_seconds": 0.03}
    driver.declare(zone("gold", reserved=40, latency=latency), *(zone(f"zone-{number}") for number in range(4)))
    loads = [Overlapping(driver, f"zone-{number}", number + 1) for number in range(4)]
    loads += [Overlapping(driver, "gold", 5), Overlapping(driver, "gold", 1)]
    for _ in range(200):
        for load in loads:
            load.keep()
        driver.step()
        clock.seconds += STEP_SECONDS
        assert len({each.lora_request for each in driver.scheduler.running}) <= slots


def test_the_report_says_that_a_zone_waits_for_a_slot_until_its_request_begins(driver, clock):
    driver.declare(zone("gold", reserved=40, lending={"grace_seconds": 10}), zone("calm"))
    calm = Overlapping(driver, "calm", 1)
    driver.step()
    gold = driver.send("gold", prompt(4), max_tokens=3, adapter=adapter(2))
    driver.step()
    assert driver.zone("gold").wait_reason == "adapter"
    base = driver.send("gold", prompt(4), max_tokens=3)
    driver.step()
    assert base.num_computed_tokens
    assert driver.zone("gold").wait_reason == "adapter", "another request of the zone has begun, and this one waits"
    another = driver.send("gold", prompt(4), max_tokens=30, adapter=adapter(3))
    steps_until(driver, clock, lambda: gold.num_computed_tokens, calm, most=50)
    steps_until(driver, clock, lambda: another.num_computed_tokens, calm, most=50)
    assert driver.zone("gold").wait_reason is None
    assert driver.zone("gold").counters.stalled_seconds["adapter"] > 0


def test_the_report_says_which_zones_use_which_adapters(config):
    driver = with_slots(config, 3)
    driver.declare(zone("gold"), zone("calm"))
    for tenant, number in (("gold", 1), ("gold", 1), ("calm", 1), ("calm", 2)):
        driver.send(tenant, prompt(3), max_tokens=30, adapter=adapter(number))
    driver.send("calm", prompt(3), max_tokens=30)
    driver.step()
    report = make_report(driver.served, ConfigStatus(), pod="p", started_unix_time=0.0)
    assert report.adapter_slots == 3
    shared, alone = report.adapters
    assert (shared.adapter, set(shared.tenants)) == ("adapter-1", {"gold", "calm"})
    assert alone == AdapterReport(adapter="adapter-2", tenants=("calm",))
