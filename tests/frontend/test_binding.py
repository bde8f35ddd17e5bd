"""How the frontend changes a body."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.keys.salt import tenant_salt
from tenantzone_runtime.frontend.binding import bind, check_fields, parse_body, without_seal
from tenantzone_runtime.frontend.responses.answers import Refusal
from tenantzone_runtime.frontend.routes import MACHINERY
from tenantzone_runtime.seal import unseal

KEY = bytes(32)
SALT_KEY = b"s" * 32
values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))
arguments = st.dictionaries(st.text().filter(lambda name: name not in MACHINERY), values, max_size=4)
bodies = st.dictionaries(st.text(), values, max_size=4)


def bound(body, tenant="acme"):
    return json.loads(bind(json.dumps(body).encode(), body, KEY, SALT_KEY, tenant))


def unsealed(body):
    return json.loads(without_seal(json.dumps(body).encode(), body))


@given(bodies, arguments | st.none(), st.text(min_size=1) | st.none(), st.text(min_size=1))
def test_whatever_the_client_sends_the_seal_names_the_tenant_and_fits_the_salt(body, extra, salt, tenant):
    body |= {"vllm_xargs": extra, "cache_salt": salt}
    sealed = bound(body, tenant)
    assert unseal(KEY, sealed["vllm_xargs"].pop("tenantzone_seal"), sealed["cache_salt"]) == (tenant, "")
    assert sealed["cache_salt"] == tenant_salt(SALT_KEY, tenant, salt or "")
    assert sealed.pop("vllm_xargs") == {
        name: value for name, value in (extra or {}).items() if name != "tenantzone_seal"
    }
    assert sealed == {name: value for name, value in body.items() if name != "vllm_xargs"} | {
        "cache_salt": sealed["cache_salt"]
    }


def test_a_seal_of_the_clients_own_is_overwritten():
    sealed = bound({"vllm_xargs": {"tenantzone_seal": "forged", "top": 1}})
    assert sealed["vllm_xargs"]["tenantzone_seal"] != "forged"
    assert sealed["vllm_xargs"]["top"] == 1


def test_a_seal_of_the_clients_own_is_removed_where_none_is_set():
    assert unsealed({"vllm_xargs": {"tenantzone_seal": "forged", "top": 1}}) == {"vllm_xargs": {"top": 1}}


def test_the_same_client_salt_is_another_for_another_tenant():
    assert bound({"cache_salt": "s"}, "acme")["cache_salt"] != bound({"cache_salt": "s"}, "burst")["cache_salt"]


def test_another_client_salt_is_another_namespace_within_the_tenant():
    salts = {bound(body)["cache_salt"] for body in ({}, {"cache_salt": "s"}, {"cache_salt": "t"})}
    assert len(salts) == 3
    assert bound({})["cache_salt"] == bound({"cache_salt": None})["cache_salt"]


def test_a_salt_that_a_gateway_has_stamped_stays_as_it_is():
    for client_salt in ("", "mine"):
        stamped = tenant_salt(SALT_KEY, "acme", client_salt)
        assert bound({"cache_salt": stamped})["cache_salt"] == stamped
        assert bound({"cache_salt": client_salt or None})["cache_salt"] == stamped


def test_another_tenants_salt_leads_nowhere_but_into_the_senders_own_namespace():
    stolen = bound({"cache_salt": "s"}, "burst")["cache_salt"]
    made = bound({"cache_salt": stolen}, "acme")["cache_salt"]
    assert made == tenant_salt(SALT_KEY, "acme", stolen) != stolen


def test_names_that_are_sent_twice_arrive_once():
    text = b'{"cache_salt":"a","vllm_xargs":{"tenantzone_seal":"x"},"cache_salt":"b","vllm_xargs":{"a":1}}'
    names = []
    json.loads(
        bind(text, parse_body(text), KEY, SALT_KEY, "acme"),
        object_pairs_hook=lambda pairs: names.extend(name for name, _ in pairs),
    )
    assert sorted(names) == ["a", "cache_salt", "tenantzone_seal", "vllm_xargs"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@given(
    body=bodies.filter(lambda body: not body.keys() & {"cache_salt", "vllm_xargs"}),
    space=st.text(" \t\r\n", max_size=3),
    is_ascii=st.booleans(),
)
def test_what_the_client_sends_arrives_as_it_was_sent_with_our_fields_behind_it(encoding, body, space, is_ascii):
    text = (space + json.dumps(body, ensure_ascii=is_ascii) + space).encode(encoding, "surrogatepass")
    parsed = parse_body(text)
    sealed = json.loads(bind(text, parsed, KEY, SALT_KEY, "acme"))
    assert unseal(KEY, sealed["vllm_xargs"].pop("tenantzone_seal"), sealed["cache_salt"]) == ("acme", "")
    assert sealed == {**parsed, "cache_salt": tenant_salt(SALT_KEY, "acme", ""), "vllm_xargs": {}}
    assert list(sealed) == [*dict.fromkeys([*parsed, "cache_salt", "vllm_xargs"])]
    assert json.loads(without_seal(text, parsed)) == {key: parsed[key] for key in parsed if key != "vllm_xargs"}


def test_a_large_body_is_not_written_anew():
    """Writing it would hold the interpreter's lock for longer than parsing the body takes."""
    text = b'{ "prompt":  [1,  2]\n}'
    assert bind(text, parse_body(text), KEY, SALT_KEY, "acme").startswith(b'{ "prompt":  [1,  2]\n,"cache_salt": ')
    assert without_seal(text, parse_body(text)) is text


