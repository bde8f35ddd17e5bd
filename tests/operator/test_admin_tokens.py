"""What opens engines' admin ports: the operator's key, the pools' tokens, and the status of engines that differ."""

import asyncio
import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tenantzone_contract.keys.admin_token import ACCEPTED_FILE, ADMIN_KEY_SECRET, admin_token, parse_accepted
from tenantzone_contract.reports.report import AdminPortStatus, dump_report, parse_report
from tenantzone_operator.engines import admin_key
from tenantzone_operator.engines.admin_key import AdminKey
from tenantzone_operator.engines.answers import read_report
from tenantzone_operator.engines.http import TokenRefusedError
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.views import view
from tenantzone_operator.engines.watch import EngineWatch
from tenantzone_operator.kube.conditions import Reason, Type
from tenantzone_operator.kube.rest import RestError
from tenantzone_operator.pool.admin_secret import tokens_may_be_missing
from tenantzone_operator.status.admin_port import admin_port_not_secured
from tenantzone_runtime.admin_port.admin import AdminServer
from tenantzone_runtime.admin_port.admin_access import AdminAccess
from tests.operator.admin_server import MAX_BYTES, Engine
from tests.operator.kube import eventually
from tests.operator.objects import observed, pod, report, silent
from tests.operator.world import World, conditions

OLD, NEW = b"o" * 32, b"n" * 32
SYSTEM = "/api/v1/namespaces/tenantzone-system/secrets"


def engine(name: str = "engine-0", **status: Any) -> Observation:
    return observed(None, engine=name, admin_port=AdminPortStatus(**status))


def refusing(name: str = "engine-0") -> Observation:
    return Observation(name, None, "its admin port 9464 refuses the operator", refuses=True)


MOUNT = "mount the Secret tenantzone-admin-demo at /etc/tenantzone/admin"


@pytest.mark.parametrize(
    ("observations", "not_made", "reason", "said"),
    [
        pytest.param([engine(), silent("engine-1")], "", None, "", id="closed, and the operator is admitted"),
        pytest.param([engine()], "forbidden", None, "", id="another client has made the Secret"),
        pytest.param([], "", None, "", id="no engine"),
        pytest.param([], "forbidden", Reason.SECRET_NOT_MADE, "can't be created: forbidden", id="no pod can mount it"),
        pytest.param(
            [engine(), refusing("engine-1")], "", Reason.TOKEN_REFUSED, f"token: engine-1; {MOUNT}", id="refused"
        ),
        pytest.param([refusing()], "forbidden", Reason.SECRET_NOT_MADE, f"token: engine-0; {MOUNT}", id="both"),
        pytest.param(
            [engine(error="accepted is not in the folder")],
            "",
            Reason.TOKENS_BROKEN,
            "engine-0: accepted is not in the folder",
            id="the Secret went",
        ),
        pytest.param([engine(open=True)], "", Reason.ADMIN_PORT_OPEN, f"tenants: engine-0; {MOUNT}", id="open"),
    ],
)
def test_what_is_said_of_engines_that_refuse_or_are_open(
    observations: list[Observation], not_made: str, reason: Reason | None, said: str
):
    found = admin_port_not_secured("demo", observations, not_made)
    assert [(each.type, each.status, each.reason) for each in found] == (
        [(Type.ADMIN_PORT_NOT_SECURED, "True", reason)] if reason else []
    )
    assert not found or said in found[0].message


@pytest.mark.parametrize(
    ("observations", "wanted"),
    [
        ([], True),
        ([engine()], False),
        ([engine(), silent("engine-1")], True),
        ([engine(error="accepted is not in the folder")], True),
        ([engine(open=True)], True),
    ],
)
def test_the_secret_may_be_missing_where_an_engine_has_no_token_in_force(observations: Any, wanted: bool):
    assert tokens_may_be_missing(observations) is wanted


