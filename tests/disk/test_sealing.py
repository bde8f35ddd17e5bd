"""The seal: what opens it, and how a change of each part prevents that."""

import pytest

from tenantzone_runtime.disk.files.sealing import CorruptObjectError, ZoneSeal, new_nonce
from tests.disk.disks import SALT_KEY, instance

CONTENT = bytes(range(256))
NONCE = b"n" * 12


def seal_of(tenant="acme", purge="", salt_key=SALT_KEY, **parts):
    return ZoneSeal(salt_key, instance(tenant, **parts), purge)


def sealed_by(seal, key=b"key", nonce=NONCE):
    sealed = bytearray(seal.sealed_size(len(CONTENT)))
    seal.seal(memoryview(CONTENT), key, nonce, sealed)
    return sealed


def opened_by(seal, sealed, key=b"key", nonce=NONCE):
    content = bytearray(b"x" * len(CONTENT))
    try:
        seal.open(sealed, key, nonce, memoryview(content))
    except CorruptObjectError:
        assert content == bytes(len(CONTENT)), "nothing of what did not open is left"
        raise
    return content


def test_what_was_sealed_opens_by_the_same_seal_made_anew():
    assert opened_by(seal_of(), sealed_by(seal_of())) == CONTENT


@pytest.mark.parametrize("other", [{"key": b"another"}, {"nonce": b"m" * 12}])
def test_another_chunk_and_another_write_do_not_open(other):
    with pytest.raises(CorruptObjectError):
        opened_by(seal_of(), sealed_by(seal_of()), **other)


OTHERS = [{"tenant": "late"}, {"purge": "p1"}, {"salt_key": b"o" * 32}, {"weights_revision": "another"}]


@pytest.mark.parametrize("other", OTHERS)
def test_the_seal_of_another_zone_purge_key_or_instance_does_not_open(other):
    with pytest.raises(CorruptObjectError):
        opened_by(seal_of(**other), sealed_by(seal_of()))


@pytest.mark.parametrize("other", OTHERS[:3])
def test_each_zone_and_purge_has_a_key_of_its_own(other):
    # Under one key and one nonce, a stream cipher's bytes would repeat for different contents.
    assert sealed_by(seal_of())[4:260] != sealed_by(seal_of(**other))[4:260]


@pytest.mark.parametrize("position", [0, 4, 130, -1])
def test_each_changed_byte_is_noticed(position):
    sealed = sealed_by(seal_of())
    sealed[position] ^= 1
    with pytest.raises(CorruptObjectError):
        opened_by(seal_of(), sealed)


def test_folders_are_apart_where_seals_are():
    folders = {seal_of(**other).folder for other in [{}, {"tenant": "late"}, {"purge": "p1"}, {"layout": "HND"}]}
    assert len(folders) == 4
    assert not any("acme" in folder for folder in folders)


def test_nonces_are_new():
    assert len({new_nonce() for _ in range(1000)}) == 1000