@pytest.mark.parametrize("salt", ["", 5, True, ["a"], {}])
def test_a_malformed_salt_is_refused(salt):
    with pytest.raises(Refusal, match="'cache_salt' must be a non-empty string") as refused:
        bound({"cache_salt": salt})
    assert (refused.value.status, refused.value.param) == (400, "cache_salt")


@pytest.mark.parametrize("extra", [[], "text", 1, True])
def test_malformed_extra_arguments_are_refused(extra):
    with pytest.raises(Refusal, match="'vllm_xargs' must be an object") as refused:
        bound({"vllm_xargs": extra})
    assert (refused.value.status, refused.value.param) == (400, "vllm_xargs")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xff\xff", b"[" * 100_000, b'{"a":' + b"9" * 5_000 + b"}"]
)
def test_a_body_that_is_no_object_is_refused(body):
    with pytest.raises(Refusal) as refused:
        parse_body(body)
    assert refused.value.status == 400


def test_half_a_surrogate_pair_survives_as_it_was_sent():
    text = rb'{"prompt":"\ud800","cache_salt":"\ud800"}'
    assert rb'"prompt": "\ud800"' in bind(text, parse_body(text), KEY, SALT_KEY, "acme")


@given(st.floats())
def test_numbers_survive(number):
    sent = json.dumps({"temperature": number}).encode()
    assert json.dumps({"temperature": bound(parse_body(sent))["temperature"]}).encode() == sent


@pytest.mark.parametrize("value", [True, 1, "true", "id", {}])
def test_a_field_that_leads_around_the_seal_is_refused_with_the_reason(value):
    with pytest.raises(Refusal, match=r"'use_beam_search' is not supported .*: it drops the seal") as refused:
        check_fields({"use_beam_search": value}, {"use_beam_search": "it drops the seal"})
    assert (refused.value.status, refused.value.param) == (400, "use_beam_search")


@pytest.mark.parametrize("body", [{}, {"use_beam_search": None}, {"use_beam_search": False}])
def test_a_field_that_is_not_set_is_none(body):
    check_fields(body, {"use_beam_search": "reason"})


@pytest.mark.parametrize("name", MACHINERY)
@pytest.mark.parametrize("remake", [bound, unsealed])
def test_machinery_is_no_argument_of_a_tenants_either(name, remake):
    with pytest.raises(Refusal, match=f"'vllm_xargs.{name}' is not supported") as refused:
        remake({"vllm_xargs": {name: {"remote_host": "10.0.0.1"}}})
    assert (refused.value.status, refused.value.param) == (400, f"vllm_xargs.{name}")
