"""Reads what engines say at their admin ports, and tells why one does not answer."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from tenantzone_contract.report import REPORT_PATH
from tenantzone_contract.text import printable
from tenantzone_operator.engines.http import TokenRefusedError, UnbelievableError, fetch
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.reports import EngineReport, read_report_text_aside
from tenantzone_operator.kube.resources import Pod

ANSWER_SECONDS = 1.0

Answer = TypeVar("Answer", bound="_Answer")


class _Answer(Protocol):
    @property
    def pod(self) -> str: ...


async def read_report(
    pod: Pod, port: int, max_bytes: int, quota: ReadingQuota, tokens: Sequence[str] = ()
) -> EngineReport:
    """Read an engine's report from its admin port, which one of the tokens opens; for errors see `read_answer`.

    Raises:
        ValueError: it is not a report, or another engine's, or longer than it can be.
        OSError: the engine does not answer, or not in time.
    """
    report = await read_answer(
        pod,
        port,
        REPORT_PATH,
        read_report_text_aside,
        max_bytes=max_bytes,
        quota=quota,
        patience=ANSWER_SECONDS,
        tokens=tokens,
    )
    if report.pod_uid not in ("", pod.meta.uid):
        raise ValueError(f"at {pod.ip} another pod of the same name answers, with the uid {printable(report.pod_uid)}")
    return report


async def read_answer(
    pod: Pod,
    port: int,
    path: str,
    parse: Callable[[bytes], Awaitable[Answer]],
    *,
    max_bytes: int,
    quota: ReadingQuota,
    patience: float,
    tokens: Sequence[str],
) -> Answer:
    """Ask an engine's admin port for a path, and wait for ``patience`` seconds at most for each token.

    Args:
        pod: the engine's.
        port: its admin port.
        path: with its query.
        parse: raises ValueError at what is not what was asked for.
        max_bytes: of the answer.
        quota: pays for it.
        patience: in seconds.
        tokens: of the engine's pool, the newest first; the next is shown where one is refused.

    Raises:
        TokenRefusedError: it refuses all of them.
        ValueError: it is not what was asked for, or another engine's, or longer than that.
        OSError: the engine does not answer, or not in time.
    """
    ask = partial(fetch, pod.ip, port, path, max_bytes=max_bytes, quota=quota, patience=patience)
    body = await _first_let_in(ask, tokens)
    try:
        answer = await parse(body)
    except ValueError:
        what = path.partition("?")[0].removeprefix("/")
        raise UnbelievableError(f"what it sends is not a {what} that this version understands") from None
    if answer.pod == pod.meta.name:
        return answer
    if answer.pod:
        raise ValueError(f"at {pod.ip} another pod answers, {printable(answer.pod)}")
    if pod.host_network:
        raise ValueError(
            f"the engine at {pod.ip} does not say which pod it is, and pods on the host network share that address: "
            "set POD_NAME to metadata.name in its container"
        )
    return answer


async def _first_let_in(ask: Callable[..., Awaitable[bytes]], tokens: Sequence[str]) -> bytes:
    """The answer to the first of the tokens that is not refused; without any, none is shown."""
    *others, last = tokens or ("",)
    for token in others:
        with suppress(TokenRefusedError):
            return await ask(token=token)
    return await ask(token=last)


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
