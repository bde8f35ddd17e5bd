"""Two ranks of data parallelism, each with an API server, a frontend and a report: real engines that step together.

The model is a mixture of experts, the only kind for which vLLM allows ranks. If either rank has work, both make steps:
a rank without work, or whose zones hold its requests back, steps with made-up tokens.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import openai
import pytest

from bench.kinds.models import qwen3_moe
from hack.harness.cache_manager import CacheManagerProcess
from hack.harness.cpu_ranks import write_plugin
from hack.ports import free_address
from tenantzone_contract.cache.migration import MigrationReport
from tenantzone_contract.reports.report import REPORT_PATH, parse_report
from tenantzone_contract.reports.summary import ZoneSummary
from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_operator.engines.views import view
from tests.engine.migrating import migrate
from tests.engine.real_engine import API_PORT, RealEngine, StartingEngine

pytestmark = pytest.mark.flagged_engine

BLOCK_TOKENS, BLOCKS, CHUNKS = 32, 64, 16
CHUNK_BYTES = 32 * 1024
PROMPT_BLOCKS = 20
FLOOD = 8
"""Prompts of the same length each."""
STORED_BYTES = 10 * CHUNKS * (CHUNK_BYTES + 32)
RPC_PORT, MASTER_PORT = 13345, 29500

Ranks = tuple[RealEngine, RealEngine]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheManagerProcess]:
    made = CacheManagerProcess(tmp_path_factory.mktemp("manager"), {"engines": "test/pool"})
    made.start()
    made.share({"name": "test.pool", "pools": ["test/pool"], "total": {"limit": STORED_BYTES, "watermark": 0.9}})
    yield made
    made.kill()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, manager: CacheManagerProcess) -> Iterator[Ranks]:
    folder = tmp_path_factory.mktemp("ranks")
    write_plugin(folder)
    token = folder / "token"
    token.write_text("engines\n")
    address = free_address(RPC_PORT, MASTER_PORT)

    def of_rank(rank: int) -> list[str]:
        return [
            "--data-parallel-size", "2", "--data-parallel-rank", str(rank), "--data-parallel-address", address,
            "--data-parallel-rpc-port", str(RPC_PORT), "--num-gpu-blocks-override", str(BLOCKS + 1),
            "--max-model-len", str(BLOCKS * BLOCK_TOKENS), "--cpu-tier", str(CHUNKS * CHUNK_BYTES),
            "--manager-url", manager.url, "--manager-token-file", str(token), "--manager-budget", "2",
        ]  # fmt: skip

    def start(rank: int, partner: StartingEngine | None = None) -> StartingEngine:
        folders = [str(folder), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
        return StartingEngine(lambda *_: of_rank(rank), partner, qwen3_moe, **variables)

    # Neither is healthy before the other is there.
    starting = [first := start(0), start(1, partner=first)]
    for each in starting:
        each.engine.add_keys("acme", "burst")
    try:
        first, second = (each.await_health() for each in starting)
        yield first, second
    finally:
        for each in starting:
            each.stop()


@pytest.fixture
def ranks(both: Ranks) -> Ranks:
    """Both ranks, with nothing cached, and zones that offload nothing."""
    for engine in both:
        engine.declare()
        engine.declare(zone("acme", reserved="50%"), zone("burst", limit="60%"))
    return both


def zone(tenant: str, **fields: object) -> ZoneConfig:
    return ZoneConfig(name=tenant, tenant=tenant, generation=1, **{"offload": "Never", **fields})


def prompt(name: str, blocks: int = PROMPT_BLOCKS) -> str:
    """A prompt; a word is a token."""
    number = int.from_bytes(name.encode(), "big") % 1000
    return " ".join(f"w{number + 1000 * (place % 4)}" for place in range(blocks * BLOCK_TOKENS + 5))


def ask(engine: RealEngine, tenant: str, text: str, tokens: int = 8) -> tuple[str, int]:
    """Returns the answer, and how many tokens of the prompt were cached."""
    answer = engine.client(tenant).completions.create(
        model="tiny", prompt=text, max_tokens=tokens, temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == tokens
    return answer.choices[0].text, answer.usage.prompt_tokens_details.cached_tokens


def test_before_any_config_each_rank_answers_each_caller_with_a_key(both: Ranks):
    assert [engine.report().config.applied_hash for engine in both] == [None, None]
    assert len({ask(engine, "acme", prompt("early", 2)) for engine in both}) == 1


@pytest.mark.shows("data parallelism with an external balancer")
def test_on_each_rank_a_reservation_outlasts_floods_of_both(ranks: Ranks):
    text, whole = prompt("handbook"), PROMPT_BLOCKS * BLOCK_TOKENS
    first = [ask(engine, "acme", text) for engine in ranks]
    assert [cached for _, cached in first] == [0, 0], "each has a cache of its own"
    again = [ask(engine, "acme", text) for engine in ranks]
    assert [cached for _, cached in again] == [whole, whole]
    assert {answer for answer, _ in (*first, *again)} == {first[0][0]}
    assert [ask(engine, "burst", text)[1] for engine in ranks] == [0, 0]

    def flood(engine: RealEngine) -> list[int]:
        with ThreadPoolExecutor(4) as askers:
            return list(askers.map(lambda number: ask(engine, "burst", prompt(f"flood {number}"), 2)[1], range(FLOOD)))

    with ThreadPoolExecutor(2) as sides:
        assert list(sides.map(flood, ranks)) == [[0] * FLOOD] * 2
    for engine in ranks:
        assert sum(engine.zone("burst").evictions.values()) > 0, "it was a flood"
        assert ask(engine, "acme", text) == (first[0][0], whole)


@pytest.mark.shows("data parallelism with an external balancer")
def test_a_rank_whose_zone_holds_a_request_back_keeps_no_request_on_the_other_waiting(ranks: Ranks):
    first, second = ranks
    first.declare(zone("acme", limit=PROMPT_BLOCKS + 8), zone("burst"))
    with ThreadPoolExecutor(6) as askers:
        # One runs at a time. So many take long enough for a report to show that others wait.
        long = [askers.submit(ask, first, "acme", prompt(f"long {number}"), 100) for number in range(6)]
        first.wait(lambda: first.zone("acme").waiting_requests > 0, "all but one wait for blocks")
        answered = 0
        while first.zone("acme").waiting_requests > 0:
            ask(second, "acme", prompt(f"short {answered}", 2))
            answered += 1
        assert answered, "while others wait"
        assert [len(each.result(60)[0]) > 0 for each in long] == [True] * 6
    assert ask(second, "burst", prompt("after", 2))[1] == 0


@pytest.mark.shows("data parallelism with an external balancer")
def test_each_rank_reports_what_it_holds_and_the_operator_adds_it_up(ranks: Ranks):
    first, second = ranks
    second.declare(zone("acme", reserved="25%"), zone("burst"))
    ask(first, "acme", prompt("on the first", 6))
    ask(second, "acme", prompt("on the second", 3))
    assert [engine.zone("acme").cached for engine in ranks] == [6, 3]
    seen = [view(parse_report(engine.admin(REPORT_PATH).content)).zones["acme"] for engine in ranks]
    summary = ZoneSummary.of(seen)
    assert (summary.reserved, summary.held) == (BLOCKS // 2 + BLOCKS // 4, 9)


def move_all(engine: RealEngine, what: str, **more: object) -> MigrationReport:
    """Moves acme's cache, and repeats what was late on busy cores."""
    for _ in range(10):
        report = migrate(engine, what, **more)
        if not report.left:
            return report
    raise AssertionError(f"{report.left} chunks are left")


