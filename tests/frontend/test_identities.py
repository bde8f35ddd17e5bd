"""Who passes the frontend with a gateway's header or a token, and that nothing else identifies a tenant."""

import asyncio
import logging
import time
from functools import partial
from pathlib import Path

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tenantzone_contract.zone_config.identity import IdentityConfig, Jwt, Proof, SecretHeader, TrustedHeader
from tenantzone_runtime.frontend.active_config import MAX_AGE_SECONDS
from tenantzone_runtime.frontend.transport.connections import bound_connections
from tests.frontend.harness import (
    PROMPT,
    body_seen,
    call,
    error_of,
    eventually,
    frontend,
    give_keys,
    give_zones,
    serving,
    tenant_seen,
)
from tests.frontend.identities import (
    AUDIENCE,
    BY_CERTIFICATE,
    BY_HEADER,
    BY_TOKEN,
    ISSUER,
    RSA_KEY,
    SECRET,
    THROUGH_GATEWAY,
    UNPROVEN,
    Authority,
    bearer,
    give_files,
    key_set,
    of_no_version,
    private_key,
    public_key,
    token,
)

AUTHORITY = Authority()
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OKP_KEY = ed25519.Ed25519PrivateKey.generate()


def opened(folder: Path, identity: IdentityConfig, **files: str | bytes):
    """A frontend of a pool with this identity. Its tenants have API keys, too: they must not help."""
    give_keys(folder, acme="acme-key", burst="burst-key")
    give_zones(folder, "acme", "burst", identity=identity)
    give_files(folder, **files)
    return frontend(folder)


def refused(response, status: int) -> str:
    error = error_of(response)
    assert error["code"] == status
    return error["message"]


def ask(app, headers, **more):
    return call(app, body=PROMPT, headers=headers, **more)


