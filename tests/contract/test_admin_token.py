"""The token of a pool's admin ports, and what holds it."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.keys.admin_token import (
    AdminTokenError,
    admin_secret_data,
    admin_token,
    new_admin_key,
    parse_accepted,
    parse_admin_keys,
)

NAMES = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=63)
KEYS = st.binary(min_size=32, max_size=64)


@given(KEYS, NAMES, NAMES)
def test_an_engine_takes_each_token_that_an_operator_makes(key: bytes, namespace: str, pool: str):
    token = admin_token(key, namespace, pool)
    data = admin_secret_data([token, admin_token(b"before" * 6, namespace, pool)])
    assert parse_accepted(data["accepted"])[0].decode() == token == data["token"].decode()


@given(st.lists(st.tuples(KEYS, NAMES, NAMES), min_size=2, max_size=2, unique=True))
def test_no_two_pools_and_no_two_operators_share_one(of: list[tuple[bytes, str, str]]):
    one, other = of
    assert admin_token(*one) != admin_token(*other)


def test_a_key_is_new_each_time():
    assert len({new_admin_key() for _ in range(10)}) == 10


def encoded(**keys: bytes) -> dict[str, str]:
    return {name: base64.b64encode(key).decode() for name, key in keys.items()}


def test_the_newest_key_comes_first():
    assert parse_admin_keys(encoded(previous=b"o" * 32, key=b"n" * 32)) == (b"n" * 32, b"o" * 32)


@pytest.mark.parametrize(
    "data",
    [{}, encoded(key=b"n" * 31), encoded(previous=b"o" * 32), {"key": "?"}, encoded(key=b"n" * 32, previous=b"")],
)
def test_a_secret_without_a_good_key_is_none(data: dict[str, str]):
    with pytest.raises(AdminTokenError, match="at least 32 bytes"):
        parse_admin_keys(data)
