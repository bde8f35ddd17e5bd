"""The salt key of a pool: made once, identified by its id, and the status if engines do not share it."""

import base64
import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tenantzone_contract.keys.salt import parse_salt_key, salt_key_id
from tenantzone_contract.reports.report import SaltKeyStatus, dump_report, parse_report
from tenantzone_operator.kube.conditions import Reason, Type
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.pool import pool_secret
from tenantzone_operator.pool.pool_secret import PoolSecret
from tenantzone_operator.pool.salt_secret import ensure_salt_secret, may_be_missing
from tenantzone_operator.status.salts import salt_not_shared
from tests.operator.kube import eventually
from tests.operator.objects import observed, pool, report, silent
from tests.operator.world import World, conditions

ID, OTHER = "0123456789abcdef", "fedcba9876543210"


def engine(name: str = "engine-0", **salt_key: str):
    return observed(None, engine=name, salt_key=SaltKeyStatus(**salt_key))


@pytest.mark.parametrize(
    ("observations", "not_made", "reason", "said"),
    [
        pytest.param([engine(id=ID), engine("engine-1", id=ID)], "", None, "", id="all have one key"),
        pytest.param([engine(id=ID), silent("engine-1")], "", None, "", id="one does not answer"),
        pytest.param([], "", None, "", id="no engine"),
        pytest.param([engine(id=ID)], "forbidden", None, "", id="another client has made the Secret"),
        pytest.param(
            [engine(id=ID), engine("engine-1", id=OTHER)],
            "",
            Reason.SALT_KEYS_DIFFER,
            f"engines have different keys: engine-0 has {ID}, engine-1 has {OTHER}",
            id="two keys",
        ),
        pytest.param(
            [engine(id=ID), engine("engine-1"), engine("engine-2")],
            "",
            Reason.NO_SALT_KEY,
            "engines lack the Secret tenantzone-salt-demo, mount it at /etc/tenantzone/salt: engine-1, engine-2",
            id="engines without one",
        ),
        pytest.param(
            [engine(id=ID, error="the file is missing")],
            "",
            Reason.SALT_KEY_REFUSED,
            "engines reject the key in the Secret tenantzone-salt-demo: engine-0: the file is missing",
            id="a file that is not used",
        ),
        pytest.param(
            [engine(id=ID), engine("engine-1"), engine("engine-2", id=OTHER)],
            "secrets is forbidden",
            Reason.SECRET_NOT_MADE,
            "the Secret tenantzone-salt-demo can't be created: secrets is forbidden; "
            "engines lack the Secret tenantzone-salt-demo, mount it at /etc/tenantzone/salt: engine-1; "
            f"engines have different keys: engine-0 has {ID}, engine-2 has {OTHER}",
            id="all of it",
        ),
        pytest.param(
            [],
            "secrets is forbidden",
            Reason.SECRET_NOT_MADE,
            "the Secret tenantzone-salt-demo can't be created: secrets is forbidden",
            id="no right, and no engine has a key yet",
        ),
    ],
)
def test_what_is_said_of_engines_that_do_not_share_a_key(observations, not_made, reason, said):
    found = salt_not_shared("demo", observations, not_made)
    assert [(each.type, each.status, each.reason, each.message) for each in found] == (
        [(Type.SALT_NOT_SHARED, "True", reason, said)] if reason else []
    )


@pytest.mark.parametrize(
    "salt_key", [{"id": "not hex"}, {"id": "a" * 65}, {"id": "0a\n"}, {"id": 5}, {"error": 5}, "text"]
)
def test_a_report_with_an_absurd_salt_key_is_none(salt_key):
    body = json.loads(dump_report(report("engine-0"))) | {"saltKey": salt_key}
    with pytest.raises(ValueError, match="saltKey"):
        parse_report(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("observations", "wanted"),
    [
        ([], True),
        ([engine(id=ID)], False),
        ([engine(id=ID), engine("engine-1")], True),
        ([engine(id=ID, error="the file is missing")], True),
        ([engine(id=ID), silent("engine-1")], True),
    ],
)
def test_the_secret_may_be_missing_where_an_engine_has_no_key_in_force(observations, wanted):
    assert may_be_missing(observations) is wanted