class TestTrustedHeader:
    def test_the_gateway_names_the_tenant(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        assert tenant_seen(ask(app, THROUGH_GATEWAY)) == "acme"
        assert tenant_seen(ask(app, {"X-TENANT": "burst", "X-PROOF": SECRET})) == "burst"

    @pytest.mark.parametrize(
        "headers",
        [
            pytest.param({"x-tenant": "acme"}, id="no secret"),
            pytest.param({"x-tenant": "acme", "x-proof": SECRET[:-1]}, id="a part of it"),
            pytest.param({"x-tenant": "acme", "x-proof": ""}, id="an empty one"),
            pytest.param({"x-tenant": "acme", "authorization": f"Bearer {SECRET}"}, id="in another header"),
            pytest.param({"x-tenant": "acme", "authorization": "Bearer acme-key"}, id="an API key"),
            pytest.param({"authorization": "Bearer acme-key"}, id="an API key alone"),
            pytest.param({"x-proof": SECRET}, id="no tenant"),
            pytest.param({"x-proof": SECRET, "authorization": "Bearer acme-key"}, id="an API key in place of a tenant"),
            *(
                pytest.param({"x-proof": SECRET, "x-tenant": name}, id=f"the tenant {name[:9]!r}")
                for name in ("", "a b", "-acme", "acme\x0bburst", "acm\xe9", "a/b", "x" * 254)
            ),
        ],
    )
    def test_without_proof_and_name_it_is_401(self, tmp_path, headers):
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        message = refused(ask(app, headers), 401)
        assert SECRET not in message

    @pytest.mark.parametrize("name", ["x-tenant", "x-proof"])
    @pytest.mark.parametrize("order", [1, -1])
    def test_a_header_that_is_there_twice_is_refused(self, tmp_path, name, order):
        values = "\n".join([THROUGH_GATEWAY[name], "burst"][::order])
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        assert "2 times" in refused(ask(app, THROUGH_GATEWAY | {name: values}), 400)

    def test_several_secrets_let_one_be_rotated(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret="the-gateway-of-yesterday\n" + SECRET + "\n")
        assert tenant_seen(ask(app, THROUGH_GATEWAY)) == "acme"
        assert tenant_seen(ask(app, {"x-tenant": "acme", "x-proof": "the-gateway-of-yesterday"})) == "acme"
        give_files(tmp_path, secret="the-gateway-of-yesterday")
        eventually(lambda: ask(app, THROUGH_GATEWAY).status_code == 401)

    def test_the_secret_goes_no_further(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        assert SECRET not in ask(app, THROUGH_GATEWAY).text
        assert SECRET not in call(app, "GET", "/v1/models", headers=THROUGH_GATEWAY).text

    def test_the_tenant_needs_a_zone(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        refused(ask(app, THROUGH_GATEWAY | {"x-tenant": "stray"}), 403)

    @pytest.mark.parametrize("content", [None, "short", "", "\n", "with a space in the midst", "\xff" * 20])
    def test_without_a_good_secret_no_caller_is_served(self, tmp_path, content):
        files = {"secret": content} if content is not None else {}
        app = opened(tmp_path, BY_HEADER, **files)
        message = refused(ask(app, THROUGH_GATEWAY | {"x-proof": content or "x"}, key="acme-key"), 503)
        assert "secret" not in message

    def test_a_secret_that_breaks_stays_as_it_was_and_one_that_goes_is_revoked(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        give_files(tmp_path, secret="broken")
        app._active_config.look()
        assert tenant_seen(ask(app, THROUGH_GATEWAY)) == "acme"
        give_files(tmp_path)
        app._active_config.look()
        refused(ask(app, THROUGH_GATEWAY), 503)

    def test_an_unproven_header_is_never_believed(self, tmp_path):
        app = opened(tmp_path, UNPROVEN, secret=SECRET)
        refused(ask(app, THROUGH_GATEWAY, key="acme-key"), 503)

    @pytest.mark.parametrize(
        ("peer", "is_admitted"),
        [
            ("10.1.2.3", True),
            ("::ffff:10.1.2.3", True),
            ("11.1.2.3", False),
            ("fd00::1", False),
            ("not an address", False),
            (None, False),
        ],
    )
    def test_networks_are_a_further_condition(self, tmp_path, peer, is_admitted):
        proof = Proof(secret_header=SecretHeader(name="x-proof"))
        header = TrustedHeader(name="x-tenant", proof=proof, networks=("10.0.0.0/8",))
        app = opened(tmp_path, IdentityConfig(trusted_header=header), secret=SECRET)
        scope = {"client": ("10.1.2.3", 1), "extensions": {"tenantzone.peer": peer}}
        assert ask(app, THROUGH_GATEWAY, more=scope).status_code == (200 if is_admitted else 401)
        refused(ask(app, {"x-tenant": "acme"}, more=scope), 401)

    @pytest.mark.parametrize(("network", "status"), [("127.0.0.0/8", 200), ("10.0.0.0/8", 401)])
    @pytest.mark.parametrize("forwarding", ["X-Forwarded-For", "Forwarded"])
    def test_no_header_says_where_a_connection_comes_from(self, tmp_path, monkeypatch, network, status, forwarding):
        """Uvicorn takes it as the client's address from peers on loopback or in FORWARDED_ALLOW_IPS."""
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
        bound_connections()
        proof = Proof(secret_header=SecretHeader(name="x-proof"))
        header = TrustedHeader(name="x-tenant", proof=proof, networks=(network,))
        app = opened(tmp_path, IdentityConfig(trusted_header=header), secret=SECRET)
        said = {"X-Forwarded-For": "10.1.2.3", "Forwarded": "for=10.1.2.3"}[forwarding]
        with serving(app) as url:
            answer = httpx.post(
                f"{url}/v1/completions", json=PROMPT, headers=THROUGH_GATEWAY | {forwarding: said}, timeout=30
            )
        assert answer.status_code == status


class TestClientCertificate:
    @staticmethod
    def connection(pem: str | None):
        return {"extensions": {"tls": {"client_cert_chain": [pem] if pem is not None else []}}}

    def test_the_gateways_certificate_is_its_proof(self, tmp_path):
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=Authority().pem + AUTHORITY.pem)
        certificate, _ = AUTHORITY.issue("gateway.example")
        for _ in range(2):
            assert tenant_seen(ask(app, {"x-tenant": "acme"}, more=self.connection(certificate))) == "acme"

    @pytest.mark.parametrize(
        "certificate",
        [
            pytest.param(None, id="none"),
            pytest.param("", id="an empty one"),
            pytest.param(AUTHORITY.issue("tenant.example")[0], id="another name's"),
            pytest.param(AUTHORITY.issue("gateway.example", days=-1)[0], id="an expired one"),
            pytest.param(Authority().issue("gateway.example")[0], id="another authority's of the same name"),
            pytest.param(AUTHORITY.pem, id="the authority's own"),
            pytest.param(of_no_version(AUTHORITY.issue("gateway.example")[0]), id="of an unknown version"),
        ],
    )
    def test_any_other_certificate_is_401(self, tmp_path, certificate):
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=AUTHORITY.pem)
        refused(ask(app, {"x-tenant": "acme"}, more=self.connection(certificate), key="acme-key"), 401)

    def test_without_tls_it_is_401(self, tmp_path):
        refused(ask(opened(tmp_path, BY_CERTIFICATE, ca_crt=AUTHORITY.pem), {"x-tenant": "acme"}), 401)

    def test_an_authority_that_is_taken_away_is_believed_no_more(self, tmp_path):
        app = opened(tmp_path, BY_CERTIFICATE, ca_crt=AUTHORITY.pem)
        more = self.connection(AUTHORITY.issue("gateway.example")[0])
        assert tenant_seen(ask(app, {"x-tenant": "acme"}, more=more)) == "acme"
        give_files(tmp_path, ca_crt=Authority().pem)
        eventually(lambda: ask(app, {"x-tenant": "acme"}, more=more).status_code == 401)

    @pytest.mark.parametrize(
        "content", [None, "", "no certificate", pytest.param(of_no_version(AUTHORITY.pem), id="no version")]
    )
    def test_without_authorities_no_caller_is_served(self, tmp_path, content):
        files = {"ca_crt": content} if content is not None else {}
        app = opened(tmp_path, BY_CERTIFICATE, **files)
        refused(ask(app, {"x-tenant": "acme"}, more=self.connection(AUTHORITY.issue("gateway.example")[0])), 503)


class TestTokens:
    def test_a_claim_of_the_token_names_the_tenant(self, tmp_path):
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set()})
        good = token()
        for _ in range(2):
            assert tenant_seen(ask(app, bearer(good))) == "acme"
        assert (
            tenant_seen(ask(app, bearer(token(tenant="burst")) | {"x-tenant": "acme", "x-api-key": "acme-key"}))
            == "burst"
        )

    @pytest.mark.parametrize(
        "shown",
        [
            pytest.param("", id="none"),
            pytest.param("acme-key", id="an API key"),
            pytest.param(token(OTHER_KEY), id="another key's of the same id"),
            pytest.param(token(kid="second"), id="an id that is not known"),
            pytest.param(token(exp=time.time() - 31), id="expired"),
            pytest.param(token(exp=None), id="without an end"),
            pytest.param(token(exp="never"), id="an end that is no time"),
            pytest.param(token(exp=float("inf")), id="an end beyond all times"),
            # All are made before the first test runs, which may be an hour later.
            pytest.param(token(nbf=time.time() + 86_400, exp=time.time() + 90_000), id="not valid yet"),
            pytest.param(token(iss="https://other.example"), id="another issuer's"),
            pytest.param(token(iss=None), id="no issuer"),
            pytest.param(token(aud="others"), id="for another audience"),
            pytest.param(token(aud=None), id="for no audience"),
            pytest.param(token(tenant=None), id="without a tenant"),
            pytest.param(token(tenant=["acme"]), id="several tenants"),
            pytest.param(token(tenant="acme burst"), id="a name that is none"),
            pytest.param(token(algorithm="RS384"), id="an algorithm that is not allowed"),
            pytest.param(token("", algorithm="none"), id="unsigned"),
            pytest.param(token("k" * 32, algorithm="HS256"), id="signed with what is public"),
            pytest.param(token()[:-4] + "AAAA", id="changed"),
            pytest.param("e30.e30.e30", id="hollow"),
            pytest.param("a.b.c", id="no base64"),
            pytest.param("x" * 20_000, id="a long one"),
            pytest.param("[" * 9000, id="nested"),
        ],
    )
    def test_any_other_token_is_401(self, tmp_path, shown, caplog):
        caplog.set_level(logging.DEBUG)
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set()})
        for _ in range(2):
            response = ask(app, bearer(shown))
            refused(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
        assert len(shown) < 5 or shown not in response.text + caplog.text

    def test_a_token_with_extensions_that_must_be_known_is_refused(self, tmp_path):
        claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 3600, "tenant": "acme"}
        shown = jwt.encode(claims, RSA_KEY, "RS256", headers={"kid": "first", "crit": ["novel"], "novel": 1})
        refused(ask(opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set()}), bearer(shown)), 401)

    def test_two_tokens_are_refused(self, tmp_path):
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set()})
        headers = {"authorization": f"Bearer {token()}\nBearer {token(tenant='burst')}"}
        refused(ask(app, headers), 400)

    def test_the_clock_may_be_off_by_the_leeway(self, tmp_path):
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set()})
        shown = bearer(token(exp=time.time() - 10))
        assert tenant_seen(ask(app, shown)) == "acme"
        exact = IdentityConfig(jwt=BY_TOKEN.jwt.model_copy(update={"leeway_seconds": 0.0}))
        give_zones(tmp_path, "acme", generation=2, identity=exact)
        eventually(lambda: ask(app, shown).status_code == 401)

    def test_a_token_that_was_good_expires(self, tmp_path):
        exact = BY_TOKEN.jwt.model_copy(update={"leeway_seconds": 0.0})
        app = opened(tmp_path, IdentityConfig(jwt=exact), **{"jwks.json": key_set()})
        shown = bearer(token(exp=time.time() + 5))
        assert tenant_seen(ask(app, shown)) == "acme"
        eventually(lambda: ask(app, shown).status_code == 401, seconds=30)

    def test_a_key_that_is_revoked_ends_tokens_that_were_found_good(self, tmp_path):
        second = public_key(OTHER_KEY, kid="second")
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set(public_key(), second)})
        old, new = bearer(token()), bearer(token(OTHER_KEY, kid="second"))
        assert tenant_seen(ask(app, old)) == tenant_seen(ask(app, new)) == "acme"
        give_files(tmp_path, **{"jwks.json": key_set(second)})
        app._active_config.look()
        refused(ask(app, old), 401)
        assert tenant_seen(ask(app, new)) == "acme"

    def test_a_tenant_may_be_named_further_within(self, tmp_path):
        nested = BY_TOKEN.jwt.model_copy(update={"tenant_claim": ("https://example/org", "id")})
        app = opened(tmp_path, IdentityConfig(jwt=nested), **{"jwks.json": key_set()})
        assert tenant_seen(ask(app, bearer(token(**{"https://example/org": {"id": "burst"}})))) == "burst"
        refused(ask(app, bearer(token(**{"https://example/org": "burst"}))), 401)

    def test_other_algorithms_can_be_allowed(self, tmp_path):
        curve = ec.generate_private_key(ec.SECP384R1())
        declared = Jwt(issuer=ISSUER, audiences=(AUDIENCE,), algorithms=("ES384",))
        keys = key_set(public_key(), public_key(curve, kid="curve"))
        app = opened(tmp_path, IdentityConfig(jwt=declared), **{"jwks.json": keys})
        assert tenant_seen(ask(app, bearer(token(curve, "ES384", "curve")))) == "acme"
        assert tenant_seen(ask(app, bearer(token(curve, "ES384", None)))) == "acme", "one key needs no id"
        refused(ask(app, bearer(token())), 401)

    @pytest.mark.parametrize("fields", [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["encrypt"]}])
    def test_a_key_for_something_else_signs_nothing(self, tmp_path, fields):
        keys = key_set(public_key(**fields), public_key(OTHER_KEY, kid="second"))
        refused(ask(opened(tmp_path, BY_TOKEN, **{"jwks.json": keys}), bearer(token())), 401)

    @pytest.mark.parametrize(
        "content",
        [
            None,
            "",
            "{}",
            '{"keys": []}',
            '{"keys": [1]}',
            "[" * 100_000,
            '{"keys": [{"kty": "oct", "k": "a2V5", "kid": "first"}]}',
            '{"keys": [{"kty": "RSA", "n": "?", "e": "AQAB", "kid": "first"}]}',
            '{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "first", "key_ops": 5}]}',
            # Its text differs between processes, and a test's name must not.
            pytest.param(key_set(public_key(), public_key(OTHER_KEY)), id="two keys of one name"),
        ],
    )
    def test_without_good_keys_no_caller_is_served(self, tmp_path, content):
        files = {"jwks.json": content} if content is not None else {}
        refused(ask(opened(tmp_path, BY_TOKEN, **files), bearer(token())), 503)

    @pytest.mark.parametrize("key", [OTHER_KEY, EC_KEY, OKP_KEY], ids=["RSA", "EC", "OKP"])
    @pytest.mark.parametrize("fields", [{}, {"use": "enc"}], ids=["signs", "would be passed over"])
    def test_a_private_key_is_refused_by_its_place_and_never_shown(self, tmp_path, caplog, key, fields):
        private = {**private_key(key), **fields}
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set(public_key(), private)})
        refused(ask(app, bearer(token())), 503)
        assert "keys[1] is a private key; put the public half of a new key here" in caplog.text
        assert private["d"] not in caplog.text

    def test_a_set_that_gets_a_private_key_in_it_stays_as_it_was(self, tmp_path, caplog):
        app = opened(tmp_path, BY_TOKEN, **{"jwks.json": key_set()})
        assert tenant_seen(ask(app, bearer(token()))) == "acme"
        give_files(tmp_path, **{"jwks.json": key_set(private_key(OTHER_KEY, kid="first"))})
        app._active_config.look()
        assert "keys[0] is a private key" in caplog.text
        assert tenant_seen(ask(app, bearer(token()))) == "acme"


