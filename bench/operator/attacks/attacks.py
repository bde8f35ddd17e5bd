"""The attacks on objects: each writes or deletes something once, and returns a check of whether that was undone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from bench.operator.attacks.site import GROUP, KEY_PATH, LEASE_PATH, UNLISTED, Check, Site, twin
from bench.operator.fleet import BLOCKS
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION, RuntimeConfig
from tenantzone_contract.zone_config.config_text import make_config

_FALSE_HASH = "sha256:" + 64 * "0"
_FALSE_KEY = "NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU1NTU="
_MAX_TRANSITIONS = 2**31 - 1
STARTED = "ConfigMap: the first config of the pool again, and an engine starts"
STORAGE = "files"


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack.

    Args:
        every_seconds: the mean time between two attacks.
        undone: the expected outcome, as text for the report.
        run: carries out the attack once, and returns a check of whether the expected outcome has occurred.
        clean_up: removes leftovers that the operator does not remove; always called.
        within_seconds: the time within which the expected outcome must occur.
    """

    every_seconds: float
    undone: str
    run: Callable[[Site], Awaitable[Check]]
    clean_up: Callable[[Site], Awaitable[None]] | None = None
    within_seconds: float = 30.0


def _some_pool(site: Site) -> str:
    return site.chance.choice(list(site.pools))


def forged(config: RuntimeConfig, generation: int) -> RuntimeConfig:
    """Returns a config with a valid hash in which an added zone reserves most of the pool, and all others nothing."""
    greedy = config.zones[0].model_copy(update={"name": "greedy", "tenant": "greedy", "reserved": "90%"})
    losers = (zone.model_copy(update={"reserved": 0}) for zone in config.zones)
    return make_config(generation, config.pool, tuple(sorted((greedy, *losers), key=lambda zone: zone.name)))


async def _forge_config(site: Site) -> Check:
    pool = _some_pool(site)
    config = await site.config(pool)
    if config is not None and config.zones:
        await site.write_config(pool, forged(config, config.generation + 1))
    return lambda: site.is_config_right(pool)


async def _write_older_config(site: Site) -> Check:
    pool = _some_pool(site)
    # An attacker may have kept an older config, complete with its signature.
    await site.merge(site.config_path(pool), site.fleet.configs[pool])
    return lambda: site.is_config_right(pool)


async def _start_with_older_config(site: Site) -> Check:
    pool = _some_pool(site)
    engine = site.chance.choice([each for each in site.fleet.engines.values() if each.pool == pool])
    await site.merge(site.config_path(pool), site.fleet.configs[pool])
    # The new engine knows no newer config, so it enforces this one until the operator has replaced it.
    await site.fleet.replace(engine)
    return lambda: site.is_config_right(pool)


async def _write_garbage(site: Site) -> Check:
    pool = _some_pool(site)
    await site.merge(site.config_path(pool), {"data": {"config.json": "{"}})
    return lambda: site.is_config_right(pool)


async def _delete_config(site: Site) -> Check:
    pool = _some_pool(site)
    await site.delete(site.config_path(pool))
    return lambda: site.is_config_right(pool)


async def _forge_annotation(site: Site) -> Check:
    engine = site.chance.choice(list(site.fleet.engines.values()))
    path = f"/api/v1/namespaces/{engine.namespace}/pods/{engine.name}"
    await site.merge(path, {"metadata": {"annotations": {CONFIG_HASH_ANNOTATION: _FALSE_HASH}}})

    async def is_undone() -> bool:
        pod = await site.get(path) or {"metadata": {}}
        return bool(pod["metadata"].get("annotations", {}).get(CONFIG_HASH_ANNOTATION) != _FALSE_HASH)

    return is_undone


