"""Occupancy: measures what a borrower learns about a lender's activity from its own evictions and waits.

The borrower fills the engine with its own prompts. In each round the lender is active or not, becomes idle, and lends
again. The borrower then repeats its prompts, and counts the blocks that were evicted from the cache. While the lender
may be active, the borrower also sends a prompt that needs borrowed blocks, and measures how long it waits. The
information of both about the secret is estimated in bits per round (`bench.attacks.lending.information`), and divided
by the length of a round.

The attacker knows the terms, the rounds, and when each begins; the engine has no other load, and compute is not scarce.
All of this helps the attacker: on a busy engine it learns less about one lender.
"""

import random
from dataclasses import dataclass

from bench.attacks.lending.information import Information, estimate, into_bins
from bench.attacks.lending.scene import BORROWER, LENDER, RESERVED, Scene, Terms
from bench.simulator.request import BLOCK_TOKENS

BLOCKS_PER_LEVEL = 32
LEVELS = 16
"""Number of levels of the lender's activity, which are numbers of requests from 0; all fit into its reservation."""
_SMALL = 16
"""Number of blocks in each small prompt of the borrower."""
_AT_WORK_SECONDS = 1.0
_ANSWER_TOKENS = 64
_BINS = 8


@dataclass(frozen=True, slots=True)
class Round:
    """The lender's activity in one round, and the borrower's observations."""

    secret: int
    """Number of requests that the lender sent."""
    evicted: int
    """Number of the borrower's blocks that were no longer cached."""
    waited: float
    """Seconds until the borrower's large prompt was admitted."""


@dataclass(frozen=True, slots=True)
class Leak:
    """The information that rounds reveal about their secrets."""

    entropy: float
    """Entropy of a secret, in bits."""
    round_seconds: float
    by_evictions: Information
    by_waits: Information
    by_both: Information

    @property
    def bits_per_second(self) -> float:
        """Rate from both observations, or from one if higher, as joint values have fewer pairs per value."""
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
    """Returns the length of a round, in which the lender works and becomes idle, and the borrower counts blocks."""
    return 3 * _AT_WORK_SECONDS + terms.idle_after_seconds + 2.0


def attack(terms: Terms, levels: tuple[int, ...], rounds: int, seed: int) -> list[Round]:
    """Run ``rounds`` rounds after two initial rounds that fill the engine; returns only the later rounds."""
    return _Attack(terms, seed).play(levels, rounds + 2)[2:]


class _Attack:
    def __init__(self, terms: Terms, seed: int) -> None:
        self._terms = terms
        self._rng = random.Random(seed)
        self._scene = Scene(terms)
        # If possible, the large prompt exceeds the unreserved blocks, so that it needs a loan.
        large = RESERVED + RESERVED // 4 if terms.are_of_loans else RESERVED - RESERVED // 4
        self._large = self._scene.new_blocks(large)
        # Leave room for the additional block that each request needs while it runs.
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
        # At that time the lender lends again, even if it was active.
        scene.go_on_until(begin + 3 * _AT_WORK_SECONDS + self._terms.idle_after_seconds)
        assert large.admitted is not None
        evicted = len(self._large) - large.hit_tokens // BLOCK_TOKENS
        # Repeat the most recently used prompts first; in the order of their use, each would evict the next one.
        evicted += scene.ask(BORROWER, reversed(self._small))
        self._small.reverse()
        return Round(secret, evicted, large.admitted - large.arrival)
