"""An engine's report of how its frontend identifies tenants."""

from pathlib import Path

import pytest

from tenantzone_contract.zone_config.identity import ApiKeys, IdentityConfig, Jwt, identity_digest
from tenantzone_runtime.frontend.identities import key_ring
from tenantzone_runtime.housekeeping.identifying import Identifying
from tests.frontend.harness import give_keys, settings

BY_KEYS = IdentityConfig(api_keys=ApiKeys())
BY_TOKEN = IdentityConfig(jwt=Jwt(issuer="https://issuer.example", audiences=("models",)))


@pytest.mark.parametrize("declared", [None, BY_KEYS], ids=["undeclared", "declared"])
def test_without_any_key_no_caller_can_be_known_and_that_is_reported(
    tmp_path: Path, declared: IdentityConfig | None
) -> None:
    identifying = Identifying(settings(tmp_path))
    reported = identifying.look(declared)
    assert (reported.kind, reported.digest) == ("APIKeys", identity_digest(declared))
    assert reported.problem == f"the key folder {tmp_path / 'keys'} has no key in it that counts"
    give_keys(tmp_path, acme="short")
    assert "has no key in it that counts" in identifying.look(declared).problem
    give_keys(tmp_path, acme="acme-key-1")
    assert identifying.look(declared).problem == ""
    give_keys(tmp_path)
    assert "has no key in it that counts" in identifying.look(declared).problem


def test_a_folder_that_can_not_be_read_is_reported_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("no folder")
    problem = Identifying(settings(tmp_path)).look(BY_KEYS).problem
    assert problem == f"the key folder {tmp_path / 'keys'} can't be read: Not a directory; the keys stay as they were"


def test_keys_are_not_asked_for_where_another_identity_is_declared(tmp_path: Path) -> None:
    identifying = Identifying(settings(tmp_path))
    give_keys(tmp_path, acme="acme-key-1")
    assert identifying.look(None).problem == ""
    reported = identifying.look(BY_TOKEN)
    assert (reported.kind, reported.problem) == ("JWT", f"jwks.json is not in the folder {tmp_path / 'identity'}")


def test_keys_that_a_look_has_read_in_part_are_read_on_between_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "FILES_PER_LOOK", 1)
    identifying = Identifying(settings(tmp_path))
    give_keys(tmp_path, acme="acme-key-1", burst="burst-key-1")
    before = identifying.look(BY_KEYS).keys
    give_keys(tmp_path, acme="acme-key-2", burst="burst-key-2")
    assert identifying.look(BY_KEYS).keys == before, "one of two files is read"
    identifying.read_on()
    identifying.read_on()
    assert identifying.keys_digest != before
