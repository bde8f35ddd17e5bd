"""The stand-in's projection: a reader never sees half of a change."""

import threading
from pathlib import Path

from hack.demo.projection import DATA, project


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("..")}


def test_files_are_links_through_one_data_link_as_kubelet_lays_them(tmp_path: Path):
    project(tmp_path, {"config.json": b"one"})
    assert (tmp_path / "config.json").readlink() == Path(DATA) / "config.json"
    assert (tmp_path / DATA).is_symlink()
    assert read(tmp_path) == {"config.json": b"one"}


def test_a_change_swaps_the_data_link_and_leaves_one_generation_behind(tmp_path: Path):
    project(tmp_path, {"config.json": b"one", "other": b"x"})
    before = (tmp_path / DATA).readlink()
    assert project(tmp_path, {"config.json": b"two", "other": b"y"})
    assert (tmp_path / DATA).readlink() != before
    assert read(tmp_path) == {"config.json": b"two", "other": b"y"}
    assert [path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink()] == [
        tmp_path / (tmp_path / DATA).readlink()
    ]


def test_the_same_content_is_not_written_again(tmp_path: Path):
    project(tmp_path, {"config.json": b"one"})
    before = (tmp_path / DATA).readlink()
    assert not project(tmp_path, {"config.json": b"one"})
    assert (tmp_path / DATA).readlink() == before


def test_a_key_that_is_gone_disappears(tmp_path: Path):
    project(tmp_path, {"config.json": b"one", "other": b"x"})
    project(tmp_path, {"config.json": b"one"})
    assert read(tmp_path) == {"config.json": b"one"}
    assert not (tmp_path / "other").is_symlink()


def test_a_reader_sees_both_files_of_one_generation(tmp_path: Path):
    """Through the data link, opened once, two files always belong together."""
    project(tmp_path, dict.fromkeys("ab", b"0"))
    torn: list[tuple[str, str]] = []
    reads = 0
    done = threading.Event()

    def reader() -> None:
        nonlocal reads
        while not done.is_set():
            generation = tmp_path / (tmp_path / DATA).readlink()
            try:
                pair = (generation / "a").read_text(), (generation / "b").read_text()
            except FileNotFoundError:
                continue  # swapped meanwhile, and the old folder is gone: a reader tries again
            reads += 1
            if pair[0] != pair[1]:
                torn.append(pair)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for number in range(1, 300):
            project(tmp_path, dict.fromkeys("ab", str(number).encode()))
    finally:
        done.set()
        thread.join()
    assert reads > 0
    assert torn == []


def test_the_shown_file_is_never_absent_while_it_changes(tmp_path: Path):
    project(tmp_path, {"config.json": b"0"})
    absent: list[str] = []
    done = threading.Event()

    def reader() -> None:
        while not done.is_set():
            if not (tmp_path / "config.json").is_symlink() or not (tmp_path / DATA).is_symlink():
                absent.append("seen")

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for number in range(1, 300):
            project(tmp_path, {"config.json": str(number).encode()})
    finally:
        done.set()
        thread.join()
    assert absent == []
