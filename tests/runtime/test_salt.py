"""The salt key's file: hot-reloaded, and an invalid one never replaces the key that worked."""

import base64
import logging

import pytest

from tenantzone_contract.keys.salt import SALT_KEY_FILE, salt_key_id
from tenantzone_runtime import salt as module
from tenantzone_runtime.salt import SaltKeySource
from tests.runtime.folders import project

SEAL_KEY = bytes(32)
FIRST, SECOND = b"1" * 32, b"2" * 32


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "salt"


@pytest.fixture
def source(folder):
    return SaltKeySource(folder, SEAL_KEY)


def give(folder, content):
    project(folder, {SALT_KEY_FILE: content})


def test_without_a_file_it_is_a_key_of_the_engines_own(source, folder):
    assert not source.poll()
    assert (source.id, source.error) == ("", "")
    assert source.key == SaltKeySource(folder, SEAL_KEY).key != SEAL_KEY
    assert source.key != SaltKeySource(folder, b"s" * 32).key


def test_the_pools_key_comes_into_force_and_is_named_by_its_id(source, folder):
    give(folder, FIRST.hex())
    assert source.poll()
    assert (source.key, source.id) == (FIRST, salt_key_id(FIRST))
    assert not source.poll()


def test_a_new_key_comes_into_force_when_kubelet_swaps_it_in(source, folder):
    give(folder, FIRST.hex())
    source.poll()
    give(folder, base64.b64encode(SECOND))
    assert source.poll()
    assert (source.key, source.id) == (SECOND, salt_key_id(SECOND))


def test_the_same_key_in_another_spelling_is_no_other(source, folder):
    give(folder, FIRST.hex())
    source.poll()
    give(folder, base64.b64encode(FIRST))
    assert not source.poll()


def test_a_plain_folder_will_do(source, folder):
    folder.mkdir()
    (folder / SALT_KEY_FILE).write_text(FIRST.hex())
    assert source.poll()
    (folder / SALT_KEY_FILE).write_text(SECOND.hex())
    assert source.poll()
    assert source.key == SECOND


@pytest.mark.parametrize("content", ["", "too short", "00" * 31, b"\xff\xfe"])
def test_a_bad_file_keeps_the_key_before_it_and_says_so_once(source, folder, content, caplog):
    caplog.set_level(logging.ERROR, logger=module.__name__)
    give(folder, FIRST.hex())
    source.poll()
    give(folder, content)
    for _ in range(3):
        assert not source.poll()
    assert source.key == FIRST
    assert source.error
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f"{source.error}; the previous key stays in force")
    give(folder, SECOND.hex())
    assert source.poll()
    assert source.error == ""


def test_a_bad_file_from_the_start_leaves_the_engines_own_key(source, folder, caplog):
    own = source.key
    give(folder, "no key!")
    assert not source.poll()
    assert (source.key, source.id) == (own, "")
    assert source.error == "expected a key in hexadecimal digits or in base64"
    assert "this engine's own key stays in force" in caplog.text


@pytest.mark.parametrize("gone", [lambda folder: project(folder, {}), lambda folder: folder.rename(f"{folder}-gone")])
def test_a_key_that_goes_away_stays_in_force(source, folder, gone):
    give(folder, FIRST.hex())
    source.poll()
    gone(folder)
    assert not source.poll()
    assert (source.key, source.error) == (FIRST, "the file is missing")
