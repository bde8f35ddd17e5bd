"""A frontend follows the active config while no request arrives, and reports it to the engine core."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_contract.zone_config.config_text import parse_config
from tenantzone_runtime.api_server_state import ApiServerState, read_states
from tenantzone_runtime.frontend import following
from tenantzone_runtime.frontend.identities.key_ring import KeyRing
from tenantzone_runtime.frontend.middleware import TenantMiddleware
from tests.frontend.harness import SALT_KEY, SEAL_KEY, give_keys, give_salt_key, give_zones, settings
from tests.waiting import await_that


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[None]:
    """An API server with the frontend, from its start to its end; it gets no request."""
    is_ended = asyncio.Event()

    async def app(scope, receive, send) -> None:
        await is_ended.wait()

    frontend = TenantMiddleware(app, settings(folder))
    running = asyncio.create_task(frontend({"type": "lifespan"}, None, None))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        is_ended.set()
        await running


async def state(folder: Path, holds: Callable[[ApiServerState], object]) -> ApiServerState:
    """The state of this process once the condition holds for it."""

    def is_there() -> bool:
        found = read_states(folder / "config")
        return bool(found) and bool(holds(found[0]))

    await asyncio.to_thread(await_that, is_there, "the state is reported")
    return read_states(folder / "config")[0]


def test_what_is_in_force_is_reported_without_a_request(tmp_path: Path):
    give_keys(tmp_path, acme="key-of-acme")
    give_zones(tmp_path, "acme")

    async def live() -> None:
        async with started(tmp_path):
            first = await state(tmp_path, lambda state: True)
            config = parse_config((tmp_path / "config" / CONFIG_KEY).read_text())
            assert (first.config_generation, first.config_hash) == (1, config.hash)
            give_zones(tmp_path, "acme", "burst", generation=2)
            await state(tmp_path, lambda state: state.config_generation == 2)
            give_keys(tmp_path, acme="key-of-acme", burst="key-of-burst")
            await state(tmp_path, lambda state: state.keys != first.keys)
            assert first.salt_key == ""
            give_salt_key(tmp_path, SALT_KEY)
            await state(tmp_path, lambda state: state.salt_key)
        assert read_states(tmp_path / "config") == [], "it has ended"

    asyncio.run(live())


def test_the_report_is_written_again_after_the_folder_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Otherwise the report would be written again because of its age.
    monkeypatch.setattr(following, "RENEWAL_SECONDS", float("inf"))
    give_zones(tmp_path, "acme")

    async def live() -> None:
        async with started(tmp_path):
            await state(tmp_path, lambda state: state.config_generation == 1)
            shutil.rmtree(tmp_path / "config")
            give_zones(tmp_path, "acme")
            await state(tmp_path, lambda state: state.config_generation == 1)

    asyncio.run(live())


def test_a_report_that_is_old_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(following, "RENEWAL_SECONDS", 0.0)
    give_zones(tmp_path, "acme")

    async def live() -> None:
        async with started(tmp_path):
            first = await state(tmp_path, lambda state: state.config_generation == 1)
            renewed = await state(tmp_path, lambda state: state.unix_time > first.unix_time)
            assert replace(renewed, unix_time=first.unix_time) == first

    asyncio.run(live())


def test_the_digest_of_keys_is_the_same_in_each_process_and_says_nothing_to_others(tmp_path: Path):
    give_keys(tmp_path, acme="key-of-acme\nanother-key", burst="key-of-burst")

    def digest(key: bytes = SEAL_KEY) -> str:
        ring = KeyRing(tmp_path / "keys", key)
        ring.refresh()
        return ring.digest

    first = digest()
    assert digest() == first != digest(b"of another engine")
    assert digest(b"") == "", "without a secret anybody could compute it"
    give_keys(tmp_path, acme="key-of-acme", burst="key-of-burst\nanother-key")
    assert digest() != first, "the same keys are other tenants'"
