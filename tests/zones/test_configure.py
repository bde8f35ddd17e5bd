"""What a config's shares come to on an engine."""

import pytest

from tenantzone_contract.config import ConfigError, Lending, PoolConfig, ZoneConfig, make_config
from tenantzone_runtime.zones.configure import zone_specs
from tenantzone_runtime.zones.quota import Quota


def quota_of(capacity=255, **fields):
    zone = ZoneConfig(name="acme", tenant="acme", generation=1, **fields)
    (spec,) = zone_specs(make_config(1, PoolConfig(namespace="n", name="p"), (zone,)), capacity)
    return spec.quota


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, Quota(0, 255, 0), id="nothing said: no promise, the whole pool"),
        pytest.param({"reserved": "33%"}, Quota(84, 255, 84), id="a reservation is rounded down"),
        pytest.param({"limit": "33%"}, Quota(0, 85, 0), id="a limit is rounded up"),
        pytest.param({"reserved": "33%", "limit": "33%"}, Quota(84, 85, 84), id="so equal shares fit each other"),
        pytest.param({"limit": 1000}, Quota(0, 255, 0), id="a limit beyond the engine is the engine"),
        pytest.param(
            {"reserved": 100, "lending": Lending(lendable="25%")},
            Quota(100, 255, 25),
            id="lendable is a share of the reservation",
        ),
    ],
)
def test_shares(fields, expected):
    assert quota_of(**fields) == expected


def test_a_zone_that_an_engine_cannot_hold_is_named():
    with pytest.raises(ConfigError, match=r"zone acme: reserved 60 is 60 of this engine's 100 blocks .* limit 50%"):
        quota_of(capacity=100, reserved=60, limit="50%")
    with pytest.raises(ConfigError, match="limit of the whole pool"):
        quota_of(capacity=100, reserved=101)
