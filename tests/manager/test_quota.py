"""Accounts: the same rules in Python and in the script of Redis, and what they promise."""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.harness.redis_server import TIMEOUT_SECONDS, RedisServer
from tenantzone_manager.core.quota import UNLIMITED, Account, Charge, OverLimit, Terms, charged, with_terms
from tenantzone_manager.index.backend import Commit
from tenantzone_manager.index.redis import RedisBackend

CHAINS = [("i/a", "g/t", "g"), ("i/b", "g/t", "g"), ("i/c", "g/u", "g"), ("s/d",)]
NAMES = sorted({name for chain in CHAINS for name in chain})

chains = st.sampled_from(CHAINS)
small = st.integers(0, 30)
limits = st.sampled_from([UNLIMITED, 0, 20, 40])
changes = st.one_of(
    st.builds(Charge, chains, st.integers(-20, 30), st.just(0)),
    st.builds(Charge, chains, st.just(0), st.integers(0, 5)),
    st.builds(Terms, chains, small, limits),
    st.builds(Terms, st.sampled_from([("g/t",), ("g",)]), st.just(0), limits),
)


def commit_of(change: Charge | Terms) -> Commit:
    return Commit(charges=[change]) if isinstance(change, Charge) else Commit(terms=[change])


@given(history=st.lists(changes, max_size=30))
@settings(max_examples=50)
def test_the_script_and_the_rules_agree(redis_server: RedisServer, history: list[Charge | Terms]) -> None:
    async def live() -> None:
        backend = RedisBackend(redis_server.url, "agree/", TIMEOUT_SECONDS)
        await backend.start(lambda *_: None)
        await backend.client.delete("agree/accounts")
        accounts: dict[str, Account] = {}
        for change in history:
            refused = [False, False]
            try:
                apply = charged if isinstance(change, Charge) else with_terms
                accounts |= apply(accounts, [change])  # type: ignore[arg-type, operator]
            except OverLimit:
                refused[0] = True
            try:
                await backend.commit(commit_of(change))
            except OverLimit:
                refused[1] = True
            assert refused[0] == refused[1], change
            assert await backend.accounts(NAMES) == accounts
        await backend.close()

    asyncio.run(live())


@given(history=st.lists(changes, max_size=60))
def test_no_charge_passes_a_limit_and_no_promise_is_taken(history: list[Charge | Terms]) -> None:
    accounts: dict[str, Account] = {}
    for change in history:
        if isinstance(change, Terms):
            accounts |= with_terms(accounts, [change])
            continue
        with contextlib.suppress(OverLimit):
            accounts |= charged(accounts, [change])
            for name in change.chain if change.used > 0 else ():
                limit = accounts[name].limit
                assert limit == UNLIMITED or accounts[name].used <= limit
        for name in ("g/t", "g/u", "g"):
            below = [chain[0] for chain in CHAINS if name in chain]
            own = [accounts.get(leaf, Account()) for leaf in below]
            known = accounts.get(name, Account())
            assert known.committed == sum(max(each.used, each.reserved) for each in own)
            assert known.used == sum(each.used for each in own)


def test_what_is_promised_to_one_is_refused_to_another() -> None:
    accounts = with_terms({}, [Terms(("g",), limit=10), Terms(("i/a", "g/t", "g"), reserved=6)])
    with pytest.raises(OverLimit):
        charged(accounts, [Charge(("i/b", "g/t", "g"), 5)])
    accounts |= charged(accounts, [Charge(("i/b", "g/t", "g"), 4)])
    accounts |= charged(accounts, [Charge(("i/a", "g/t", "g"), 6)])
    assert accounts["g"].used == 10


def test_a_late_promise_does_not_pass_the_limit() -> None:
    accounts: dict[str, Any] = with_terms({}, [Terms(("g",), limit=10)])
    accounts |= charged(accounts, [Charge(("i/b", "g/t", "g"), 10)])
    accounts |= with_terms(accounts, [Terms(("i/a", "g/t", "g"), reserved=6)])
    with pytest.raises(OverLimit):
        charged(accounts, [Charge(("i/a", "g/t", "g"), 1)])
