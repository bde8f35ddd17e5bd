"""Pure functions that check the KV-cache manager, its storages and its groups.

These checks report nothing if the cluster has no storages and groups, and the operator has no manager.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tenantzone_cli.advice import storage_advice
from tenantzone_cli.api import ApiError
from tenantzone_cli.doctor.facts import Facts
from tenantzone_cli.doctor.finding import Finding, fail, name_some, ok, warn
from tenantzone_cli.resources import Thing
from tenantzone_contract.kube_names import MANAGER, OPERATOR

_FLAG = "--manager-url"
_INSTALL = "kubectl apply -k manifests/overlays/manager"


def check_manager(facts: Facts) -> Iterator[Finding]:
    """Check that an operator handles KVStorages and KVCacheGroups, and that the manager in its namespace runs."""
    subject = "KV-cache manager"
    declared = [*_listed(facts.storages), *_listed(facts.groups)]
    url = _manager_url(facts)
    if url is None:
        # Also check statuses, because an operator that does not run from the Deployment may have the flag.
        if declared and not any(thing.status for thing in declared):
            text = f"no operator handles the {len(declared)} KVStorages and KVCacheGroups"
            yield fail(subject, text, f"start {OPERATOR} with {_FLAG}=URL, for example: {_INSTALL}")
        return
    if isinstance(facts.manager, ApiError):
        if not facts.manager.is_not_found:
            yield warn(subject, f"the manager's StatefulSet can't be read: {facts.manager.message}")
        elif MANAGER in url:
            yield fail(subject, f"there is no StatefulSet {MANAGER} in namespace {facts.operator_namespace}", _INSTALL)
        else:
            yield ok(subject, f"the operator uses {url}")
        return
    wanted = facts.manager["spec"].get("replicas", 1)
    ready = facts.manager.get("status", {}).get("readyReplicas", 0)
    text = f"{ready} of {wanted} pods are ready"
    logs = f"kubectl -n {facts.operator_namespace} logs statefulset/{MANAGER}"
    if wanted and ready >= wanted:
        yield ok(subject, text)
    else:
        yield (warn if ready else fail)(subject, f"{text}, so engines find no stored blocks", logs)


def check_storages(facts: Facts) -> Iterator[Finding]:
    """Check that storages and groups can be used."""
    for what, kind, found in (("storages", "kvs", facts.storages), ("groups", "kvg", facts.groups)):
        if isinstance(found, ApiError):
            # Skip missing kinds, because the check of the CRDs reports them.
            if not found.is_not_found:
                yield warn(what, f"were not checked: {found.message}")
            continue
        yield from _ready_or_not(what, kind, found)


def _ready_or_not(what: str, kind: str, found: Sequence[Thing]) -> Iterator[Finding]:
    switched_off = [each for each in found if each.spec.get("enabled") is False]
    for each in found:
        if each.ready != "True" and each not in switched_off and each.status:
            ready, look = each.condition("Ready"), f"kubectl describe {kind} {each.name}"
            to_do = storage_advice(ready.reason, kind, each.name) if ready is not None else None
            level = fail if each.ready == "False" else warn
            yield level(f"{what} {each.name}", each.status.get("message", ""), to_do or look)
    well = [each.name for each in found if each.ready == "True"]
    if well:
        yield ok(what, f"{len(well)} of {len(found)} can be used: {name_some(well)}")
    if switched_off:
        yield ok(what, f"disabled by spec.enabled: {name_some([each.name for each in switched_off])}")


def _manager_url(facts: Facts) -> str | None:
    """Returns the manager's URL from the flags in the operator's Deployment; None if there is no such flag."""
    if isinstance(facts.deployment, ApiError):
        return None
    containers = facts.deployment["spec"].get("template", {}).get("spec", {}).get("containers", ())
    arguments = [argument for container in containers for argument in container.get("args") or ()]
    for argument, following in pairwise([*arguments, ""]):
        name, has_value, value = argument.partition("=")
        if name == _FLAG:
            return str(value if has_value else following)
    return None


def _listed(found: Sequence[Thing] | ApiError) -> Sequence[Thing]:
    return [] if isinstance(found, ApiError) else found
