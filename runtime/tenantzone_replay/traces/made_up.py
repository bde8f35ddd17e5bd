"""Generates a synthetic load for users without a trace: multi-turn chats of tenants with unequal demand.

The load is not modeled on measurements of real users. A chat begins with a prefix that all chats of its tenant share.
The prompt of a turn is the conversation so far, followed by a new message. The times between the beginnings of chats,
the pauses between turns, the numbers of turns, and the lengths of messages are exponentially distributed.
"""

import heapq
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from tenantzone_replay.traces.load import MAX_SECONDS, MAX_TENANTS, MAX_TOKENS, Asked, content_id

CONTENT_TOKENS: Final = 64
_MOST: Final = {
    "tenants": MAX_TENANTS, "skew": 100, "seconds": MAX_SECONDS, "chats": 1e6, "turns": 40, "pause": MAX_SECONDS,
    "system": MAX_TOKENS, "said": MAX_TOKENS // 512, "answer": MAX_TOKENS // 512, "seed": 2**63,
}  # fmt: skip
_MAY_BE_ZERO: Final = "skew", "system", "seed"
_SHORTEST: Final = 16
"""Minimum number of tokens of a message."""


@dataclass(frozen=True, slots=True)
class Chats:
    """The parameters of a synthetic load."""

    tenants: int = 8
    skew: float = 1.0
    """Exponent of a Zipf distribution: tenants' shares of the chats are proportional to (1, 1/2, 1/3, ...) ** skew."""
    seconds: float = 1800.0
    chats: float = 0.5
    """Mean number of chats that begin per second."""
    turns: float = 6.0
    """Mean number of turns in a chat. No chat has more than 40 turns."""
    pause: float = 60.0
    """Mean time between the arrivals of consecutive turns, in seconds."""
    system: int = 1024
    """Number of tokens of the prefix that all chats of a tenant share."""
    said: int = 256
    """Mean number of tokens of a user's message. No message is longer than eight times the mean."""
    answer: int = 256
    """Mean number of tokens of an answer. No answer is longer than eight times the mean."""
    seed: int = 1

    def with_option(self, name: str, value: str) -> Self:
        """Returns a copy with a new value for one parameter.

        Args:
            name: the name of the parameter.
            value: the new value as text.

        Raises:
            ValueError: there is no such parameter, or the value is invalid.
        """
        kinds: dict[str, type[int] | type[float]] = {
            each.name: int if isinstance(each.default, int) else float for each in fields(self)
        }
        if name not in kinds:
            raise ValueError(f"the options of chats are {', '.join(f'{each}=' for each in kinds)}")
        with suppress(ValueError):
            number = kinds[name](value)
            if 0 <= number <= _MOST[name] and (number or name in _MAY_BE_ZERO):
                changed: dict[str, Any] = {name: number}
                return replace(self, **changed)
        kind = "a whole number" if kinds[name] is int else "a number"
        least = "of at least 0" if name in _MAY_BE_ZERO else "above 0"
        raise ValueError(f"{name}= must be {kind} {least}, at most {_MOST[name]:,}")

    def load(self) -> Iterator[Asked]:
        """Yields the requests in the order of arrival."""
        rng = random.Random(self.seed)
        parts = [(number + 1) ** -self.skew for number in range(self.tenants)]
        under_way: list[tuple[float, int, _Chat]] = []
        begun, next_begin = 0, rng.expovariate(self.chats)
        while next_begin < self.seconds or under_way:
            if under_way and under_way[0][0] <= next_begin:
                at, _, chat = heapq.heappop(under_way)
                if at >= self.seconds:
                    continue
                yield self._turn(rng, chat, at)
                if chat.turns:
                    begun += 1
                    heapq.heappush(under_way, (at + rng.expovariate(1 / self.pause), begun, chat))
                continue
            if next_begin >= self.seconds:
                break
            begun += 1
            tenant = rng.choices(range(self.tenants), parts)[0]
            turns = 1 + min(39, int(rng.expovariate(1 / max(1e-9, self.turns - 1))))
            heapq.heappush(under_way, (next_begin, begun, _Chat(tenant, content_id(f"{self.seed}/{begun}"), turns)))
            next_begin += rng.expovariate(self.chats)

    def _turn(self, rng: random.Random, chat: "_Chat", at: float) -> Asked:
        prompt = self.system + chat.said + _length(rng, self.said)
        answer = _length(rng, self.answer)
        chat.said, chat.turns = prompt + answer - self.system, chat.turns - 1
        common = self.system // CONTENT_TOKENS
        of_tenant = content_id(f"what tenant {chat.tenant} begins with")
        content = tuple(
            (of_tenant if part < common else chat.first) + part for part in range((prompt + answer) // CONTENT_TOKENS)
        )
        return Asked(
            arrival=at,
            prompt_tokens=prompt,
            output_tokens=answer,
            content=content,
            content_tokens=CONTENT_TOKENS,
            known_tokens=len(content) * CONTENT_TOKENS,
            conversation=chat.first,
            tenant=f"tenant-{chat.tenant}",
        )


@dataclass(slots=True)
class _Chat:
    tenant: int
    first: int
    """Base of the content ids. After the tenant's prefix, part ``n`` of the conversation has the id ``first + n``."""
    turns: int
    """Number of remaining turns."""
    said: int = 0
    """Number of tokens of the conversation so far, without the tenant's shared prefix."""


def _length(rng: random.Random, mean: int) -> int:
    return max(_SHORTEST, min(8 * mean, int(rng.expovariate(1 / mean))))
