"""Reads the answers of engines' admin ports, and explains why an engine does not answer."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from tenantzone_contract.reports.report import REPORT_PATH, EngineReport
from tenantzone_contract.text import printable
from tenantzone_operator.engines.http import TokenRefusedError, UnbelievableError, fetch
from tenantzone_operator.engines.reading_quota import ReadingQuota
from tenantzone_operator.engines.reports import parse_report_aside
from tenantzone_operator.kube.resources import Pod

ANSWER_SECONDS = 1.0

Answer = TypeVar("Answer", bound="_Answer")


class _Answer(Protocol):
    @property
    def pod(self) -> str: ...


async def read_report(
    pod: Pod, port: int, max_bytes: int, quota: ReadingQuota, tokens: Sequence[str] = ()
) -> EngineReport:
    """Read an engine's report from its admin port; for the arguments, see `read_answer`.

    Raises:
        ValueError: the answer is not a report, is from another pod, or is too large.
        OSError: the engine does not answer in time.
    """
    report = await read_answer(
        pod,
        port,
        REPORT_PATH,
        parse_report_aside,
        max_bytes=max_bytes,
        quota=quota,
        patience=ANSWER_SECONDS,
        tokens=tokens,
    )
    if report.pod_uid not in ("", pod.meta.uid):
        raise ValueError(f"another pod of the same name, uid {printable(report.pod_uid)}, answers at {pod.ip}")
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
    """Request a path from an engine's admin port, and wait at most ``patience`` seconds for each token.

    Args:
        pod: the engine's pod.
        port: the engine's admin port.
        path: the path with its query.
        parse: parses the body; raises ValueError if the body is invalid.
        max_bytes: the maximum size of the body in bytes.
        quota: the quota to which the answer's bytes are charged.
        patience: the timeout of each request in seconds; there is one request per token.
        tokens: the tokens of the engine's pool, newest first. If the engine refuses a token, the next token is tried.

    Raises:
        TokenRefusedError: the engine refuses all tokens.
        ValueError: the answer is invalid, is from another pod, or is too large.
        OSError: the engine does not answer in time.
    """
    ask = partial(fetch, pod.ip, port, path, max_bytes=max_bytes, quota=quota, patience=patience)
    body = await _first_let_in(ask, tokens)
    try:
        answer = await parse(body)
    except ValueError:
        what = path.partition("?")[0].removeprefix("/")
        raise UnbelievableError(f"the answer is not a {what} that this version of the operator understands") from None
    if answer.pod == pod.meta.name:
        return answer
    if answer.pod:
        raise ValueError(f"another pod, {printable(answer.pod)}, answers at {pod.ip}")
    if pod.host_network:
        raise ValueError(
            f"the engine at {pod.ip} does not report its pod's name, and pods on the host network share this address; "
            "set POD_NAME to metadata.name in its container"
        )
    return answer


async def _first_let_in(ask: Callable[..., Awaitable[bytes]], tokens: Sequence[str]) -> bytes:
    """Returns the answer to the first token that the engine accepts. Without tokens, asks without a token."""
    *others, last = tokens or ("",)
    for token in others:
        with suppress(TokenRefusedError):
            return await ask(token=token)
    return await ask(token=last)


def reason(error: Exception) -> str:
    """Returns why an engine did not answer, without details that differ between attempts, such as local ports."""
    match error:
        case TimeoutError():
            return "it does not answer in time"
        case ConnectionRefusedError():
            return "the connection to its admin port is refused"
        case OSError():
            return f"the connection broke ({os.strerror(error.errno) if error.errno else error})"
    return str(error)
