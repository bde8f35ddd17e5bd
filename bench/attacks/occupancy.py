"""Occupancy: what a borrower learns of a lender's activity from its own evictions and waits.

The borrower fills the engine with its own prompts. In each round the lender is active or not, falls silent, and lends
again. The borrower then repeats its prompts, and counts the blocks that are no longer cached: evictions. While the
lender may be active it sends a prompt that needs borrowed blocks, and measures the time: waits. The information that
both give about the secret is estimated in bits for each round (`bench.attacks.information`), and divided by a round's
length.

The attacker knows the terms, the rounds, and when each begins; the engine has no other load, and compute is not scarce.
All of this helps the attacker: on a busy engine it learns less about one lender.
"""

import random
from dataclasses import dataclass

from bench.attacks.information import Information, estimate, into_bins
from bench.attacks.lending import BORROWER, LENDER, RESERVED, Scene, Terms
from bench.simulator.request import BLOCK_TOKENS

BLOCKS_PER_LEVEL = 32
LEVELS = 16
"""The levels of the lender's activity in a round: none, or a number of requests; together these fit its reservation."""
_SMALL = 16
"""Blocks of each prompt of the borrower, but for one."""
_AT_WORK_SECONDS = 1.0
_ANSWER_TOKENS = 64
_BINS = 8


@dataclass(frozen=True, slots=True)
class Round:
    """The lender's activity in one round, and the borrower's observations."""

    secret: int
    """The requests that the lender sent."""
    evicted: int
    """Blocks that the borrower no longer found."""
    waited: float
    """Seconds until its large prompt had its blocks."""


@dataclass(frozen=True, slots=True)
class Leak:
    """What rounds reveal about their secrets."""

    entropy: float
    """Bits of each secret."""
    round_seconds: float
    by_evictions: Information
    by_waits: Information
    by_both: Information

    @property
    def bits_per_second(self) -> float:
        """The rate of both observations together, or of one alone if higher: joint values have fewer pairs each."""
        each = (self.by_evictions, self.by_waits, self.by_both)
        return max(information.bits for information in each) / self.round_seconds


def leak(terms: Terms, levels: tuple[int, ...], rounds: int, seed: int = 0) -> Leak:
    """Attack a lender whose secret is its level in each round; all levels are equally likely."""
    seen = attack(terms, levels, rounds, seed)
    secrets = [each.secret for each in seen]
    evicted, waited = [each.evicted for each in seen], into_bins([each.waited for each in seen], _BINS)
    return Leak(
        entropy=estimate(secrets, secrets).plug_in,
        round_seconds=round_seconds(terms),
        by_evictions=estimate(secrets, evicted, seed),
        by_waits=estimate(secrets, waited, seed),
        by_both=estimate(secrets, list(zip(evicted, waited, strict=True)), seed),
    )


def round_seconds(terms: Terms) -> float:
    """A round's length: the lender works and falls silent, and the borrower counts."""
    return 3 * _AT_WORK_SECONDS + terms.idle_after_seconds + 2.0


def attack(terms: Terms, levels: tuple[int, ...], rounds: int, seed: int) -> list[Round]:
    """Play ``rounds`` rounds; the first two, in which the engine fills, are left out."""
    return _Attack(terms, seed).play(levels, rounds + 2)[2:]


class _Attack:
    def __init__(self, terms: Terms, seed: int) -> None:
        self._terms = terms
        self._rng = random.Random(seed)
        self._scene = Scene(terms)
        # More than the unreserved blocks, if that is possible: it needs a loan.
        large = RESERVED + RESERVED // 4 if terms.are_of_loans else RESERVED - RESERVED // 4
        self._large = self._scene.new_blocks(large)
        # Each request needs one block more than those that are kept.
        self._small = [
            self._scene.new_blocks(_SMALL) for _ in range((terms.room_of_borrower - large - _SMALL) // _SMALL)
        ]

    def play(self, levels: tuple[int, ...], rounds: int) -> list[Round]:
        return [self._round(number * round_seconds(self._terms), self._rng.choice(levels)) for number in range(rounds)]

    def _round(self, begin: float, secret: int) -> Round:
        scene = self._scene
        scene.go_on_until(begin + self._rng.uniform(0, _AT_WORK_SECONDS))
        for _ in range(secret):
            scene.send(LENDER, scene.new_blocks(BLOCKS_PER_LEVEL - 1), _ANSWER_TOKENS)
        scene.go_on_until(begin + _AT_WORK_SECONDS)
        large = scene.send(BORROWER, self._large)
        # By then the lender lends again, whatever it did.
        scene.go_on_until(begin + 3 * _AT_WORK_SECONDS + self._terms.idle_after_seconds)
        assert large.admitted is not None
        evicted = len(self._large) - large.hit_tokens // BLOCK_TOKENS
        # What was used last comes first: asked for in the order of their use, each would take the place of the next.
        evicted += scene.ask(BORROWER, reversed(self._small))
        self._small.reverse()
        return Round(secret, evicted, large.admitted - large.arrival)