class Refusing:
    """An API server that answers with this status, or creates the requested object."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.keys: list[bytes] = []

    async def create_pool_secret(self, _pool, _name: str, data: dict[str, bytes]) -> None:
        self.keys.append(data["key"])
        if self.status >= 300:
            raise RestError(self.status, "secrets is forbidden")


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(pool_secret, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def secret_of(api):
    return PoolSecret(api, logging.getLogger(__name__), "a new salt key")


async def test_it_is_tried_at_once_and_then_once_a_minute_as_long_as_it_may_be_missing(clock):
    api = Refusing(409)
    secret = secret_of(api)
    for _ in range(3):
        await ensure_salt_secret(secret, pool(), [])
    assert (len(api.keys), secret.retry_seconds) == (1, 60.0)
    clock[0] += 60.0
    await ensure_salt_secret(secret, pool(), [engine()])
    assert len(api.keys) == 2
    clock[0] += 60.0
    await ensure_salt_secret(secret, pool(), [engine(id=ID)])
    assert (len(api.keys), secret.retry_seconds) == (2, None)
    assert len(set(api.keys)) == 2
    assert all(len(parse_salt_key(key)) == 32 for key in api.keys)


async def test_another_pool_of_the_name_is_tried_for_at_once(clock):
    api = Refusing(201)
    secret = secret_of(api)
    await ensure_salt_secret(secret, pool(), [])
    next_pool = replace(pool(), meta=replace(pool().meta, uid="another"))
    await ensure_salt_secret(secret, next_pool, [])
    assert len(api.keys) == 2


async def test_without_the_right_it_goes_on_and_says_why(clock, caplog):
    api = Refusing(403)
    secret = secret_of(api)
    for _ in range(3):
        await ensure_salt_secret(secret, pool(), [])
        clock[0] += 60.0
    assert "secrets is forbidden" in secret.not_made
    assert len([line for line in caplog.messages if "can't be created" in line]) == 1
    api.status = 201
    await ensure_salt_secret(secret, pool(), [])
    assert secret.not_made == ""


async def test_an_api_server_in_trouble_is_asked_again(clock):
    secret = secret_of(Refusing(503))
    with pytest.raises(RestError):
        await ensure_salt_secret(secret, pool(), [])
    assert secret.not_made == ""


@pytest.mark.controlplane
class TestInACluster:
    @pytest.fixture
    def world(self, world: World) -> World:
        world.add_pool()
        world.add_zone("acme", reserved="10%")
        return world

    def secret(self, world: World):
        return world.kube.get(f"/api/v1/namespaces/{world.namespace}/secrets/tenantzone-salt-demo")

    def key(self, world: World) -> bytes:
        found = eventually(lambda: self.secret(world))
        return parse_salt_key(base64.b64decode(found["data"]["key"]))

    def test_each_pool_gets_a_secret_of_its_own_which_goes_with_it(self, world: World):
        key = self.key(world)
        assert len(key) == 32
        found = self.secret(world)
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("ZonePool", world.pool()["metadata"]["uid"])
        assert list(found["data"]) == ["key"]
        world.add_pool("other")
        other = eventually(
            lambda: world.kube.get(f"/api/v1/namespaces/{world.namespace}/secrets/tenantzone-salt-other")
        )
        assert base64.b64decode(other["data"]["key"]) != base64.b64decode(found["data"]["key"])

    def test_engines_that_share_the_key_are_nothing_to_speak_of(self, world: World):
        for name in ("engine-0", "engine-1"):
            world.add_engine(name)
        world.await_ready("acme")
        eventually(lambda: all(each.salt_key.id == salt_key_id(self.key(world)) for each in world.engines))
        world.await_polls(3)
        eventually(lambda: Type.SALT_NOT_SHARED not in conditions(world.pool()))

    def test_one_with_another_key_is_named_in_the_pools_status(self, world: World):
        world.add_engine()
        odd = world.add_engine("engine-1")
        world.await_ready("acme")
        eventually(lambda: odd.salt_key.id)
        odd.salt_key = SaltKeyStatus(id=OTHER)

        def reported():
            found = conditions(world.pool())[Type.SALT_NOT_SHARED]
            assert found["reason"] == "SaltKeysDiffer"
            assert f"engine-1 has {OTHER}" in found["message"]
            return True

        eventually(reported)
        assert conditions(world.pool())["Ready"]["status"] == "True"


@pytest.mark.controlplane
def test_a_secret_that_is_there_is_never_overwritten(world: World):
    """A user brings their own key, for instance that of another cluster."""
    path = f"/api/v1/namespaces/{world.namespace}/secrets"
    theirs = base64.b64encode(b"5" * 64).decode()
    world.kube.call("POST", path, {"metadata": {"name": "tenantzone-salt-demo"}, "data": {"key": theirs}})
    world.add_pool()
    world.add_zone("acme", reserved="10%")
    engine = world.add_engine()
    world.await_ready("acme")
    eventually(lambda: engine.salt_key.id == salt_key_id(bytes.fromhex("5" * 64)))
    world.await_polls(3)
    found = world.kube.get(f"{path}/tenantzone-salt-demo")
    assert found["data"] == {"key": theirs}
    assert "ownerReferences" not in found["metadata"]
    eventually(lambda: Type.SALT_NOT_SHARED not in conditions(world.pool()))
