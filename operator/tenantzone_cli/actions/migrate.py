"""``migrate ZONE --from POD --to POD``: makes one engine's cache of a zone available to another engine.

The source engine writes those chunks of the zone that shared storages lack, at a limited rate. The target engine loads
the zone's most recently used chunks into its CPU memory, within the zone's share. The command controls both engines
through their admin ports, so the user needs the rights to ``get`` and ``create`` ``pods/proxy``. When the command ends,
both engines stop the migration.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tenantzone_cli.api import Api, ApiError, Unreachable
from tenantzone_cli.live import Engine, engine_pods, engines_of
from tenantzone_cli.resources import Pod, read_pool, read_zone
from tenantzone_cli.table import render
from tenantzone_contract.cache.migration import (
    MIGRATION_PATH,
    PROMPTS_PARAMETER,
    TENANT_PARAMETER,
    MigrationOrder,
    MigrationReport,
    Prompt,
    parse_migration,
)
from tenantzone_contract.kube_names import API, POOLS, ZONES, resource_path
from tenantzone_contract.quantity import shown_bytes

_LOOK_SECONDS = 0.3
_SHOW_SECONDS = 2.0
_WORDS = {"look": "looks at", "hand-down": "hands down", "warm-up": "brings up", None: "-"}
_NOT_THERE = (404, 405)

Show = Callable[[str], object]


class MigrateError(Exception):
    """The zone's cache can't be moved, or the move took too long; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of the times to move the chunks that shared storages lack, and to compute them again."""

    chunks: int
    bytes: int
    tokens: int
    moving_seconds: float
    computing_seconds: float | None
    """Seconds to compute the chunks again; None if the engine has not computed enough prompts to know its speed."""

    @property
    def pays(self) -> bool:
        """Whether moving takes at most as long as computing again; True if the time to compute is unknown."""
        return self.computing_seconds is None or self.moving_seconds <= self.computing_seconds

    def words(self) -> str:
        """Returns the estimate as a sentence."""
        if not self.chunks:
            return "shared storages have all cached chunks, so nothing needs to be handed down"
        computing = (
            "the time to recompute them is unknown"
            if self.computing_seconds is None
            else f"recomputing them takes {self.computing_seconds:.3g} s"
        )
        decision = "moving pays" if self.pays else "moving does not pay"
        return (
            f"{self.chunks} chunks ({shown_bytes(self.bytes)}, {self.tokens} tokens) are not in any shared storage; "
            f"moving them takes {self.moving_seconds:.3g} s, and {computing}, so {decision}"
        )


def estimate(report: MigrationReport, bytes_per_second: float) -> Estimate:
    """Returns an estimate, based on the source engine's report, for the chunks that shared storages lack.

    The estimate compares the time to move the chunks' bytes at the given rate with the time to compute the chunks'
    tokens at the speed at which the engine computes prompts.
    """
    size, tokens = report.left * report.chunk_bytes, report.left * report.chunk_tokens
    speed = report.prompt_tokens_per_second
    return Estimate(report.left, size, tokens, size / bytes_per_second, None if speed is None else tokens / speed)


@dataclass(frozen=True, slots=True)
class Move:
    """The move of a zone's cache from one engine to another."""

    tenant: str
    source: Engine
    target: Engine
    bytes_per_second: float
    deadline: float
    """Deadline on the monotonic clock, in seconds."""
    show: Show
    """Called from time to time with a text about the progress, if the move takes long."""

    def refuse_leaving_target(self) -> None:
        """Refuse a target that is shutting down, because the chunks that it loads would be lost.

        Raises:
            MigrateError: the target's pod is being deleted.
        """
        if self.target.pod.is_leaving:
            name = self.target.pod.name
            raise MigrateError(
                f"engine {name} is being deleted, and blocks moved to it would be lost; choose another engine with --to"
            )

    def look(self) -> Estimate:
        """Let the source engine check which of its cached chunks no shared storage has, and return the estimate."""
        return estimate(self._run(self.source, "look"), self.bytes_per_second)

    def hand_down(self) -> MigrationReport:
        """Let the source engine write the chunks that shared storages lack, and return its report."""
        return self._run(self.source, "hand-down")

    def warm_up(self) -> MigrationReport:
        """Let the target engine load the chunks that the zone used most recently on the source; return its report."""
        query = {TENANT_PARAMETER: self.tenant, PROMPTS_PARAMETER: "true"}
        prompts = _exchange(self.source, "GET", query).prompts
        return self._run(self.target, "warm-up", prompts)

    def stop(self) -> None:
        """Stop the migration in both engines. An engine that can't be reached stops on its own."""
        order = MigrationOrder(order="stop", tenant=self.tenant)
        for engine in (self.source, self.target):
            with suppress(ApiError, Unreachable, MigrateError):
                _exchange(engine, "POST", body=order)

    def _run(self, engine: Engine, work: str, prompts: Sequence[Prompt] = ()) -> MigrationReport:
        order = MigrationOrder.model_validate(
            {"order": work, "tenant": self.tenant, "bytes_per_second": self.bytes_per_second, "prompts": prompts}
        )
        report, last_shown = _exchange(engine, "POST", body=order), time.monotonic()
        while report.is_running:
            now = time.monotonic()
            if now >= self.deadline:
                raise MigrateError(
                    "the migration timed out and was stopped; run the command again to continue: "
                    f"{_state(engine, report)}"
                )
            if now - last_shown >= _SHOW_SECONDS:
                last_shown = now
                self.show(_state(engine, report))
            time.sleep(_LOOK_SECONDS)
            report = _exchange(engine, "GET", {TENANT_PARAMETER: self.tenant})
        if report.state != "Done" or report.work != work:
            raise MigrateError(f"{engine.pod.name}: {report.problem or 'another migration has replaced this one'}")
        return report


