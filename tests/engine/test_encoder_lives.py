"""Random lives of the encoder: zones that always have images to encode, and more of them than there is room."""

from random import Random

import pytest

from hack.harness.scheduler import Driver, give_encoder, make_scheduler, prompt, vllm_config
from tenantzone_contract.zone_terms import Lending
from tenantzone_runtime.zones.adapter_slots import TURN_STEPS
from tests.engine.clock import Clock
from tests.engine.measured import zone

LIVES = 12
STEPS = 250
STEP_SECONDS = 0.1
LARGEST = 100
"""Embeddings of the largest image."""
STEP_TOKENS = 128
TURN = 3 + 2 * LARGEST // (STEP_TOKENS // 8)
"""Steps of a zone's turn at most: its image is computed, even if it has a small share of each step."""


class Life:
    """An engine whose zones keep sending images that are new.

    Args:
        driver: of its scheduler.
        clock: what it reads the time from.
        seed: of all that is random.
    """

    def __init__(self, driver: Driver, clock: Clock, seed: int) -> None:
        self.driver, self.clock, self.chance = driver, clock, Random(seed)
        chance = self.chance
        room = chance.choice([LARGEST, LARGEST + 20, 2 * LARGEST])
        give_encoder(driver.scheduler, budget=chance.choice([LARGEST, room]), cache=room)
        self.graces = {"acme": chance.choice([0.0, 1.0, 3.0]), "calm": chance.choice([0.0, 2.0])}
        driver.declare(
            *(
                zone(tenant, reserved="20%", lending=Lending(grace_seconds=grace))
                for tenant, grace in self.graces.items()
            ),
            *(zone(tenant, priority=chance.choice([0, 1])) for tenant in ("burst", "dusk")),
        )
        self.waited = dict.fromkeys(self.graces, 0)
        self.encoded = dict.fromkeys(("acme", "burst", "calm", "dusk"), 0)

    def run(self) -> None:
        for _ in range(STEPS):
            self._keep_all_busy()
            output, result = self.driver.schedule()
            encoding = {name.split("-")[0] for name in output.scheduled_encoder_inputs}
            for tenant in encoding:
                self.encoded[tenant] += 1
            for tenant, grace in self.graces.items():
                self.waited[tenant] = 0 if tenant in encoding else self.waited[tenant] + 1
                most = max(TURN_STEPS, round(grace / STEP_SECONDS)) + TURN * len(self.graces)
                assert self.waited[tenant] <= most, f"{tenant} waits for the encoder: {self.encoded}"
            self.driver.update(output, result)
            self.driver.check()
            self.clock.seconds += STEP_SECONDS

    def _keep_all_busy(self) -> None:
        unfinished = [name.split("-")[0] for name in self.driver.scheduler.requests]
        for tenant in self.encoded:
            for _ in range(unfinished.count(tenant), 2 if tenant in self.graces else 5):
                self._send(tenant)

    def _send(self, tenant: str) -> None:
        shown, end = [], 0
        for _ in range(self.chance.randint(2, 6)):
            # What zones without entitlement send fits where the others' large images do not.
            length = LARGEST if tenant in self.graces else self.chance.choice([20, 40, LARGEST])
            shown.append((f"{self.chance.random()}", end, length))
            end += length + self.chance.choice([0, 8])
        self.driver.send(tenant, prompt(end // 16 + 1), images=shown)


@pytest.mark.parametrize("seed", range(LIVES))
def test_entitled_zones_have_images_encoded_whatever_others_send(clock: Clock, tmp_path, seed):
    driver = Driver(make_scheduler(vllm_config(tmp_path, sequences=32, max_batched_tokens=STEP_TOKENS), 1200))
    try:
        Life(driver, clock, seed).run()
    finally:
        driver.scheduler.shutdown()
