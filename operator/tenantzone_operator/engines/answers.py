"""Reads what engines say at their admin ports, and tells why one does not answer."""

import os
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tenantzone_contract.report import REPORT_PATH
from tenantzone_contract.text import printable
from tenantzone_operator.engines.http import UnbelievableError, fetch
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.reports import EngineReport, read_report_text_aside
from tenantzone_operator.kube.resources import Pod

ANSWER_SECONDS = 1.0

Answer = TypeVar("Answer", bound="_Answer")


class _Answer(Protocol):
    @property
    def pod(self) -> str: ...


async def read_report(pod: Pod, port: int, max_bytes: int, quota: ReadingQuota) -> EngineReport:
    """Read an engine's report from its admin port.

    Raises:
        ValueError: it is not a report, or another engine's, or longer than it can be.
        OSError: the engine does not answer, or not in time.
    """
    return await read_answer(
        pod, port, REPORT_PATH, read_report_text_aside, max_bytes=max_bytes, quota=quota, patience=ANSWER_SECONDS
    )


async def read_answer(
    pod: Pod,
    port: int,
    path: str,
    parse: Callable[[bytes], Awaitable[Answer]],
    *,
    max_bytes: int,
    quota: ReadingQuota,
    patience: float,
) -> Answer:
    """Ask an engine's admin port for a path, and wait for ``patience`` seconds at most.

    Raises:
        ValueError: it is not what was asked for, or another engine's, or longer than that.
        OSError: the engine does not answer, or not in time.
    """
    body = await fetch(pod.ip, port, path, max_bytes=max_bytes, quota=quota, patience=patience)
    try:
        answer = await parse(body)
    except ValueError:
        what = path.partition("?")[0].removeprefix("/")
        raise UnbelievableError(f"what it sends is not a {what} that this version understands") from None
    if answer.pod not in ("", pod.meta.name):
        raise ValueError(f"at {pod.ip} another pod answers, {printable(answer.pod)}")
    return answer


def reason(error: Exception) -> str:
    """Why an engine did not answer, without details, such as ports of ours, that differ from attempt to attempt."""
    match error:
        case TimeoutError():
            return "it does not answer in time"
        case ConnectionRefusedError():
            return "the connection to its admin port is refused"
        case OSError():
            return f"the connection broke ({os.strerror(error.errno) if error.errno else error})"
    return str(error)
