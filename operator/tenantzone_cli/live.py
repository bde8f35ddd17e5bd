"""Reads the engines' reports through the API server's proxy for pods.

Reading requires the right to ``get`` ``pods/proxy``, which allows any request to any pod in the namespace. So the
plugin reads reports only for facts that no status contains, or if the user has requested live data.

The API server refuses to proxy to loopback addresses, which kubelet never assigns. A pod with such an address is a
process on this machine, as in the playground, so the plugin connects to the process directly.

Engines require the pool's token. The plugin reads the token from the pool's Secret, with the user's rights.
"""

import base64
import binascii
import http.client
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlencode

from tenantzone_cli.api import TIMEOUT_SECONDS, Answer, Api, ApiError, Unreachable, exchange
from tenantzone_cli.resources import Pod, Pool, read_pod, read_pool
from tenantzone_contract.keys.admin_token import ADMIN_TOKEN_HEADER, TOKEN_FILE, admin_secret_name
from tenantzone_contract.kube_names import API, POOLS, resource_path
from tenantzone_contract.reports.report import REPORT_PATH, EngineReport, LoanReport, parse_report
from tenantzone_contract.reports.zone_report import ZoneReport

_AT_ONCE = 16
_UNAUTHORIZED = 401
_REFUSED = 300
_ANSWER_BYTES = 2**24
"""Maximum size of an answer in bytes, which limits the memory per answer, because any program may run in a pod."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """An engine's report, or the reason why no report is available."""

    pool: tuple[str, str]
    """The pool's namespace and name."""
    pod: str
    report: EngineReport | None
    error: str = ""
    is_forbidden: bool = False
    asked_at: float | None = None
    """Unix time of the request by the API server's clock, in whole seconds; None if unknown."""

    def zone(self, name: str) -> ZoneReport | None:
        """Returns the engine's report on the TenantZone of this name; None if the engine reports no such zone."""
        # Skip auto-registered zones: they are named after tenants, and this TenantZone may belong to another tenant.
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
    """Returns the pods that the pool selects.

    Raises:
        ApiError: the user may not list pods.
        Unreachable: the API server does not answer.
    """
    pods = api.list(f"/api/v1/namespaces/{pool.namespace}/pods", labelSelector=pool.selector)
    return [read_pod(body) for body in pods]


def own_engine_pods(api: Api, pool: Pool) -> Sequence[Pod]:
    """Returns the pods that the pool selects, except for pods that an older pool of the namespace selects.

    Raises:
        ApiError: the user may not list pods or pools.
        Unreachable: the API server does not answer.
    """
    pods = engine_pods(api, pool)
    if not pool.is_("SelectorOverlaps"):
        return pods
    pools = [read_pool(body) for body in api.list(resource_path(API, pool.namespace, POOLS))]
    older = [other for other in pools if other.age_order < pool.age_order]
    taken = {pod.name for other in older for pod in engine_pods(api, other)}
    return [pod for pod in pods if pod.name not in taken]


def ask_engines(api: Api, engines: Sequence[tuple[Pool, Pod]]) -> list[EngineAnswer]:
    """Request reports from several engines concurrently, and return the answers in the engines' order."""
    tokens: dict[tuple[str, str], _Token] = {}
    for pool, _ in engines:
        if pool.key not in tokens:
            tokens[pool.key] = _token(api, pool)
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        return list(threads.map(lambda engine: _ask(api, engine[0], engine[1], tokens[engine[0].key]), engines))


def ask_pools(api: Api, pools: Sequence[Pool]) -> list[EngineAnswer]:
    """Request the reports of the pools' ready engines.

    Raises:
        ApiError: the user may not list pods.
        Unreachable: the API server does not answer.
    """
    engines: dict[tuple[str, str], tuple[Pool, Pod]] = {}
    # A pod that two pools select belongs to the older pool.
    for pool in sorted(pools, key=lambda pool: pool.age_order):
        for pod in engine_pods(api, pool):
            if pod.ready:
                engines.setdefault((pod.namespace, pod.name), (pool, pod))
    return ask_engines(api, list(engines.values()))


