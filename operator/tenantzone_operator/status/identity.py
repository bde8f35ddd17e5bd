"""Pure functions for the condition that says whether engines identify tenants as the pool's spec declares."""

from collections.abc import Sequence

from tenantzone_contract.zone_config.identity import IdentityConfig, identity_digest
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Condition, Reason, Status, Type


def identity_enforced(
    declared: IdentityConfig | None, observations: Sequence[Observation], unwatched: Sequence[str] = ()
) -> Condition:
    """Returns the condition that says whether engines identify tenants as the pool's spec declares.

    Args:
        declared: ``spec.identity`` of the pool; None means API keys.
        observations: one observation for each ready engine of the pool.
        unwatched: the Secrets that the pool's pods mount but the operator can't watch.
    """

    def condition(status: Status, reason: Reason, message: str) -> Condition:
        return Condition(Type.IDENTITY_ENFORCED, status, reason, f"{words(declared)}; {message}")

    if declared is not None and declared.gap:
        return condition("False", Reason.IDENTITY_INCOMPLETE, f"no request is served: {declared.gap}")
    if not observations:
        return condition("Unknown", Reason.NO_ENGINES, "no engine is ready")
    wanted = identity_digest(declared)
    for seen in observations:
        if seen.report is not None and seen.report.identity == wanted and seen.report.identity_problem:
            problem = f"{seen.pod} serves no request: {seen.report.identity_problem}"
            return condition("False", Reason.IDENTITY_UNUSABLE, problem)
    waiting = [seen.pod for seen in observations if seen.report is None or seen.report.identity != wanted]
    total = f"{len(observations)} engine{'s' if len(observations) > 1 else ''}"
    if waiting:
        done = len(observations) - len(waiting)
        return condition("Unknown", Reason.PENDING, f"acknowledged by {done} of {total}; waiting for {waiting[0]}")
    return condition("True", Reason.ACKNOWLEDGED, f"acknowledged by {total}{_pace(unwatched)}")


def _pace(unwatched: Sequence[str]) -> str:
    """Returns a clause about Secrets that the operator can't watch for changes; empty if there are none."""
    if not unwatched:
        return ""
    more = f" and {len(unwatched) - 1} more" if len(unwatched) > 1 else ""
    return (
        f"; changes of the Secret {unwatched[0]}{more} take effect only at kubelet's next periodic sync, because the "
        "operator may not watch it"
    )


def words(declared: IdentityConfig | None) -> str:
    """Returns a phrase that says how engines identify tenants."""
    if declared is not None and declared.jwt is not None:
        return f"JWT: tokens of {declared.jwt.issuer}"
    header = declared.trusted_header if declared is not None else None
    if header is None:
        return "APIKeys: keys that the pods mount"
    if header.proof is None:
        return f"TrustedHeader: {header.name}, without any proof"
    secret = header.proof.secret_header
    proof = f"the secret in {secret.name}" if secret is not None else "a client certificate"
    return f"TrustedHeader: {header.name}, proved by {proof}"
