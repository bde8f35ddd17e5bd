"""Whatever a parser is given, it answers or raises a declared exception, in time and memory proportional to the text.

`make test-deep` tries 10,000 texts for each, `make test` some hundreds.
"""

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tenantzone_contract.reports.parts import MAX_BLOCKS
from tenantzone_contract.reports.report import dump_report, parse_report
from tenantzone_contract.reports.zone_report import ZoneReport
from tenantzone_contract.zone_config.config import PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config, parse_config
from tenantzone_runtime.frontend.identities.tokens import TokenIdentity
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.journal.record import Link, encode, link_of, parse
from tenantzone_runtime.zones.audit.events import Lifecycle
from tests.frontend.identities import BY_TOKEN, bearer, give_files, key_set, token
from tests.parsers.hostile import many, texts, values
from tests.parsers.known import PARSERS, REPORT, Parser

each_parser = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS.keys())


@each_parser
def test_a_good_text_is_read(parser: Parser):
    parser.parse(parser.good.encode())


@each_parser
def test_a_parser_raises_nothing_but_what_it_says(parser: Parser):
    @many
    @given(texts(parser.good))
    def try_each(text: bytes) -> None:
        parser.try_it(text)

    try_each()


LONG: dict[str, Callable[[int], bytes]] = {
    "spaces": lambda size: b" " * size,
    "brackets": lambda size: b"[" * size,
    "digits": lambda size: b"9" * size,
    "a text that does not end": lambda size: b'"' + b"\\\\" * (size // 2),
    "members": lambda size: json.dumps({"zones": [{"a": 1}] * (size // 9)}).encode(),
    "names": lambda size: json.dumps({f"n{number}": 1 for number in range(size // 10)}).encode(),
    "a long name": lambda size: json.dumps({"a" * size: 1}).encode(),
    "a long reservation": lambda size: json.dumps({"zones": [{"reserved": "1" * size + "%"}]}).encode(),
}


@each_parser
@pytest.mark.parametrize("long", LONG.values(), ids=LONG.keys())
def test_time_and_memory_grow_no_faster_than_the_text(parser: Parser, long: Callable[[int], bytes]):
    small, large = long(2**14), long(2**19)
    # 32 times the text: quadratic growth would take 1,024 times as long.
    seconds = _seconds(parser, small), _seconds(parser, large)
    assert seconds[1] < 200 * seconds[0] + 0.2
    peaks = _peak(parser, small), _peak(parser, large)
    assert peaks[1] < 64 * peaks[0] + 2**20


def _peak(parser: Parser, text: bytes) -> int:
    """The most bytes that Python has allocated meanwhile."""
    tracemalloc.start()
    parser.try_it(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _seconds(parser: Parser, text: bytes) -> float:
    """Processor seconds, the least of several runs."""
    taken = []
    for _ in range(3):
        began = time.thread_time()
        parser.try_it(text)
        taken.append(time.thread_time() - began)
    return min(taken)


@pytest.fixture(scope="module")
def by_token(tmp_path_factory: pytest.TempPathFactory) -> TokenIdentity:
    folder = tmp_path_factory.mktemp("tokens")
    give_files(folder, jwks_json=key_set())
    assert BY_TOKEN.jwt is not None
    identity = TokenIdentity(BY_TOKEN.jwt, folder / "identity")
    identity.refresh()
    return identity


def tenant_or_refusal(identity: TokenIdentity, shown: str) -> str:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in bearer(shown).items()]
    try:
        return identity.tenant_of({"type": "http", "headers": headers})
    except Refusal as refusal:
        return str(refusal.status)


CLAIMS = ("iss", "aud", "exp", "nbf", "iat", "jti", "sub", "tenant")


@many
@given(claims=st.dictionaries(st.sampled_from(CLAIMS), values(), max_size=4))
def test_whatever_its_issuer_signs_a_token_has_a_tenant_or_is_refused(by_token: TokenIdentity, claims: dict[str, Any]):
    try:
        shown = token(**claims)
    except (TypeError, ValueError, OverflowError):
        return  # PyJWT does not sign it.
    answer = tenant_or_refusal(by_token, shown)
    assert answer == "401" or answer == claims.get("tenant", "acme")


@many
@given(shown=texts(json.dumps({"alg": "RS256", "kid": "first"})), good=st.randoms(use_true_random=False))
def test_unsigned_configs_are_refused(by_token: TokenIdentity, shown: bytes, good: Any):
    signed = token().split(".")
    signed[good.randrange(3)] = shown.decode("latin-1")
    assert tenant_or_refusal(by_token, ".".join(signed)) == "401"


@many
@given(seq=st.integers(-1, 2**60), tenant=st.text(), at=st.floats(0, 1e9))
def test_what_the_journal_writes_it_reads(seq: int, tenant: str, at: float):
    line, link = encode(Lifecycle(tenant, "declared"), Link(seq, "0" * 64), engine=tenant, at=at, offset=0.5)
    assert link_of(parse(line)) == link
    assert line.count(b"\n") == 1


@many
@given(
    reserved=st.integers(0, 100),
    limit=st.integers(0, 2**31 - 1),
    priority=st.integers(-5, 5),
    generation=st.integers(1, 2**40),
)
def test_what_is_written_as_a_config_is_read_as_the_same(reserved: int, limit: int, priority: int, generation: int):
    zone = ZoneConfig(name="acme", tenant="acme", generation=generation, reserved=f"{reserved}%", priority=priority)
    config = make_config(generation, PoolConfig(namespace="models", name="main"), (zone,))
    assert parse_config(dump_config(config)) == config


@many
@given(free=st.integers(0, MAX_BLOCKS), seconds=st.floats(0, 1e12), tenant=st.text())
def test_what_is_written_as_a_report_is_read_as_the_same(free: int, seconds: float, tenant: str):
    zone = ZoneReport(
        name="acme",
        tenant=tenant,
        generation=1,
        state="Idle",
        reserved=1,
        limit=9,
        in_use=0,
        cached=free,
        block_seconds=seconds,
    )
    report = structs.replace(parse_report(REPORT), free_blocks=free, zones=(zone,))
    assert parse_report(dump_report(report)) == report
