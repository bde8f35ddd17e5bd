"""Bytes as Kubernetes users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.quantity import parse_bytes, shown_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [(17, 17), ("17", 17), ("8Gi", 8 * 2**30), ("500M", 500_000_000), ("1.5k", 1500), ("0.1Ki", 102), ("0", 0)],
)
def test_quantities_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "Gi", "-1", "1e3", "1 Gi", "1GiB", "1m", "٥", "1.", "9" * 33, "5%"])
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected an amount of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1Ki"), (8 * 2**30, "8Gi"), (8.06 * 2**30, "8.1Gi"), (2**60, "1024Pi")],
)
def test_bytes_are_shown_for_people(count, text):
    assert shown_bytes(count) == text


@given(st.integers(0, 2**63))
def test_what_is_shown_is_near(count):
    assert abs(parse_bytes(shown_bytes(count)) - count) <= 0.06 * count
