"""Runs all checks of ``doctor``. Checks that may find causes run before checks that find their effects."""

from tenantzone_cli.api import Api, ApiError, Unreachable
from tenantzone_cli.doctor.cluster_checks import (
    check_clock,
    check_definitions,
    check_leader,
    check_operator,
    check_operator_rights,
    check_user,
)
from tenantzone_cli.doctor.facts import Facts, gather
from tenantzone_cli.doctor.finding import Finding, fail, ok
from tenantzone_cli.doctor.pool_checks import check_pools, check_zones
from tenantzone_cli.doctor.storage_checks import check_manager, check_storages

_CHECKS = (
    check_clock,
    check_definitions,
    check_user,
    check_operator,
    check_leader,
    check_operator_rights,
    check_pools,
    check_zones,
    check_manager,
    check_storages,
)


def diagnose(facts: Facts) -> list[Finding]:
    """Returns the findings of all checks of the collected facts."""
    return [ok("API server", f"answers, {facts.server}"), *(found for check in _CHECKS for found in check(facts))]


def examine(api: Api, namespace: str | None, operator_namespace: str) -> list[Finding]:
    """Collect all facts of the cluster, and return the findings. An API server that does not answer is a finding."""
    try:
        return diagnose(gather(api, namespace, operator_namespace))
    except Unreachable as error:
        advice = "check that kubectl version works; the context of the kubeconfig has the server's URL"
        return [fail("API server", f"does not answer: {error}", advice)]
    except ApiError as error:
        return [fail("API server", f"refuses: {error.message}", "check that kubectl auth whoami works")]
