"""The fuzzer over HTTP: equal seeds draw equal requests, violations are noticed, and our time is separate."""

import asyncio
import time

import pytest

from bench.attacks.forge.raw import Reply
from tests.frontend.fuzzing.client import Seen
from tests.frontend.fuzzing.drawn import Pool, Sending, draw_batch
from tests.frontend.fuzzing.fuzz import Result
from tests.frontend.fuzzing.measured import Meter, Owned, OwnedOutputs, Owner
from tests.frontend.fuzzing.server import tracebacks_in

SENDING = Sending("1.2.3", (b"GET / HTTP/1.1\r\n", b"\r\n"))


def burn(seconds: float) -> None:
    """Uses processor time of this thread."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


class TestMeter:
    def test_what_others_take_within_our_call_is_not_ours(self):
        meter = Meter()

        async def theirs() -> None:
            burn(0.2)

        async def ours() -> None:
            burn(0.02)
            await Owned(meter, Owner.OTHERS, "vLLM", theirs())
            burn(0.02)

        asyncio.run(Owned(meter, Owner.OURS, "request 7", ours()))
        (seconds, what), *_ = meter.longest
        assert what == "request 7"
        assert 0.04 <= seconds < 0.1

    def test_what_we_take_within_others_call_is_ours(self):
        meter = Meter()

        async def ours() -> None:
            burn(0.02)

        async def theirs() -> None:
            burn(0.2)
            await Owned(meter, Owner.OURS, "the frontend", ours())

        asyncio.run(Owned(meter, Owner.OTHERS, "vLLM", theirs()))
        assert 0.02 <= meter.longest[0][0] < 0.1

    def test_each_callback_counts_alone(self):
        meter = Meter()

        async def ours() -> None:
            for _ in range(5):
                burn(0.02)
                await asyncio.sleep(0)

        asyncio.run(Owned(meter, Owner.OURS, "request", ours()))
        assert 0.02 <= meter.longest[0][0] < 0.04

    def test_the_time_of_the_collector_is_not_counted(self):
        meter = Meter()

        async def ours() -> None:
            meter.interrupt("start")
            burn(0.1)
            meter.interrupt("stop")

        asyncio.run(Owned(meter, Owner.OURS, "request", ours()))
        assert meter.longest[0][0] < 0.05

    def test_outputs_count_one_by_one_and_errors_pass(self):
        meter = Meter()

        async def outputs():
            yield 1
            burn(0.02)
            raise ValueError("broken")

        async def ask() -> None:
            async for each in OwnedOutputs(meter, Owner.OURS, outputs()):
                got.append(each)

        got: list[int] = []
        with pytest.raises(ValueError, match="broken"):
            asyncio.run(ask())
        assert got == [1]
        assert meter.longest[0][0] >= 0.02


@pytest.mark.parametrize(
    ("reply", "is_wrong"),
    [
        (Reply(200, b"{}", 0.1), False),
        (Reply(400, b"{}", 0.1), False),
        (Reply(503, b"{}", 0.1), False),
        (Reply(None, b"", 0.1), False),
        (Reply(500, b"{}", 0.1), True),
        (Reply(502, b"{}", 0.1), True),
        (Reply(200, b'data: {"error": {"code": 500}}', 0.1), True),
        (Reply(400, b'File "/srv/vllm/a.py", line 3', 0.1), True),
        (None, True),
    ],
)
def test_what_is_wrong_with_an_answer_is_noticed(reply, is_wrong):
    seen = Seen()
    seen.note(SENDING, reply)
    assert bool(seen.violations) == is_wrong
    assert Result(1, seen=seen).is_good != is_wrong


def test_a_callback_that_takes_too_long_is_noticed():
    assert Result(1, longest=[(0.009, "request 1")]).is_good
    assert not Result(1, longest=[(0.011, "request 1")]).is_good


def test_each_traceback_is_found_with_the_line_before_it():
    log = "INFO a\nERROR b\nTraceback (most recent call last):\n  File x\nValueError: c\nINFO d\n"
    assert [text.splitlines()[0] for text in tracebacks_in(log)] == ["ERROR b"]
    assert tracebacks_in("INFO a\n") == []


def test_equal_seeds_send_equal_requests():
    pool = Pool([], [("/v1/completions", {"prompt": "a"}), ("/tokenize", {"tokens": [1], "prompt": "b"})])
    drawn = [draw_batch(pool, seed, 1, 20) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [each.number for each in drawn[0]] == [f"1.1.{place}" for place in range(20)]
