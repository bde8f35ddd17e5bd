"""The parsers of external input, each with the exceptions that it declares and a valid text."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tenantzone_contract.reports.report import ConfigStatus, EngineReport, dump_report, parse_report
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.zone_config.config import ConfigError, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config, parse_config
from tenantzone_runtime.frontend.binding import parse_body
from tenantzone_runtime.frontend.identities.tokens import TokenIdentity, read_keys
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.journal.record import BEFORE_FIRST, encode, link_of, parse
from tenantzone_runtime.zones.audit.events import Lifecycle
from tests.frontend.identities import AUDIENCE, BY_TOKEN, ISSUER, key_set, public_key
from tests.reported import SETTINGS

ZONES = tuple(ZoneConfig(name=name, tenant=name, generation=1, reserved="10%") for name in ("acme", "burst"))
CONFIG = dump_config(make_config(1, PoolConfig(namespace="models", name="main"), ZONES))
REPORT = dump_report(
    EngineReport(
        engine_version="1", capacity_blocks=9, block_size_tokens=16, free_blocks=1, config=ConfigStatus(),
        **SETTINGS, started_unix_time=1.0, published_unix_time=2.0,
        zones=tuple(
            ZoneReport(name=name, tenant=name, generation=1, state="Idle", reserved=1, limit=9, in_use=0, cached=1)
            for name in ("acme", "burst")
        ),
    )
).decode()  # fmt: skip
RECORD = encode(Lifecycle("acme", "declared"), BEFORE_FIRST, engine="pod@1", at=1.0, offset=0.0)[0].decode()


_SIGNER = jwt.PyJWS()
_KEY = ec.generate_private_key(ec.SECP256R1())
assert BY_TOKEN.jwt is not None
_IDENTITY = TokenIdentity(BY_TOKEN.jwt, Path())
_IDENTITY._known = read_keys(key_set(public_key(_KEY)).encode(), ("ES256",)), {}
CLAIMS = json.dumps({"iss": ISSUER, "aud": AUDIENCE, "exp": 2**40, "nbf": 1, "tenant": "acme"})


def read_record(text: bytes) -> object:
    return link_of(parse(text))


def read_claims(text: bytes) -> str:
    """The tenant named by a token whose issuer signs everything."""
    shown = _SIGNER.encode(text, _KEY, "ES256", headers={"kid": "first"})
    return _IDENTITY.tenant_of({"type": "http", "headers": [(b"authorization", f"Bearer {shown}".encode())]})


@dataclass(frozen=True)
class Parser:
    parse: Callable[[bytes], object]
    raises: type[Exception]
    good: str

    def try_it(self, text: bytes) -> None:
        with suppress(self.raises):
            self.parse(text)


PARSERS = {
    "config": Parser(lambda text: parse_config(text.decode(errors="surrogateescape")), ConfigError, CONFIG),
    "report": Parser(parse_report, ValueError, REPORT),
    "journal": Parser(read_record, ValueError, RECORD),
    "keys of tokens": Parser(lambda text: read_keys(text, ("RS256", "ES256")), ValueError, key_set()),
    "claims of tokens": Parser(read_claims, Refusal, CLAIMS),
    "request": Parser(parse_body, Refusal, '{"model": "m", "prompt": ["a"], "vllm_xargs": {"a": 1}}'),
}
