"""Checks the fairness bound of the fair queue in every step.

Two zones compete while both are in the queue, which means that both have waiting requests and neither's next request
was denied its blocks. A zone that leaves the queue and returns starts anew. The queue always serves a zone with the
least service among its competitors, and afterwards that zone gets only the tokens that its running requests generate.
So the gap between two accounts stays within half of the bound, and over any interval in which both zones compete,
neither gets ahead of the other by more than the bound (lemma 4.3 and theorem 4.4 of the VTC paper).

The accounts belong to the core. To check them, the service that each zone really got is added up here as well: while a
zone competes, its account may only change by this service.
"""

from bench.simulator.request import BLOCK_TOKENS
from tenantzone_runtime.zones.model.fair_queue import INPUT, OUTPUT, Account

_ROUNDING = 1e-3
"""Tolerance for sums of many amounts, in virtual tokens."""


class Fairness:
    """Tracks the accounts of competing zones."""

    def __init__(self) -> None:
        self.largest_gap = 0.0
        """Largest gap between accounts of competing zones, in virtual tokens per unit of weight."""
        self.max_competing = 0
        self.bound = 0.0
        """Maximum difference in service over any interval."""
        self._longest_prompt = 0
        self._longest_output = 0
        self._given: dict[Account, float] = {}
        """Sum of each account's charges, divided by its weight."""
        self._competing: dict[Account, tuple[int, float]] = {}
        """Accounts that competed after the last step, with the ticket in the queue, and the account's service minus its
        charges."""

    def learn(self, prompt_tokens: int, output_tokens: int) -> None:
        """Update the longest prompt and output from a request."""
        self._longest_prompt = max(self._longest_prompt, prompt_tokens)
        self._longest_output = max(self._longest_output, output_tokens)

    def charge(self, account: Account, cost: float) -> None:
        """Charge an account, and add the charge to its sum."""
        account.charge(cost)
        self._given[account] = self._given.get(account, 0.0) + cost / account.weight

    def forget(self) -> None:
        """Forget all accounts, because the engine has restarted."""
        self._given, self._competing = {}, {}

    def after_step(self, accounts: list[Account], *, engine_blocks: int, max_running: int) -> str | None:
        """Check the accounts after the admissions of a step.

        Args:
            accounts: the accounts of zones that still have waiting requests and whose next request was not denied
                blocks.
            engine_blocks: the number of blocks of the engine.
            max_running: the maximum number of running requests.

        Returns:
            A description of the violation; None if there is none.
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
        # The paper's bound uses the tokens that fit into memory; the limit of running requests may be tighter.
        prompt = INPUT * self._longest_prompt
        running = OUTPUT * max_running * self._longest_output
        self.bound = 2 * min(max(prompt, OUTPUT * engine_blocks * BLOCK_TOKENS), prompt + running)