async def _forge_zone_status(site: Site) -> Check:
    path = site.zone_path(site.chance.choice(list(site.zones)))
    status = (await site.get(path) or {}).get("status", {})
    false = [
        each | {"status": "False", "reason": "PoolOvercommitted"} if each["type"] == "Accepted" else each
        for each in status.get("conditions", [])
    ]
    await site.merge(f"{path}/status", {"status": {"conditions": false, "held": 999_999, "message": "forged"}})

    async def is_undone() -> bool:
        found = (await site.get(path) or {}).get("status", {})
        accepted = [each["status"] for each in found.get("conditions", []) if each["type"] == "Accepted"]
        return accepted == ["True"] and (found.get("held"), found.get("message")) != (999_999, "forged")

    return is_undone


async def _forge_pool_status(site: Site) -> Check:
    path = site.pool_path(_some_pool(site))
    false = {"capacityBlocks": 7, "configHash": _FALSE_HASH, "configGeneration": -5, "zonesAccepted": 0}
    await site.merge(f"{path}/status", {"status": false})

    async def is_undone() -> bool:
        found = (await site.get(path) or {}).get("status", {})
        return (found.get("capacityBlocks"), found.get("configGeneration", -5) > 0) == (BLOCKS, True)

    return is_undone


async def _forge_lease(site: Site) -> Check:
    before = await site.get(LEASE_PATH) or {"spec": {}}
    await site.merge(LEASE_PATH, {"spec": {"leaseTransitions": _MAX_TRANSITIONS}})
    return _is_renewed(site, before)


async def _delete_lease(site: Site) -> Check:
    before = await site.get(LEASE_PATH) or {"spec": {}}
    await site.delete(LEASE_PATH)
    return _is_renewed(site, before)


def _is_renewed(site: Site, before: dict[str, Any]) -> Check:
    async def is_undone() -> bool:
        spec = (await site.get(LEASE_PATH) or {"spec": {}})["spec"]
        return bool(spec.get("holderIdentity")) and spec.get("renewTime") != before["spec"].get("renewTime")

    return is_undone


async def _delete_key(site: Site) -> Check:
    before = await site.get(KEY_PATH)
    await site.delete(KEY_PATH)
    # The Secret may contain the false key of another attack.
    return _has_key(site, site.key if before is None else before["data"]["key"])


async def _forge_key(site: Site) -> Check:
    await _write_key(site, _FALSE_KEY)
    await asyncio.sleep(site.false_key_seconds)
    await _write_key(site, site.key)
    return _has_key(site, site.key)


async def _put_key_back(site: Site) -> None:
    """Restore the true key if the Secret has a different one, as an administrator would do."""
    found = await site.get(KEY_PATH)
    if found is not None and found["data"]["key"] != site.key:
        await _write_key(site, site.key)


async def _write_key(site: Site, key: str) -> None:
    data = {"data": {"key": key}}
    if await site.get(KEY_PATH) is not None:
        await site.merge(KEY_PATH, data)
    else:
        path, _, name = KEY_PATH.rpartition("/")
        await site.client.call("POST", path, body=data | {"metadata": {"name": name}})


def _has_key(site: Site, key: str) -> Check:
    async def is_undone() -> bool:
        found = await site.get(KEY_PATH)
        return found is not None and found["data"]["key"] in (key, site.key)

    return is_undone


_CONTRADICTION = "contradiction"


