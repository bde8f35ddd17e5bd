"""A real engine records its requests, and a replay of the record finds the same cache hits."""

import json
import random
import time

import pytest

from tenantzone_contract.zone_config.config import ZoneConfig
from tenantzone_contract.zone_config.zone_terms import Idle
from tenantzone_replay.__main__ import main as replay_command
from tenantzone_replay.engine.measured import read_measured
from tenantzone_replay.simulation.hardware import MODELS
from tenantzone_replay.simulation.measures import Target
from tenantzone_replay.simulation.policies import Policy
from tenantzone_replay.simulation.profile import profile
from tenantzone_replay.simulation.replay import replay
from tenantzone_replay.simulation.setting import Setting
from tenantzone_replay.traces.readers import recorded
from tenantzone_runtime.engine.modelless.engine_shape import EngineShape
from tests.engine.real_engine import API_PORT

pytestmark = pytest.mark.engine

BLOCKS = 255
REQUESTS = 60


def recording(engine):
    return [
        json.loads(line)
        for path in sorted(engine.record_folder.glob("requests-*"))
        for line in path.read_text().splitlines()
    ]


@pytest.fixture(scope="module")
def asked(engine):
    """Two tenants send old and new prompts, one request at a time. Returns the zones and the records."""
    engine.declare()
    never_quiet = Idle(after_seconds=3600)
    zones = [
        ZoneConfig(name="acme", tenant="acme", generation=1, reserved=120, idle=never_quiet),
        ZoneConfig(name="burst", tenant="burst", generation=1, reserved=100, idle=never_quiet),
    ]
    engine.declare(*zones)
    before = len(recording(engine))
    rng = random.Random(1)
    found = []
    for number in range(REQUESTS):
        tenant = ("acme", "burst")[number % 2]
        begin = f"Document {rng.randrange(5)}. " + "It was a dark and stormy night. " * rng.randrange(8, 30)
        prompt = f"{begin}Question {number}?"
        answer = engine.client(tenant).completions.create(
            model="tiny",
            prompt=prompt,
            max_tokens=rng.randrange(1, 40),
            temperature=0,
            extra_body={"ignore_eos": True},
        )
        found.append((tenant, answer.usage))
    engine.wait(lambda: len(recording(engine)) == before + REQUESTS, "all requests are recorded")
    return zones, found, recording(engine)[before:]


def test_a_recording_has_the_lengths_and_hits_of_each_request(asked):
    _, found, records = asked
    for (tenant, usage), record in zip(found, records, strict=True):
        assert record["tenant"] == tenant
        assert record["prompt_tokens"] == usage.prompt_tokens
        assert record["output_tokens"] == usage.completion_tokens
        assert record.get("cached_tokens", 0) == usage.prompt_tokens_details.cached_tokens
        assert record["block_tokens"] == 32
        assert record["finish"] == "length"
        assert 0 < record["first_token_seconds"] <= record["seconds"] < 20
    assert not any("stormy" in json.dumps(record) for record in records)


def test_the_replay_of_a_recording_finds_what_the_engine_found_for_each_request(asked, tmp_path):
    zones, found, records = asked
    path = tmp_path / "requests-1.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    requests = list(recorded.read(path))
    shape = EngineShape(BLOCKS, 32, longest=4096, step_tokens=4096)
    replayed = []

    def reported(number, *request):
        replayed.append(request)

    at = Setting(
        lambda: iter(requests), profile(requests), shape, MODELS["8b"], Target(), in_flight=1, on_answered=reported
    )
    result = replay(at, Policy("zones", "ours", zones=tuple(zones)))
    in_engine = [(tenant, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens) for tenant, usage in found]
    assert replayed == in_engine
    assert all(each.hit_tokens for each in result.tenants.values())
    assert all(each.evicted for each in result.tenants.values()), "the cache was turned over"


def test_what_an_engine_takes_is_fitted_by_one_command(engine, tmp_path, capsys):
    engine.declare(ZoneConfig(name="acme", tenant="acme", generation=1))
    out = tmp_path / "engine.json"
    arguments = ["--key", "key-of-acme", "--step-tokens", "256", "--at-once", "1", "4", "--out", str(out)]
    began = time.perf_counter()
    replay_command(
        ["fit", f"http://{engine.address}:{API_PORT}", *arguments, "--blocks", "255", "--block-tokens", "32"]
    )
    took = time.perf_counter() - began
    measured = read_measured(out)
    assert (measured.name, measured.block_count, measured.block_tokens) == ("tiny", 255, 32)
    step = measured.step_seconds([(1, 100)])
    assert 1e-5 <= step < took
    assert measured.step_seconds([(256, 256)]) >= step
    assert "they are off by" in capsys.readouterr().out
