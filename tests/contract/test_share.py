"""Percentages of blocks: reservations round down, limits round up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.zone_config.share import ceil_blocks, floor_blocks

percents = st.integers(0, 100)
bases = st.integers(0, 10**7)


@pytest.mark.parametrize(
    ("share", "base", "down", "up"),
    [
        pytest.param("33%", 100, 33, 33, id="even"),
        pytest.param("33%", 10, 3, 4, id="three and a third"),
        pytest.param("1%", 10, 0, 1, id="less than a block"),
        pytest.param("0%", 255, 0, 0, id="nothing"),
        pytest.param("100%", 255, 255, 255, id="all"),
        pytest.param(7, 5, 7, 7, id="a count does not depend on the base"),
    ],
)
def test_rounding(share, base, down, up):
    assert (floor_blocks(share, base), ceil_blocks(share, base)) == (down, up)


@given(percents, bases)
def test_a_limit_never_falls_below_the_same_share_as_a_reservation(percent, base):
    down, up = floor_blocks(f"{percent}%", base), ceil_blocks(f"{percent}%", base)
    assert 0 <= down <= base * percent / 100 <= up <= base
    assert up - down <= 1


@given(st.lists(percents, max_size=20), bases)
def test_reservations_that_add_up_to_the_pool_fit_it(parts, base):
    shares, left = [], 100
    for part in parts:
        shares.append(min(part, left))
        left -= shares[-1]
    assert sum(floor_blocks(f"{share}%", base) for share in shares) <= base