def test_what_a_lying_engine_says_of_its_port_is_cut_short():
    reported = structs.replace(report("engine-0"), admin_port=AdminPortStatus(error="x\n" * 10_000))
    seen = view(parse_report(dump_report(reported)))
    assert len(seen.admin_error) <= 1001
    assert "\n" not in seen.admin_error


class Keeper:
    """An API server with at most one Secret that answers with this status."""

    def __init__(self, status: int = 200, **data: bytes) -> None:
        self.status = status
        self.data = {name: base64.b64encode(key).decode() for name, key in data.items()} or None
        self.reads = 0

    async def read_secret(self, _namespace: str, name: str) -> dict[str, str] | None:
        assert name == ADMIN_KEY_SECRET
        self.reads += 1
        if self.status >= 300:
            raise RestError(self.status, "forbidden")
        return self.data

    async def create_secret(self, _namespace: str, _name: str, data: dict[str, bytes]) -> None:
        if self.data is not None:
            raise RestError(409, "there is one")
        self.data = {name: base64.b64encode(key).decode() for name, key in data.items()}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (the fake has no event for a read)
            await asyncio.sleep(0)


async def test_the_key_is_made_once_and_read_once():
    keeper = Keeper()
    keys = [AdminKey(keeper, "system") for _ in range(2)]
    for _ in range(3):
        await asyncio.gather(*(key.ensure() for key in keys))
    assert keys[0].tokens("shop", "demo") == keys[1].tokens("shop", "demo") != ()
    assert keys[0].tokens("shop", "demo") != keys[0].tokens("shop", "other")
    assert keeper.reads == 3, "each read it, and one after it had made it"


async def test_while_the_key_is_changed_there_are_two_tokens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    keeper = Keeper(key=OLD)
    key = AdminKey(keeper, "system")
    assert await key.look_up("shop", "demo") == (admin_token(OLD, "shop", "demo"),)
    keeper.data = Keeper(key=NEW, previous=OLD).data
    assert await key.look_up("shop", "demo") == (admin_token(OLD, "shop", "demo"),)
    await key.ensure(again=True)
    assert key.tokens("shop", "demo") == (admin_token(NEW, "shop", "demo"), admin_token(OLD, "shop", "demo"))


async def test_a_key_that_was_replaced_by_hand_is_used_until_the_operator_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    old, new, third = (admin_token(key, "shop", "demo") for key in (OLD, NEW, 32 * b"t"))
    keeper = Keeper(key=OLD)
    key = AdminKey(keeper, "system")
    await key.ensure()

    keeper.data = Keeper(key=NEW).data
    for _ in range(2):
        await key.ensure(again=True)
        assert key.known_tokens("shop", "demo") == (new, old)
        assert key.tokens("shop", "demo") == (new,), "no Secret is made with the replaced key"
    keeper.data = Keeper(key=32 * b"t", previous=NEW).data
    await key.ensure(again=True)
    assert key.known_tokens("shop", "demo") == (third, new, old)
    keeper.data = Keeper(key=OLD).data
    await key.ensure(again=True)
    assert key.known_tokens("shop", "demo") == (old, third, new)

    # As in the next process.
    assert await AdminKey(keeper, "system").look_up("shop", "demo") == (old,)


async def test_a_false_key_during_a_rotation_drops_neither_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    old, new, false = (admin_token(key, "shop", "demo") for key in (OLD, NEW, 32 * b"f"))
    keeper = Keeper(key=NEW, previous=OLD)
    key = AdminKey(keeper, "system")
    await key.ensure()

    keeper.data = Keeper(key=32 * b"f").data
    for _ in range(3):
        await key.ensure(again=True)

    assert key.known_tokens("shop", "demo") == (false, new, old)
    assert caplog.text.count("was replaced") == 1


async def test_a_deleted_secret_is_not_made_with_a_replaced_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    keeper = Keeper(key=OLD)
    key = AdminKey(keeper, "system")
    await key.ensure()
    keeper.data = Keeper(key=NEW).data
    await key.ensure(again=True)

    keeper.data = None
    await key.ensure(again=True)

    assert keeper.data == Keeper(key=NEW).data


