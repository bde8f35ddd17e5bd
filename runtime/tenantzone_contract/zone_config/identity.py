"""Configures how a pool's engines identify the tenant of a request. There is exactly one method, and no fallback."""

import hashlib
from ipaddress import ip_network
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

IdentityKind = Literal["APIKeys", "TrustedHeader", "JWT"]

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signature algorithms of tokens. All are asymmetric, so that an engine that verifies tokens can't forge tokens."""

MAX_LEEWAY_SECONDS: Final = 300.0

SECRET_FILE: Final = "secret"
"""Name of the file with the accepted values of the gateway's secret header, one per line, in the mounted folder."""
CA_FILE: Final = "ca.crt"
"""Name of the file, in PEM, with the certificates of the CAs that issue the gateways' client certificates."""
JWKS_FILE: Final = "jwks.json"
"""Name of the file with the public keys that verify tokens, as a JSON Web Key Set."""

SECRETS_HASH_ANNOTATION = "tenantzone.io/secrets-hash"
"""Annotation on engine pods. The operator changes the annotation when a mounted Secret has changed.

Then kubelet syncs the pod's volumes at once.
"""

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=128)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class ApiKeys(_Model):
    """Tenants send API keys. The accepted keys are mounted into the engine pods."""


class SecretHeader(_Model):
    """A header that proves that a request comes from the gateway, because only the gateway knows the header's value."""

    name: HeaderName


class ClientCertificate(_Model):
    """A client certificate of the gateway, which the engine's TLS server requests."""

    subjects: Annotated[tuple[Text, ...], Field(min_length=1, max_length=64)]
    """Accepted subjects: DNS names or URIs in the subject alternative names, or the subject as text (RFC 4514)."""


class Proof(_Model):
    """The proof that a request comes from the gateway: either a secret header or a client certificate."""

    secret_header: SecretHeader | None = None
    client_certificate: ClientCertificate | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.secret_header is None) == (self.client_certificate is None):
            raise ValueError("proof takes exactly one of secretHeader and clientCertificate")
        return self


class TrustedHeader(_Model):
    """A gateway in front of the engines names the tenant."""

    name: HeaderName
    proof: Proof | None = None
    """The gateway's proof. If None, the header is never trusted, so requests of all tenants are refused."""
    networks: Annotated[tuple[str, ...], Field(alias="from", max_length=64)] = ()
    """Networks in CIDR notation; a gateway's address must be in one of them. Empty for any address."""

    @field_validator("networks")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ip_network(network, strict=False)
        return networks

    @model_validator(mode="after")
    def _headers_differ(self) -> Self:
        secret = self.proof.secret_header if self.proof is not None else None
        if secret is not None and secret.name.lower() == self.name.lower():
            raise ValueError("proof.secretHeader.name must not be the tenant's header")
        return self


class Jwt(_Model):
    """Tenants send JSON Web Tokens of one issuer. The issuer's public keys are mounted into the engine pods."""

    issuer: Text
    audiences: Annotated[tuple[Text, ...], Field(min_length=1, max_length=16)]
    """Accepted audiences; a token must have one of them in ``aud``."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256", "ES256")
    leeway_seconds: Annotated[float, Field(ge=0, le=MAX_LEEWAY_SECONDS)] = 30.0
    """Tolerated difference between the issuer's clock and the engine's."""
    tenant_claim: Annotated[tuple[Text, ...], Field(min_length=1, max_length=8)] = ("tenant",)
    """Path to the tenant's name in the claims, from the outermost claim inwards."""


class IdentityConfig(_Model):
    """The method by which tenants are identified. Exactly one field is set."""

    api_keys: ApiKeys | None = None
    trusted_header: TrustedHeader | None = None
    jwt: Jwt | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(way is not None for way in (self.api_keys, self.trusted_header, self.jwt)) != 1:
            raise ValueError("identity takes exactly one of apiKeys, trustedHeader and jwt")
        return self

    @property
    def kind(self) -> IdentityKind:
        if self.trusted_header is not None:
            return "TrustedHeader"
        return "JWT" if self.jwt is not None else "APIKeys"

    @property
    def gap(self) -> str:
        """The missing setting without which all requests are refused, and the remedy; empty if nothing is missing."""
        if self.trusted_header is not None and self.trusted_header.proof is None:
            return "trustedHeader has no proof: add proof.secretHeader or proof.clientCertificate"
        return ""


def identity_digest(declared: IdentityConfig | None) -> str:
    """Returns a digest of the configuration. Different configurations have different digests; None has its own."""
    text = declared.model_dump_json(by_alias=True) if declared is not None else ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
