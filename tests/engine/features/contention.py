"""Two tenants contend for the blocks of a small engine, with zones and without."""

import itertools
from collections import Counter

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.features.asking import Asked, generated, text
from tests.engine.features.kv_events import chains, subscribed
from tests.engine.real_engine import API_PORT, RealEngine

PROMPTS = {"hog": text(24, "hog"), "calm": text(8, "calm"), "small": text(2, "small"), "large": text(40, "large")}
LENGTHS = {"hog": 1200, "calm": 600, "small": 20, "large": 1}
"""Tokens generated. Of 63 blocks, hog ends with 62 and calm with 27."""

_salts = itertools.count()


def alone(engine: RealEngine) -> dict[str, list[int]]:
    """The engine's answer to each prompt if it has nothing else to do."""
    return {name: generated(engine.client("unknown"), PROMPTS[name], LENGTHS[name]) for name in PROMPTS}


def vllm_metric(engine: RealEngine, name: str, label: str = "") -> Counter[str]:
    """One of vLLM's own metrics, by the values of a label."""
    page = httpx.get(f"http://{engine.address}:{API_PORT}/metrics", timeout=60).text
    values: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == name:
                values[sample.labels.get(label, "")] += int(sample.value)
    return values


def completed(engine: RealEngine) -> int:
    """Requests that have finished, once none is left."""

    def none_is_left() -> bool:
        return not any(vllm_metric(engine, f"vllm:num_requests_{state}").total() for state in ("running", "waiting"))

    engine.wait(none_is_left, "no request is left", 60)
    return vllm_metric(engine, "vllm:request_success_total", "finished_reason")["length"]


class Race:
    """Detects whether a request was still being answered when another one's answer arrived.

    To find out, it aborts the request, which does nothing to a complete one.
    """

    def __init__(self, engine: RealEngine) -> None:
        self._engine = engine
        self._before = completed(engine)

    def was_lost_by(self, asked: Asked, *, others: int) -> bool:
        """Aborts the request. ``others``: the number of other requests."""
        asked.abort()
        return completed(self._engine) - self._before == others


def small_one_passes_one_that_does_not_fit(engine: RealEngine) -> tuple[bool, list[int]]:
    """In one step, burst's hog begins, burst asks for more than fits next to it, and acme asks for little.

    The order in which the engine stores their blocks shows which passed which, so no clock decides. None of them is
    found in the cache.
    """
    salt = f"salt {next(_salts)}"
    with subscribed(engine) as events:
        with engine.stopped_core():
            hog = Asked(engine, "burst", PROMPTS["hog"], LENGTHS["hog"], cache_salt=salt)
            large = Asked(engine, "burst", PROMPTS["large"], LENGTHS["large"], cache_salt=salt)
            small = Asked(engine, "acme", PROMPTS["small"], LENGTHS["small"], cache_salt=salt)
        hog.answer()
        large.answer()
        answer = small.answer()
        stored = chains(events.stored(61 + 39 + 2))
    shortest = min(stored, key=stored.count)
    return stored[-1] != shortest, answer


def both_grow(engine: RealEngine) -> tuple[Asked, Asked]:
    """In one step, burst's hog begins and then acme's calm one; together they outgrow the engine."""
    with engine.stopped_core():
        hog = Asked(engine, "burst", PROMPTS["hog"], LENGTHS["hog"])
        calm = Asked(engine, "acme", PROMPTS["calm"], LENGTHS["calm"])
    return hog, calm


def calm_one_is_preempted(engine: RealEngine) -> bool:
    """Without zones, the last to arrive is preempted: calm then has no room again before hog has ended."""
    race = Race(engine)
    hog, calm = both_grow(engine)
    calm.answer()
    return not race.was_lost_by(hog, others=1)
