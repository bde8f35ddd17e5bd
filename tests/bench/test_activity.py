"""When the watcher of a neighbour's activity measures its times, and what it makes of them."""

import asyncio

import pytest

from bench.attacks.activity import _ANSWERS, _WARM_UP, Times, table, watch
from bench.attacks.findings import distinguish
from bench.end_to_end.engines import EngineError
from tests.frontend.harness import serving

KEY = {"Authorization": "Bearer key-of-tenant-0"}


class Engine:
    """An engine that writes answers until their clients go away, and refuses clients without a key."""

    model = "m"

    def __init__(self, status: int = 401) -> None:
        self.status = status
        self.written = 0
        self.seen: list[int] = []
        """The number of answers being written, at each refusal."""

    def headers_of(self, tenant: int) -> dict[str, str]:
        return KEY

    async def __call__(self, scope, receive, send) -> None:
        body = (await receive())["body"]
        if b"authorization" not in dict(scope["headers"]):
            self.seen.append(self.written)
            await send({"type": "http.response.start", "status": self.status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if b"stream" in body:
            self.written += 1
            gone = asyncio.create_task(receive())
            while not gone.done():
                await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
                await asyncio.wait({gone}, timeout=0.01)
            self.written -= 1
        await send({"type": "http.response.body", "body": b""})


def watched(engine: Engine) -> Times:
    with serving(engine) as url:
        engine.url = url
        return asyncio.run(watch(engine, rounds=3, looks=2))


def test_times_are_taken_by_turns_while_nothing_is_written_and_while_all_answers_are():
    engine = Engine()
    times = watched(engine)
    assert (len(times.silent), len(times.writing)) == (3, 3)
    # A disconnect is noticed a moment later, and the first measurements of a round may still see the client.
    assert engine.seen[_WARM_UP : _WARM_UP + 2] == [0, 0]
    assert engine.seen.count(_ANSWERS) >= 6
    assert len(engine.seen) == _WARM_UP + 3 * 2 * 2


def test_what_is_no_refusal_ends_it():
    with pytest.raises(EngineError, match="404"):
        watched(Engine(404))


def test_a_line_has_the_medians_and_how_well_they_are_distinguished():
    times = Times(silent=[0.001, 0.002, 0.003], writing=[0.004, 0.005, 0.006])
    line = table({"zones": (times, distinguish(times.silent, times.writing))}, 5).splitlines()[2]
    assert line.split()[:7] == ["zones", "3", "2.00", "ms", "5.00", "ms", "1.000"]
