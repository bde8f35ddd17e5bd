"""Engines that answer, lie, hang or are gone; over real HTTP."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from hack.ports import free_ports
from tenantzone_contract.reports.report import EngineReport
from tenantzone_operator.engines import answers
from tenantzone_operator.engines import watch as engines
from tenantzone_operator.engines.reports import max_report_bytes
from tenantzone_operator.engines.watch import EngineWatch
from tests.operator.admin_server import MAX_BYTES, Engine, sent
from tests.operator.objects import pod, registered, zone_report

pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts every answer as in time, on a busy machine too, where 17 MiB may take more than a second."""
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 60.0)


def no_report(port: int) -> str:
    return f"no report from its admin port {port} (the operator's log says why)"


async def test_a_new_engine_is_asked_at_once(engine: Engine):
    engine.body = sent(blocks=77)

    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)

    assert (seen.pod, seen.blocks, seen.error) == ("engine-0", 77, "")
    assert seen.report is not None


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        pytest.param(b"", 200, "not a report", id="nothing"),
        pytest.param(b"<html>", 200, "not a report", id="another server"),
        pytest.param(b'{"version": 99}', 200, "not a report", id="a version of the future"),
        pytest.param(b"[" * 100_000, 200, "not a report", id="brackets without end"),
        pytest.param(b"\xff\xfe", 200, "not a report", id="no text"),
        pytest.param(sent("engine-1"), 200, "another pod, engine-1, answers", id="a pod that took over the address"),
        pytest.param(sent(), 404, "status 404", id="an error"),
        pytest.param(sent(), 302, "status 302", id="a redirect"),
        pytest.param(b" " * (17 * 2**20), 200, "exceeds the maximum of", id="more than anybody has to say"),
    ],
)
async def test_what_is_not_believed_is_only_logged(
    engine: Engine,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    status: int,
    error: str,
):
    engine.body, engine.status = body, status

    with caplog.at_level("INFO"):
        (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)

    assert seen.report is None
    assert seen.error == no_report(engine.port)
    assert error in caplog.text


async def test_two_pods_at_one_address_do_not_share_a_report(engine: Engine, caplog: pytest.LogCaptureFixture):
    pods = [pod(name, host_network=True) for name in ("engine-0", "engine-1")]
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent("")

    with caplog.at_level("INFO"):
        unnamed = await watch.look_at(pods, engine.port, MAX_BYTES)
    engine.body = sent("engine-1")
    await watch.ask_all()

    assert [seen.report for seen in unnamed] == [None, None]
    assert all("set POD_NAME to metadata.name in its container" in seen.error for seen in unnamed)
    assert "pods on the host network share this address" in caplog.text
    first, second = await watch.look_at(pods, engine.port, MAX_BYTES)
    assert (first.report, second.error) == (None, "")
    assert second.report is not None
    assert "set POD_NAME" in first.error


@pytest.mark.parametrize("body", [b"", sent(""), sent("engine-1")])
async def test_on_the_host_network_too_a_status_does_not_depend_on_what_answers(engine: Engine, body: bytes):
    engine.body = body
    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod(host_network=True)], engine.port, MAX_BYTES)
    assert seen.error == (
        f"no report that names this pod from its admin port {engine.port} on the host network "
        "(set POD_NAME to metadata.name in its container; the operator's log says why)"
    )


async def test_a_pod_with_an_address_of_its_own_need_not_be_named(engine: Engine):
    engine.body = sent("")
    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is not None


async def test_an_unexpected_failure_of_an_engine_is_that_engines_trouble(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    engine.body = sent()

    async def fail(report: EngineReport) -> None:
        raise KeyError("a defect of ours")

    monkeypatch.setattr(engines, "view_aside", fail)
    watch = EngineWatch(changed=lambda: None)
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    monkeypatch.undo()
    watching = asyncio.create_task(watch.run())
    while (await watch.look_at([pod()], engine.port, MAX_BYTES))[0].report is None:
        assert not watching.done()
        await asyncio.sleep(0.01)
    watching.cancel()

    assert seen.error == no_report(engine.port)
    assert "a defect of ours" in caplog.text


@pytest.mark.parametrize("is_there", [True, False], ids=["silent", "refused"])
async def test_who_says_nothing_looks_like_who_is_not_there_and_costs_a_second(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_there: bool
):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", engines.ANSWER_SECONDS)
    engine.delay = 60.0
    port = engine.port if is_there else free_ports(1)[0]

    began = time.monotonic()
    with caplog.at_level("INFO"):
        (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], port, MAX_BYTES)

    assert seen.error == no_report(port)
    assert time.monotonic() - began >= 0.99 * engines.ANSWER_SECONDS
    assert ("it does not answer in time" if is_there else "is refused") in caplog.text


