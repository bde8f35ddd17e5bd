"""The picture of the blocks on the admin port, over real HTTP."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tenantzone_contract.cache.blocks import DEFAULT_CELLS, MAX_CELLS, BlockKind, BlockMap, parse_block_map
from tenantzone_contract.reports.report import ConfigStatus, EngineReport
from tenantzone_runtime.admin_port.admin import AdminServer, TakeBlockMap, TakeTierMap
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.reported import SETTINGS

REPORT = EngineReport(
    engine_version="0.32.0",
    capacity_blocks=255,
    block_size_tokens=16,
    free_blocks=255,
    config=ConfigStatus(),
    **SETTINGS,
    started_unix_time=0.0,
    published_unix_time=0.0,
)
PICTURE = BlockMap(
    pod="engine-0",
    capacity_blocks=255,
    blocks_per_cell=1,
    kinds=(BlockKind(use="free", blocks=255),),
    runs=((0, 255),),
    taken_unix_time=0.0,
)
WAIT_SECONDS = 0.5


@contextmanager
def serving(take_block_map: TakeBlockMap | None, take_tier_map: TakeTierMap | None = None) -> Iterator[str]:
    server = AdminServer(
        *("127.0.0.1", 0, lambda: REPORT),
        access=AdminAccess(None),
        take_block_map=take_block_map,
        take_tier_map=take_tier_map,
    )
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    ("query", "cells"), [("", DEFAULT_CELLS), ("?cells=7", 7), ("?x=1&cells=7&cells=8", 8), ("?cells=4096", MAX_CELLS)]
)
def test_a_picture_has_as_many_cells_as_are_asked_for(query: str, cells: int):
    asked: list[int] = []

    def take(max_cells: int) -> BlockMap:
        asked.append(max_cells)
        return PICTURE

    with serving(take) as url:
        status, body = get(f"{url}/blocks{query}")
    assert (status, parse_block_map(body), asked) == (200, PICTURE, [cells])


@pytest.mark.parametrize("cells", ["0", "4097", "-1", "many", "1e3", "%C2%B2", "9" * 30])
def test_a_picture_of_a_senseless_size_is_refused(cells: str):
    with serving(lambda _: PICTURE) as url:
        assert get(f"{url}/blocks?cells={cells}") == (400, "cells must be a number from 1 to 4096\n")


def test_a_picture_of_a_tier_is_taken_where_there_is_one():
    def take(tier: str, cells: int) -> BlockMap | None:
        return PICTURE.model_copy(update={"tier": tier, "capacity_blocks": cells}) if tier == "cpu" else None

    with serving(lambda _: PICTURE, take) as url:
        reported = parse_block_map(get(f"{url}/blocks?cells=7&tier=cpu")[1])
        assert (reported.tier, reported.capacity_blocks) == ("cpu", 7)
        assert parse_block_map(get(f"{url}/blocks?tier=")[1]) == PICTURE
        assert get(f"{url}/blocks?tier=disk") == (404, "the engine has no such tier\n")
    with serving(lambda _: PICTURE) as url:
        assert get(f"{url}/blocks?tier=cpu")[0] == 404


def test_an_engine_that_takes_no_pictures_has_no_such_path():
    with serving(None) as url:
        assert get(f"{url}/blocks")[0] == 404


def test_pictures_are_taken_one_at_a_time():
    together = threading.Barrier(2)
    met: list[bool] = []

    def take(_: int) -> BlockMap:
        try:
            together.wait(WAIT_SECONDS)
        except threading.BrokenBarrierError:
            met.append(False)
        else:
            met.append(True)
        return PICTURE

    with serving(take) as url, ThreadPoolExecutor(2) as asking:
        answers = list(asking.map(lambda _: get(f"{url}/blocks")[0], range(2)))
    assert answers == [200, 200]
    assert met == [False, False]
