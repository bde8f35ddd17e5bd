"""Keys that are too weak identify no tenant, and strong ones next to them count."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tenantzone_contract.zone_config.identity import JWKS_FILE, IdentityConfig, Jwt
from tests.frontend.harness import tenant_seen
from tests.frontend.identities import (
    AUDIENCE,
    BY_CERTIFICATE,
    BY_TOKEN,
    ISSUER,
    Authority,
    bearer,
    give_files,
    key_set,
    public_key,
    token,
)
from tests.frontend.test_identities import ask, opened, refused

SHORT = rsa.generate_private_key(public_exponent=65537, key_size=1024)
OLD_CURVE = ec.generate_private_key(ec.SECP256K1())
BY_ANY_TOKEN = IdentityConfig(
    jwt=Jwt(
        issuer=ISSUER,
        audiences=(AUDIENCE,),
        algorithms=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
    )
)
STRONG = {
    "RSA": (rsa.generate_private_key(public_exponent=65537, key_size=2048), "PS512"),
    "P-256": (ec.generate_private_key(ec.SECP256R1()), "ES256"),
    "P-384": (ec.generate_private_key(ec.SECP384R1()), "ES384"),
    "P-521": (ec.generate_private_key(ec.SECP521R1()), "ES512"),
    "Ed25519": (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
}


def of_512_bits() -> dict[str, str]:
    """A key that cryptography refuses to make, but reads."""
    modulus = base64.urlsafe_b64encode((2**511 + 111).to_bytes(64, "big")).rstrip(b"=").decode()
    return {"kty": "RSA", "n": modulus, "e": "AQAB", "kid": "weak"}


WEAK = {
    "512 bits": (of_512_bits(), "is an RSA key of 512 bits; use one of 2048 bits or more"),
    "1024 bits": (public_key(SHORT, kid="weak"), "is an RSA key of 1024 bits; use one of 2048 bits or more"),
    "another curve": (
        public_key(OLD_CURVE, kid="weak"),
        "is on the curve secp256k1; use P-256, P-384, P-521",
    ),
}


@pytest.mark.parametrize(("weak", "message"), WEAK.values(), ids=WEAK)
class TestTokens:
    def test_a_weak_key_is_named_and_a_good_one_next_to_it_counts(self, tmp_path, caplog, weak, message):
        app = opened(tmp_path, BY_TOKEN, **{JWKS_FILE: key_set(weak, public_key())})
        assert f"keys[0] (kid 'weak') {message}" in caplog.text
        assert tenant_seen(ask(app, bearer(token()))) == "acme"
        assert caplog.text.count("(kid 'weak')") == 1

    def test_with_weak_keys_only_no_caller_is_served(self, tmp_path, caplog, weak, message):
        app = opened(tmp_path, BY_TOKEN, **{JWKS_FILE: key_set(weak)})
        assert f"jwks.json: it has no key for RS256, ES256; keys[0] (kid 'weak') {message}" in caplog.text
        refused(ask(app, bearer(token())), 503)


def test_what_a_weak_key_has_signed_is_refused(tmp_path):
    app = opened(tmp_path, BY_TOKEN, **{JWKS_FILE: key_set(public_key(SHORT, kid="weak"), public_key())})
    refused(ask(app, bearer(token(SHORT, "RS256", "weak"))), 401)


def test_a_strong_key_may_have_the_id_of_a_weak_one(tmp_path):
    app = opened(tmp_path, BY_TOKEN, **{JWKS_FILE: key_set(public_key(SHORT), public_key())})
    assert tenant_seen(ask(app, bearer(token()))) == "acme"


def test_a_weak_key_for_encryption_is_ignored(tmp_path, caplog):
    opened(tmp_path, BY_TOKEN, **{JWKS_FILE: key_set(public_key(OLD_CURVE, use="enc"), public_key())})
    assert "the curve" not in caplog.text


@pytest.mark.parametrize(("key", "algorithm"), STRONG.values(), ids=STRONG)
def test_strong_keys_count(tmp_path, caplog, key, algorithm):
    app = opened(tmp_path, BY_ANY_TOKEN, **{JWKS_FILE: key_set(public_key(key))})
    assert tenant_seen(ask(app, bearer(token(key, algorithm)))) == "acme"
    assert not caplog.text


WEAK_AUTHORITIES = {
    "RSA": (Authority(SHORT), "is an RSA key of 1024 bits; use one of 2048 bits or more"),
    "EC": (Authority(OLD_CURVE), "is on the curve secp256k1; use P-256, P-384, P-521"),
}


class TestCertificates:
    def shown(self, certificate: str):
        return {"extensions": {"tls": {"client_cert_chain": [certificate]}}}

    @pytest.mark.parametrize(("weak", "message"), WEAK_AUTHORITIES.values(), ids=WEAK_AUTHORITIES)
    def test_a_weak_authority_is_named_and_a_good_one_next_to_it_counts(self, tmp_path, caplog, weak, message):
        good = Authority()
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=weak.pem + good.pem)
        assert f"ca.crt: certificate 1 (CN=authority) {message}" in caplog.text
        more = self.shown(good.issue("gateway.example")[0])
        assert tenant_seen(ask(app, {"x-tenant": "acme"}, more=more)) == "acme"
        # Both have one name, so only its signature shows which authority issued the certificate.
        refused(ask(app, {"x-tenant": "acme"}, more=self.shown(weak.issue("gateway.example")[0])), 401)

    @pytest.mark.parametrize(("weak", "message"), WEAK_AUTHORITIES.values(), ids=WEAK_AUTHORITIES)
    def test_with_weak_authorities_only_no_caller_is_served(self, tmp_path, caplog, weak, message):
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=weak.pem)
        assert f"ca.crt: certificate 1 (CN=authority) {message}" in caplog.text
        refused(ask(app, {"x-tenant": "acme"}, more=self.shown(weak.issue("gateway.example")[0])), 503)

    def test_a_gateways_weak_certificate_is_refused_and_says_what_to_use(self, tmp_path):
        good = Authority()
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=good.pem)
        message = refused(
            ask(app, {"x-tenant": "acme"}, more=self.shown(good.issue("gateway.example", key=SHORT)[0])), 401
        )
        assert message.endswith("is an RSA key of 1024 bits; use one of 2048 bits or more")

    def test_an_authority_that_is_replaced_by_a_weak_one_stays(self, tmp_path):
        good, weak = Authority(), Authority(SHORT)
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=good.pem)
        give_files(tmp_path, ca_crt=weak.pem)
        app._active_config.look()
        assert ask(app, {"x-tenant": "acme"}, more=self.shown(good.issue("gateway.example")[0])).status_code == 200
        refused(ask(app, {"x-tenant": "acme"}, more=self.shown(weak.issue("gateway.example")[0])), 401)
