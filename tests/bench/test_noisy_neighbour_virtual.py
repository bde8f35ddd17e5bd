"""The noisy neighbour in virtual time: real schedulers, and steps with the durations of the hardware's model."""

import random

import pytest

from bench.noisy_neighbour.arms import ARMS
from bench.noisy_neighbour.asking import Shape
from bench.noisy_neighbour.eager_gpu import EagerGpu
from bench.noisy_neighbour.figures import Phase, Seed
from bench.noisy_neighbour.promises import first_token_bound, promises
from bench.noisy_neighbour.virtual import make_driver
from bench.noisy_neighbour.virtual_tenants import VirtualTenants
from hack.harness.clock import Clock
from tenantzone_replay.simulation.hardware import MODELS
from tenantzone_replay.simulation.virtual_engine import VirtualEngine

BY_NAME = {arm.name: arm for arm in ARMS}
SEATS = 4
SHAPE = Shape(requests=1, rate=1000.0, flood_tokens=64, flood_answer_tokens=200)
BETWEEN = {"solo": Phase((0.01,), (0.01,)), "flooded": Phase((0.05,), (0.02,))}


def steps_to_the_first_token(folder, name, steps_in_flight):
    """Returns the steps to the first token of a quiet request that arrives while the flood generates on all seats."""
    clock = Clock()
    with clock.in_force():
        driver = make_driver(folder, BY_NAME[name], MODELS["8b"], seats=SEATS, budget=2048)
        tenants = VirtualTenants(driver, clock, BY_NAME[name], SHAPE, seed=1)
        engine = VirtualEngine(driver, clock, MODELS["8b"], tenants, steps_in_flight=steps_in_flight)
        tenants.flood(2 * SEATS)
        engine.run(lambda: engine.steps >= 20)
        assert len(driver.scheduler.running) == SEATS
        assert len(driver.scheduler.waiting) == SEATS
        tenants.ask_quietly()
        engine.run(lambda: bool(tenants.answers))
        before = engine.steps
        engine.run(lambda: bool(tenants.answers[0].tokens_at))
        assert tenants.answers[0].first_token_seconds > 0
        return engine.steps - before


@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_an_entitled_request_has_its_first_token_a_step_behind_those_in_flight(tmp_path, steps_in_flight):
    assert steps_to_the_first_token(tmp_path, "zones", steps_in_flight) <= 1 + steps_in_flight
    assert steps_to_the_first_token(tmp_path, "stock", steps_in_flight) > 100


def test_a_step_takes_as_long_as_reading_the_weights_or_as_computing_its_tokens():
    model = MODELS["8b"]
    one, many = model.step_seconds([(1, 100)]), model.step_seconds([(8192, 8192)])
    assert one == pytest.approx(2 * 8.03e9 / (0.7 * 3.35e12) + 1e-3, rel=0.01)
    assert many > 2 * 8.03e9 * 8192 / (0.4 * 989e12)
    assert model.step_seconds([(1, 4000)] * 100) > one, "the cache of all requests is read"


@pytest.mark.parametrize(("overlaps", "seconds"), [(False, 0.020 + 1000 / 25_000), (True, 0.007 + 1000 / 25_000)])
def test_an_eager_step_takes_what_the_host_needs_and_prompts_on_top_or_meanwhile(overlaps, seconds):
    gpu = EagerGpu(random.Random(0), overlaps=overlaps, noise=0.0)
    assert gpu.step_seconds([(1, 100)]) == pytest.approx(0.020, rel=0.01)
    assert gpu.step_seconds([(1000, 1000)]) == pytest.approx(seconds, rel=0.02)


def test_some_eager_steps_stall():
    gpu = EagerGpu(random.Random(0), noise=0.0, stall_share=0.1)
    stalled = sum(gpu.step_seconds([(1, 100)]) > 0.03 for _ in range(1000))
    assert 60 < stalled < 140


def test_a_first_token_may_wait_for_the_steps_in_flight_and_a_quarter_of_one():
    assert first_token_bound(0.02, 0.1, 2) == pytest.approx(0.245)


def test_each_promise_is_called_met_or_missed_and_by_how_much():
    stock = Seed(**BETWEEN, flood_tokens_beside=100.0, flood_tokens_alone=100.0, flood_refused=0)
    zones = Seed(**BETWEEN, flood_tokens_beside=89.0, flood_tokens_alone=100.0, flood_refused=0)
    lines = list(promises({"stock": [stock], "zones": [zones], "target": [zones]}, 1, {"target": 0.01}))
    assert lines == [
        "stock: p99 TTFT, 6 times solo's: 50 ms of 60: met, by 10 ms",
        "zones: p99 TTFT, 6 times solo's: 50 ms of 60: met, by 10 ms",
        "zones: flood's throughput with the quiet tenant: 0.890 of 0.9: missed",
        "zones: flood's throughput alone: 1.000 of 0.99: met",
        "target: p99 TTFT, solo's + (1 + 0.25) T: 50 ms of 22.5: missed, by 2.22 times",
        "target: p99 between two tokens, 1.15 T: 20 ms of 11.5: missed, by 1.74 times",
        "target: flood's throughput with the quiet tenant: 0.890 of 0.9: missed",
        "target: flood's throughput alone: 1.000 of 0.99: met",
    ]
