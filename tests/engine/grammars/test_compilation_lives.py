"""Random lives of grammar compilation: however many others send, a tenant's next grammar begins in its turn."""

from collections import deque
from random import Random
from types import SimpleNamespace

import pytest

from tenantzone_runtime.engine.grammars.grammar_compilation import TurnsOfTenants

LIVES = 100
STEPS = 200
LONGEST = 5
"""The most steps that a grammar takes."""


class Threads:
    """An executor whose threads compile in steps."""

    def __init__(self, count, chance):
        self.count, self.chance = count, chance
        self.queue = deque()
        self.busy = []
        """For each busy thread: the steps that its work still takes, and the work."""

    def submit(self, task, *args):
        self.queue.append((task, args))

    def step(self):
        self.busy = [(steps - 1, task, args) for steps, task, args in self.busy]
        for steps, task, args in self.busy:
            if not steps:
                task(*args)
        self.busy = [each for each in self.busy if each[0]]
        while self.queue and len(self.busy) < self.count:
            self.busy.append((self.chance.randint(1, LONGEST), *self.queue.popleft()))


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_tenant_waits_for_one_grammar_of_each_other_tenant_at_most(seed):
    chance = Random(seed)
    threads = Threads(chance.randint(1, 3), chance)
    tenants = [f"tenant-{number}" for number in range(chance.randint(2, 6))]
    turns = TurnsOfTenants(threads, lambda request: request.tenant)
    flood = tenants[0]
    waiting = {tenant: deque() for tenant in tenants}
    ready_since = dict.fromkeys(tenants, 0)
    # The step in which the first of its grammars became its next one.
    most = LONGEST * (1 + -(-(len(tenants) - 1) // threads.count))
    for step in range(STEPS):
        for tenant in tenants:
            for _ in range(20 if tenant == flood and step % 50 == 0 else chance.random() < 0.1):
                if not waiting[tenant]:
                    ready_since[tenant] = step
                waiting[tenant].append(turns.submit(lambda request: None, SimpleNamespace(tenant=tenant)))
        threads.step()
        for tenant, futures in waiting.items():
            while futures and futures[0].done():
                futures.popleft()
                ready_since[tenant] = step
            assert not futures or step - ready_since[tenant] <= most, f"{tenant} waits for others"
