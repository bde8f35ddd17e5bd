"""Where an engine reads and writes by a manager's answers: in storages, at this chunk's place, and nowhere else."""

import os
import string
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenantzone_runtime.shared.manager.answers import Location, Part
from tenantzone_runtime.shared.storage.places import PlaceError, place_of
from tenantzone_runtime.shared.storage.storages import FileStorages

KEY, INSTANCE, SIZE = b"\xab\xcd", "acme.0123", 64
NAME = f"{KEY.hex()}-loc.chunk"
OWN = f"/mnt/kv/objects/ml.chat/{INSTANCE}/ab/{NAME}"


def place(path, query=f"?size={SIZE}", scheme="file://", name="chunk", size=SIZE):
    uri = f"{scheme}{path}{query}"
    return place_of(Location("loc", "FileSystem", "files", [Part(name, uri, size)]), INSTANCE, KEY, SIZE)


def test_a_file_of_its_own_and_a_slot():
    assert (str(place(OWN).path), place(OWN).offset) == (OWN, -1)
    slot = place("/mnt/kv/files/ml.chat/0a1b/4096/00000007", "?size=64&blkid=3&offset=12288")
    assert (slot.path.name, slot.offset) == ("00000007", 12288)
    assert str(place("/mnt/a%20b" + OWN).path).startswith("/mnt/a b/")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        f"/objects/ml.chat/{INSTANCE}/ab/{NAME}",
        OWN.replace(INSTANCE, "burst.0123"),
        OWN.replace("/ab/", "/ac/"),
        OWN.replace("-loc.", "-other."),
        OWN.replace("abcd-", "abce-"),
        OWN.replace("/mnt/kv", "/mnt/../etc"),
        OWN.replace("ml.chat", ".."),
        OWN + "/more",
        "",
    ],
)
def test_what_is_no_place_of_this_chunk_is_refused(path):
    with pytest.raises(PlaceError):
        place(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheme": "http://"}, "not of a type that this engine supports"),
        ({"scheme": "file://host"}, "not of a type that this engine supports"),
        ({"query": "?size=64&offset=-1"}, "not a path in a manager's storage"),
        ({"name": "tp0"}, "does not consist of one chunk"),
        ({"size": 65}, "does not consist of one chunk"),
    ],
)
def test_what_an_engine_can_not_use_is_refused_by_name(change, message):
    with pytest.raises(PlaceError, match=message):
        place(OWN, **change)


@pytest.mark.parametrize("offset", ["-1", "x", "1e3", "", "9" * 20, "9" * 5000])
def test_an_offset_is_a_number(offset):
    with pytest.raises(PlaceError):
        place("/mnt/kv/files/ml.chat/0a1b/4096/00000007", f"?size=64&offset={offset}")


@given(st.text(alphabet=string.printable, max_size=80))
def test_no_text_leads_anywhere_else(text):
    try:
        found = place("/mnt/kv" + text)
    except PlaceError:
        return
    assert found.path.name == NAME or "files" in found.path.parts


@pytest.mark.parametrize("prefix", ["", "kv/", "a/b/"])
def test_an_object_of_a_bucket(prefix):
    found = place(f"bucket/{prefix}ml.chat/{INSTANCE}/{NAME}", scheme="s3://")
    assert (found.bucket, found.name) == ("bucket", f"{prefix}ml.chat/{INSTANCE}/{NAME}")


@pytest.mark.parametrize(
    "path", [f"bucket/ml.chat/other/{NAME}", f"bucket/ml.chat/{INSTANCE}/else", "bucket/", "bucket"]
)
def test_another_object_of_a_bucket_is_refused(path):
    with pytest.raises(PlaceError):
        place(path, scheme="s3://")


def test_an_object_of_a_pool():
    found = place(f"mooncake-master:50051/kv/ml.chat/{INSTANCE}/{NAME}", scheme="mooncake://")
    assert (found.master, found.name) == ("mooncake-master:50051", f"kv/ml.chat/{INSTANCE}/{NAME}")


@pytest.mark.parametrize("path", [f"m:1/ml.chat/other/{NAME}", f"m:1/ml.chat/{INSTANCE}/else", "m:1/", "m:1"])
def test_another_object_of_a_pool_is_refused(path):
    with pytest.raises(PlaceError, match="not the name of this chunk's object"):
        place(path, scheme="mooncake://")


def test_nothing_is_written_where_no_storage_is(tmp_path):
    path = tmp_path / f"objects/ml.chat/{INSTANCE}/ab/{NAME}"
    path.parent.mkdir(parents=True)
    with pytest.raises(OSError, match="no storage is mounted here"):
        FileStorages().write(place(str(path)), bytearray(SIZE))
    assert not path.exists()
    (tmp_path / "owner").write_text("an index")
    FileStorages().write(place(str(path)), bytearray(SIZE))
    with pytest.raises(FileExistsError):
        FileStorages().write(place(str(path)), bytearray(SIZE))
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        FileStorages().read(place(str(path)), bytearray(SIZE))


@pytest.mark.parametrize("is_slot", [False, True])
def test_a_pipe_in_place_of_a_file_holds_up_no_thread(tmp_path, is_slot):
    (tmp_path / "owner").write_text("an index")
    path = tmp_path / ("files/ml.chat/0a1b/4096/00000007" if is_slot else f"objects/ml.chat/{INSTANCE}/ab/{NAME}")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    found = place(str(path), "?size=64&offset=0" if is_slot else "")
    thread = Thread(target=_reported, args=(found, reported := []), daemon=True)
    thread.start()
    thread.join(60)
    assert len(reported) == 2, "it waits for a writer of the pipe"
    assert all(isinstance(each, OSError) or each is False for each in reported)


def _reported(found, reported):
    """The outcome of reading and writing there."""
    for work in (FileStorages().read, FileStorages().write):
        try:
            reported.append(work(found, bytearray(SIZE)))
        except OSError as error:
            reported.append(error)