@dataclass(frozen=True, slots=True)
class _Token:
    """The token of a pool's engines, or the reason why no token is available."""

    text: str
    """The token; empty if it is not available."""
    missing: str = ""
    """Why the token is not available; empty if it is available."""

    @property
    def headers(self) -> dict[str, str]:
        # Use another header, because the API server's proxy does not pass on `Authorization`.
        return {ADMIN_TOKEN_HEADER: self.text} if self.text else {}


def _token(api: Api, pool: Pool) -> _Token:
    """Returns the pool's token, or why it is missing. Engines that require no token answer even without it."""
    name = admin_secret_name(pool.name)
    secret = f"the Secret {pool.namespace}/{name}"
    try:
        data = api.get(resource_path("/api/v1", pool.namespace, "secrets", name)).get("data") or {}
        return _Token(base64.b64decode(data[TOKEN_FILE], validate=True).decode("ascii").strip())
    except ApiError as error:
        if error.is_forbidden:
            return _Token("", f"its admin port requires the token in {secret}, which you may not get")
        if error.is_not_found:
            return _Token("", f"its admin port requires the token in {secret}, which does not exist")
        return _Token("", f"its admin port requires the token in {secret}, which can't be read: {error.message}")
    except Unreachable as error:
        return _Token("", f"its admin port requires the token in {secret}, which can't be read: {error}")
    except (KeyError, binascii.Error, UnicodeDecodeError):
        return _Token("", f"its admin port requires the token in {secret}, which has no valid value for {TOKEN_FILE}")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine's admin port, with the pool's token."""

    api: Api
    pool: Pool
    pod: Pod
    token: _Token

    def ask(
        self, method: str, path: str, query: Mapping[str, str] = MappingProxyType({}), body: str | None = None
    ) -> Answer:
        """Send a request to the admin port, and return the response.

        Raises:
            ApiError: the engine or the API server refuses the request.
            Unreachable: the engine or the API server does not answer.
        """
        try:
            if self.pod.is_local_process:
                return self._from_here(method, path, query, body)
            return self._through_api_server(method, path, query, body)
        except ApiError as error:
            # A refusal with status 401 comes from the engine: the API server has already let the user read the pool.
            raise ApiError(error.status, self.token.missing) if self._lacks_token(error) else error from None

    def _lacks_token(self, error: ApiError) -> bool:
        return error.status == _UNAUTHORIZED and bool(self.token.missing)

    def _through_api_server(self, method: str, path: str, query: Mapping[str, str], body: str | None) -> Answer:
        pod, headers = self.pod, self.token.headers
        target = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}:{self.pool.admin_port}/proxy{path}"
        return self.api.ask(method, target, query, body, max_bytes=_ANSWER_BYTES, headers=headers)

    def _from_here(self, method: str, path: str, query: Mapping[str, str], body: str | None) -> Answer:
        ip, port = self.pod.ip, self.pool.admin_port
        engine = http.client.HTTPConnection(ip, port, timeout=TIMEOUT_SECONDS)
        target = path + (f"?{urlencode(query)}" if query else "")
        try:
            answer = exchange(engine, method, target, body, headers=self.token.headers, max_bytes=_ANSWER_BYTES)
        except Unreachable as error:
            raise Unreachable(f"{ip}:{port} on this machine: {error}") from None
        if answer.status >= _REFUSED:
            raise ApiError(answer.status, answer.text.decode(errors="replace").strip())
        return answer


def engines_of(api: Api, pool: Pool, pods: Sequence[Pod]) -> list[Engine]:
    """Returns the admin ports of a pool's pods."""
    token = _token(api, pool)
    return [Engine(api, pool, pod, token) for pod in pods]


def _ask(api: Api, pool: Pool, pod: Pod, token: _Token) -> EngineAnswer:
    try:
        answer = Engine(api, pool, pod, token).ask("GET", REPORT_PATH)
    except ApiError as error:
        if error.status == _UNAUTHORIZED:
            return EngineAnswer(pool.key, pod.name, None, error.message)
        return EngineAnswer(pool.key, pod.name, None, error.message, error.is_forbidden)
    except Unreachable as error:
        return EngineAnswer(pool.key, pod.name, None, str(error))
    try:
        return EngineAnswer(pool.key, pod.name, parse_report(answer.text), asked_at=answer.date)
    except ValueError:
        return EngineAnswer(pool.key, pod.name, None, "its answer is not a report that this version can parse")