async def test_the_log_says_each_new_reason_but_not_all_the_time(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr(engines, "time", SimpleNamespace(monotonic=lambda: now))
    watch = EngineWatch(changed=lambda: None)
    with caplog.at_level("INFO"):
        for round_ in range(10):
            engine.status = 500 + round_
            await watch.look_at([pod()], engine.port, MAX_BYTES)
            await watch.ask_all()
            now += 10.0
        engine.status, engine.body = 200, sent()
        await watch.ask_all()

    said = [record.getMessage() for record in caplog.records if record.name == engines.logger.name]
    assert said == [
        "engine engine-0: /report answers with status 500",
        "engine engine-0: /report answers with status 506",
        "engine engine-0: answers",
    ]


async def test_changes_are_reported_and_repetitions_are_not(engine: Engine):
    changes: list[None] = []
    watch = EngineWatch(changed=lambda: changes.append(None))
    engine.body = sent(blocks=1)
    await watch.look_at([pod()], engine.port, MAX_BYTES)

    await watch.ask_all()
    assert changes == []
    engine.body = sent(blocks=2)
    await watch.ask_all()
    assert changes == [None]


async def test_what_no_status_shows_is_no_change(engine: Engine):
    changes: list[None] = []
    watch = EngineWatch(changed=lambda: changes.append(None))
    engine.body = sent("engine-0", 100, zone_report("acme", cached=5, block_seconds=10.0))
    await watch.look_at([pod()], engine.port, MAX_BYTES)

    engine.body = sent("engine-0", 100, registered("stray"), zone_report("acme", cached=5, block_seconds=15.0))
    await watch.ask_all()
    assert changes == []
    engine.body = sent("engine-0", 100, registered("stray"), zone_report("acme", cached=6, block_seconds=20.0))
    await watch.ask_all()
    assert changes == [None]


async def test_one_missed_answer_is_forgiven_and_silence_is_not(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent(blocks=64)
    await watch.look_at([pod()], engine.port, MAX_BYTES)

    engine.status = 500
    await watch.ask_all()
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is not None

    monkeypatch.setattr(engines, "SILENCE_SECONDS", 0.0)
    await watch.ask_all()
    (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is None
    assert seen.blocks == 64, "its size is remembered"


async def test_an_engine_that_repeats_itself_hangs(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent()
    await watch.look_at([pod()], engine.port, MAX_BYTES)
    monkeypatch.setattr(engines, "FROZEN_SECONDS", 0.0)

    for _ in range(2):
        await watch.ask_all()
        (seen,) = await watch.look_at([pod()], engine.port, MAX_BYTES)
        assert seen.report is None
        assert "the engine hangs" in seen.error


async def test_a_pod_that_was_replaced_is_a_new_engine(engine: Engine):
    watch = EngineWatch(changed=lambda: None)
    engine.body = sent("engine-0")
    await watch.look_at([pod("engine-0")], engine.port, MAX_BYTES)
    engine.body = sent("engine-1")

    (seen,) = await watch.look_at([pod("engine-1")], engine.port, MAX_BYTES)

    assert seen.pod == "engine-1"
    assert seen.report is not None


async def test_more_than_the_pools_zones_need_is_not_read(engine: Engine):
    engine.body = sent("engine-0", 100, *(zone_report(f"zone-{number}") for number in range(500)))

    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, MAX_BYTES)
    assert seen.report is not None
    few = max_report_bytes(1, may_register=False)
    (seen,) = await EngineWatch(changed=lambda: None).look_at([pod()], engine.port, few)
    assert seen.error == no_report(engine.port)
