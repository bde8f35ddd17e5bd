"""Polls the engines' reports. While an engine does not answer, its values are unknown, and never guessed."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from tenantzone_operator.engines.answers import ANSWER_SECONDS, read_report, reason
from tenantzone_operator.engines.http import SlowError, TokenRefusedError, UnbelievableError
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.views import EngineView, view_aside
from tenantzone_operator.kube.resources import Pod
from tenantzone_operator.logs import About
from tenantzone_operator.metrics.instruments import ENGINE_POLLS

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
QUICK_POLL_SECONDS = 0.1
"""Poll interval in seconds while engines have not acknowledged a published config."""
QUICK_FOR_SECONDS = 30.0
"""Maximum number of seconds for which the operator polls at the interval ``QUICK_POLL_SECONDS``."""

_AT_ONCE = 16
"""Maximum number of engines of one pool that are polled concurrently, which bounds the answers in memory."""

MAX_BACKOFF_SECONDS = 30.0
"""Maximum backoff in seconds for an engine that sends invalid answers. The backoff doubles with each invalid answer.

The backoff also applies to an unreachable engine that accepts connections but does not answer in time. A single late
answer causes no backoff, because a busy engine may be late.
"""

SILENCE_SECONDS = 3.0
"""Seconds without an answer after which an engine is unreachable, so that one late answer does not change a status."""
FROZEN_SECONDS = 15.0
"""Seconds after which an engine with an unchanged report counts as hanging, because engines renew their reports."""

SAY_AGAIN_SECONDS = 60.0
"""Minimum number of seconds between two log lines about an engine whose errors keep changing."""
HANGS = "the engine hangs: it no longer renews its report"


Report = TypeVar("Report")


@dataclass(slots=True, weakref_slot=True)
class WatchedEngine(Generic[Report]):
    """One watched pod. Times are monotonic seconds of this machine, because the engine's clock may differ."""

    pod: Pod
    report: Report | None = None
    """The needed parts of the newest report; None if the engine does not answer or hangs."""
    error: str = ""
    """Why no report is available; empty if a report is available."""
    answered_at: float = float("-inf")
    published: float = 0.0
    """Time of the newest report by the engine's clock, which is only compared with the time of the next report."""
    renewed_at: float = 0.0

    def hear(self, report: Report, published: float, now: float) -> None:
        """Record an answer. If the engine no longer renews its report, record that it hangs.

        Args:
            report: the needed parts of the report.
            published: time of the report by the engine's clock.
            now: the time of the answer.
        """
        self.answered_at = now
        if published != self.published:
            self.published, self.renewed_at = published, now
        is_frozen = now - self.renewed_at > FROZEN_SECONDS
        self.report, self.error = (None, HANGS) if is_frozen else (report, "")

    def is_unreachable(self, now: float) -> bool:
        """Returns whether the engine counts as unreachable after a request failed; one late answer is tolerated."""
        return self.report is None or now - self.answered_at > SILENCE_SECONDS

    def lose(self, why: str) -> None:
        """Record why the engine is unreachable."""
        self.report, self.error = None, why


@dataclass(slots=True)
class _Engine(WatchedEngine[EngineView]):
    """One watched pod with the state of its requests.

    Statuses show the error. Users can choose the port (in the pool) and the address (in a pod's status), so the error
    must not reveal anything about the server at this address and port: its text is always the same.
    """

    refuses: bool = False
    """Whether no report is available because the engine refuses the pool's tokens."""
    said: str = ""
    """The error in the last log line about this engine."""
    said_at: float = float("-inf")
    blocks: int | None = None
    asking: asyncio.Task[bool] | None = None
    """Task of the request in flight, if any."""
    is_prompt: bool = True
    """Whether the last answer arrived in time. If so, `EngineWatch.ask_all` waits for the next answer."""
    backoff: float = 0.0
    """Current backoff in seconds, after an invalid or missing answer."""
    ask_after: float = 0.0

    def forget(self) -> None:
        """Stop waiting for the engine's answer."""
        if self.asking is not None:
            self.asking.cancel()

    def observation(self) -> Observation:
        return Observation(self.pod.meta.name, self.report, self.error, self.refuses, self.blocks)


