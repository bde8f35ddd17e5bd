"""Lists the headers that can't name a tenant's user, because other code already reads them."""

from typing import Final

from tenantzone_contract.zone_config.identity import IdentityConfig

READ_BY_OTHERS: Final = frozenset(
    {
        "api-key",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
        "x-vllm-priority",
    }
)
"""Names of headers that servers, gateways, vLLM or the frontend read. The CRD's validation has the same list."""


def taken_by_identity(header: str, identity: IdentityConfig | None) -> str:
    """Returns the path of the pool's identity field that uses this header, or an empty string if no field does.

    These headers can't name users. With the header that contains the tenant's name, each tenant would be one user. The
    header that contains the gateway's secret is removed before users are identified.

    Args:
        header: the header's name in lower case.
        identity: how the pool's engines identify tenants.
    """
    trusted = None if identity is None else identity.trusted_header
    if trusted is None:
        return ""
    if trusted.name.lower() == header:
        return "identity.trustedHeader.name"
    secret = None if trusted.proof is None else trusted.proof.secret_header
    if secret is not None and secret.name.lower() == header:
        return "identity.trustedHeader.proof.secretHeader.name"
    return ""
