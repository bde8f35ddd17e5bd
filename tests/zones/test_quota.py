"""The algebra by example; each case is named by what it says to an operator of the pool."""

import pytest

from tenantzone_runtime.zones import quota
from tenantzone_runtime.zones.quota import Quota

CAPACITY = 100
ANY = CAPACITY


def zone(reserved=0, limit=ANY, lendable=None, in_use=0, cached=0, quiet=False):
    lendable = reserved if lendable is None else lendable
    return Quota(reserved, limit, lendable), in_use, cached, quiet


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        pytest.param(zone(), [], 100, id="alone in the pool a zone without a promise may take all of it"),
        pytest.param(zone(), [zone(reserved=40)], 60, id="an active zone's reservation is left alone"),
        pytest.param(zone(), [zone(reserved=40, quiet=True)], 100, id="a quiet zone lends all of it by default"),
        pytest.param(zone(), [zone(reserved=40, lendable=10, quiet=True)], 70, id="or just what it lets go"),
        pytest.param(zone(), [zone(cached=30)], 70, id="an active zone's cache is not evicted for surplus"),
        pytest.param(zone(), [zone(cached=30, quiet=True)], 100, id="a quiet zone's cache is"),
        pytest.param(
            zone(), [zone(reserved=20, lendable=0, cached=30, quiet=True)], 80, id="down to what it keeps for itself"
        ),
        pytest.param(zone(reserved=25), [zone(cached=100)], 25, id="a promise is kept from others' surplus cache"),
        pytest.param(
            zone(reserved=25), [zone(reserved=60, cached=100)], 25, id="but what others hold within theirs stays"
        ),
        pytest.param(
            zone(reserved=25),
            [zone(in_use=100)],
            0,
            id="what requests use can only be preempted, which is not for here",
        ),
        pytest.param(
            zone(reserved=10, cached=8), [zone(in_use=90)], 10, id="its own cache and the rest of its promise together"
        ),
        pytest.param(
            zone(reserved=10, cached=8), [zone(in_use=82, cached=10)], 10, id="also if the rest is others' cache"
        ),
        pytest.param(zone(limit=50, in_use=20, cached=30), [], 30, id="at its limit a zone turns over its own cache"),
        pytest.param(zone(limit=50, in_use=50), [], 0, id="with all of its limit in use it waits"),
        pytest.param(zone(reserved=10, in_use=10), [zone(in_use=90)], 0, id="nothing free, no promise left: it waits"),
    ],
)
def test_takeable(mine, others, expected):
    free = CAPACITY - sum(in_use + cached for _, in_use, cached, _ in [mine, *others])
    taken = quota.takeable(
        *mine[:3],
        free=free,
        evictable_elsewhere=sum(quota.evictable(*other) for other in others),
        recallable_elsewhere=sum(quota.recallable(*other) for other in others),
        locked_elsewhere=sum(quota.locked(other[0], other[1] + other[2], other[3]) for other in others),
    )
    assert taken == expected
