"""A disk and storages below engines whose model has several groups: each provides what the other can't."""

import time

import pytest

from hack.harness.scheduler import BLOCK_TOKENS, prompt, vllm_config
from tenantzone_runtime.engine.versions import keep_groups_in_tiers
from tests.engine.sharing_engines import sharing_engines
from tests.engine.test_tier_groups import ONE, WINDOW_BLOCKS
from tests.shared_tier.conftest import own_manager as manager  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(not keep_groups_in_tiers(), reason="refused with this vLLM")
PROMPT = prompt(8)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return vllm_config(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=[(), ONE], ids=["one group", "several groups"])
def engine(request, config, manager, tmp_path):  # noqa: F811 - the fixture
    """Makes engines for which the storages have all of an eight-block prompt, and the disk `on_disk` blocks of it."""
    options = {"kinds": request.param, "window": WINDOW_BLOCKS * BLOCK_TOKENS if request.param else None}
    with sharing_engines(config, manager) as make:

        def made(on_disk):
            mine = make(1, disk=tmp_path / "disk", chunks=100, capacity=60, **options)[-1]
            other = make(1, chunks=100, capacity=60, **options)[-1]
            mine.until(lambda: mine.disk.is_open)
            mine.ask("acme", PROMPT[: on_disk * BLOCK_TOKENS + 1])
            other.ask("acme", PROMPT)
            mine.evict("acme")
            mine.forget_memory()
            return mine

        yield made


def leave_storages_alone(engine):
    breakers = engine.shared._loading.breakers
    breakers.note("files", "down", at_once=True)
    breakers.of("files")._closed_from += 3600


def leave_the_disk_alone(engine):
    breaker = engine.disk.read_breaker
    breaker.failed(time.monotonic(), "down", at_once=True)
    breaker._closed_from += 3600


@pytest.mark.parametrize("on_disk", [6, 8])
def test_what_the_disk_has_is_found_while_storages_are_left_alone(engine, on_disk):
    mine = engine(on_disk)
    leave_storages_alone(mine)
    assert mine.cached_tokens(mine.ask("acme", PROMPT)) == on_disk * BLOCK_TOKENS


@pytest.mark.parametrize("on_disk", [6, 8])
def test_what_storages_have_is_found_while_the_disk_is_left_alone(engine, on_disk):
    mine = engine(on_disk)
    leave_the_disk_alone(mine)
    assert mine.cached_tokens(mine.ask("acme", PROMPT)) == 8 * BLOCK_TOKENS


def test_without_either_it_is_computed(engine):
    mine = engine(8)
    leave_the_disk_alone(mine)
    leave_storages_alone(mine)
    assert mine.cached_tokens(mine.ask("acme", PROMPT)) == 0
