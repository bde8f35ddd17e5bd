"""Identifies tenants by a header. It is trusted only with a proof that the request comes from the gateway."""

from ipaddress import ip_address, ip_network
from pathlib import Path

from tenantzone_contract.zone_config.identity import TrustedHeader
from tenantzone_runtime.frontend.identities.asking import check_tenant_name, only_header, unauthorized, unusable
from tenantzone_runtime.frontend.identities.proofs import make_proof
from tenantzone_runtime.frontend.responses.answers import Scope
from tenantzone_runtime.frontend.transport.peer import peer_address


class HeaderIdentity:
    """Identifies tenants by a header that the gateway sets.

    Args:
        declared: the pool's ``identity.trustedHeader``.
        folder: the folder of the mounted secret or certificates that prove that requests come from the gateway.
    """

    def __init__(self, declared: TrustedHeader, folder: Path) -> None:
        self._header = declared.name.lower().encode()
        self._networks = tuple(ip_network(network, strict=False) for network in declared.networks)
        self._proof = make_proof(declared.proof, folder) if declared.proof is not None else None
        secret = declared.proof.secret_header if declared.proof is not None else None
        self.secret_headers = frozenset({secret.name.lower().encode()} if secret is not None else ())

    @property
    def problem(self) -> str:
        return self._proof.problem if self._proof is not None else "trustedHeader has no proof"

    def refresh(self) -> None:
        if self._proof is not None:
            self._proof.refresh()

    def tenant_of(self, scope: Scope) -> str:
        """Returns the tenant named by the gateway's header; see `Identity`."""
        if self._proof is None:
            raise unusable()
        self._proof.check(scope)
        if not self._is_from_gateway(scope):
            raise unauthorized(
                "wrong_proof", "The request did not come from a network of this server's gateways; send it to a gateway"
            )
        name = only_header(scope["headers"], self._header)
        if not name:
            raise unauthorized("no_tenant", f"The gateway did not name a tenant in the header {self._header.decode()}")
        return check_tenant_name(name.decode("latin-1"))

    def _is_from_gateway(self, scope: Scope) -> bool:
        if not self._networks:
            return True
        try:
            address = ip_address(peer_address(scope) or "")
        except ValueError:
            return False
        # Convert an IPv4-mapped IPv6 address, because a dual-stack socket reports IPv4 addresses in this form.
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)
