"""Salts with vLLM's real hashes and schedulers: equal over engines and restarts, different for each tenant."""

import json

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, SALT_KEY, SEAL_KEY, Driver, make_scheduler, prompt, vllm_config
from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_runtime.frontend.binding import bind
from tests.engine.measured import zone

BLOCKS = 6
PROMPT = prompt(BLOCKS, seed=1)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


def engine(config, **arguments):
    """An engine that has just started, of a pool with two tenants."""
    driver = Driver(make_scheduler(config, 100), **arguments)
    driver.declare(zone("acme"), zone("burst"))
    return driver


def hashes(driver, tenant, **arguments):
    """The hashes of the prompt's blocks, under which the engine caches them."""
    made = driver.ask(tenant, PROMPT, **arguments).block_hashes
    assert len(made) == BLOCKS
    with driver.scheduler.block_pool.for_zone(driver.zone(tenant)):
        assert all(driver.scheduler.block_pool.get_cached_block(each, [0]) for each in made)
    return made


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_two_engines_and_one_that_was_restarted_compute_equal_hashes(config, algorithm):
    first, second = (engine(config, hash_algorithm=algorithm) for _ in range(2))
    assert hashes(first, "acme") == hashes(second, "acme")
    restarted = engine(config, hash_algorithm=algorithm)
    assert hashes(restarted, "acme") == hashes(first, "acme")


def test_two_tenants_have_no_hash_in_common(config):
    driver = engine(config)
    acme, burst = hashes(driver, "acme"), hashes(driver, "burst")
    assert not set(acme) & set(burst)


def test_under_another_key_nothing_is_found_again(config):
    driver = engine(config)
    before = hashes(driver, "acme")
    driver.salt_key = b"another".ljust(32)
    assert not set(before) & set(hashes(driver, "acme"))


@pytest.mark.parametrize("client_salt", ["", "mine"])
def test_a_gateway_that_has_stamped_the_salt_makes_no_difference(config, client_salt):
    """A router hashes the body's ``cache_salt``; the engine then uses the same one."""
    stamped = tenant_salt(SALT_KEY, "acme", client_salt)
    driver = engine(config)
    through_gateway = driver.ask("acme", PROMPT, client_salt=stamped)
    assert through_gateway.cache_salt == stamped
    direct = driver.ask("acme", PROMPT, client_salt=client_salt)
    assert direct.block_hashes == through_gateway.block_hashes
    assert driver.cached_tokens(direct) == BLOCKS * BLOCK_TOKENS


def test_another_tenants_salt_finds_and_leaves_nothing_there(config):
    driver = engine(config)
    of_acme = hashes(driver, "acme")
    stolen = tenant_salt(SALT_KEY, "acme")
    probe = driver.ask("burst", PROMPT, client_salt=stolen)
    assert driver.cached_tokens(probe) == 0
    assert probe.cache_salt != stolen
    assert not set(probe.block_hashes) & set(of_acme)
    assert driver.cached_tokens(driver.ask("acme", PROMPT)) == BLOCKS * BLOCK_TOKENS


def test_knowing_a_salt_does_not_allow_sealing_it(config):
    """The seal binds tenant and salt together: acme's salt under burst's seal is refused."""
    driver = engine(config)
    of_burst = json.loads(bind(b"{}", {}, SEAL_KEY, SALT_KEY, "burst"))["vllm_xargs"]["tenantzone_seal"]
    request = driver.ask("acme", PROMPT, sealed=of_burst)
    assert driver.finished[request.request_id] == "error"
