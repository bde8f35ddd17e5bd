"""What is declared, what changes while the network is bad, and that everything converges afterwards."""

import itertools

from hack.harness.proxy import Proxy
from tests.operator.kube import eventually
from tests.operator.world import World, conditions

_percents = itertools.count(11)


def another_share() -> str:
    """A share that no zone had before."""
    return f"{next(_percents)}%"


def settle(world: World) -> dict[str, int | str]:
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    world.add_zone("old", reserved=3)
    world.add_engine()
    world.await_ready("acme", "old")
    return {"acme": "10%", "old": 3}


def change(world: World) -> dict[str, int | str]:
    """Makes one of each: a changed zone, a new one, a removed one. Returns the entries that the config should have."""
    reserved = another_share()
    world.change_zone("acme", reserved=reserved)
    world.add_zone("new", reserved=5)
    world.delete_zone("old")
    return {"acme": reserved, "new": 5}


def assert_converged(world: World, proxy: Proxy, entries: dict[str, int | str]) -> None:
    eventually(lambda: world.entries() == entries)
    world.await_ready(*entries)
    config = world.config()
    assert config is not None

    def pool_knows() -> bool:
        pool = world.pool()
        return (
            pool["status"]["configGeneration"] == config.generation
            and pool["status"]["zonesAccepted"] == len(entries)
            and conditions(pool)["Ready"]["status"] == "True"
        )

    eventually(pool_knows)
    for engine in world.engines:
        reported = {zone.name for zone in engine.report().zones}
        assert reported == set(entries), f"{engine.name} reports {reported}"

    def nothing_is_written() -> bool:
        before = proxy.writes
        world.await_polls(2)
        assert proxy.writes == before, "it writes although nothing happens"
        return True

    # A request whose answer got lost is sent once more, shortly after everything has converged.
    eventually(nothing_is_written)
