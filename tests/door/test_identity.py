"""API keys from files, as a Secret is mounted and changed."""

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.door.identity import KeyFileError, KeyRing, parse_keys
from tests.runtime.folders import project

keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).filter(
    lambda key: not key.startswith("sha256:")
)


def sha256(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def ring(folder, **files: str | bytes) -> KeyRing:
    project(folder, files)
    made = KeyRing(folder)
    made.refresh()
    return made


@given(st.lists(keys, min_size=1))
def test_keys_in_clear_and_hashed_are_the_same_keys(lines):
    clear = "\n".join(lines).encode()
    hashed = "\r\n".join(map(sha256, lines)).encode()
    assert parse_keys(clear) == parse_keys(hashed) == {hashlib.sha256(key.encode()).digest() for key in lines}


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_keys_is_a_tenant_without_keys(content):
    assert parse_keys(content) == frozenset()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"good\nwith space", "line 2: "),
        (b"sha256:abc", "line 1: expected 64 hexadecimal digits"),
        (b"sha256:" + b"g" * 64, "line 1: expected 64 hexadecimal digits"),
        ("schlüssel".encode(), "line 1: "),
        (b"tab\tbed", "line 1: "),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_bad_line_is_named_and_never_shown(content, error):
    with pytest.raises(KeyFileError, match=error) as refused:
        parse_keys(content)
    assert "schl" not in str(refused.value)


def test_without_a_folder_no_key_is_known_and_none_required(tmp_path):
    made = KeyRing(tmp_path / "absent")
    made.refresh()
    assert made.tenant_of(b"any") is None
    assert not made.required


def test_an_empty_folder_requires_no_key(tmp_path):
    assert not ring(tmp_path / "keys").required


def test_each_key_is_its_tenants(tmp_path):
    made = ring(tmp_path / "keys", acme="one\ntwo", burst=sha256("three"))
    assert made.required
    assert [made.tenant_of(key) for key in (b"one", b"two", b"three", b"four", b"")] == [
        "acme",
        "acme",
        "burst",
        None,
        None,
    ]


def test_a_hash_is_no_key(tmp_path):
    made = ring(tmp_path / "keys", acme=sha256("one"))
    assert made.tenant_of(sha256("one").encode()) is None


def test_a_plain_folder_works_too(tmp_path):
    (tmp_path / "acme").write_text("one")
    (tmp_path / ".hidden").write_text("two")
    made = KeyRing(tmp_path)
    made.refresh()
    assert made.tenant_of(b"one") == "acme"
    assert made.tenant_of(b"two") is None
    (tmp_path / "acme").write_text("three")
    made.refresh()
    assert made.tenant_of(b"one") is None
    assert made.tenant_of(b"three") == "acme"


def test_rotation(tmp_path):
    made = ring(tmp_path / "keys", acme="old")
    project(tmp_path / "keys", {"acme": "old\nnew"})
    made.refresh()
    assert made.tenant_of(b"old") == made.tenant_of(b"new") == "acme"
    project(tmp_path / "keys", {"acme": "new"})
    made.refresh()
    assert made.tenant_of(b"old") is None
    assert made.tenant_of(b"new") == "acme"


def test_a_file_that_goes_away_revokes_its_keys_and_keys_stay_required(tmp_path):
    made = ring(tmp_path / "keys", acme="one")
    project(tmp_path / "keys", {})
    made.refresh()
    assert made.tenant_of(b"one") is None
    assert made.required


def test_a_folder_that_goes_away_revokes_nothing(tmp_path, caplog):
    made = ring(tmp_path / "keys", acme="one")
    (tmp_path / "keys").rename(tmp_path / "gone")
    made.refresh()
    made.refresh()
    assert made.tenant_of(b"one") == "acme"
    assert caplog.text.count("is gone; the keys stay as they were") == 1


def test_what_is_no_folder_shuts_the_door(tmp_path, caplog):
    (tmp_path / "keys").write_text("one")
    made = KeyRing(tmp_path / "keys")
    made.refresh()
    assert made.required
    assert "can't be read: Not a directory" in caplog.text


def test_a_file_that_breaks_keeps_its_keys_and_harms_no_other(tmp_path, caplog):
    made = ring(tmp_path / "keys", acme="one", burst="two")
    project(tmp_path / "keys", {"acme": b"\xff", "burst": "three"})
    made.refresh()
    made.refresh()
    assert made.tenant_of(b"one") == "acme"
    assert made.tenant_of(b"two") is None
    assert made.tenant_of(b"three") == "burst"
    assert caplog.text.count("key file of tenant 'acme': not UTF-8") == 1


def test_a_file_that_was_never_good_has_no_keys_and_yet_keys_are_required(tmp_path):
    made = ring(tmp_path / "keys", acme="sha256:beef")
    assert made.required
    assert made.tenant_of(b"sha256:beef") is None


def test_a_key_of_two_tenants_is_nobodys_until_that_is_mended(tmp_path, caplog):
    made = ring(tmp_path / "keys", acme="shared\none", burst=sha256("shared"))
    assert made.tenant_of(b"shared") is None
    assert made.tenant_of(b"one") == "acme"
    assert "stands in the files of several tenants (acme, burst); it is accepted for none" in caplog.text
    assert "shared" not in caplog.text
    project(tmp_path / "keys", {"acme": "one", "burst": "shared"})
    made.refresh()
    assert made.tenant_of(b"shared") == "burst"


def test_a_file_whose_name_is_no_text_is_no_tenant(tmp_path, caplog):
    (tmp_path / os.fsdecode(b"ac\xffme")).write_text("one")
    made = KeyRing(tmp_path)
    made.refresh()
    assert made.tenant_of(b"one") is None
    assert "the file's name is no tenant's" in caplog.text


def test_no_key_is_kept_in_clear(tmp_path):
    made = ring(tmp_path / "keys", acme="open-sesame")
    assert b"open-sesame" not in repr(vars(made)).encode()
    assert "open-sesame" not in repr(made._files)
