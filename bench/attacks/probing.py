"""Prefix probing: tests whether an attacker learns that a victim has sent a prompt.

The attacker sends the prompt that the victim may have sent, and a new one of the same length, and compares three
things: times to first token; the order of the answers when both are sent at once, which needs no clock (as in Wu et
al., "I Know What You Asked: Prompt Leakage via KV-Cache Sharing in Multi-Tenant LLM Serving", NDSS 2025); and the
cached tokens in the answers' usage.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from bench.attacks.answers import Answer, stream_answer
from bench.attacks.findings import Distinction, distinguish, guess_p_value

_WORDS = 4000
_TIMEOUT_SECONDS = 60.0


class Target(Protocol):
    """An engine to attack."""

    @property
    def url(self) -> str: ...

    @property
    def model(self) -> str: ...

    def headers_of(self, tenant: int) -> Mapping[str, str]:
        """Returns the credentials in a request of this tenant."""
        ...


@dataclass(frozen=True, slots=True)
class Probe:
    """The settings of a probing attack."""

    samples: int
    """Number of timed prompts on each side, and also of pairs that are sent at once."""
    prompt_words: int
    seed: int
    """Seed of the prompts and their order."""
    salt: str | None = None
    """The ``cache_salt`` that the victim sends and the attacker copies; None if neither sends a salt."""


@dataclass(slots=True)
class Samples:
    """The observations for prompts that the victim had sent, and for new ones."""

    sent: list[Answer] = field(default_factory=list)
    unsent: list[Answer] = field(default_factory=list)
    sent_came_first: int = 0
    """Number of pairs sent at once in which the victim's prompt was answered first."""
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """The attacker's findings."""

    by_time: Distinction
    sent_came_first: float
    """Fraction of the pairs sent at once in which the victim's prompt was answered first; 0.5 reveals nothing."""
    order_p_value: float
    cached_tokens: int
    """Maximum number of cached tokens that an answer to a prompt of the victim reported."""


async def probe(target: Target, how: Probe, say: Callable[[int], None]) -> Finding:
    """Probe an engine.

    Args:
        target: the engine. Its first tenant is the victim, and its second the attacker; stock vLLM has no tenants.
        how: the settings of the attack.
        say: called with the number of samples taken.

    Raises:
        RuntimeError: the engine refuses a request.
    """
    rng = random.Random(how.seed)
    seen = Samples()
    limits = httpx.Limits(max_connections=4, max_keepalive_connections=4)
    async with httpx.AsyncClient(base_url=target.url, timeout=_TIMEOUT_SECONDS, limits=limits) as client:
        victim, attacker = (_asker(client, target, tenant, how.salt) for tenant in (0, 1))
        for number in range(how.samples):
            await _time_both(seen, victim, attacker, *two_prompts(rng, how.prompt_words))
            await _race(seen, victim, attacker, *two_prompts(rng, how.prompt_words))
            say(number + 1)
    return _finding(seen)


_Ask = Callable[[str], Awaitable[Answer]]


async def _time_both(seen: Samples, victim: _Ask, attacker: _Ask, first: str, second: str) -> None:
    # The victim's prompt is sent first as often as second, so the order of sending reveals nothing.
    sent = (first, second)[len(seen.sent) % 2]
    await victim(sent)
    for prompt in (first, second):
        (seen.sent if prompt == sent else seen.unsent).append(await attacker(prompt))


async def _race(seen: Samples, victim: _Ask, attacker: _Ask, first: str, second: str) -> None:
    sent = (first, second)[seen.pairs % 2]
    await victim(sent)
    answers = await asyncio.gather(attacker(first), attacker(second))
    winner = first if answers[0].ended < answers[1].ended else second
    seen.pairs += 1
    seen.sent_came_first += winner == sent


def _finding(seen: Samples) -> Finding:
    return Finding(
        by_time=distinguish([each.seconds for each in seen.sent], [each.seconds for each in seen.unsent]),
        sent_came_first=seen.sent_came_first / seen.pairs,
        order_p_value=guess_p_value(seen.sent_came_first, seen.pairs),
        cached_tokens=max(each.cached_tokens for each in seen.sent),
    )


def _asker(client: httpx.AsyncClient, target: Target, tenant: int, salt: str | None) -> _Ask:
    headers = target.headers_of(tenant)

    async def ask(prompt: str) -> Answer:
        body = {
            **{"model": target.model, "prompt": prompt, "max_tokens": 1, "temperature": 0},
            **({"cache_salt": salt} if salt else {}),
        }
        return await stream_answer(client, body, headers)

    return ask


def two_prompts(rng: random.Random, words: int) -> tuple[str, str]:
    """Draw two different prompts of ``words`` words."""
    first, second = (" ".join(f"w{rng.randrange(_WORDS)}" for _ in range(words)) for _ in range(2))
    return first, second
