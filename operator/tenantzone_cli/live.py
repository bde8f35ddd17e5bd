"""The engines' own reports, through the API server's proxy to their pods.

That needs the right to ``get`` ``pods/proxy``, which lets its holder ask anything of any pod in the namespace. So only
what no status tells is read this way, or what the user has asked for.

No API server proxies to a pod whose address is one of loopback. Kubelet gives none such; where a process stands behind
the pod, as in the playground, it does so on this machine, and is asked there.
"""

import http.client
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tenantzone_cli.api import TIMEOUT_SECONDS, Answer, Api, ApiError, Unreachable, exchange
from tenantzone_cli.resources import Pod, Pool, read_pod
from tenantzone_contract.report import REPORT_PATH, EngineReport, LoanReport, ZoneReport, parse_report

_AT_ONCE = 16
_REPORT_BYTES = 2**24
"""More than any engine has to say; whatever runs in a pod, so many answers are in memory at a time."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An engine's answer to the plugin: its report, or why there is none."""

    pool: tuple[str, str]
    """Namespace and name."""
    pod: str
    report: EngineReport | None
    error: str = ""
    is_forbidden: bool = False
    asked_at: float | None = None
    """Unix time at the API server, whole seconds."""

    def zone(self, name: str) -> ZoneReport | None:
        """The engine's report of the zone that the TenantZone with this name declares; None if it has none."""
        # A zone that it made by itself is named after its tenant, and a TenantZone of that name may be another's.
        zones = self.report.zones if self.report is not None else ()
        return next((zone for zone in zones if zone.name == name and not zone.auto_registered), None)

    def lent_by(self, tenant: str) -> Sequence[LoanReport]:
        return [loan for loan in self._loans if loan.lender == tenant]

    def borrowed_by(self, tenant: str) -> Sequence[LoanReport]:
        return [loan for loan in self._loans if loan.borrower == tenant]

    @property
    def _loans(self) -> Sequence[LoanReport]:
        return self.report.loans if self.report is not None else ()


def engine_pods(api: Api, pool: Pool) -> Sequence[Pod]:
    """The pods that the pool selects.

    Raises:
        ApiError: the user may not list pods.
        Unreachable: the API server does not answer.
    """
    pods = api.list(f"/api/v1/namespaces/{pool.namespace}/pods", labelSelector=pool.selector)
    return [read_pod(body) for body in pods]


def ask_engines(api: Api, engines: Sequence[tuple[Pool, Pod]]) -> list[EngineAnswer]:
    """Ask these engines for their reports, several at a time; the answers are in the engines' order."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        return list(threads.map(lambda engine: _ask(api, *engine), engines))


def ask_pools(api: Api, pools: Sequence[Pool]) -> list[EngineAnswer]:
    """Ask all ready engines of these pools for their reports.

    Raises:
        ApiError: the user may not list pods.
        Unreachable: the API server does not answer.
    """
    engines: dict[tuple[str, str], tuple[Pool, Pod]] = {}
    # A pod that two pools select belongs to the older.
    for pool in sorted(pools, key=lambda pool: (pool.created or 0.0, pool.name)):
        for pod in engine_pods(api, pool):
            if pod.ready:
                engines.setdefault((pod.namespace, pod.name), (pool, pod))
    return ask_engines(api, list(engines.values()))


def _ask(api: Api, pool: Pool, pod: Pod) -> EngineAnswer:
    try:
        answer = _from_here(pool, pod) if pod.is_local_process else _through_api_server(api, pool, pod)
    except ApiError as error:
        return EngineAnswer(pool.key, pod.name, None, error.message, error.is_forbidden)
    except Unreachable as error:
        return EngineAnswer(pool.key, pod.name, None, str(error))
    try:
        return EngineAnswer(pool.key, pod.name, parse_report(answer.text), asked_at=answer.date)
    except ValueError:
        return EngineAnswer(pool.key, pod.name, None, "what it sends is not a report that this version understands")


def _through_api_server(api: Api, pool: Pool, pod: Pod) -> Answer:
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}:{pool.admin_port}/proxy{REPORT_PATH}"
    return api.ask("GET", path, max_bytes=_REPORT_BYTES)


def _from_here(pool: Pool, pod: Pod) -> Answer:
    engine = http.client.HTTPConnection(pod.ip, pool.admin_port, timeout=TIMEOUT_SECONDS)
    try:
        return exchange(engine, "GET", REPORT_PATH, max_bytes=_REPORT_BYTES)
    except Unreachable as error:
        raise Unreachable(f"{pod.ip}:{pool.admin_port} on this machine: {error}") from None
