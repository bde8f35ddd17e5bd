"""Pure functions that check that each engine is ready, has the newest config, and has a correct clock."""

from collections.abc import Iterator, Sequence

from tenantzone_cli.api import ApiError
from tenantzone_cli.doctor.cluster_checks import SKEW_SECONDS
from tenantzone_cli.doctor.facts import Facts
from tenantzone_cli.doctor.finding import Finding, fail, name_some, ok, warn
from tenantzone_cli.live import EngineAnswer
from tenantzone_cli.resources import Pod, Pool
from tenantzone_cli.table import duration
from tenantzone_contract.reports.report import EngineReport
from tenantzone_contract.text import printable
from tenantzone_contract.zone_config.config import CONFIG_HASH_ANNOTATION

_FROZEN_SECONDS = 15.0
"""Age of a report in seconds above which the engine counts as hanging, because engines renew their reports."""


def check_engines(facts: Facts, pool: Pool, newest: str | None) -> Iterator[Finding]:
    """Check that a pool has engines, and that each engine is healthy and has the newest config.

    Args:
        facts: the collected facts of the cluster.
        pool: the engines' pool.
        newest: the hash of the config that the engines should have; None if unknown.
    """
    subject, pods = f"engines {pool.namespace}/{pool.name}", facts.pods[pool.key]
    if isinstance(pods, ApiError):
        if not pods.is_forbidden:
            yield warn(subject, f"can't be listed: {pods.message}")
        return
    if not pods and pool.is_("SelectorOverlaps"):
        return
    if not pods:
        yield warn(subject, f"no pod has the labels {pool.selector}", "start an engine with these labels")
        return
    answers = {answer.pod: answer for answer in facts.answers if answer.pool == pool.key}
    wrong = [(pod.name, found) for pod in pods for found in _check_engine(pod, answers.get(pod.name), newest)]
    yield from _together(subject, wrong)
    trusting = [
        pod
        for pod, answer in answers.items()
        if answer.report is not None and not answer.report.config.demands_signature
    ]
    if trusting:
        advice = "start engines with --signed-config (TENANTZONE_SIGNED_CONFIG=1), once the operator signs configs"
        yield warn(subject, f"accept configs that the operator did not sign: {name_some(trusting)}", advice)
    ready, acknowledged = pool.status.get("enginesReady", 0), pool.status.get("enginesAcknowledged", 0)
    if acknowledged < ready:
        programmed = pool.condition("Programmed")
        advice = programmed.message if programmed is not None else ""
        yield warn(
            subject, f"{acknowledged} of {ready} have acknowledged the config according to the pool's status", advice
        )
    elif not wrong:
        heard = sum(answer.report is not None for answer in answers.values())
        yield ok(subject, f"{ready} ready, all have acknowledged the config; {heard} answered now")


def _together(subject: str, wrong: Sequence[tuple[str, Finding]]) -> Iterator[Finding]:
    """Iterates over the findings; engines with the same problem share one finding that names them."""
    pods: dict[Finding, list[str]] = {}
    for pod, found in wrong:
        pods.setdefault(found, []).append(pod)
    for found, names in pods.items():
        yield Finding(found.level, subject, f"{found.message}: {name_some(names)}", found.advice)


def _check_engine(pod: Pod, answer: EngineAnswer | None, newest: str | None) -> Iterator[Finding]:
    """Iterates over the problems of one engine, without the engine's name, so that equal problems can be merged."""
    if not pod.ready or answer is None:
        yield warn("", f"not ready ({pod.trouble})", f"kubectl -n {pod.namespace} describe pods")
        return
    if newest is not None and pod.annotations.get(CONFIG_HASH_ANNOTATION) != newest:
        text = "not annotated with the newest config, so kubelet may take a minute or more to project the config"
        yield warn("", text, "check that the operator may patch pods")
    if answer.report is None:
        if not answer.is_forbidden:
            advice = "check that the pod runs tenantzone-runtime, and that the API server reaches the pod"
            yield warn("", f"did not answer ({answer.error})", advice)
        return
    status = answer.report.config
    if status.rejected is not None and status.rejected.untrusted:
        advice = (
            "the operator undoes changes by other users within seconds; if this persists, follow the message, and "
            f"check who may write ConfigMaps in namespace {pod.namespace}"
        )
        yield fail("", f"does not trust the config that it finds ({status.rejected.error})", advice)
    elif status.rejected is not None:
        advice = "if the engine does not know a field, upgrade the engine; its previous config stays in force"
        yield fail("", f"refuses the newest config ({status.rejected.error})", advice)
    elif newest is not None and status.applied_hash != newest:
        have = f"generation {status.applied_generation}" if status.applied_generation is not None else "no config"
        yield warn(
            "",
            f"has {have}, not the newest",
            "if this persists, check that the pod mounts the volume as a folder, not with subPath",
        )
    yield from _check_api_servers(answer.report)
    if answer.asked_at is not None:
        yield from _check_clock(pod, answer.asked_at - answer.report.published_unix_time)


def _check_api_servers(report: EngineReport) -> Iterator[Finding]:
    """Check that an engine's API server processes enforce the same config as its engine core."""
    for process in report.api_servers or ():
        if process.lags:
            differs = ", ".join(map(printable, process.lags))
            text = f"API server process {process.process} does not report what the engine core enforces ({differs})"
            yield fail("", text, "see the pod's log; if this persists, restart the pod")
    if report.missing_api_servers:
        text = f"number of API server processes that do not report their config: {report.missing_api_servers}"
        advice = "check that vLLM runs with --middleware and that the processes run; if this persists, restart the pod"
        yield fail("", text, advice)


def _check_clock(pod: Pod, age: float) -> Iterator[Finding]:
    """Compare an engine's clock with the API server's, by the age of the engine's report.

    Args:
        pod: the engine's pod.
        age: the age of the report in seconds: the API server's time minus the time in the report.
    """
    if age > _FROZEN_SECONDS:
        yield fail(
            "",
            f"report is {duration(age)} old, so the engine hangs or its clock is behind",
            f"see the log of {pod.name}",
        )
    elif age < -SKEW_SECONDS:
        yield warn(
            "", f"clock is {duration(-age)} ahead of the API server's", "set the node's clock, for example with NTP"
        )