class EngineWatch:
    """Watches the reports of one pool's engines.

    Args:
        changed: called when an engine's observation has changed.
        quota: the reading quota of the pool's namespace.
        log: logs when engines start or stop answering.
        tokens: returns the current tokens for the engines' admin ports, newest first.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        quota: ReadingQuota | None = None,
        log: logging.Logger | About = logger,
        tokens: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._log = log
        self._changed = changed
        self._tokens = tokens
        self._quota = quota or ReadingQuota()
        self._engines: dict[tuple[str, str], _Engine] = {}
        self._port = 0
        self._max_bytes = 0
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._quick_until = 0.0
        self._wake = asyncio.Event()

    async def look_at(self, pods: Sequence[Pod], port: int, max_bytes: int) -> list[Observation]:
        """Watch exactly these pods, and return their current observations, sorted by pod name.

        The call polls new pods before it returns, so that decisions take their reports into account.

        Args:
            pods: the ready pods.
            port: the admin port of the pods.
            max_bytes: the maximum size of a report in bytes.
        """
        known, self._port, self._max_bytes = self._engines, port, max_bytes
        self._engines = {}
        for pod in sorted(pods, key=lambda pod: pod.meta.name):
            key = (pod.meta.uid, pod.ip)
            self._engines[key] = known.get(key) or _Engine(pod)
        for key in known.keys() - self._engines.keys():
            known[key].forget()
        if new := [engine for key, engine in self._engines.items() if key not in known]:
            began = time.monotonic()
            await asyncio.gather(*(self._ask(engine) for engine in new))
            if any(engine.report is None for engine in new):
                # Wait for the full timeout. A shorter wait would reveal whether a server listens at this address.
                await asyncio.sleep(ANSWER_SECONDS - (time.monotonic() - began))
            self._wake.set()
        return [engine.observation() for engine in self._engines.values()]

    def hurry(self) -> None:
        """Poll faster for a while, because a config was published, and acknowledgements are expected soon."""
        self._quick_until = time.monotonic() + QUICK_FOR_SECONDS
        self._wake.set()

    def relax(self) -> None:
        """Poll at the usual interval again, because all engines have acknowledged the newest config."""
        self._quick_until = 0.0

    def stop(self) -> None:
        """Stop waiting for any engine's answer."""
        for engine in self._engines.values():
            engine.forget()

    async def run(self) -> None:
        """Poll all engines until the task is cancelled."""
        while True:
            # Respect the quota, because parsing reports of thousands of zones could use all of the CPU time.
            quick = max(QUICK_POLL_SECONDS, self._quota.pause_seconds())
            is_quick = time.monotonic() < self._quick_until
            try:
                patience = quick if is_quick else max(POLL_SECONDS, quick)
                async with asyncio.timeout(patience if self._engines else None):
                    await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(quick)
            except TimeoutError:
                pass
            await self.ask_all()

    async def ask_all(self) -> None:
        """Poll each engine once, except for engines with a request in flight and engines in backoff.

        Wait only for engines whose last answer was prompt. Answers of other engines are handled when they arrive.
        """
        now, prompt = time.monotonic(), []
        for engine in self._engines.values():
            if engine.asking is not None or now < engine.ask_after:
                continue
            if engine.is_prompt:
                prompt.append(engine)
            else:
                engine.asking = asyncio.create_task(self._ask(engine), name=f"asking {engine.pod.meta.name}")
                engine.asking.add_done_callback(partial(self._heard, engine))
        changes = await asyncio.gather(*(self._ask(engine) for engine in prompt))
        if any(changes):
            self._changed()

    def _heard(self, engine: _Engine, done: asyncio.Task[bool]) -> None:
        engine.asking = None
        if not done.cancelled() and done.result():
            self._changed()

    async def _ask(self, engine: _Engine) -> bool:
        """Poll one engine, and return whether its observation has changed."""
        before, why, unexpected = (engine.report, engine.error), "", None
        async with self._slots:
            now = time.monotonic()
            try:
                report = await read_report(engine.pod, self._port, self._max_bytes, self._quota, self._tokens())
                seen = await view_aside(report)
            except Exception as error:
                # Catch unexpected errors, too, because they must not affect other engines. The log has the details.
                unexpected = None if isinstance(error, (OSError, ValueError)) else error
                ENGINE_POLLS.labels("failed").inc()
                engine.is_prompt = not isinstance(error, TimeoutError)
                is_unreachable = engine.is_unreachable(now)
                is_costly = isinstance(error, UnbelievableError) or unexpected is not None
                if is_costly or (isinstance(error, SlowError) and is_unreachable):
                    engine.backoff = min(max(2 * engine.backoff, POLL_SECONDS), MAX_BACKOFF_SECONDS)
                    engine.ask_after = now + engine.backoff
                if is_unreachable:
                    why = reason(error)
                    engine.refuses = isinstance(error, TokenRefusedError)
                    engine.lose(
                        f"its admin port {self._port} refuses the operator's token (the pool's condition "
                        "AdminPortNotSecured says what to mount)"
                        if engine.refuses
                        else _no_report(engine.pod, self._port)
                    )
            else:
                ENGINE_POLLS.labels("ok").inc()
                engine.is_prompt, engine.backoff, engine.refuses = True, 0.0, False
                engine.blocks = report.capacity_blocks
                engine.hear(seen, report.published_unix_time, now)
                why = engine.error
        has_turned = (before[1] == "") != (engine.error == "")
        if has_turned or (why not in ("", engine.said) and now - engine.said_at >= SAY_AGAIN_SECONDS):
            engine.said, engine.said_at, name = why, now, engine.pod.meta.name
            level = logging.ERROR if unexpected else logging.INFO
            self._log.log(level, "engine %s: %s", name, why or "answers", extra={"pod": name}, exc_info=unexpected)
        return before != (engine.report, engine.error)


def _no_report(pod: Pod, port: int) -> str:
    """Returns the error for an engine without a report. The text depends only on the pod, not on the pod's answer."""
    if pod.host_network:
        return (
            f"no report that names this pod from its admin port {port} on the host network (set POD_NAME to "
            "metadata.name in its container; the operator's log says why)"
        )
    return f"no report from its admin port {port} (the operator's log says why)"