class TestOneIdentity:
    def test_it_is_switched_while_requests_come(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret=SECRET, **{"jwks.json": key_set()})
        asked = {"header": THROUGH_GATEWAY, "token": bearer(token()), "key": bearer("acme-key")}

        def admitted() -> list[str]:
            return [how for how, headers in asked.items() if ask(app, headers).status_code == 200]

        assert admitted() == ["header"]
        give_zones(tmp_path, "acme", generation=2, identity=BY_TOKEN)
        eventually(lambda: admitted() == ["token"])
        give_zones(tmp_path, "acme", generation=3)
        eventually(lambda: admitted() == ["key"])

    def test_what_a_client_says_of_its_tenant_does_not_count(self, tmp_path):
        app = opened(tmp_path, BY_TOKEN, secret=SECRET, **{"jwks.json": key_set()})
        response = ask(app, bearer(token()) | {"x-tenant": "burst", "x-proof": SECRET, "x-api-key": "burst-key"})
        assert tenant_seen(response) == "acme"
        assert "tenantzone_seal" in body_seen(response)["vllm_xargs"]

    @pytest.mark.parametrize("name", ["secret", "ca.crt", "jwks.json"])
    def test_before_any_config_no_caller_is_served_where_keys_would_not_show_the_tenant(self, tmp_path, name):
        give_keys(tmp_path, acme="acme-key")
        give_files(tmp_path, **{name: "x"})
        app = frontend(tmp_path)
        refused(ask(app, {}, key="acme-key"), 503)
        assert call(app, "GET", "/health").status_code == 200
        give_files(tmp_path)
        app._active_config.look()
        refused(ask(app, {}, key="acme-key"), 503)