def open_move(
    api: Api, namespace: str, name: str, source: str, target: str, rate: float, timeout: float, show: Show
) -> Move:
    """Find the zone and both engines, and return the move, which has not begun.

    Args:
        api: a client of the API server.
        namespace: the zone's namespace.
        name: the zone's name.
        source: the name of the pod whose engine has the zone's cache.
        target: the name of the pod whose engine should get the cache.
        rate: the maximum rate, in bytes per second.
        timeout: the maximum duration of the whole move, in seconds.
        show: called with the progress as text.

    Raises:
        ApiError: the zone or its pool does not exist, or the user may not read them.
        Unreachable: the API server does not answer.
        MigrateError: a pod is not ready or not an engine of the pool, or ``source`` and ``target`` are the same.
    """
    if source == target:
        raise MigrateError(f"--from and --to name the same pod, {source}; name two different pods")
    zone = read_zone(api.get(resource_path(API, namespace, ZONES, name)))
    pool = read_pool(api.get(resource_path(API, namespace, POOLS, zone.pool)))
    pods = {pod.name: pod for pod in engine_pods(api, pool)}
    ready = [_ready(pods, pod, pool.name) for pod in (source, target)]
    source_engine, target_engine = engines_of(api, pool, ready)
    return Move(zone.tenant, source_engine, target_engine, rate, time.monotonic() + timeout, show)


def table(reports: Sequence[MigrationReport]) -> Iterator[str]:
    """Iterates over the lines of a table with the results of the engines' work."""
    rows = [
        [
            report.pod,
            _WORDS[report.work],
            f"{report.prompts_done}/{report.prompts_total}",
            str(report.moved),
            shown_bytes(report.moved_bytes),
            f"{report.seconds:.2f}",
            str(report.found),
            str(report.left),
            _percent(report),
        ]
        for report in reports
    ]
    yield from render(("ENGINE", "WORK", "PROMPTS", "MOVED", "BYTES", "SECONDS", "FOUND", "LEFT", "HIT%"), rows)


def _percent(report: MigrationReport) -> str:
    whole = report.found + report.left
    return f"{100 * report.found / whole:.1f}" if whole else "-"


def _ready(pods: dict[str, Pod], name: str, pool: str) -> Pod:
    pod = pods.get(name)
    if pod is None:
        raise MigrateError(f"pool {pool} has no engine {name}; its engines are: {', '.join(sorted(pods)) or 'none'}")
    if not pod.ready:
        raise MigrateError(f"engine {name} is not ready: {pod.trouble}")
    return pod


def _state(engine: Engine, report: MigrationReport) -> str:
    return (
        f"{engine.pod.name} {_WORDS[report.work]} {report.prompts_done} of {report.prompts_total} prompts: "
        f"{report.moved} chunks, {shown_bytes(report.moved_bytes)}, {report.seconds:.0f} s"
    )


def _exchange(
    engine: Engine, method: str, query: dict[str, str] | None = None, body: MigrationOrder | None = None
) -> MigrationReport:
    text = None if body is None else body.model_dump_json(by_alias=True)
    try:
        answer = engine.ask(method, MIGRATION_PATH, query or {}, text)
        return parse_migration(answer.text)
    except ApiError as error:
        if error.status in _NOT_THERE:
            raise MigrateError(
                f"engine {engine.pod.name} can't move zones, because it has no shared storages; start it with "
                "--manager-url"
            ) from None
        raise MigrateError(f"engine {engine.pod.name}: {error.message}") from None
    except ValueError:
        raise MigrateError(
            f"engine {engine.pod.name} sent a report that this version of the plugin can't parse"
        ) from None
