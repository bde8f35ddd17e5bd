"""Random lives of loads from a tier: a zone waits at most for what others may load at once."""

from collections import deque
from random import Random

import pytest

from tenantzone_runtime.zones.tiers.tier import TransferBounds
from tests.zones.test_tier import Chunks

LIVES = 50
STEPS = 200


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_load_waits_for_no_more_than_each_zone_may_load_at_once(seed):
    chance = Random(seed)
    loads = chance.randint(1, 6)
    tenants = [f"tenant-{number}" for number in range(chance.randint(2, 5))]
    chunks = Chunks(bounds=TransferBounds(100, loads), **{tenant: {} for tenant in tenants})
    stored = {}
    for tenant in tenants:
        zone = chunks.active(tenant)
        stored[zone] = chunks.keep(zone, 10)
    copies = deque()
    # A chunk is copied in each step, in the order in which the loads began.
    for step in range(STEPS):
        for zone, chunk_ids in stored.items():
            for _ in range(chance.randint(0, 3)):
                count = min(chance.randint(1, 10), chunks.tier.loadable(zone))
                if count:
                    chunks.tier.load(zone, chunk_ids[:count])
                    copies.extend((step, chunk_id) for chunk_id in chunk_ids[:count])
        if copies:
            since, chunk_id = copies.popleft()
            chunks.tier.loaded([chunk_id])
            assert step - since < loads * len(tenants), "a load waits for others"
        chunks.tier.check()
