"""Pure functions that check the CRDs, the RBAC rights, the operator and this machine's clock."""

from collections.abc import Iterator, Sequence

from tenantzone_cli.api import ApiError
from tenantzone_cli.doctor.facts import (
    CONFIG_RIGHT,
    PODS_RIGHT,
    POOLS_RIGHT,
    REPORTS_RIGHT,
    ZONES_RIGHT,
    Facts,
)
from tenantzone_cli.doctor.finding import Finding, fail, name_some, ok, warn
from tenantzone_cli.doctor.shipped import differences, field_path
from tenantzone_cli.resources import Pod, unix_time
from tenantzone_cli.table import duration
from tenantzone_contract.kube_names import GROUP, OPERATOR, VERSION
from tenantzone_contract.zone_config.specs import Body

SKEW_SECONDS = 5.0
_LEASE_SECONDS = 15.0
"""Duration in seconds that the check assumes if a Lease contains no duration."""
_LONGEST_LEASE_SECONDS = 4 * _LEASE_SECONDS
"""Maximum duration of a Lease in seconds that standby operators respect. A longer one was edited by hand."""
_INSTALL_CRDS = "kubectl apply --server-side -f crds/"
_INSTALL_OPERATOR = "kubectl apply -k manifests"
_PROCESS = f"use this for experiments only, because nothing restarts the process; in a cluster: {_INSTALL_OPERATOR}"
_LOST_WITHOUT = {
    POOLS_RIGHT: "pools are not checked",
    PODS_RIGHT: "engines are not checked",
    REPORTS_RIGHT: "loans are not shown, engines' clocks and configs are not checked, and top uses the status",
    CONFIG_RIGHT: "configs are not checked",
}


def check_definitions(facts: Facts) -> Iterator[Finding]:
    """Check that each CRD is installed and established, and has the schema that this version ships."""
    for name, found in facts.definitions.items():
        subject = f"CRD {name.partition('.')[0]}"
        if not isinstance(found, ApiError):
            yield _compared(facts, name, subject, found)
        elif found.is_forbidden:
            yield _by_discovery(facts, name, subject)
        elif found.is_not_found:
            yield fail(subject, "is not installed", _INSTALL_CRDS)
        else:
            yield fail(subject, f"can't be read: {found.message}")


def _compared(facts: Facts, name: str, subject: str, found: Body) -> Finding:
    established = {entry["type"]: entry["status"] for entry in found.get("status", {}).get("conditions", [])}
    if established.get("Established") != "True":
        return fail(subject, "is installed, but not established", f"kubectl describe crd {name}")
    served = {version["name"]: version for version in found["spec"]["versions"] if version["served"]}
    for version, schema in facts.shipped.definitions[name].items():
        if version not in served:
            return fail(subject, f"does not serve version {version}", _INSTALL_CRDS)
        unlike = list(differences(schema, served[version]["schema"]["openAPIV3Schema"]))
        lacking = [field_path(entry.path) for entry in unlike if entry.is_missing]
        if lacking:
            text = f"is of an older version without {name_some(lacking)}, so the API server drops their values"
            return fail(subject, text, _INSTALL_CRDS)
        if unlike:
            paths = [field_path(entry.path) for entry in unlike]
            text = f"differs from the CRD of this version at {name_some(paths)}"
            return warn(subject, text, f"use the plugin and the CRDs of one version; {_INSTALL_CRDS}")
    return ok(subject, f"installed, {', '.join(facts.shipped.definitions[name])}, same as in this version")


def _by_discovery(facts: Facts, name: str, subject: str) -> Finding:
    if isinstance(facts.served, ApiError):
        return fail(subject, f"the API server does not serve {GROUP}/{VERSION}", _INSTALL_CRDS)
    if name.partition(".")[0] not in [entry["name"] for entry in facts.served.get("resources", [])]:
        return fail(subject, "is not installed", _INSTALL_CRDS)
    return warn(
        subject,
        "is installed; its schema was not compared, which requires the right to get customresourcedefinitions",
    )


def check_user(facts: Facts) -> Iterator[Finding]:
    """Check that the user may read the objects that the plugin shows."""
    denied = [right for right, may in facts.user_rights.items() if may is False]
    where = f"in namespace {facts.namespace}" if facts.namespace is not None else "in all namespaces"
    if ZONES_RIGHT in denied:
        advice = f"ask for a role with the right to {ZONES_RIGHT}, or set another namespace with -n"
        yield fail("your rights", f"you may not {ZONES_RIGHT} {where}", advice)
    for right in denied:
        if right in _LOST_WITHOUT:
            yield warn("your rights", f"you may not {right} {where}: {_LOST_WITHOUT[right]}")
    if not denied:
        yield ok("your rights", f"you may read everything that is checked {where}")


def check_operator_rights(facts: Facts) -> Iterator[Finding]:
    """Check that the operator's service account has the rights that the operator needs."""
    subject = "operator's rights"
    refusals = [may for may in facts.operator_rights.values() if isinstance(may, ApiError)]
    if refusals:
        yield warn(subject, f"were not checked: {refusals[0].message}", "run this as a user who may review access")
        return
    denied = list(dict.fromkeys(str(right) for right, may in facts.operator_rights.items() if not may))
    if denied:
        text = f"service account {OPERATOR} in {facts.operator_namespace} may not {name_some(denied)}"
        if _leads_without_deployment(facts):
            yield warn(subject, f"{text}; the identity of the leading process is unknown", _PROCESS)
        else:
            yield fail(subject, text, f"{_INSTALL_OPERATOR}, or restore its role binding")
    else:
        yield ok(subject, f"all {len(facts.operator_rights)} required rights are granted")


