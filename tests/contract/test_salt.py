"""Salts: one for each tenant and key; only a holder of the key can recognise and make them."""

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenantzone_contract.keys.salt import (
    SaltKeyError,
    is_salt_of,
    new_salt_key,
    parse_salt_key,
    salt_key_id,
    salt_secret_name,
    tenant_salt,
)

KEY = bytes(32)
tenants = st.text(min_size=1)
any_text = st.text(st.characters(exclude_categories=()))
"""Includes halves of surrogate pairs, which have no bytes."""


def test_the_salts_of_a_key_are_what_they_were():
    """Another digest would change the cache of all tenants, and a gateway of the previous release would miss."""
    assert tenant_salt(KEY, "acme") == "4d6d69355ce5011617b7ba40a79c14f716ed93166e45764d58e8b45be9bdce76"
    assert tenant_salt(KEY, "acme", "mine") == "2aff57500f40e5d8717357a4b8d745aa2a0d8b7db3309f09c967a4e0e259623e"
    assert salt_key_id(KEY) == "0fa9b15df105014a"


@given(tenants, any_text, tenants, any_text)
def test_salts_are_the_same_only_for_the_same_tenant_and_salt(tenant, salt, other_tenant, other_salt):
    same = (tenant, salt) == (other_tenant, other_salt)
    assert (tenant_salt(KEY, tenant, salt) == tenant_salt(KEY, other_tenant, other_salt)) is same


@given(tenants, any_text)
@example("acme", "\ud800")
def test_a_salt_is_one_that_vllm_takes_and_another_under_another_key(tenant, salt):
    made = tenant_salt(KEY, tenant, salt)
    assert len(made) == 64
    assert set(made) <= set("0123456789abcdef")
    assert made != tenant_salt(new_salt_key(), tenant, salt)


@given(tenants, any_text)
def test_a_salt_stays_what_it_is_for_its_own_tenant(tenant, salt):
    made = tenant_salt(KEY, tenant, salt)
    assert is_salt_of(KEY, tenant, made)
    assert tenant_salt(KEY, tenant, made) == made


@given(tenants, tenants, any_text)
def test_another_tenants_salt_is_a_clients_like_any_other(tenant, other, salt):
    made = tenant_salt(KEY, tenant, salt)
    assert is_salt_of(KEY, other, made) is (tenant == other)
    assert (tenant_salt(KEY, other, made) == made) is (tenant == other)


def test_a_salt_under_another_key_is_a_clients():
    assert not is_salt_of(KEY, "acme", tenant_salt(new_salt_key(), "acme"))


@pytest.mark.parametrize("index", [0, 31, 32, 63])
def test_a_salt_with_any_digit_changed_is_a_clients(index):
    made = tenant_salt(KEY, "acme")
    changed = made[:index] + ("0" if made[index] != "0" else "1") + made[index + 1 :]
    assert not is_salt_of(KEY, "acme", changed)


def test_capitals_are_another_salt_to_vllm_and_so_to_us():
    assert not is_salt_of(KEY, "acme", tenant_salt(KEY, "acme").upper())


@given(st.binary(min_size=32, max_size=1024))
def test_a_key_is_read_in_hexadecimal_digits_and_in_base64(key):
    for text in (key.hex(), key.hex().upper(), f" {key.hex()}\n", base64.b64encode(key).decode() + "\n"):
        parsed = parse_salt_key(text.encode())
        # Valid base64 may also be hexadecimal digits, and counts as those.
        assert parsed == key or text.strip() != key.hex() == parsed.hex()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "32 to 1024 bytes, this one 0"),
        (b"00" * 31, "32 to 1024 bytes, this one 31"),
        (base64.b64encode(bytes(31)), "32 to 1024 bytes, this one 31"),
        (b"00" * 1025, "32 to 1024 bytes, this one 1025"),
        (b"secret-" * 10, "hexadecimal digits or in base64"),
        (b"0" * 63 + b"\xff", "hexadecimal digits or in base64"),
        (b"00" * 16 + b"\n" + b"00" * 16, "hexadecimal digits or in base64"),
    ],
)
def test_what_is_no_key_is_refused_and_never_shown(content, error):
    with pytest.raises(SaltKeyError, match=error) as refused:
        parse_salt_key(content)
    assert "secret" not in str(refused.value)


def test_ids_distinguish_keys_and_show_nothing_of_them():
    key = new_salt_key()
    assert salt_key_id(key) == salt_key_id(key) != salt_key_id(new_salt_key())
    assert len(salt_key_id(key)) == 16
    assert salt_key_id(key) not in key.hex()


def test_the_secret_is_named_by_its_pool():
    assert salt_secret_name("demo") == "tenantzone-salt-demo"
