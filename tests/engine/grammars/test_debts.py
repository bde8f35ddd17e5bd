"""The time that a tenant's grammars may take: bounded, whatever the steps are, and separate for each tenant."""

from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.engine.grammars.grammar_debts import GrammarDebts

LIMIT, PAID, USUAL, USUAL_OF_EACH = 5.0, 0.1, 0.05, 0.002

steps = st.lists(
    st.tuples(
        st.floats(min_value=0.001, max_value=60.0),
        st.dictionaries(
            st.sampled_from(["acme", "gold", "burst"]),
            st.tuples(st.floats(min_value=0.0, max_value=1.5), st.integers(min_value=1, max_value=500)),
        ),
    ),
    max_size=60,
)
"""Seconds since the previous step, and what each tenant asks for in it."""


def served(history, only=None) -> list[dict[str, tuple[float, int]]]:
    """What is done of a history, step by step, if nothing is done for tenants that owe too much."""
    debts, now, done = GrammarDebts(), 1e6, []
    for pause, asked in history:
        now += pause
        asked = {tenant: each for tenant, each in asked.items() if only in (None, tenant)}
        done.append({tenant: each for tenant, each in asked.items() if not debts.is_too_much(tenant, now)})
        debts.add(done[-1], now)
    return done


def beyond_usual(seconds: float, answers: int) -> float:
    return max(0.0, seconds - max(USUAL, answers * USUAL_OF_EACH))


@given(steps)
def test_over_any_time_a_tenant_takes_no_more_than_the_limit_one_step_and_what_is_paid_off(history):
    for tenant in ("acme", "gold", "burst"):
        for first in range(len(history)):
            total = elapsed = 0.0
            for (pause, _), done in list(zip(history, served(history), strict=True))[first:]:
                total += beyond_usual(*done.get(tenant, (0.0, 1)))
                elapsed += pause
                assert total <= LIMIT + 1.5 + elapsed * PAID + 1e-6


@given(steps)
def test_what_one_tenant_takes_is_nothing_to_another(history):
    together = [done.get("acme") for done in served(history)]
    assert together == [done.get("acme") for done in served(history, only="acme")]


def test_what_is_usual_owes_nothing():
    usual = {"acme": (USUAL, 1), "gold": (0.5, 250)}
    history = [(0.001, usual)] * 10_000
    assert served(history) == [usual for _ in history]


def test_who_owes_too_much_is_served_again_once_it_is_paid_off():
    debts = GrammarDebts(limit_seconds=1.0, paid_per_second=0.1)
    debts.add({"acme": (1.0 + USUAL, 1)}, 100.0)
    assert not debts.is_too_much("acme", 100.0)
    debts.add({"acme": (1.0 + USUAL, 1), "gold": (1.0, 1)}, 100.0)
    assert debts.is_too_much("acme", 109.9)
    assert not debts.is_too_much("gold", 100.0)
    assert not debts.is_too_much("acme", 110.1)