def _is_well(engine: RealEngine) -> bool:
    """Whether it can reach its manager."""
    return next(tier for tier in engine.report().tiers if tier.tier == "shared").problem == ""


@pytest.mark.shows("data parallelism with an external balancer")
def test_a_cache_moves_between_ranks_without_requests(ranks: Ranks, manager: CacheManagerProcess):
    first, second = ranks
    blocks, text = CHUNKS - 4, prompt("moving", CHUNKS - 4)
    for engine in ranks:
        engine.declare(zone("acme", offload="All"), zone("burst"))
    manager.kill()
    answer, _ = ask(first, "acme", text)
    manager.start()
    for engine in ranks:
        engine.wait(partial(_is_well, engine), "it has heard of the manager", 60)
    down = move_all(first, "hand-down")
    assert down.found == blocks
    assert move_all(second, "warm-up", prompts=down.prompts).found == blocks
    assert ask(second, "acme", text) == (answer, blocks * BLOCK_TOKENS)
    assert ask(second, "burst", text)[1] == 0


def test_a_rank_that_refuses_all_that_it_is_asked_keeps_the_other_from_nothing(ranks: Ranks):
    first, second = ranks
    first.declare(zone("acme", limit=2), zone("burst"))
    for number in range(5):
        with pytest.raises(openai.BadRequestError, match="limit"):
            ask(first, "acme", prompt(f"too long {number}", 4))
    assert ask(second, "acme", prompt("next to it", 4))[1] == 0
    assert ask(first, "burst", prompt("after it", 4))[1] == 0


def test_no_client_chooses_another_rank(ranks: Ranks):
    def status(rank: str) -> list[int]:
        headers = {"authorization": "Bearer key-of-acme", "x-data-parallel-rank": rank}
        body = {"model": "tiny", "prompt": "w1 w2", "max_tokens": 1}
        return [
            httpx.post(f"http://{engine.address}:{API_PORT}/v1/completions", json=body, headers=headers).status_code
            for engine in ranks
        ]

    assert status("0") == [200, 200]
    assert status("1") == [400, 400]