class TestWhileABodyComes:
    """A body may take minutes; at its end the tenant must still be identified, or the request is refused."""

    @staticmethod
    def answer_to(app, headers, meanwhile) -> httpx.Response:
        """The answer to a request; something happens before the second half of its body arrives."""
        halves = [b'{"prompt":', b'"hello"}']

        async def receive():
            if len(halves) == 1:
                meanwhile()
                await asyncio.sleep(MAX_AGE_SECONDS + 0.05)  # what the frontend has seen may be so old
            return {"type": "http.request", "body": halves.pop(0), "more_body": bool(halves)}

        return call(app, headers=headers, receive=receive)

    def test_a_request_whose_key_is_revoked_is_refused(self, folder):
        revoke = partial(give_keys, folder, acme="another-key")
        refused(self.answer_to(frontend(folder), bearer("acme-key"), revoke), 401)

    def test_a_request_whose_key_is_given_to_another_is_refused(self, folder):
        swap = partial(give_keys, folder, acme="burst-key", burst="acme-key")
        refused(self.answer_to(frontend(folder), bearer("acme-key"), swap), 401)

    def test_a_request_whose_zone_goes_is_refused(self, folder):
        refused(self.answer_to(frontend(folder), bearer("acme-key"), partial(give_zones, folder, generation=2)), 403)

    def test_a_request_by_another_identity_than_the_pools_new_one_is_refused(self, folder):
        give_files(folder, **{"jwks.json": key_set()})
        switch = partial(give_zones, folder, "acme", generation=2, identity=BY_TOKEN)
        refused(self.answer_to(frontend(folder), bearer("acme-key"), switch), 401)

    def test_a_gateways_request_is_looked_at_with_its_secret(self, tmp_path):
        app = opened(tmp_path, BY_HEADER, secret=SECRET)
        assert tenant_seen(self.answer_to(app, THROUGH_GATEWAY, lambda: None)) == "acme"

    def test_a_rotated_key_ends_nothing(self, folder):
        rotate = partial(give_keys, folder, acme="acme-key\nacme-key-2")
        assert tenant_seen(self.answer_to(frontend(folder), bearer("acme-key"), rotate)) == "acme"
