"""Pure function for the condition about engines' admin ports, which must require and accept the operator's token."""

from collections.abc import Sequence

from tenantzone_contract.keys.admin_token import admin_secret_name
from tenantzone_operator.engines.observation import Observation
from tenantzone_operator.kube.conditions import Condition, Reason, Type, name_some

_FOLDER = "/etc/tenantzone/admin"


def admin_port_not_secured(pool: str, observations: Sequence[Observation], not_made: str) -> list[Condition]:
    """Returns a list with the condition that names engines that refuse the operator or require no token.

    The list is empty if there are no such engines.

    Args:
        pool: the pool's name.
        observations: one observation for each ready engine of the pool.
        not_made: why the Secret with the token can't be created; empty if nothing prevents it.
    """
    secret = admin_secret_name(pool)
    reported = {seen.pod: seen.report for seen in observations if seen.report is not None}
    refusing = [seen.pod for seen in observations if seen.refuses]
    broken = [f"{pod}: {report.admin_error}" for pod, report in reported.items() if report.admin_error]
    are_open = [pod for pod, report in reported.items() if report.admin_is_open]
    found: list[tuple[Reason, str]] = []
    if not_made and (refusing or broken or not observations):
        found.append((Reason.SECRET_NOT_MADE, f"the Secret {secret} can't be created: {not_made}"))
    if refusing:
        advice = (
            f"mount the Secret {secret} at {_FOLDER}; if it is mounted, delete it, and the operator creates it again"
        )
        found.append((Reason.TOKEN_REFUSED, f"engines refuse the operator's token: {name_some(refusing)}; {advice}"))
    if broken:
        kept = f"engines do not use the mounted files of the Secret {secret}, and keep their previous tokens"
        found.append((Reason.TOKENS_BROKEN, f"{kept}: {name_some(broken)}"))
    if are_open:
        advice = f"mount the Secret {secret} at {_FOLDER} and start them without --admin-open"
        message = f"any client of their admin ports can read the usage of all tenants: {name_some(are_open)}; {advice}"
        found.append((Reason.ADMIN_PORT_OPEN, message))
    if not found:
        return []
    message = "; ".join(message for _, message in found)
    return [Condition(Type.ADMIN_PORT_NOT_SECURED, "True", found[0][0], message)]