def check_operator(facts: Facts) -> Iterator[Finding]:
    """Check that the operator's Deployment exists, and that all pods of the Deployment are ready."""
    subject = "operator"
    if _leads_without_deployment(facts):
        yield warn(subject, f"runs as a process without a Deployment in namespace {facts.operator_namespace}", _PROCESS)
        return
    if isinstance(facts.deployment, ApiError):
        if facts.deployment.is_not_found:
            where = f"Deployment {OPERATOR} in namespace {facts.operator_namespace}"
            yield fail(
                subject, f"there is no {where}", f"{_INSTALL_OPERATOR}, or set its namespace with --operator-namespace"
            )
        else:
            yield warn(subject, f"its Deployment can't be read: {facts.deployment.message}")
        return
    wanted = facts.deployment["spec"].get("replicas", 1)
    ready = facts.deployment.get("status", {}).get("readyReplicas", 0)
    if not wanted:
        yield fail(
            subject, "is scaled to 0", f"kubectl -n {facts.operator_namespace} scale deploy/{OPERATOR} --replicas=2"
        )
    elif ready >= wanted:
        yield ok(subject, f"{ready} of {wanted} pods are ready")
    else:
        pods = facts.operator_pods if not isinstance(facts.operator_pods, ApiError) else []
        say = warn if ready else fail
        advice = f"kubectl -n {facts.operator_namespace} describe pods; kubectl -n {facts.operator_namespace} logs"
        yield say(subject, f"{ready} of {wanted} pods are ready{_troubles(pods)}", f"{advice} deploy/{OPERATOR}")


def _troubles(pods: Sequence[Pod]) -> str:
    troubles = [f"{pod.name}: {pod.trouble}" for pod in pods if not pod.ready]
    return f" ({name_some(troubles)})" if troubles else ""


def check_leader(facts: Facts) -> Iterator[Finding]:
    """Check that an operator holds the Lease, and renews it in time."""
    subject = "leader"
    if isinstance(facts.lease, ApiError):
        if facts.lease.is_not_found:
            yield fail(subject, f"there is no Lease {OPERATOR}, so no operator has led yet", "see the operator's log")
        else:
            yield warn(subject, f"the Lease can't be read: {facts.lease.message}")
        return
    holder, age, lasts = _holder(facts.lease), _age(facts, facts.lease), _lasts(facts.lease)
    if not holder:
        yield fail(subject, "no operator leads: the last leader has released the Lease", "check that an operator runs")
    elif not _is_led(facts):
        advice = "the leader has stopped, and no other operator leads; check that an operator runs, and see its log"
        yield fail(
            subject, f"{holder} has not renewed the Lease for {duration(age)}; the Lease lasts {lasts:.0f}s", advice
        )
    else:
        yield ok(subject, f"{holder}, renewed {duration(age)} ago")


def _is_led(facts: Facts) -> bool:
    """Returns whether an operator holds the Lease now. Assumes that its clock agrees with the API server's."""
    if isinstance(facts.lease, ApiError):
        return False
    return bool(_holder(facts.lease)) and _age(facts, facts.lease) <= _lasts(facts.lease)


def _leads_without_deployment(facts: Facts) -> bool:
    return isinstance(facts.deployment, ApiError) and facts.deployment.is_not_found and _is_led(facts)


def _holder(lease: Body) -> str:
    """Returns the identity of the Lease's holder; empty if the Lease has no holder."""
    return (lease["spec"].get("renewTime") and lease["spec"].get("holderIdentity")) or ""


def _lasts(lease: Body) -> float:
    return min(float(lease["spec"].get("leaseDurationSeconds") or _LEASE_SECONDS), _LONGEST_LEASE_SECONDS)


def _age(facts: Facts, lease: Body) -> float:
    """Returns the seconds since the Lease was renewed. The time of the renewal is by the leader's clock."""
    renewed = unix_time(lease["spec"].get("renewTime"))
    return max(0.0, facts.now - renewed) if renewed is not None else 0.0


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Check that this machine's clock agrees with the API server's."""
    clock = facts.clock
    if clock.server is None:
        yield warn("clock", "the API server's response has no time, so clocks were not compared")
        return
    # The server's time is rounded down to whole seconds, and lies between the request and the response.
    ahead = clock.before - (clock.server + 1)
    behind = clock.server - clock.after
    skew = max(ahead, behind)
    if skew > SKEW_SECONDS:
        which = "ahead of" if ahead > behind else "behind"
        text = f"this machine's clock is {duration(skew)} {which} the API server's"
        yield warn(
            "clock",
            f"{text}; the ages shown here use the API server's clock",
            "set this machine's clock, for example with NTP",
        )
    else:
        yield ok("clock", f"this machine's clock is within {SKEW_SECONDS:.0f}s of the API server's")