@pytest.mark.parametrize("refused", [False, True])
async def test_a_deleted_secret_is_made_again_with_the_same_keys(monkeypatch: pytest.MonkeyPatch, refused: bool):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(admin_key, "LOOK_SECONDS", 60.0 if refused else 0.0)
    keeper = Keeper(key=NEW, previous=OLD)
    key = AdminKey(keeper, "system")
    await key.ensure()
    keeper.data = None

    await key.ensure(again=refused)

    assert keeper.data == Keeper(key=NEW, previous=OLD).data
    assert key.tokens("shop", "demo") == (admin_token(NEW, "shop", "demo"), admin_token(OLD, "shop", "demo"))


@pytest.mark.parametrize("spoiled", [{}, {"key": b"short"}], ids=["deleted", "spoiled"])
async def test_a_replica_that_begins_to_lead_knows_the_key_of_a_secret_that_was_deleted(
    monkeypatch: pytest.MonkeyPatch, spoiled: dict[str, bytes]
):
    monkeypatch.setattr(admin_key, "LOOK_SECONDS", 0.0)
    keeper = Keeper(key=NEW, previous=OLD)
    key = AdminKey(keeper, "system")
    async with asyncio.TaskGroup() as tasks:
        learning = tasks.create_task(key.keep_learning())
        await until(lambda: keeper.reads > 1)
        keeper.data = Keeper(**spoiled).data
        reads = keeper.reads
        await until(lambda: keeper.reads > reads + 1)
        learning.cancel()
    assert keeper.data == Keeper(**spoiled).data, "only who leads makes one"
    keeper.data = None

    await key.ensure()

    assert keeper.data == Keeper(key=NEW, previous=OLD).data


async def test_a_replica_learns_the_key_that_another_one_makes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    keeper = Keeper(503)
    key = AdminKey(keeper, "system")
    async with asyncio.TaskGroup() as tasks:
        learning = tasks.create_task(key.keep_learning())
        await until(lambda: keeper.reads > 1)
        keeper.status, keeper.data = 200, Keeper(key=NEW).data
        await until(lambda: key.tokens("shop", "demo"))
        learning.cancel()


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_without_the_right_there_are_no_tokens_and_it_is_said_why(status: int):
    key = AdminKey(Keeper(status), "system")
    await key.ensure()
    assert (key.tokens("shop", "demo"), "forbidden" in key.problem) == ((), True)


async def test_an_api_server_in_trouble_is_asked_again():
    keeper = Keeper(503, key=OLD)
    key = AdminKey(keeper, "system")
    with pytest.raises(RestError):
        await key.ensure()
    assert await key.look_up("shop", "demo") == ()
    keeper.status = 200
    assert len(await key.look_up("shop", "demo")) == 1


