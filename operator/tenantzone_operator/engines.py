"""Reads the engines' reports, over and over. What an engine sends is checked; what it does not send is not guessed."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import aiohttp

from tenantzone_contract.blocks import BlockMap
from tenantzone_contract.logs import About
from tenantzone_contract.report import REPORT_PATH, EngineReport, parse_report
from tenantzone_operator.acknowledgement import Observation
from tenantzone_operator.metrics import ENGINE_POLLS
from tenantzone_operator.resources import Pod
from tenantzone_operator.views import EngineView, view

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
QUICK_POLL_SECONDS = 0.1
"""While something that was sent out is not acknowledged yet, ..."""
QUICK_FOR_SECONDS = 30.0
"""... but no longer than this."""

_PAUSE_BY_WORK = 3.0
"""Of the thread's time, no more than one part to so many is spent with asking."""

ANSWER_SECONDS = 1.0
SILENCE_SECONDS = 3.0
"""An engine that has not answered for this long is unreachable. One late answer is not worth a change of status."""
FROZEN_SECONDS = 15.0
"""A report that has not been renewed for this long comes from an engine that hangs. (They renew it all the time.)"""
_LARGEST_ANSWER_BYTES = 16 * 2**20

Answer = TypeVar("Answer", EngineReport, BlockMap)


@dataclass(slots=True)
class _Engine:
    """One pod that is watched. Times are of the monotonic clock: the engine's own clock may differ from ours."""

    pod: Pod
    report: EngineView | None = None
    error: str = ""
    answered_at: float = 0.0
    published: float = 0.0
    """The engine's own time of its newest report; only compared with itself."""
    renewed_at: float = 0.0
    blocks: int | None = None

    def observation(self) -> Observation:
        return Observation(self.pod.meta.name, self.report, self.error, self.blocks)


class EngineWatch:
    """The engines of one pool.

    Args:
        http: used for all requests.
        changed: called when an observation differs from the one before.
        log: where it says whether engines answer.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        changed: Callable[[], None],
        log: logging.Logger | About = logger,
    ) -> None:
        self._http = http
        self._log = log
        self._changed = changed
        self._engines: dict[tuple[str, str], _Engine] = {}
        self._port = 0
        self._quick_until = 0.0
        self._wake = asyncio.Event()

    async def look_at(self, pods: Sequence[Pod], port: int) -> list[Observation]:
        """Watch these pods from now on, and say what is known of them, in the order of their names.

        One that is new is asked first, so that nobody decides anything without having heard it.
        """
        known, self._port = self._engines, port
        self._engines = {}
        for pod in sorted(pods, key=lambda pod: pod.meta.name):
            key = (pod.meta.uid, pod.ip)
            self._engines[key] = known.get(key) or _Engine(pod)
        new = [engine for key, engine in self._engines.items() if key not in known]
        await asyncio.gather(*(self._ask(engine) for engine in new))
        if new:
            self._wake.set()
        return [engine.observation() for engine in self._engines.values()]

    def hurry(self) -> None:
        """Something was sent out: expect an acknowledgement soon."""
        self._quick_until = time.monotonic() + QUICK_FOR_SECONDS
        self._wake.set()

    def relax(self) -> None:
        """Everything is acknowledged."""
        self._quick_until = 0.0

    async def run(self) -> None:
        """Ask all engines until cancelled."""
        spent = 0.0
        while True:
            # Reports of thousands of zones take their time to be read, and asking must not take all of it.
            quick = max(QUICK_POLL_SECONDS, _PAUSE_BY_WORK * spent)
            is_quick = time.monotonic() < self._quick_until
            try:
                await asyncio.wait_for(self._wake.wait(), quick if is_quick else max(POLL_SECONDS, quick))
                self._wake.clear()
                await asyncio.sleep(quick)
            except TimeoutError:
                pass
            began = time.thread_time()
            await self.ask_all()
            spent = time.thread_time() - began

    async def ask_all(self) -> None:
        """Ask each engine once."""
        engines = list(self._engines.values())
        changes = await asyncio.gather(*(self._ask(engine) for engine in engines))
        if any(changes):
            self._changed()

    async def _ask(self, engine: _Engine) -> bool:
        """Ask one engine. Returns whether what is known of it has changed."""
        before = engine.report, engine.error
        now = time.monotonic()
        try:
            report = await read_report(self._http, engine.pod, self._port)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            ENGINE_POLLS.labels("failed").inc()
            if engine.report is None or now - engine.answered_at > SILENCE_SECONDS:
                engine.report, engine.error = None, reason(error)
        else:
            ENGINE_POLLS.labels("ok").inc()
            engine.answered_at = now
            engine.blocks = report.capacity_blocks
            if report.published_unix_time != engine.published:
                engine.published, engine.renewed_at = report.published_unix_time, now
            if now - engine.renewed_at <= FROZEN_SECONDS:
                engine.report, engine.error = view(report), ""
            else:
                engine.report, engine.error = None, "its report is not renewed any more; the engine hangs"
        if (before[1] == "") != (engine.error == ""):
            name = engine.pod.meta.name
            self._log.info("engine %s: %s", name, engine.error or "answers", extra={"pod": name})
        return before != (engine.report, engine.error)


async def read_report(http: aiohttp.ClientSession, pod: Pod, port: int) -> EngineReport:
    """
    Raises:
        ValueError: it is not a report, or another engine's.
        aiohttp.ClientError, TimeoutError: the engine does not answer.
    """
    return await read_answer(http, pod, port, REPORT_PATH, parse_report)


async def read_answer(
    http: aiohttp.ClientSession,
    pod: Pod,
    port: int,
    path: str,
    parse: Callable[[bytes], Answer],
    *,
    patience: float = ANSWER_SECONDS,
) -> Answer:
    """Ask an engine's admin port, and wait for so many seconds at most.

    Raises:
        ValueError: it is not what was asked for, or another engine's.
        aiohttp.ClientError, TimeoutError: the engine does not answer.
    """
    host, what = f"[{pod.ip}]" if ":" in pod.ip else pod.ip, path.partition("?")[0]
    limit = aiohttp.ClientTimeout(total=patience)
    async with http.get(f"http://{host}:{port}{path}", allow_redirects=False, timeout=limit) as response:
        if response.status != 200:
            raise ValueError(f"{what} answers with status {response.status}")
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _LARGEST_ANSWER_BYTES:
                raise ValueError(f"its {what.removeprefix('/')} is too large")
    try:
        answer = parse(bytes(body))
    except ValueError:
        raise ValueError(f"what it sends is not a {what.removeprefix('/')} that this version understands") from None
    if answer.pod not in ("", pod.meta.name):
        raise ValueError(f"at {pod.ip} another pod answers, {answer.pod}")
    return answer


def new_http_session() -> aiohttp.ClientSession:
    """For reading reports: short patience, and never through a proxy."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS), trust_env=False)


def reason(error: Exception) -> str:
    """Why an engine did not answer, without details that differ from one attempt to the next, such as ports of ours."""
    match error:
        case TimeoutError():
            return f"no answer within {ANSWER_SECONDS:.0f} s"
        case aiohttp.ClientConnectorError():
            return "the connection to its admin port is refused"
        case aiohttp.ClientError():
            return f"the connection broke ({type(error).__name__})"
    return str(error)