async def _contradict(site: Site) -> Check:
    pool = list(site.pools)[-2]
    spec = {"pool": pool, "reserved": BLOCKS // 50, "limit": "1%"}
    zones = f"{GROUP}/namespaces/{site.pools[pool]}/tenantzones"
    await site.create(zones, "TenantZone", _CONTRADICTION, spec)

    async def is_refused() -> bool:
        found = await site.condition(f"{zones}/{_CONTRADICTION}", "Accepted")
        return found.get("status") == "False" and "limit" in found["message"]

    return is_refused


async def _contradict_no_more(site: Site) -> None:
    namespace = site.pools[list(site.pools)[-2]]
    await site.delete(f"{GROUP}/namespaces/{namespace}/tenantzones/{_CONTRADICTION}")


async def _select_twice(site: Site) -> Check:
    pool = list(site.pools)[-1]
    pools = site.pool_path(pool).rpartition("/")[0]
    selector = {"matchLabels": {"pool": pool}}
    await site.create(pools, "ZonePool", twin(pool), {"selector": selector, "adminPort": site.port})

    async def is_said_by_both() -> bool:
        paths = site.pool_path(pool), f"{pools}/{twin(pool)}"
        return all([(await site.condition(path, "SelectorOverlaps")).get("status") == "True" for path in paths])

    return is_said_by_both


async def _select_once(site: Site) -> None:
    pool = list(site.pools)[-1]
    await site.delete(f"{site.pool_path(pool).rpartition('/')[0]}/{twin(pool)}")


async def _change_unlisted(site: Site) -> Check:
    path = f"{GROUP}/namespaces/{UNLISTED}/tenantzones/{UNLISTED}"
    changed = await site.merge(path, {"spec": {"weight": site.chance.randint(1, 100)}})

    async def is_said() -> bool:
        found = await site.condition(path, "Accepted")
        is_new = found.get("observedGeneration", 0) >= changed["metadata"]["generation"]
        return is_new and (found["status"], found["reason"]) == ("False", "PoolNotServed")

    return is_said


_SECOND = f"{GROUP}/kvstorages/second"


async def _share_folder(site: Site) -> Check:
    path = site.manager.folder / "the-same-folder"
    path.unlink(missing_ok=True)
    path.symlink_to(site.manager.storage)
    spec = {"type": "FileSystem", "fileSystem": {"path": str(path)}}
    await site.create(f"{GROUP}/kvstorages", "KVStorage", "second", spec)

    async def is_said_by_both() -> bool:
        paths = f"{GROUP}/kvstorages/{STORAGE}", _SECOND
        shared = all([(await site.condition(path, "PlaceShared")).get("status") == "True" for path in paths])
        ready = [(await site.condition(path, "Ready")).get("status") for path in paths]
        return shared and ready == ["True", "False"]

    return is_said_by_both


async def _share_folder_no_more(site: Site) -> None:
    await site.delete(_SECOND)
    while await site.get(_SECOND) is not None:
        await site.pause()


ON_OBJECTS: Final[dict[str, Attack]] = {
    "ConfigMap: generation + 1, valid hash, reservations 0": Attack(6, "replaced", _forge_config),
    "ConfigMap: the first config of the pool again": Attack(9, "replaced", _write_older_config),
    STARTED: Attack(45, "replaced", _start_with_older_config),
    "ConfigMap: garbage": Attack(11, "replaced", _write_garbage),
    "ConfigMap deleted": Attack(17, "made again", _delete_config),
    "annotation of a pod: a false hash": Attack(8, "put right", _forge_annotation, within_seconds=120),
    "status of a zone: not Accepted, false numbers": Attack(3, "put right", _forge_zone_status),
    "status of a pool: 7 blocks, false hash and generation": Attack(5, "put right", _forge_pool_status),
    "Lease: leaseTransitions 2^31-1": Attack(20, "renewed", _forge_lease),
    "Lease deleted": Attack(60, "made again", _delete_lease),
    "Secret of the operator's key deleted": Attack(45, "same key made again", _delete_key, _put_key_back, 150),
    "Secret of the operator's key: a false key": Attack(120, "true key", _forge_key, _put_key_back),
    "a zone that reserves more than its limit": Attack(
        10, "refused, naming the limit", _contradict, _contradict_no_more
    ),
    "a second pool with the same pods": Attack(20, "said by both pools", _select_twice, _select_once),
    "a zone changed in a pool that is not listed": Attack(7, "refused, PoolNotServed", _change_unlisted),
    "a second KVStorage on one folder, by a link": Attack(
        25, "said by both, the first stays Ready", _share_folder, _share_folder_no_more
    ),
}
"""Attacks on objects, by name."""
