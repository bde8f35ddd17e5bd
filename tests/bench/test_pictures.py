"""The attack on the caches of pictures, on fake engines."""

import json

import httpx
import pytest

from bench.attacks import pictures
from bench.attacks.pictures import Seen, attack, table
from bench.end_to_end.engines import EngineError

CLIENT = httpx.Client


class FakeEngine:
    """Answers known pictures at once, and new ones after a while; with ``zones`` by tenant."""

    url = "http://engine"
    model = "tiny"

    def __init__(self, *, zones):
        self.zones = zones
        self.seen: set[tuple[str, str]] = set()
        self.named: set[tuple[str, str]] = set()
        self.clock = 0.0

    def headers_of(self, tenant):
        return {"Authorization": f"Bearer {tenant}"} if self.zones else {}

    def answer(self, asked):
        body = json.loads(asked.content)
        who = asked.headers.get("authorization", "")
        assert bool(body.get("cache_salt")) != self.zones
        words, shown = body["messages"][0]["content"]
        assert words["type"] == "text", "no prefix is the same"
        name = (who, shown.get("uuid", ""))
        if shown["image_url"] is None:
            return httpx.Response(200 if name in self.named else 400)
        self.named.add(name)
        picture = (who, shown["image_url"]["url"])
        self.clock += 0.01 if picture in self.seen else 0.1
        self.seen.add(picture)
        return httpx.Response(200)


@pytest.fixture
def attacked(monkeypatch):
    def attack_it(engine, attacker):
        transport = httpx.MockTransport(engine.answer)
        monkeypatch.setattr(pictures.httpx, "Client", lambda **options: CLIENT(transport=transport, **options))
        monkeypatch.setattr(pictures.time, "perf_counter", lambda: engine.clock)
        return attack(engine, 8, attacker=attacker, seed=3)

    return attack_it


def test_shared_caches_leak_each_picture(attacked):
    seen = attacked(FakeEngine(zones=False), attacker=1)
    assert (len(seen.sent), len(seen.unsent)) == (8, 8)
    assert max(seen.sent) < min(seen.unsent)
    assert seen.served_by_name == 8


def test_caches_by_tenant_leak_none(attacked):
    seen = attacked(FakeEngine(zones=True), attacker=1)
    assert min(seen.sent) == pytest.approx(max(seen.unsent))
    assert seen.served_by_name == 0


def test_its_own_pictures_a_tenant_finds(attacked):
    seen = attacked(FakeEngine(zones=True), attacker=0)
    assert max(seen.sent) < min(seen.unsent)
    assert seen.served_by_name == 8


def test_a_refusal_of_what_is_in_order_ends_it(attacked):
    engine = FakeEngine(zones=False)
    engine.answer = lambda asked: httpx.Response(500, text="broken")
    with pytest.raises(EngineError, match="answers 500: broken"):
        attacked(engine, attacker=1)


def test_the_table_has_a_line_for_each_side():
    text = table({"stock": Seen([0.01] * 5, [0.1] * 5, 5), "across zones": Seen([0.1] * 5, [0.1] * 5, 0)})
    stock, zones = text.splitlines()[2:]
    assert stock.split()[-5:] == ["1.000", "0.0079", "5", "of", "5"]
    assert zones.split()[-5:] == ["0.500", "1", "0", "of", "5"]
