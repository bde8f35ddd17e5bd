"""The fairness bound of the fair queue, checked in every step.

Two zones compete while both have a place in the queue: they have requests waiting, and neither's next request was
denied its blocks. A zone that returns to the queue starts anew. When one of them is served, none that it competes with
has had less service; from then on it gets no more than what its running requests still generate. So the gap between
their accounts stays within half of the bound, and over any stretch of time in which they compete neither gets more than
the bound ahead of the other (lemma 4.3 and theorem 4.4 of the VTC paper).

The accounts are the core's own. So the service that each zone was really given is added up here as well: while a zone
competes, its account may change by nothing else.
"""

from bench.simulator.request import BLOCK_TOKENS
from tenantzone_runtime.zones.fair_queue import INPUT, OUTPUT, Account

_ROUNDING = 1e-3
"""The tolerance for sums of many amounts, in virtual tokens."""


class Fairness:
    """Follows the accounts of zones that compete."""

    def __init__(self) -> None:
        self.largest_gap = 0.0
        """Between zones that compete, in virtual tokens per unit of weight."""
        self.max_competing = 0
        self.bound = 0.0
        """The bound of the difference in service over any stretch of time."""
        self._longest_prompt = 0
        self._longest_output = 0
        self._given: dict[Account, float] = {}
        """The charges of each account, by weight."""
        self._competing: dict[Account, tuple[int, float]] = {}
        """The accounts that competed after the last step: their place in the queue, and the account's lead over the
        charges."""

    def learn(self, prompt_tokens: int, output_tokens: int) -> None:
        """A request came."""
        self._longest_prompt = max(self._longest_prompt, prompt_tokens)
        self._longest_output = max(self._longest_output, output_tokens)

    def charge(self, account: Account, cost: float) -> None:
        """Charge an account, and keep count."""
        account.charge(cost)
        self._given[account] = self._given.get(account, 0.0) + cost / account.weight

    def forget(self) -> None:
        """The engine restarted: all accounts are new."""
        self._given, self._competing = {}, {}

    def after_step(self, accounts: list[Account], *, engine_blocks: int, max_running: int) -> str | None:
        """A step has admitted whom it could.

        Args:
            accounts: of zones that still have requests waiting, none of them denied its blocks.
            engine_blocks: of the whole engine.
            max_running: requests at once.

        Returns:
            What is unfair, if anything is.
        """
        self._set_bound(engine_blocks, max_running)
        before, self._competing = self._competing, {}
        for account in accounts:
            ahead = account.service - self._given.get(account, 0.0)
            place, ahead_before = before.get(account, (0, 0.0))
            if place == account.ticket and abs(ahead_before - ahead) > _ROUNDING:
                return f"the account of a zone that competes moved by {ahead - ahead_before:,.0f} without service"
            self._competing[account] = account.ticket, ahead
        services = [account.service for account in accounts]
        gap = max(services, default=0.0) - min(services, default=0.0)
        self.largest_gap = max(self.largest_gap, gap)
        self.max_competing = max(self.max_competing, len(accounts))
        return f"a gap of {gap:,.0f}, more than {self.bound / 2:,.0f}" if gap > self.bound / 2 else None

    def _set_bound(self, engine_blocks: int, max_running: int) -> None:
        # The paper counts tokens that fit into memory; an engine that bounds how many requests run may not reach that.
        prompt = INPUT * self._longest_prompt
        running = OUTPUT * max_running * self._longest_output
        self.bound = 2 * min(max(prompt, OUTPUT * engine_blocks * BLOCK_TOKENS), prompt + running)
