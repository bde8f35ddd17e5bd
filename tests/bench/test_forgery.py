"""How the attack by forged requests judges the answers; `tests/engine/test_forgery.py` runs it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bench.attacks.forge.__main__ import table
from bench.attacks.forge.forgery import Forgeries, figures_of, forge_at, names_internals
from bench.attacks.forge.forging import Forged, Forger, forge, on_the_wire
from bench.attacks.forge.raw import Reply

ASKED = Forged(on_the_wire("POST", "/v1/completions", {}, b"{}"))
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.mark.parametrize(
    ("status", "body", "leaks"),
    [
        (500, b'{"error": {"message": "Internal server error", "type": "InternalServerError"}}', False),
        (500, b'{"error": {"message": "KeyError: x", "type": "InternalServerError"}}', True),
        (500, b'{"error": {"message": "\'float\' object has no attribute \'get\'", "type": "x"}}', True),
        (200, b'data: {"error": {"message": "KeyError", "code": 500}}', True),
        (200, b'{"text": "KeyError: an object is not subscriptable"}', False),
        (500, b'{"error": {"message": "vllm.v1.engine.Dead", "type": "InternalServerError"}}', True),
        (400, b'{"error": {"message": "in /opt/app/frontend.py, line 3", "type": "BadRequestError"}}', True),
        (400, b"Traceback (most recent call last)", True),
        (400, b'{"error": {"message": "no such field: x", "type": "BadRequestError"}}', False),
    ],
)
def test_an_answer_that_names_internals_is_noticed(status: int, body: bytes, leaks: bool):
    assert names_internals(Reply(status, body, 0.0)) is leaks


def test_the_same_seed_gives_the_same_requests():
    forger = Forger("tiny", {"Authorization": "Bearer mine"}, ("acme", "gold"))
    first, again, other = (forge(forger, 200, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first) == 200
    # Some have the forger's key and some do not, some are huge, and each victim is named.
    assert 0 < sum(b"Bearer mine" in each.sent for each in first) < 200
    assert any(len(each.sent) > 2**20 for each in first)
    assert all(any(name in each.sent for each in first) for name in (b"acme", b"gold"))


def answered_with(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    return serve


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def found_at(serve: Serve, *forged: Forged, figures: tuple[str, ...] = ("", "")) -> Forgeries:
    """The findings at a server whose scrapes return these figures one after another."""

    class Target:
        url = ""

        def metrics(self) -> str:
            return scrapes.pop(0)

    async def attack() -> Forgeries:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            target = Target()
            target.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            return await forge_at(target, forged, ["acme"], lambda _: None, bound_seconds=0.3)

    scrapes = list(figures)
    return asyncio.run(attack())


def test_what_is_neither_answered_nor_closed_hangs():
    found = found_at(hang, ASKED)
    assert (found.hung, found.sent, found.is_alive) == ([ASKED.sent], 1, False)


def test_what_is_closed_does_not_hang():
    found = found_at(answered_with(b""), ASKED, ASKED)
    assert (found.hung, found.statuses) == ([], {None: 2})


def test_who_leaves_waits_for_nothing():
    assert found_at(hang, Forged(ASKED.sent, leaves=True)).hung == []


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 500 Failed\r\nContent-Length: 24\r\n\r\n{"message": "KeyError: 1"}',
        b'HTTP/1.1 500 Failed\r\nTransfer-Encoding: chunked\r\n\r\n18\r\n{"message": "KeyError: 1"}\r\n0\r\n\r\n',
    ],
)
def test_an_answer_is_read_to_its_end(answer: bytes):
    found = found_at(answered_with(answer), ASKED)
    assert found.statuses == {500: 1}
    assert [reply.body for _, reply in found.revealing] == [b'{"message": "KeyError: 1"}'[:24]]


def test_only_figures_that_time_alone_does_not_move_count():
    scrape = (
        'tenantzone_zone_prompt_tokens_total{{tenant="acme"}} {0}\n'
        'tenantzone_zone_block_seconds_total{{tenant="acme"}} {0}\n'
        'tenantzone_zone_prompt_tokens_total{{tenant="burst"}} {0}\n'
    )
    assert figures_of(scrape.format(1), "acme") == {'tenantzone_zone_prompt_tokens_total{tenant="acme"}': "1"}
    moved = found_at(answered_with(b""), figures=(scrape.format(1), scrape.format(2))).moved
    assert moved == ['tenantzone_zone_prompt_tokens_total{tenant="acme"}: 1, 2']


def test_the_table_has_a_column_for_each_engine():
    found = Forgeries(is_alive=True)
    found.statuses.update([200, 201, 404, 503, None])
    found.hung.append(b"")
    lines = table({"zones": found, "stock": Forgeries()}).splitlines()
    assert lines[0].split() == ["zones", "stock"]
    assert [line.split()[-2:] for line in lines[1:4]] == [["6", "0"], ["2", "0"], ["1", "0"]]
    assert lines[-1].split()[-2:] == ["200", "none"]
