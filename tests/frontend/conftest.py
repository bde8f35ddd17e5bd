"""Fixtures shared by the frontend's tests."""

import pytest

from tests.frontend.harness import give_keys, give_salt_key, give_zones


@pytest.fixture
def folder(tmp_path):
    """A pod with the pool's salt key and the keys of three tenants; two of them have a zone."""
    give_keys(tmp_path, acme="acme-key", burst="burst-key", stray="stray-key")
    give_salt_key(tmp_path)
    give_zones(tmp_path, "acme", "burst")
    return tmp_path