@pytest.mark.parametrize("refused", [False, True])
async def test_while_the_api_server_is_in_trouble_the_known_key_counts(monkeypatch: pytest.MonkeyPatch, refused: bool):
    monkeypatch.setattr(admin_key, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(admin_key, "LOOK_SECONDS", 0.0)
    keeper = Keeper(key=OLD)
    key = AdminKey(keeper, "system")
    await key.ensure()
    keeper.status = 500

    await key.ensure(again=refused)

    assert (key.tokens("shop", "demo"), key.problem) == ((admin_token(OLD, "shop", "demo"),), "")
    assert keeper.reads == 2


async def test_a_spoiled_secret_is_no_key_and_is_not_replaced():
    keeper = Keeper(key=b"short")
    key = AdminKey(keeper, "system")
    await key.ensure()
    assert "at least 32 bytes" in key.problem
    assert keeper.data == Keeper(key=b"short").data


@pytest.fixture
def closed_port(tmp_path: Path) -> Iterator[int]:
    """The port of a real engine's admin server, with the token before the newest."""
    (tmp_path / ACCEPTED_FILE).write_text(admin_token(OLD, "default", "demo"))
    server = AdminServer("127.0.0.1", 0, lambda: report("engine-0"), access=AdminAccess(tmp_path))
    server.start()
    yield server.port
    server.stop()


TOKENS = tuple(admin_token(key, "default", "demo") for key in (NEW, OLD))


async def test_where_the_newest_token_is_refused_the_one_before_is_shown(closed_port: int):
    read = await read_report(pod(), closed_port, MAX_BYTES, ReadingQuota(), TOKENS)
    assert read.pod == "engine-0"


@pytest.mark.parametrize("tokens", [(), TOKENS[:1], (TOKENS[0], TOKENS[0])])
async def test_one_that_takes_none_of_them_refuses(closed_port: int, tokens: tuple[str, ...]):
    with pytest.raises(TokenRefusedError, match="refuses the token"):
        await read_report(pod(), closed_port, MAX_BYTES, ReadingQuota(), tokens)
    seen = await EngineWatch(changed=lambda: None, tokens=lambda: tokens).look_at([pod()], closed_port, MAX_BYTES)
    assert [(each.report, each.refuses) for each in seen] == [(None, True)]


async def test_what_else_may_refuse_at_a_port_is_reported_as_an_absent_server(engine: Engine):
    """A pool's author chooses the port, and learns nothing about what listens there."""
    engine.status = 401
    (seen,) = await EngineWatch(changed=lambda: None, tokens=lambda: TOKENS).look_at([pod()], engine.port, MAX_BYTES)
    assert (seen.refuses, seen.error) == (False, silent().error.replace("9464", str(engine.port)))


@pytest.mark.controlplane
class TestInACluster:
    @pytest.fixture
    def world(self, world: World) -> World:
        world.add_pool()
        world.add_zone("acme", reserved="10%")
        return world

    def secret(self, world: World) -> dict[str, bytes]:
        path = f"/api/v1/namespaces/{world.namespace}/secrets/tenantzone-admin-demo"
        found = eventually(lambda: world.kube.get(path))
        return {name: base64.b64decode(content) for name, content in found["data"].items()}

    def operator_key(self, world: World) -> bytes:
        found = eventually(lambda: world.kube.get(f"{SYSTEM}/{ADMIN_KEY_SECRET}"))
        return base64.b64decode(found["data"]["key"])

    def test_the_pools_secret_has_the_token_that_the_operators_key_makes(self, world: World):
        held, key = self.secret(world), self.operator_key(world)
        token = admin_token(key, world.namespace, "demo")
        assert (held["token"].decode(), parse_accepted(held["accepted"])) == (token, (token.encode(),))

    def test_the_operator_is_admitted_by_an_engine_that_asks_for_the_token(self, world: World):
        token = self.secret(world)["token"].decode()
        world.add_engine(accepts={token})
        world.await_ready("acme")
        assert Type.ADMIN_PORT_NOT_SECURED not in conditions(world.pool())

    def test_one_that_refuses_it_is_named_with_what_to_mount(self, world: World):
        strict = world.add_engine(accepts={"another"})

        def reported() -> bool:
            found = conditions(world.pool())[Type.ADMIN_PORT_NOT_SECURED]
            assert found["reason"] == "TokenRefused", found
            assert (
                f"engine-0; {MOUNT}; if it is mounted, delete it, and the operator creates it again" in found["message"]
            )
            return True

        eventually(reported)
        programmed = world.await_condition("acme", "Programmed", "Unknown", "EngineUnreachable")
        assert "refuses the operator" in programmed["message"]
        strict.accepts = {self.secret(world)["token"].decode()}
        world.await_ready("acme")
        eventually(lambda: Type.ADMIN_PORT_NOT_SECURED not in conditions(world.pool()))

    def test_one_that_is_open_is_named(self, world: World):
        world.add_engine().admin_port = AdminPortStatus(open=True)

        def reported() -> bool:
            found = conditions(world.pool())[Type.ADMIN_PORT_NOT_SECURED]
            assert found["reason"] == "AdminPortOpen"
            assert f": engine-0; {MOUNT} and start them without --admin-open" in found["message"]
            return True

        eventually(reported)
        world.await_ready("acme")
