"""How a pool's ConfigMap is compared when it is read back, and in which generation it is repaired."""

import logging
from typing import Any, cast

import pytest

from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.config_text import make_config
from tenantzone_contract.zone_config.packing import ConfigFiles, config_map_data, pack_config
from tenantzone_operator.kube.api import Api
from tenantzone_operator.kube.config_map import ConfigMap, config_map_labels, read_config_map
from tenantzone_operator.kube.resources import Pool
from tenantzone_operator.pool.delivery import Delivery
from tenantzone_operator.status.acknowledgement import History
from tests.operator.objects import pool, snapshot, zone

DEMO = pool()
FIRST = snapshot(1, zone("acme", reserved="10%"))
SECOND = snapshot(2, zone("acme", reserved="20%"))
FORGED = zone("acme", reserved="90%")


class ConfigMaps:
    """The pool's ConfigMap, as stored in the API server."""

    def __init__(self, config: RuntimeConfig | None = None) -> None:
        self._version = 1
        self.held: ConfigMap | None = None
        self.loses_answers = False
        if config is not None:
            self.put(pack_config(config))

    def put(self, files: ConfigFiles) -> ConfigMap:
        self._version += 1
        metadata: dict[str, Any] = {
            "uid": "of-the-config-map",
            "resourceVersion": str(self._version),
            "labels": config_map_labels("demo"),
            "ownerReferences": [{"uid": DEMO.meta.uid}],
        }
        self.held = read_config_map({"metadata": metadata, **config_map_data(files)})
        return self.held

    async def read_config(self, namespace: str, name: str) -> ConfigMap | None:
        return self.held

    async def write_config(self, pool: Pool, files: ConfigFiles, found: ConfigMap | None) -> ConfigMap:
        assert found is self.held
        written = self.put(files)
        if self.loses_answers:
            raise TimeoutError
        return written


def delivery_to(config_maps: ConfigMaps, *tokens: str) -> tuple[Delivery, History]:
    history = History()
    return Delivery(cast("Api", config_maps), history, lambda: tokens, logging.getLogger(__name__)), history


async def test_a_config_whose_answer_was_lost_is_the_operators_own():
    config_maps = ConfigMaps()
    delivery, history = delivery_to(config_maps)
    await delivery.recall(DEMO)
    await delivery.deliver(DEMO, [], FIRST)
    config_maps.loses_answers = True
    with pytest.raises(TimeoutError):
        await delivery.deliver(DEMO, [], SECOND)

    await delivery.recall(DEMO)

    assert history.newest == SECOND
    assert not await delivery.deliver(DEMO, [], SECOND), "it is there"


@pytest.mark.parametrize(
    ("written", "repaired"),
    [
        pytest.param(1, 2, id="an older one"),
        pytest.param(2, 3, id="the same"),
        pytest.param(9, 10, id="a later one"),
        pytest.param(2 + 10**6, 3 + 10**6, id="one that it follows just so"),
        pytest.param(3 + 10**6, 2, id="one far away"),
        pytest.param(2**52, 2, id="none that an operator writes"),
    ],
)
async def test_what_others_write_is_replaced_by_what_was_granted_in_a_generation_above_it(written: int, repaired: int):
    config_maps = ConfigMaps(SECOND)
    delivery, history = delivery_to(config_maps)
    await delivery.recall(DEMO)
    await delivery.deliver(DEMO, [], SECOND)
    config_maps.put(pack_config(snapshot(1, FORGED).model_copy(update={"generation": written})))

    await delivery.recall(DEMO)

    assert (history.newest, delivery.is_confirmed) == (SECOND, True)
    assert await delivery.deliver(DEMO, [], SECOND)
    assert config_maps.held is not None
    expected = make_config(repaired, SECOND.pool, SECOND.zones)
    assert config_maps.held.files == pack_config(expected)
    assert history.newest == expected


async def test_two_operators_that_lead_at_once_come_to_rest_with_one_content():
    config_maps = ConfigMaps(FIRST)
    both = [delivery_to(config_maps) for _ in range(2)]
    for delivery, _ in both:
        await delivery.recall(DEMO)
    (first, first_history), (second, second_history) = both
    await first.deliver(DEMO, [], SECOND)
    await second.recall(DEMO)
    assert await second.deliver(DEMO, [], SECOND), "it can't know that no other client has written this"

    await first.recall(DEMO)

    assert first_history.newest is not None
    assert not await first.deliver(DEMO, [], first_history.newest)
    assert first_history.newest == second_history.newest == make_config(3, SECOND.pool, SECOND.zones)


async def test_what_was_granted_in_a_generation_far_away_is_replaced():
    config_maps = ConfigMaps(SECOND)
    delivery, history = delivery_to(config_maps)
    await delivery.recall(DEMO)
    config_maps.put(pack_config(SECOND.model_copy(update={"generation": 3 + 10**6})))

    await delivery.recall(DEMO)

    assert history.newest == SECOND
    assert await delivery.deliver(DEMO, [], SECOND)


async def test_what_it_finds_first_is_confirmed_by_the_pools_status_alone():
    delivery, history = delivery_to(ConfigMaps(FIRST))

    await delivery.recall(pool(status={"configHash": "sha256:0"}))
    assert (delivery.in_force, delivery.is_confirmed, history.newest) == (FIRST, False, None)

    await delivery.recall(pool(status={"configHash": FIRST.hash}))
    assert (delivery.in_force, delivery.is_confirmed) == (FIRST, True)


async def test_what_nothing_confirms_stays_if_it_is_just_what_was_planned():
    config_maps = ConfigMaps(FIRST)
    delivery, history = delivery_to(config_maps)
    await delivery.recall(pool(status={"configHash": "sha256:0"}))

    assert not await delivery.deliver(DEMO, [], FIRST)

    assert history.newest == FIRST
    assert config_maps.held is not None
    assert history.newest_bytes == config_maps.held.files.size
