"""Names of groups and instances: a manager accepts them, and no two are the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_contract.cache.cache_names import (
    copy_name,
    instance_name,
    is_instance_of,
    is_since_purge,
    owner_of,
    owner_part,
    pool_group,
    written_as,
    zone_group,
)

TAKEN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
DIGEST, PURGE = "ab" * 32, "once"
TENANTS = st.text(min_size=1, max_size=253)
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def test_plain_names_stay_readable():
    assert pool_group("ml", "chat") == "ml.chat"
    assert zone_group("ml", "chat", "acme") == "ml.chat.acme"
    assert instance_name("acme", DIGEST).startswith("acme.")


@given(NAMES, NAMES, TENANTS)
def test_a_manager_takes_them_all(namespace, pool, tenant):
    for name in (
        pool_group(namespace, pool),
        zone_group(namespace, pool, tenant),
        instance_name(tenant, DIGEST, PURGE),
    ):
        assert TAKEN.fullmatch(name), name


@given(TENANTS, TENANTS)
def test_an_instance_is_of_one_tenant(tenant, other):
    name = instance_name(tenant, DIGEST, PURGE)
    assert is_instance_of(name, tenant)
    assert is_instance_of(name, other) == (tenant == other)
    assert owner_of(name) == owner_part(tenant)


@given(TENANTS, st.text(max_size=63), st.text(max_size=63))
def test_an_instance_is_of_one_purge(tenant, purge, other):
    name = instance_name(tenant, DIGEST, purge)
    assert is_since_purge(name, purge)
    assert is_since_purge(name, other) == (purge == other)


@pytest.mark.parametrize("name", ["", "acme", "acme.", "by-hand"])
def test_what_others_have_registered_is_no_tenants(name):
    assert owner_of(name) == ""


@pytest.mark.parametrize("tenant", ["a.b", "a b", "", "A" * 200, "-a", "ä", "a/../b"])
def test_what_is_no_part_of_a_name_is_a_digest_there(tenant):
    assert re.fullmatch(r"x-[0-9a-f]{32}\.[0-9a-f]{8}\.[0-9a-f]{48}", instance_name(tenant, DIGEST, PURGE))


@given(
    write=st.from_regex(r"[A-Za-z0-9_]{12}", fullmatch=True),
    copies=st.lists(st.from_regex("[0-9a-f]{8}", fullmatch=True)),
)
def test_a_copy_of_a_copy_is_sealed_as_what_was_written(write: str, copies: list[str]) -> None:
    location = write
    for copy in copies:
        location = copy_name(location, copy)
        assert location != write
    assert written_as(location) == write
