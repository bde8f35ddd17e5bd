"""Collects the facts for ``doctor`` from the API server and the engines, even if some requests are refused."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tenantzone_cli.api import Api, ApiError, Outcome, attempt
from tenantzone_cli.doctor.shipped import Right, Shipped, read_shipped
from tenantzone_cli.live import EngineAnswer, ask_engines, engine_pods
from tenantzone_cli.names import OPERATOR_SELECTOR
from tenantzone_cli.resources import Pod, Pool, Thing, Zone, read_pod, read_pool, read_thing, read_zone
from tenantzone_contract.kube_names import (
    API,
    GROUP,
    GROUPS,
    MANAGER,
    OPERATOR,
    POOLS,
    STORAGES,
    ZONES,
    config_map_name,
    resource_path,
)
from tenantzone_contract.zone_config.specs import Body

NOT_SERVED: Final = "PoolNotServed"
"""Reason of the condition Accepted of a pool that the operator lacks rights for."""

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Key = tuple[str, str]
"""Namespace and name of an object."""

ZONES_RIGHT = Right(GROUP, ZONES, "list")
POOLS_RIGHT = Right(GROUP, POOLS, "list")
PODS_RIGHT = Right("", "pods", "list")
REPORTS_RIGHT = Right("", "pods/proxy", "get")
CONFIG_RIGHT = Right("", "configmaps", "get")
USER_RIGHTS = (ZONES_RIGHT, POOLS_RIGHT, PODS_RIGHT, REPORTS_RIGHT, CONFIG_RIGHT)


@dataclass(frozen=True, slots=True)
class Clock:
    """Unix times of one request: by the API server's clock, and by this machine's clock before and after it."""

    server: float | None
    """The server's time in whole seconds; None if the response contains no time."""
    before: float
    """This machine's time before the request."""
    after: float
    """This machine's time after the response."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts of a cluster that ``doctor`` checks."""

    namespace: str | None
    """The namespace of the pools and zones to check; None for all namespaces."""
    operator_namespace: str
    shipped: Shipped
    server: str
    """The API server's version."""
    clock: Clock
    definitions: Mapping[str, Outcome[Body]]
    served: Outcome[Body]
    """The API server's list of the kinds in TenantZone's API group."""
    user_rights: Mapping[Right, Outcome[bool]]
    operator_rights: Mapping[Right, Outcome[bool]]
    deployment: Outcome[Body]
    operator_pods: Outcome[Sequence[Pod]]
    lease: Outcome[Body]
    zones: Outcome[Sequence[Zone]]
    pools: Outcome[Sequence[Pool]]
    configs: Mapping[Key, Outcome[Body]] = field(default_factory=dict)
    """The ConfigMap of each pool, by the pool's key."""
    pods: Mapping[Key, Outcome[Sequence[Pod]]] = field(default_factory=dict)
    """Pods that each pool selects, except for pods that an older pool of the namespace selects, by the pool's key."""
    answers: Sequence[EngineAnswer] = ()
    """The answers of all ready engines."""
    storages: Outcome[Sequence[Thing]] = ()
    groups: Outcome[Sequence[Thing]] = ()
    manager: Outcome[Body] = field(default_factory=dict)
    """The StatefulSet of the KV-cache manager."""

    @property
    def now(self) -> float:
        """Current Unix time by the API server's clock, as in objects' timestamps; this machine's time if unknown."""
        return self.clock.server if self.clock.server is not None else self.clock.after


def gather(api: Api, namespace: str | None, operator_namespace: str) -> Facts:
    """Request all facts that the checks need from the API server and the engines.

    Raises:
        ApiError: the API server refuses the request for its version.
        Unreachable: the API server does not answer.
    """
    shipped = read_shipped()
    before = time.time()
    version = api.ask("GET", "/version")
    clock = Clock(version.date, before, time.time())
    pools = attempt(_pools, api, namespace)
    known = pools if not isinstance(pools, ApiError) else []
    pods = _own_pods(known, {pool.key: attempt(engine_pods, api, pool) for pool in known})
    return Facts(
        namespace=namespace,
        operator_namespace=operator_namespace,
        shipped=shipped,
        server=version.json().get("gitVersion", ""),
        clock=clock,
        definitions={name: attempt(api.get, f"{_DEFINITIONS}/{name}") for name in shipped.definitions},
        served=attempt(api.get, API),
        user_rights={right: attempt(_may_user, api, right, namespace) for right in USER_RIGHTS},
        operator_rights={
            right: attempt(_may_operator, api, right, operator_namespace)
            for right in needed_rights(shipped.rights, filter(is_served, known), namespace, operator_namespace)
        },
        deployment=attempt(api.get, resource_path("/apis/apps/v1", operator_namespace, "deployments", OPERATOR)),
        operator_pods=attempt(_operator_pods, api, operator_namespace),
        lease=attempt(api.get, resource_path("/apis/coordination.k8s.io/v1", operator_namespace, "leases", OPERATOR)),
        zones=attempt(_zones, api, namespace),
        pools=pools,
        configs={pool.key: attempt(_config, api, pool) for pool in known},
        pods=pods,
        answers=ask_engines(api, [(pool, pod) for pool in known for pod in _ready(pods[pool.key])]),
        storages=attempt(_things, api, STORAGES),
        groups=attempt(_things, api, GROUPS),
        manager=attempt(api.get, resource_path("/apis/apps/v1", operator_namespace, "statefulsets", MANAGER)),
    )


