"""The signature of the config in a pool's ConfigMap: always by the operator's current keys, and no new generation."""

import logging
from dataclasses import replace
from typing import cast

import pytest

from tenantzone_contract.keys.admin_token import admin_token
from tenantzone_contract.zone_config.config_signature import SignatureError, sign_config, verify_config
from tenantzone_contract.zone_config.packing import ConfigFiles, pack_config
from tenantzone_operator.kube.api import Api
from tenantzone_operator.pool.delivery import Delivery
from tenantzone_operator.status.acknowledgement import History
from tests.operator.objects import pool, snapshot
from tests.operator.test_delivery import DEMO, FIRST, FORGED, SECOND, ConfigMaps, delivery_to

NEW, OLD, OTHER = (admin_token(letter * 32, "default", "demo") for letter in (b"n", b"o", b"x"))
CREATED = DEMO.meta.created


def held(config_maps: ConfigMaps) -> ConfigFiles:
    assert config_maps.held is not None
    return config_maps.held.files


def is_signed_with(config_maps: ConfigMaps, token: str) -> bool:
    """Whether an engine with only this token accepts the content of the ConfigMap."""
    files = held(config_maps)
    try:
        return verify_config(files.signed, files.signature, [token.encode()]) == CREATED
    except SignatureError:
        return False


async def delivered(config_maps: ConfigMaps, *tokens: str) -> tuple[Delivery, History]:
    """An operator with these tokens that has published the second config, and is at rest."""
    delivery, history = delivery_to(config_maps, *tokens)
    await delivery.recall(DEMO)
    await delivery.deliver(DEMO, [], SECOND)
    assert not await delivery.deliver(DEMO, [], SECOND), "it is there"
    return delivery, history


async def test_what_is_given_out_is_signed():
    config_maps = ConfigMaps()

    _, history = await delivered(config_maps, NEW)

    assert is_signed_with(config_maps, NEW)
    assert not is_signed_with(config_maps, OTHER)
    assert held(config_maps) == replace(pack_config(SECOND), signature=held(config_maps).signature)
    assert history.newest_bytes == held(config_maps).size


async def test_without_a_key_it_is_given_out_unsigned():
    config_maps = ConfigMaps()

    await delivered(config_maps)

    assert held(config_maps) == pack_config(SECOND)


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(None, id="none, as an older operator leaves it"),
        pytest.param(b"", id="empty"),
        pytest.param(sign_config(pack_config(SECOND).signed, [OTHER], CREATED), id="another operator's"),
        pytest.param(sign_config(pack_config(FIRST).signed, [NEW], CREATED), id="another config's"),
        pytest.param(sign_config(pack_config(SECOND).signed, [NEW], "2020-01-01T00:00:00Z"), id="another pool's"),
        pytest.param(sign_config(pack_config(SECOND).signed, [NEW, OLD], CREATED), id="by a key that is gone, too"),
    ],
)
async def test_a_signature_that_does_not_hold_is_replaced_without_a_new_generation(signature: bytes | None):
    config_maps = ConfigMaps()
    delivery, history = await delivered(config_maps, NEW)
    config_maps.put(replace(pack_config(SECOND), signature=signature))

    await delivery.recall(DEMO)

    assert await delivery.deliver(DEMO, [], SECOND)
    assert held(config_maps) == replace(pack_config(SECOND), signature=held(config_maps).signature)
    assert is_signed_with(config_maps, NEW)
    assert history.newest == SECOND
    assert not await delivery.deliver(DEMO, [], SECOND), "it is at rest again"


async def test_a_new_leader_signs_what_an_older_release_wrote():
    config_maps = ConfigMaps(SECOND)

    _, history = await delivered(config_maps, NEW)

    assert is_signed_with(config_maps, NEW)
    assert history.newest == SECOND


async def test_a_new_leader_leaves_a_good_signature():
    config_maps = ConfigMaps()
    await delivered(config_maps, NEW)
    before = config_maps.held

    await delivered(config_maps, NEW)

    assert config_maps.held is before


async def test_text_of_the_same_meaning_is_replaced_by_what_is_signed():
    config_maps = ConfigMaps()
    delivery, _ = await delivered(config_maps, NEW)
    config_maps.put(replace(held(config_maps), text=held(config_maps).text + "\n"))

    await delivery.recall(DEMO)

    assert await delivery.deliver(DEMO, [], SECOND)
    assert is_signed_with(config_maps, NEW)


async def test_what_others_write_is_replaced_by_a_signed_config_above_it():
    config_maps = ConfigMaps()
    delivery, _ = await delivered(config_maps, NEW)
    signature = held(config_maps).signature
    config_maps.put(replace(pack_config(snapshot(3, FORGED)), signature=signature))

    await delivery.recall(DEMO)

    assert await delivery.deliver(DEMO, [], SECOND)
    repaired = SECOND.model_copy(update={"generation": 4})
    assert held(config_maps) == replace(pack_config(repaired), signature=held(config_maps).signature)
    assert is_signed_with(config_maps, NEW)


async def test_while_keys_are_changed_it_is_signed_with_both():
    config_maps, tokens = ConfigMaps(), [(OLD,), (NEW, OLD), (NEW,)]
    good = []
    for present in tokens:
        await delivered(config_maps, *present)
        good.append([is_signed_with(config_maps, token) for token in (OLD, NEW)])

    assert good == [[True, False], [True, True], [False, True]]


async def test_it_is_signed_anew_as_soon_as_the_key_is_another_one():
    config_maps = ConfigMaps()
    tokens = [OLD]
    delivery = Delivery(cast("Api", config_maps), History(), lambda: tuple(tokens), logging.getLogger(__name__))
    await delivery.recall(DEMO)
    await delivery.deliver(DEMO, [], SECOND)
    assert not await delivery.deliver(DEMO, [], SECOND), "it is at rest"
    tokens.insert(0, NEW)

    assert await delivery.deliver(DEMO, [], SECOND)

    assert is_signed_with(config_maps, NEW)
    assert not await delivery.deliver(DEMO, [], SECOND)


async def test_a_pool_that_is_made_again_has_its_own_signature():
    config_maps = ConfigMaps()
    await delivered(config_maps, NEW)
    again = pool()
    again = replace(again, meta=replace(again.meta, created="2027-01-01T00:00:00Z"))
    delivery, _ = delivery_to(config_maps, NEW)
    await delivery.recall(again)

    assert await delivery.deliver(again, [], SECOND)

    files = held(config_maps)
    assert verify_config(files.signed, files.signature, [NEW.encode()]) == "2027-01-01T00:00:00Z"
