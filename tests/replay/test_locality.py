"""How a load uses blocks, reported for as many blocks as fit."""

import pytest

from tenantzone_replay.simulation.locality import Locality
from tenantzone_replay.traces.load import Asked


def asked(arrival, content, tenant="acme"):
    return Asked(arrival, 16 * len(content), 1, tuple(content), 16, 16 * len(content), tenant=tenant)


def test_uses_and_reuse_are_those_of_each_tenants_blocks():
    locality = Locality()
    for request in (asked(0.0, [1, 2]), asked(10.0, [1, 3]), asked(15.0, [1]), asked(16.0, [1], "burst")):
        locality.add(request)
    assert locality.sampled == 1.0
    assert locality.uses().count == 4
    assert locality.once == 0.75
    assert locality.reuse.count == 2
    assert locality.reuse.quantile(1.0) == pytest.approx(10.0, rel=0.02)
    assert locality.concentration()[-1] == (1.0, 1.0)
    assert locality.concentration()[1] == (0.25, 0.5)


def test_more_blocks_than_fit_are_reported_by_a_sample():
    whole, sample = Locality(100_000), Locality(500)
    for locality in (whole, sample):
        for number in range(30_000):
            # Each block three times, a hundred seconds apart.
            locality.add(asked(float(number // 100), [number // 300 * 100 + number % 100]))
    assert len(sample._blocks) <= 500
    assert 0 < sample.sampled < 0.1
    assert whole.uses().count == 10_000
    assert sample.uses().mean == pytest.approx(whole.uses().mean, rel=0.1)
    assert sample.reuse.quantile(0.5) == pytest.approx(whole.reuse.quantile(0.5), rel=0.1)
