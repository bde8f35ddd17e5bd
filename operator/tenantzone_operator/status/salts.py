"""Pure function for the condition that says whether a pool's engines use the same salt key."""

from collections.abc import Sequence

from tenantzone_contract.keys.salt import salt_secret_name
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Condition, Reason, Type, name_some

_MOUNT = "mount it at /etc/tenantzone/salt"


def salt_not_shared(pool: str, observations: Sequence[Observation], not_made: str) -> list[Condition]:
    """Returns a list with the condition that says why engines hash equal prompts differently; empty if they do not.

    The hashes of an engine without the pool's key also change when the engine restarts.

    Args:
        pool: the pool's name.
        observations: one observation for each ready engine of the pool.
        not_made: why the Secret can't be created; empty if nothing prevents it.
    """
    secret = salt_secret_name(pool)
    reported = {seen.pod: seen.report for seen in observations if seen.report is not None}
    refused = [f"{pod}: {report.salt_key_error}" for pod, report in reported.items() if report.salt_key_error]
    keyless = [pod for pod, report in reported.items() if not report.salt_key_id and not report.salt_key_error]
    ids = {pod: report.salt_key_id for pod, report in reported.items() if report.salt_key_id}
    found: list[tuple[Reason, str]] = []
    if not_made and not (ids and not refused and not keyless):
        found.append((Reason.SECRET_NOT_MADE, f"the Secret {secret} can't be created: {not_made}"))
    if refused:
        found.append((Reason.SALT_KEY_REFUSED, f"engines reject the key in the Secret {secret}: {name_some(refused)}"))
    if keyless:
        found.append((Reason.NO_SALT_KEY, f"engines lack the Secret {secret}, {_MOUNT}: {name_some(keyless)}"))
    if len(set(ids.values())) > 1:
        named = name_some([f"{pod} has {key_id}" for pod, key_id in ids.items()])
        found.append((Reason.SALT_KEYS_DIFFER, f"engines have different keys: {named}"))
    if not found:
        return []
    return [Condition(Type.SALT_NOT_SHARED, "True", found[0][0], "; ".join(message for _, message in found))]
