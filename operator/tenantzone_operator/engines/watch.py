"""Reads the engines' reports, over and over; what an engine sends is checked, what it does not send is not guessed."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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
"""While something that was sent out is not acknowledged yet, ..."""
QUICK_FOR_SECONDS = 30.0
"""... but no longer than this."""

_AT_ONCE = 16
"""Engines of one pool that are asked at a time: so many answers may be in memory."""

MAX_BACKOFF_SECONDS = 30.0
"""An engine whose answer could not be believed is asked again later each time, at last this long after. So is one that
accepts connections and does not answer in time, once it is unreachable: a busy one may be late."""

SILENCE_SECONDS = 3.0
"""An engine that has not answered for this long is unreachable. One late answer is not worth a change of status."""
FROZEN_SECONDS = 15.0
"""A report that has not been renewed for this long comes from an engine that hangs. (They renew it all the time.)"""

SAY_AGAIN_SECONDS = 60.0
"""An engine that gives other reasons all the time gets no more lines of the log than one in so many seconds."""
HANGS = "its report is not renewed any more; the engine hangs"


@dataclass(slots=True)
class _Engine:
    """One pod that is watched; times are of this machine's monotonic clock, since the engine's own clock may differ."""

    pod: Pod
    report: EngineView | None = None
    error: str = ""
    """Why there is no report, as statuses say it: in the same words whatever is at the port. Who makes a pool chooses
    the port, and a pod's status says the address; nobody should learn by them who answers there, and how."""
    refuses: bool = False
    """Whether that is because it refuses the pool's tokens."""
    said: str = ""
    """The reason that the log has."""
    said_at: float = float("-inf")
    answered_at: float = 0.0
    published: float = 0.0
    """The engine's own time of its newest report; only compared with itself."""
    renewed_at: float = 0.0
    blocks: int | None = None
    asking: asyncio.Task[bool] | None = None
    """Under way."""
    is_prompt: bool = True
    """Whether it answered when it was asked last: then others wait for its answer, which takes no time."""
    backoff: float = 0.0
    """Seconds for which it was not asked after the last answer that could not be believed, or that did not come."""
    ask_after: float = 0.0

    def forget(self) -> None:
        """Wait for the engine's answer no longer."""
        if self.asking is not None:
            self.asking.cancel()

    def observation(self) -> Observation:
        return Observation(self.pod.meta.name, self.report, self.error, self.refuses, self.blocks)


class EngineWatch:
    """Watches the reports of one pool's engines.

    Args:
        changed: called when an observation differs from the one before.
        quota: of the pool's namespace.
        log: where it says whether engines answer.
        tokens: that open their admin ports at the moment, the newest first.
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
        """Watch these pods from now on, and say what is known of them, in the order of their names.

        One that is new is asked first, so that nobody decides anything without having heard it.

        Args:
            pods: that are ready.
            port: of their admin servers.
            max_bytes: of a report.
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
                # As long as if nobody were there: the time would tell what the words do not.
                await asyncio.sleep(ANSWER_SECONDS - (time.monotonic() - began))
            self._wake.set()
        return [engine.observation() for engine in self._engines.values()]

    def hurry(self) -> None:
        """Ask more often for a while: a config was sent out, so an acknowledgement is expected soon."""
        self._quick_until = time.monotonic() + QUICK_FOR_SECONDS
        self._wake.set()

    def relax(self) -> None:
        """Ask at the usual pace again: everything is acknowledged."""
        self._quick_until = 0.0

    def stop(self) -> None:
        """Wait for no engine's answer any more."""
        for engine in self._engines.values():
            engine.forget()

    async def run(self) -> None:
        """Ask all engines until cancelled."""
        while True:
            # Reports of thousands of zones take their time to be read, and asking must not take all of it.
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
        """Ask each engine once, but for those that have not answered yet and those that are not believed for now.

        Who answered promptly the last time is waited for; whoever did not is heard when it answers.
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
        """Ask one engine. Returns whether what is known of it has changed."""
        before, why, unexpected = (engine.report, engine.error), "", None
        async with self._slots:
            now = time.monotonic()
            try:
                report = await read_report(engine.pod, self._port, self._max_bytes, self._quota, self._tokens())
                seen = await view_aside(report)
            except Exception as error:
                # What nobody expected of an engine is that engine's trouble, too, and the log has all of it.
                unexpected = None if isinstance(error, (OSError, ValueError)) else error
                ENGINE_POLLS.labels("failed").inc()
                engine.is_prompt = not isinstance(error, TimeoutError)
                is_unreachable = engine.report is None or now - engine.answered_at > SILENCE_SECONDS
                is_costly = isinstance(error, UnbelievableError) or unexpected is not None
                if is_costly or (isinstance(error, SlowError) and is_unreachable):
                    engine.backoff = min(max(2 * engine.backoff, POLL_SECONDS), MAX_BACKOFF_SECONDS)
                    engine.ask_after = now + engine.backoff
                if is_unreachable:
                    engine.report, why = None, reason(error)
                    engine.refuses = isinstance(error, TokenRefusedError)
                    engine.error = (
                        f"its admin port {self._port} refuses the operator (the pool's condition says what to mount)"
                        if engine.refuses
                        else _no_report(engine.pod, self._port)
                    )
            else:
                ENGINE_POLLS.labels("ok").inc()
                engine.is_prompt, engine.backoff, engine.refuses = True, 0.0, False
                engine.answered_at = now
                engine.blocks = report.capacity_blocks
                if report.published_unix_time != engine.published:
                    engine.published, engine.renewed_at = report.published_unix_time, now
                if now - engine.renewed_at <= FROZEN_SECONDS:
                    engine.report, engine.error = seen, ""
                else:
                    engine.report, engine.error, why = None, HANGS, HANGS
        has_turned = (before[1] == "") != (engine.error == "")
        if has_turned or (why not in ("", engine.said) and now - engine.said_at >= SAY_AGAIN_SECONDS):
            engine.said, engine.said_at, name = why, now, engine.pod.meta.name
            level = logging.ERROR if unexpected else logging.INFO
            self._log.log(level, "engine %s: %s", name, why or "answers", extra={"pod": name}, exc_info=unexpected)
        return before != (engine.report, engine.error)


def _no_report(pod: Pod, port: int) -> str:
    """The error of an engine without a report. It depends on the pod only, and not on what answers at the port."""
    if pod.host_network:
        return (
            f"no report that names this pod from its admin port {port} on the host network (set POD_NAME to "
            "metadata.name in its container; the operator's log says why)"
        )
    return f"no report from its admin port {port} (the operator's log says why)"
