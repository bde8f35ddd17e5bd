"""A minute of ``make soak-operator``, which takes half an hour: nothing is wrong afterwards, however long it took."""

from typing import Any

import pytest

from bench.operator.soak.__main__ import show
from bench.operator.soak.granted import Granted
from bench.operator.soak.run import soak
from bench.operator.soak.scene import Size
from tenantzone_contract.zone_config.config import RuntimeConfig
from tenantzone_contract.zone_config.config_text import dump_config
from tests.operator.objects import snapshot, zone


@pytest.mark.controlplane
def test_no_zone_loses_anything_among_liars_and_in_a_bad_network(capsys: pytest.CaptureFixture[str]):
    found = soak(Size(minutes=1.0, zones=200, pools=5, namespaces=3, liars=2, rate=3.0, seed=1))

    assert found.wrong == []
    for matter, taken in found.taken.items():
        assert taken.seconds, matter
        assert not taken.lost, matter
    assert sum(found.lies.values()) > 2
    assert found.kills
    assert found.absences
    assert 0 < found.peak_mb < 256
    show(found)
    assert "0 things are not as they should be" in capsys.readouterr().out


def event(config: RuntimeConfig | None, kind: str = "MODIFIED", name: str = "tenantzone-demo") -> dict[str, Any]:
    data = {"config.json": dump_config(config)} if config is not None else {}
    return {"type": kind, "object": {"metadata": {"name": name}, "data": data}}


def test_what_is_reclaimed_is_named():
    granted = Granted()
    granted.look(event(snapshot(1, zone("acme", generation=3), zone("burst")), "ADDED"))
    granted.look(event(snapshot(2, zone("acme", generation=4), zone("burst"), zone("new"))))
    granted.look(event(None, name="another"))
    assert granted.taken_back == []

    granted.look(event(snapshot(3, zone("acme", generation=3), zone("new"))))
    assert granted.taken_back == [
        "tenantzone-demo has zone acme at 3 again, after 4",
        "tenantzone-demo has no zone burst any more",
    ]
    granted.look(event(None))
    granted.look(event(snapshot(3, zone("acme"), zone("new")), "DELETED"))
    assert "can't be read" in granted.taken_back[2]
    assert granted.taken_back[3:] == [
        "tenantzone-demo has no zone acme any more",
        "tenantzone-demo has no zone new any more",
    ]
