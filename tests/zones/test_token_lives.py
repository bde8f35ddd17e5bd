"""Random lives of a step's tokens: drafts and long prompts of some zones leave the others their share."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.zones.tokens.deficits import BOUND, CHUNK
from tests.zones.core import Core
from tests.zones.small_engine import SmallEngine

LIVES = 20
STEPS = 60


class DraftingEngine(SmallEngine):
    """An engine that drafts tokens, and computes at most a threshold's tokens of one prompt in a step."""

    def __init__(self, core, *, drafts, threshold, **options):
        super().__init__(core, **options)
        self.tokens_each = 1 + drafts
        self.threshold = threshold

    def tokens_left(self, work):
        return min(work.tokens - work.computed, self.threshold)

    def _compute(self, work, budget):
        if self.is_in_prompt(work):
            return super()._compute(work, budget)
        wanted = min(budget, self.tokens_each)
        count = self.arbiter.tokens_for(work, wanted) if wanted else 0
        self.computed[work] = count
        work.computed += count
        return budget - count


def new_life(seed, *, drafts):
    chance = Random(seed)
    core = Core(capacity=10_000)
    engine = DraftingEngine(
        core,
        drafts=drafts,
        threshold=chance.choice([16, 100, 10_000]),
        seats=1000,
        step_tokens=chance.choice([64, 100, 512]),
    )
    zones = [core.zone(f"zone-{number}", weight=chance.randint(1, 3)) for number in range(chance.randint(2, 4))]
    return chance, engine, zones


@pytest.mark.parametrize("seed", range(LIVES))
def test_prompts_are_computed_next_to_any_number_of_drafts(seed):
    chance, engine, (flood, *others) = new_life(seed, drafts=2 + seed % 7)
    for _ in range(engine.step_tokens // 2):
        engine.run(flood, 1)
    waited = dict.fromkeys(others, 0)
    for _ in range(STEPS):
        for zone in others:
            if zone not in engine.queues and chance.random() < 0.3:
                engine.wait(zone, 1, tokens=chance.randint(1, 300))
        in_line = set(engine.queues) | {work.zone for work in engine.in_prompts()}
        engine.step()
        computed = {work.zone for work, count in engine.computed.items() if count and work.zone is not flood}
        if in_line:
            assert all(engine.computed[work] for work in engine.running if work.zone is flood), "each one generates"
        for zone in others:
            waited[zone] = 0 if zone in computed or zone not in in_line else waited[zone] + 1
            assert waited[zone] <= 4 * len(others), "a prompt waits for drafts"
        for work in [work for work in engine.running if work.zone is not flood and not engine.is_in_prompt(work)]:
            engine.end(work)


@given(
    step_tokens=st.sampled_from([16, 64, 100, 512]),
    drafts=st.integers(1, 8),
    generating=st.integers(1, 64),
    prompts=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 200), st.booleans()), max_size=6),
)
def test_drafts_leave_prompts_no_more_than_they_can_use(step_tokens, drafts, generating, prompts):
    core = Core(capacity=10_000)
    engine = DraftingEngine(core, drafts=drafts, threshold=10_000, seats=1000, step_tokens=step_tokens)
    zones = [core.zone(f"zone-{number}") for number in range(4)]
    decodes = [engine.run(zones[-1], 1) for _ in range(min(generating, step_tokens))]
    for number, tokens, runs in prompts:
        (engine.run if runs else engine.wait)(zones[number], 1, tokens=tokens)
    engine.step()
    of_drafts = sum(engine.computed[work] for work in decodes)
    of_prompts = sum(engine.computed.values()) - of_drafts
    assert of_drafts == min(len(decodes) * engine.tokens_each, step_tokens - of_prompts), "none is cut in vain"
    least = min(CHUNK, step_tokens // 8, sum(tokens for _, tokens, _ in prompts), step_tokens - len(decodes))
    assert of_prompts >= least


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_threshold_for_long_prompts_changes_no_zones_part(seed):
    _, engine, zones = new_life(seed, drafts=0)
    service = dict.fromkeys(zones, 0)
    for zone in zones:
        # Enough requests to use a whole step, whatever the threshold is.
        for _ in range(-(-engine.step_tokens // engine.threshold)):
            engine.run(zone, 1, tokens=1_000_000)
    for _ in range(STEPS):
        engine.step()
        assert sum(engine.computed.values()) == engine.step_tokens
        for work, count in engine.computed.items():
            assert count <= engine.threshold
            service[work.zone] += count
        for one, other in combinations(zones, 2):
            assert abs(service[one] / one.spec.weight - service[other] / other.spec.weight) <= BOUND
