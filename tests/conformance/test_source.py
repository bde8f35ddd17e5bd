"""Only the pinned source is used, and only its tests."""

import hashlib
import io
import tarfile

import pytest

from hack.conformance.source import SourceError, check_hash, extract_tests, pinned_files, pinned_vllm


def archive_of(**files: str) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    made.seek(0)
    return made


def test_the_tests_are_of_the_vllm_that_is_installed():
    import vllm

    assert pinned_vllm()[0] == vllm.__version__.partition("+")[0]


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0", "0.33.0"])
def test_the_source_of_each_supported_vllm_is_pinned(version):
    assert pinned_files(version)


def test_a_vllm_that_no_lock_pins_is_refused():
    with pytest.raises(SourceError, match=r"vLLM 0.30.0 is pinned by none of gpu.txt, newer.txt, older-source.txt"):
        pinned_files("0.30.0")


def test_an_archive_that_is_not_pinned_is_refused():
    archive = archive_of()
    check_hash(archive, frozenset([hashlib.sha256(archive.getvalue()).hexdigest()]))
    with pytest.raises(SourceError, match="no lock pins"):
        check_hash(archive, pinned_vllm()[1])


def test_tests_and_their_settings_are_extracted_and_nothing_else(tmp_path):
    files = {"vllm-1/pyproject.toml": "", "vllm-1/tests/v1/core/test_a.py": "", "vllm-1/vllm/a.py": ""}
    extract_tests(archive_of(**files), tmp_path)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["pyproject.toml", "tests/v1/core/test_a.py"]


def test_a_source_without_tests_is_refused(tmp_path):
    with pytest.raises(SourceError, match="no tests"):
        extract_tests(archive_of(**{"vllm-1/pyproject.toml": ""}), tmp_path)


def test_nothing_is_extracted_outside_of_the_folder(tmp_path):
    with pytest.raises(SourceError, match="outside of the folder"):
        extract_tests(archive_of(**{"vllm-1/tests/../../evil.py": ""}), tmp_path / "inside")
    assert not [*tmp_path.rglob("*")]
