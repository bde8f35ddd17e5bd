"""Archives are unpacked without arguments that ``tarfile`` has only since 3.11.4, and write nothing outside."""

import io
import stat
import tarfile
from pathlib import Path

import pytest

from hack.archives import ArchiveError, unpack

PROJECT = Path(__file__).parents[2]
SINCE_3_11_4 = ("data_filter", "tar_filter", "fully_trusted_filter", "FilterError", "OutsideDestinationError")


@pytest.fixture(autouse=True)
def tarfile_of_debian_12(monkeypatch: pytest.MonkeyPatch) -> None:
    def extractall(archive: tarfile.TarFile, path=".", members=None, *, numeric_owner=False):
        raise NotImplementedError("whatever the archive says would be written")

    for name in SINCE_3_11_4:
        monkeypatch.delattr(tarfile, name, raising=False)
    monkeypatch.delattr(tarfile.TarInfo, "replace", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)


def member(name: str, kind: bytes = tarfile.REGTYPE, *, leads_to: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, leads_to, mode
    return made


def archive_of(*members: tarfile.TarInfo, content: bytes = b"content") -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for each in members:
            each.size = len(content) if each.isreg() else 0
            archive.addfile(each, io.BytesIO(content))
    made.seek(0)
    return made


def test_files_and_folders_are_unpacked_and_can_be_executed_as_before(tmp_path):
    archive = archive_of(
        member("empty", tarfile.DIRTYPE), member("deep/below/file"), member("run", mode=0o4777), content=b"text"
    )
    unpack(archive, tmp_path / "folder")
    assert (tmp_path / "folder" / "empty").is_dir()
    assert (tmp_path / "folder" / "deep" / "below" / "file").read_bytes() == b"text"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {"file": 0o644, "run": 0o755}


def test_only_what_was_chosen_is_unpacked_and_where_it_was_wanted(tmp_path):
    archive = archive_of(member("release/a"), member("release/b"), member("/elsewhere", tarfile.CHRTYPE))
    unpack(archive, tmp_path / "folder", choose=lambda name: "renamed/a" if name.endswith("/a") else "")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("folder/renamed/a")]


@pytest.mark.parametrize("name", ["../evil", "folder/../../evil", "{outside}/evil", "//{outside}/evil", ".."])
def test_no_path_leads_out_of_the_folder(tmp_path, name):
    archive = archive_of(member(name.format(outside=tmp_path)))
    with pytest.raises(ArchiveError, match="outside of the folder"):
        unpack(archive, tmp_path / "folder")
    assert not [*tmp_path.rglob("*")]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"?"]
)
@pytest.mark.parametrize("leads_to", ["{outside}", "..", "file"])
def test_neither_links_nor_devices_are_made(tmp_path, kind, leads_to):
    """Nothing is written through a link to the outside, and no outside file is read."""
    (tmp_path / "evil").write_text("untouched")
    way_out = member("way-out", kind, leads_to=leads_to.format(outside=tmp_path))
    with pytest.raises(ArchiveError, match="way-out is neither a file nor a folder"):
        unpack(archive_of(member("file"), way_out, member("way-out/evil")), tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["evil", "file", "folder"]
    assert (tmp_path / "evil").read_text() == "untouched"


def test_nothing_else_in_the_project_extracts_archives():
    """The library's own functions write wherever an archive says; with a filter they need 3.11.4."""
    extracting = (".extractall" + "(", ".unpack_archive" + "(")
    folders = ("bench", "hack", "operator", "runtime", "tests")
    files = [file for folder in folders for file in (PROJECT / folder).rglob("*.py")]
    found = [file.name for file in files if any(call in file.read_text() for call in extracting)]
    assert found == []
