"""The pure parts of the default group's phases."""

import pytest

from bench.gpu.answers import Answer
from bench.gpu.load import Loaded
from bench.gpu.phases.equal import compared, difference
from bench.gpu.phases.noisy import flood_rates, quiet_streams, tenants
from bench.gpu.phases.tenants import zones
from bench.gpu.plan import Answered
from bench.gpu.shapes import SHAPES


def answer(*tokens, top=None):
    places = top or [{token: -0.5, token + 1: -1.0} for token in tokens]
    return Answer(tokens, tuple(places), prompt_tokens=10, cached_tokens=0, first_token_seconds=0.1)


class TestComparing:
    def test_answers_are_counted_by_tokens_and_by_the_likeliest_tokens(self):
        other_top = answer(1, 2, top=[{1: -0.5, 9: -1.0}, {2: -0.5, 3: -1.0}])
        ours, stock = [answer(1, 2), answer(1, 2), answer(1, 9)], [answer(1, 2), other_top, answer(1, 2)]
        row = compared("cold", ours, stock, "why", happened=False)
        assert (row["answers"], row["same_tokens"], row["same_top_logprobs"]) == (3, 2, 1)
        assert (row["happened"], row["note"]) == (False, "why; 2 distinct answers")

    def test_the_difference_is_of_tokens_that_both_answers_have(self):
        ours = answer(1, 2, top=[{1: -0.5, 5: -1.0}, {2: -0.5, 6: -3.0}])
        theirs = answer(1, 2, top=[{1: -0.6, 7: -9.0}, {2: -0.5, 6: -2.75}])
        assert difference(ours, theirs) == pytest.approx(0.25)

    def test_after_the_first_other_token_nothing_is_compared(self):
        ours = answer(1, 2, 3, top=[{1: -0.5}, {2: -0.5, 4: -0.6}, {3: -0.1}])
        theirs = answer(1, 4, 3, top=[{1: -0.5}, {2: -0.7, 4: -0.6}, {3: -5.0}])
        assert difference(ours, theirs) == pytest.approx(0.2)


class Engine:
    url = "http://x"

    def headers(self, tenant):
        return {"Authorization": tenant}

    def fields(self, tenant):
        return {}


class TestNoisyNeighbours:
    def test_arms_share_times_of_arrival_but_not_prompts(self):
        stock, ours = (quiet_streams(Engine(), SHAPES["nano"], 1, arm, begin=1.0) for arm in ("stock", "zones"))
        assert [stream.arrivals for stream in stock] == [stream.arrivals for stream in ours]
        assert stock[1].prompts.prompt(1) != ours[1].prompts.prompt(1)

    def test_requests_of_the_window_arrive_within_it(self):
        load = SHAPES["8b"].load
        streams = [stream for stream in quiet_streams(Engine(), SHAPES["8b"], 1, "stock", begin=4.0) if stream.first]
        assert len(streams) == 8
        arrivals = [arrival for stream in streams for arrival in stream.arrivals]
        assert min(arrivals) >= 4.0
        assert max(arrivals) < 4.0 + load.window_seconds

    def test_two_seeds_have_at_least_400_requests_on_a_gpu(self):
        shape = SHAPES["8b"]
        streams = [s for seed in (1, 2) for s in quiet_streams(Engine(), shape, seed, "stock", 4.0) if s.first]
        assert sum(len(stream.arrivals) for stream in streams) >= 400

    def test_times_of_several_tenants_are_pooled(self):
        loaded = Loaded({"a": Answered(2, 1, ["late"], first_token_seconds=[0.1]), "b": Answered(1, 0)}, 2.0, 0.1)
        assert tenants(loaded, ["a", "b"]) == {
            "requests": 3,
            "failed": 1,
            "first_token_seconds": [0.1],
            "token_seconds": [],
            "errors": ["late"],
        }

    def test_rates_of_the_flood_are_over_the_window(self):
        streams = {name: Answered(window_tokens=500, window_requests=2) for name in ("flood-1", "flood-2")}
        assert flood_rates(Loaded(streams, 2.0, 0.1)) == {"tokens_per_second": 500.0, "requests_per_second": 2.0}

    def test_only_three_tenants_get_targets(self):
        with_targets = {zone.tenant for zone in zones(target_seconds=0.04) if zone.latency.token_time_seconds}
        assert with_targets == {"target-1", "target-2", "target-3"}
        assert not any(zone.latency.token_time_seconds for zone in zones())
        assert {zone.offload for zone in zones()} == {"Never"}


@pytest.mark.parametrize("name", ["8b", "nano"])
def test_a_flood_is_larger_than_the_pool(name):
    shape = SHAPES[name]
    assert shape.load.flood_at_once * shape.load.flood_prompt > shape.blocks * shape.block_tokens
