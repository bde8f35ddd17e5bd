"""The seal: only a holder of the key can bind a request to a tenant, or move a binding to another request."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tenantzone_runtime.seal import SealError, new_seal_key, seal, unseal, without_seals

KEY = bytes(32)
NOW = 1_000_000.0
tenants = st.text(min_size=1)
any_text = st.text(st.characters(exclude_categories=()))
"""Includes halves of surrogate pairs, which have no bytes."""


@given(tenants, st.text())
def test_a_seal_names_its_tenant(tenant, salt):
    assert unseal(KEY, seal(KEY, tenant, salt, now=NOW), salt, now=NOW) == (tenant, "")


@given(tenants, st.text(), st.text())
def test_a_seal_does_not_fit_another_salt(tenant, salt, other):
    assume(salt != other)
    with pytest.raises(SealError, match="does not match"):
        unseal(KEY, seal(KEY, tenant, salt, now=NOW), other, now=NOW)


def test_a_seal_under_another_key_is_refused():
    with pytest.raises(SealError, match="does not match"):
        unseal(new_seal_key(), seal(new_seal_key(), "acme", "salt"), "salt")


@given(any_text)
@example("1.YQ==.1.\ud800.00")
def test_text_that_is_no_seal_is_refused(text):
    with pytest.raises(SealError):
        unseal(KEY, text, "salt", now=NOW)


@given(any_text)
@example("\ud800")
def test_a_salt_that_is_no_text_is_refused(salt):
    with pytest.raises(SealError):
        unseal(KEY, seal(KEY, "acme", "another salt", now=NOW), salt, now=NOW)


@given(st.integers(0, 4), any_text)
def test_a_seal_with_any_part_changed_is_refused(index, replacement):
    parts = seal(KEY, "acme", "salt", now=NOW).split(".")
    assume(parts[index] != replacement)
    # The digits of the digest may be written in capitals: the same digest.
    assume(index != 4 or parts[index] != replacement.lower())
    parts[index] = replacement
    with pytest.raises(SealError):
        unseal(KEY, ".".join(parts), "salt", now=NOW)


@pytest.mark.parametrize("age", [-61, 3_601, float("inf")])
def test_a_seal_out_of_its_time_is_refused(age):
    with pytest.raises(SealError, match="s old"):
        unseal(KEY, seal(KEY, "acme", "salt", now=NOW), "salt", now=NOW + age)


@pytest.mark.parametrize("age", [-59, 0, 3_599])
def test_a_seal_in_its_time_is_good(age):
    assert unseal(KEY, seal(KEY, "acme", "salt", now=NOW), "salt", now=NOW + age).tenant == "acme"


def test_two_seals_of_one_request_differ():
    assert seal(KEY, "acme", "salt", now=NOW) != seal(KEY, "acme", "salt", now=NOW)


@pytest.mark.parametrize("tenant", ["acme", "ä", "two words/and=signs", "x" * 200])
def test_a_seal_is_blotted_out_wherever_it_stands(tenant):
    made = seal(new_seal_key(), tenant, "salt")
    for cut in (made, made[:-63]):
        assert without_seals(f"SamplingParams(extra_args={{'tenantzone_seal': '{cut}'}}") == (
            "SamplingParams(extra_args={'tenantzone_seal': '(seal)'}"
        )


def test_what_is_no_seal_stays():
    text = "vLLM 0.32.0 at 127.0.0.1:8000, 1.5 s, salt 5f2b5f2b5f2b5f2b5f2b5f2b5f2b5f2b"
    assert without_seals(text) == text
