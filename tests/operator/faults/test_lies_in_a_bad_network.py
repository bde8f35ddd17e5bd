"""Engines that lie at times, a network that is bad at times, and an operator that dies: everything converges."""

import random
from collections.abc import Callable

import pytest

from hack.harness.lies import LIES
from hack.harness.proxy import BROKEN, LOST, TOO_MANY, Faults, Proxy, Refusal
from tests.operator.bad_watches import Cut, Late, repeated
from tests.operator.conftest import Operator
from tests.operator.faults.convergence import another_share, assert_converged, settle
from tests.operator.kube import eventually
from tests.operator.world import World

pytestmark = pytest.mark.controlplane


BAD_NETWORKS: list[Callable[[], Faults]] = [
    Faults,
    lambda: Faults(writes=Refusal(409), times=2),
    lambda: Faults(writes=TOO_MANY, reads=TOO_MANY, watches=TOO_MANY),
    lambda: Faults(writes=Refusal(503), reads=Refusal(500), watches=Refusal(503), times=2),
    lambda: Faults(writes=BROKEN, reads=BROKEN, watches=BROKEN),
    lambda: Faults(writes=LOST, times=2, drop_every=2),
    lambda: Faults(drop_every=1, stream=Cut()),
    lambda: Faults(stream=Late()),
    lambda: Faults(stream=repeated),
]


@pytest.mark.parametrize("seed", range(2))
def test_engines_begin_and_cease_to_lie_while_the_network_is_bad(
    world: World, proxy: Proxy, operator: Operator, seed: int
):
    chance = random.Random(seed)
    entries = settle(world)
    liars = [world.add_engine(name) for name in ("engine-1", "engine-2")]
    world.await_ready(*entries)

    for _ in range(5):
        proxy.heal()
        proxy.faults = chance.choice(BAD_NETWORKS)()
        for liar in liars:
            liar.lie = chance.choice([None, *LIES.values()])
        if chance.random() < 0.5:
            proxy.break_watches()
        if chance.random() < 0.2:
            operator.kill()
            operator.start()
        entries.update(acme=another_share(), old=chance.randint(1, 9))
        for name, reserved in entries.items():
            world.change_zone(name, reserved=reserved)
        eventually(lambda: world.entries() == entries)
    proxy.heal()
    proxy.break_watches()
    for liar in liars:
        liar.lie = None

    assert_converged(world, proxy, entries)