def _own_pods(
    pools: Sequence[Pool], selected: Mapping[Key, Outcome[Sequence[Pod]]]
) -> Mapping[Key, Outcome[Sequence[Pod]]]:
    """Returns the pods that each pool selects, except for pods that an older pool of the namespace selects."""
    own: dict[Key, Outcome[Sequence[Pod]]] = {}
    taken: set[Key] = set()
    for pool in sorted(pools, key=lambda pool: pool.age_order):
        pods = selected[pool.key]
        own[pool.key] = (
            pods if isinstance(pods, ApiError) else [pod for pod in pods if (pod.namespace, pod.name) not in taken]
        )
        taken |= {(pod.namespace, pod.name) for pod in pods} if not isinstance(pods, ApiError) else set()
    return own


def _zones(api: Api, namespace: str | None) -> Sequence[Zone]:
    return [read_zone(body) for body in api.list(resource_path(API, namespace, ZONES))]


def _pools(api: Api, namespace: str | None) -> Sequence[Pool]:
    return [read_pool(body) for body in api.list(resource_path(API, namespace, POOLS))]


def _things(api: Api, plural: str) -> Sequence[Thing]:
    return [read_thing(body) for body in api.list(resource_path(API, None, plural))]


def _operator_pods(api: Api, namespace: str) -> Sequence[Pod]:
    pods = api.list(resource_path("/api/v1", namespace, "pods"), labelSelector=OPERATOR_SELECTOR)
    return [read_pod(body) for body in pods]


def _config(api: Api, pool: Pool) -> Body:
    found: Body = api.get(resource_path("/api/v1", pool.namespace, "configmaps", config_map_name(pool.name)))
    return found


def _ready(pods: Outcome[Sequence[Pod]]) -> list[Pod]:
    return [] if isinstance(pods, ApiError) else [pod for pod in pods if pod.ready]


def _may_user(api: Api, right: Right, namespace: str | None) -> bool:
    answer = api.review("SelfSubjectAccessReview", {"resourceAttributes": _attributes(right, namespace)})
    return bool(answer["allowed"])


def needed_rights(
    rights: Iterable[Right], pools: Iterable[Pool], namespace: str | None, operator_namespace: str
) -> Iterator[Right]:
    """Iterates over the rights that the operator needs for these pools, each with its namespace and object.

    Args:
        rights: the shipped rights, which name no pools.
        pools: the existing pools that the operator serves.
        namespace: the namespace to check; None for all namespaces.
        operator_namespace: the operator's own namespace.
    """
    for right in rights:
        if right.namespace is not None:
            yield replace(right, namespace=operator_namespace)
        elif right.group:
            yield replace(right, namespace=namespace)
        else:
            for pool in pools:
                is_named = right.resource == "configmaps" and right.verb != "create"
                name = config_map_name(pool.name) if is_named else None
                yield replace(right, namespace=pool.namespace, name=name)


def is_served(pool: Pool) -> bool:
    """Returns whether the operator serves the pool: whether the pool's status lacks the reason PoolNotServed."""
    accepted = pool.condition("Accepted")
    return accepted is None or accepted.reason != NOT_SERVED


def _may_operator(api: Api, right: Right, operator_namespace: str) -> bool:
    spec = {
        "user": f"system:serviceaccount:{operator_namespace}:{OPERATOR}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{operator_namespace}", "system:authenticated"],
        "resourceAttributes": _attributes(right, right.namespace),
    }
    return bool(api.review("SubjectAccessReview", spec)["allowed"])


def _attributes(right: Right, namespace: str | None) -> Body:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
    return attributes | {"namespace": namespace or "", "name": right.name or ""}
