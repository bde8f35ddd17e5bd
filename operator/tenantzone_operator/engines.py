"""Reads the engines' reports, over and over. What an engine sends is checked; what it does not send is not guessed."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from tenantzone_contract.report import REPORT_PATH, EngineReport, parse_report
from tenantzone_operator.acknowledgement import Observation
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
_LARGEST_REPORT_BYTES = 16 * 2**20


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
    """

    def __init__(self, http: aiohttp.ClientSession, changed: Callable[[], None]) -> None:
        self._http = http
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
            report = await self._read(engine.pod)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            if engine.report is None or now - engine.answered_at > SILENCE_SECONDS:
                engine.report, engine.error = None, _reason(error)
        else:
            engine.answered_at = now
            engine.blocks = report.capacity_blocks
            if report.published_unix_time != engine.published:
                engine.published, engine.renewed_at = report.published_unix_time, now
            if now - engine.renewed_at <= FROZEN_SECONDS:
                engine.report, engine.error = view(report), ""
            else:
                engine.report, engine.error = None, "its report is not renewed any more; the engine hangs"
        if (before[1] == "") != (engine.error == ""):
            logger.info("engine %s: %s", engine.pod.meta.name, engine.error or "answers")
        return before != (engine.report, engine.error)

    async def _read(self, pod: Pod) -> EngineReport:
        """
        Raises:
            ValueError: it is not a report, or another engine's.
        """
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        async with self._http.get(f"http://{host}:{self._port}{REPORT_PATH}", allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"{REPORT_PATH} answers with status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _LARGEST_REPORT_BYTES:
                    break
        if len(body) > _LARGEST_REPORT_BYTES:
            raise ValueError("its report is too large")
        try:
            report = parse_report(bytes(body))
        except ValueError:
            raise ValueError("what it sends is not a report that this version understands") from None
        if report.pod not in ("", pod.meta.name):
            raise ValueError(f"at {pod.ip} another pod answers, {report.pod}")
        return report


def new_http_session() -> aiohttp.ClientSession:
    """For reading reports: short patience, and never through a proxy."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS), trust_env=False)


def _reason(error: Exception) -> str:
    """Without details that differ from one attempt to the next, such as ports of ours."""
    match error:
        case TimeoutError():
            return f"no answer within {ANSWER_SECONDS:.0f} s"
        case aiohttp.ClientConnectorError():
            return "the connection to its admin port is refused"
        case aiohttp.ClientError():
            return f"the connection broke ({type(error).__name__})"
    return str(error)
